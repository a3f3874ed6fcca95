//! How many proofs an aggregation joins at a time, so that it stays within the memory asked for.

use confide_zkvm_machine::{FanIn, Fault};

/// Peak of resident memory of a node that joins one proof of a segment, two, three, four: measured
/// and rounded up, three as four (README.md, "Memory").
const LEAF_BYTES: [u64; 4] = [2_400 << 20, 2_700 << 20, 5_000 << 20, 5_000 << 20];
/// Peak of resident memory of a node that joins one, two, three joined proofs.
const INTERNAL_BYTES: [u64; 3] = [2_400 << 20, 4_096 << 20, 6_400 << 20];

/// The memory that suffices to join any number of proofs.
pub const LEAST_BYTES: u64 = match LEAF_BYTES[0] > INTERNAL_BYTES[1] {
    true => LEAF_BYTES[0],
    false => INTERNAL_BYTES[1],
};

/// Returns the greatest fan-in that fits.
///
/// # Errors
///
/// [`Fault::Memory`], with what suffices, where none fits.
pub fn greatest_fan_in(memory: u64, segments: usize) -> Result<FanIn, Fault> {
    let fits = |sizes: &[u64]| sizes.iter().filter(|bytes| **bytes <= memory).count();
    let (leaf, internal) = (fits(&LEAF_BYTES), fits(&INTERNAL_BYTES));
    // One joined proof is made small alone; more of them shrink in pairs at least.
    let wanted = if segments.div_ceil(leaf.max(1)) > 1 { 2 } else { 1 };
    match leaf == 0 || internal < wanted {
        true => Err(Fault::Memory { needed: LEAST_BYTES, given: memory }),
        false => Ok(FanIn { leaf, internal: internal.max(2) }),
    }
}
