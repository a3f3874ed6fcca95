//! The guarantee of a scheme: which party is protected from which.

use std::fmt;

/// The guarantee: which party is protected from which. It is computed from what runs; a mode's name
/// does not decide it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarantee {
    /// The host computes without reading the activations.
    pub host_is_blind: bool,
    /// The key holder never receives the adapter.
    pub adapter_stays: bool,
    /// The key holder receives B and computes with it, and only A stays: the case under `protect =
    /// A`.
    pub b_is_handed_over: bool,
    /// The key holder can compute the adapter from what it is sent. This holds for every key holder
    /// whose attestation was not accepted: packed queries reveal a whole adapter within half of the
    /// default budget, and `prepare` leaks parts of A without any count (LIMITATIONS.md).
    pub adapter_can_be_learned: bool,
    /// Evidence, devices or both are simulated.
    pub simulated: bool,
}

impl Guarantee {
    /// No protection: the adapter and the activations are in one process.
    pub const NONE: Guarantee = Guarantee {
        host_is_blind: false,
        adapter_stays: false,
        b_is_handed_over: true,
        adapter_can_be_learned: true,
        simulated: false,
    };
}

impl fmt::Display for Guarantee {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blind = match (self.host_is_blind, self.adapter_stays) {
            (false, false) => "none",
            (true, false) => "adapter host is blind; adapter is not protected",
            (false, true) if self.adapter_can_be_learned => {
                "adapter can be learned; activations are not hidden"
            }
            (false, true) => "adapter is not handed over; activations are not hidden",
            (true, true) if self.adapter_can_be_learned => {
                "adapter host is blind; adapter can be learned"
            }
            (true, true) if self.b_is_handed_over => {
                "adapter host is blind; A is not handed over, B is"
            }
            (true, true) => "adapter host is blind; adapter is not handed over",
        };
        out.write_str(blind)?;
        if self.simulated {
            out.write_str(" (simulated)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_follows_from_what_ran() {
        assert_eq!(Guarantee::NONE.to_string(), "none");
        let mut guarantee = Guarantee {
            host_is_blind: true,
            adapter_stays: true,
            b_is_handed_over: false,
            adapter_can_be_learned: false,
            simulated: false,
        };
        assert_eq!(guarantee.to_string(), "adapter host is blind; adapter is not handed over");
        guarantee.b_is_handed_over = true;
        assert_eq!(guarantee.to_string(), "adapter host is blind; A is not handed over, B is");
        guarantee.adapter_can_be_learned = true;
        assert!(guarantee.to_string().ends_with("adapter can be learned"));
        guarantee.host_is_blind = false;
        assert_eq!(guarantee.to_string(), "adapter can be learned; activations are not hidden");
        guarantee.simulated = true;
        assert!(guarantee.to_string().ends_with("(simulated)"));
    }
}
