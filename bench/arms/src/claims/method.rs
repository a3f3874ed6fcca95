//! The interface of every means to make a claim.

use confide_arm_line::Outcome;

/// A means to make a claim and to check it.
pub(super) trait ClaimMethod {
    /// What the claim hides from the party that checks it, and what it shows.
    fn describe_disclosure(&self) -> &'static str;
    /// Makes the claim; gives the bytes that are sent. `None` if there is nothing to make.
    fn prove(&mut self) -> Outcome<Option<usize>>;
    /// Checks what was made, or shown.
    fn verify_claim(&mut self) -> Outcome;
    /// The bytes that are sent where nothing has to be made.
    fn disclosed_bytes(&self) -> usize {
        0
    }
    /// Repetitions of each step within a sample, so that the clock's resolution does not matter.
    fn repetitions(&self) -> u32 {
        16
    }
}
