//! What a checker demands of a proof, as TOML (`docs/prove.md`, "The policy").

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};

use crate::line::{Digest, ProofMode};

/// The longest policy text that is read.
pub const POLICY_BYTES_MAX: usize = 64 * 1024;

/// Least proven bits where no policy says otherwise: below, an attacker with a data centre is near.
pub const PROVEN_BITS_DEFAULT: u32 = 80;

/// Reference values and limits for proofs.
///
/// The default pins neither `confide-prover` nor a program, takes either mode, and refuses less than
/// [`PROVEN_BITS_DEFAULT`] proven bits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProofPolicy {
    /// SHA-256 of the `confide-prover` that may check.
    pub prover_sha256: AllowedCheckers,
    /// Kinds of proofs that are taken.
    pub modes: Vec<ProofMode>,
    /// Least proven bits.
    pub proven_bits_min: u32,
    /// Least conjectured bits.
    pub conjectured_bits_min: u32,
    /// Takes zero-knowledge proofs only.
    pub zero_knowledge: bool,
    /// Program digests by claim; a claim that is not named here is refused. Absent: those that the
    /// `confide-prover` at hand was built with.
    pub programs: Option<BTreeMap<String, Vec<Digest>>>,
}

/// The `confide-prover` programs that may check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedCheckers {
    /// The policy names none, though it has to.
    #[default]
    Absent,
    /// Programs with one of these SHA-256 digests.
    AnyOf(Vec<Digest>),
    /// Any program that is found: its answer is only as trustworthy as the place where it was
    /// found.
    DangerousAny,
}

/// Why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The text is longer than [`POLICY_BYTES_MAX`].
    #[error("policy is too long: wanted at most {POLICY_BYTES_MAX} bytes, got {got}")]
    TooLong {
        /// Length of the text in bytes.
        got: usize,
    },
    /// The text is not TOML of the wanted shape.
    #[error("policy is malformed: {reason}")]
    Toml {
        /// The TOML reader's message.
        reason: String,
    },
}

impl ProofPolicy {
    /// Reads a policy; unknown keys are errors.
    ///
    /// # Errors
    /// If the text is too long or is not a policy.
    pub fn from_toml(text: &str) -> Result<Self, PolicyError> {
        if text.len() > POLICY_BYTES_MAX {
            return Err(PolicyError::TooLong { got: text.len() });
        }
        toml::from_str(text).map_err(|error| PolicyError::Toml { reason: error.to_string() })
    }

    /// The policy where none was written: the default, with any `confide-prover` that is found.
    pub fn with_any_prover() -> Self {
        Self { prover_sha256: AllowedCheckers::DangerousAny, ..Self::default() }
    }
}

impl Default for ProofPolicy {
    fn default() -> Self {
        Self {
            prover_sha256: AllowedCheckers::Absent,
            modes: vec![ProofMode::App, ProofMode::Aggregated],
            proven_bits_min: PROVEN_BITS_DEFAULT,
            conjectured_bits_min: 0,
            zero_knowledge: false,
            programs: None,
        }
    }
}

impl<'de> Deserialize<'de> for AllowedCheckers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum DigestOrList {
            Single(String),
            Many(Vec<Digest>),
        }
        match DigestOrList::deserialize(deserializer)? {
            DigestOrList::Single(word) if word == "dangerous-any" => Ok(Self::DangerousAny),
            DigestOrList::Single(digest) => {
                digest.parse().map(|digest| Self::AnyOf(vec![digest])).map_err(de::Error::custom)
            }
            DigestOrList::Many(digests) => Ok(Self::AnyOf(digests)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_policy_pins_no_prover_and_so_says_nothing() {
        let policy = ProofPolicy::from_toml("").unwrap();
        assert_eq!(policy, ProofPolicy::default());
        assert_eq!(policy.prover_sha256, AllowedCheckers::Absent);
    }

    #[test]
    fn a_whole_policy_is_read() {
        let (one, two) = ("ab".repeat(32), "cd".repeat(32));
        let text = format!(
            "prover_sha256 = [\"{one}\", \"{two}\"]\nmodes = [\"aggregated\"]\n\
             proven_bits_min = 100\nconjectured_bits_min = 120\nzero_knowledge = true\n\
             [programs]\nfibonacci = [\"{one}\"]\n"
        );
        let policy = ProofPolicy::from_toml(&text).unwrap();
        assert_eq!(
            policy.prover_sha256,
            AllowedCheckers::AnyOf(vec![Digest([0xab; 32]), Digest([0xcd; 32])])
        );
        assert_eq!(policy.modes, [ProofMode::Aggregated]);
        assert_eq!((policy.proven_bits_min, policy.conjectured_bits_min), (100, 120));
        assert!(policy.zero_knowledge);
        assert_eq!(policy.programs.unwrap()["fibonacci"], [Digest([0xab; 32])]);
    }

    #[test]
    fn what_is_misspelled_is_an_error_and_not_a_policy_that_demands_less() {
        for text in [
            "proven_bits = 100",
            "modes = [\"fast\"]",
            "prover_sha256 = \"any\"",
            "prover_sha256 = [\"AB\"]",
            "programs = [\"fibonacci\"]",
            "zero_knowledge = \"no\"",
        ] {
            assert!(ProofPolicy::from_toml(text).is_err(), "{text}");
        }
        let long = " ".repeat(POLICY_BYTES_MAX + 1);
        assert!(matches!(ProofPolicy::from_toml(&long), Err(PolicyError::TooLong { .. })));
    }

    #[test]
    fn any_prover_is_spelled_dangerous() {
        let policy = ProofPolicy::from_toml("prover_sha256 = \"dangerous-any\"").unwrap();
        assert_eq!(policy.prover_sha256, AllowedCheckers::DangerousAny);
        assert_eq!(policy, ProofPolicy::with_any_prover());
        // One spelling, which is that of every other policy.
        ProofPolicy::from_toml("prover_sha256 = \"dangerous_any\"").unwrap_err();
    }
}
