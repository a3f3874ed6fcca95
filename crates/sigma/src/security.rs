//! The security assumptions of this crate's proofs, which callers cannot set.

use crate::{
    key::{KeyKind, PublicKey},
    linear::LinearRelation,
    range::Range,
    signature::SignatureProof,
};

/// The strength of a proof, and its assumptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofSecurity {
    /// The name of the back end that makes and checks the proof.
    pub back_end: &'static str,
    /// The number of bits that are proven without a conjecture; `None` if there are none.
    pub proven_bits: Option<u16>,
    /// The number of bits under the conjectures of `basis`.
    pub conjectured_bits: u16,
    /// The conjectures.
    pub basis: &'static str,
    /// Whether the proof reveals nothing but its statement.
    pub zero_knowledge: bool,
}

/// Half the bits of ristretto255's order, which is just above 2^252: the cost of a discrete
/// logarithm by Pollard's method.
const RISTRETTO_BITS: u16 = 126;

/// The number of bits of the challenges of signature proofs, whatever their key is.
const CHALLENGE_BITS: u16 = 128;

impl Range {
    /// The strength of proofs that a committed number lies in a range.
    pub const SECURITY: ProofSecurity = ProofSecurity {
        back_end: "bulletproofs over Ristretto",
        proven_bits: None,
        conjectured_bits: RISTRETTO_BITS,
        basis: "discrete logarithms of ristretto255 are hard, the hash is a random oracle",
        zero_knowledge: true,
    };
}

impl LinearRelation {
    /// The strength of proofs that committed numbers satisfy a linear relation, such as equality.
    /// Their challenge has 128 bits.
    pub const SECURITY: ProofSecurity =
        ProofSecurity { back_end: "confide-sigma over Ristretto", ..Range::SECURITY };
}

impl SignatureProof {
    /// The strength of proofs under a key: that of the key (NIST SP 800-57 part 1, table 2), or
    /// that of the challenge if it is less.
    pub fn security(key: &PublicKey) -> ProofSecurity {
        let conjectured_bits = match &key.kind {
            KeyKind::Rsa(key) if key.bits() < 3072 => 112,
            _ => CHALLENGE_BITS,
        };
        ProofSecurity {
            back_end: "confide-sigma",
            proven_bits: None,
            conjectured_bits,
            basis: "soundness 2^-128 in the random-oracle model, and the strength of the key",
            zero_knowledge: true,
        }
    }
}
