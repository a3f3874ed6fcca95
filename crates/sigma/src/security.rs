//! What the proofs of this crate rest on, said here and never by a caller.

use crate::{
    key::{Kind, PublicKey},
    linear::Relation,
    range::Range,
    signature::SignatureProof,
};

/// What a proof's security rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Security {
    /// Who makes and checks such proofs.
    pub back_end: &'static str,
    /// Bits that are proven without a conjecture; `None` where there are none.
    pub proven_bits: Option<u16>,
    /// Bits under the conjectures of `basis`.
    pub conjectured_bits: u16,
    /// What is conjectured.
    pub basis: &'static str,
    /// Whether the proof shows nothing but the statement.
    pub zero_knowledge: bool,
}

/// Half the bits of ristretto255's order, which is just above 2^252: what a discrete logarithm
/// costs by Pollard's method.
const RISTRETTO_BITS: u16 = 126;

/// Bits of the challenges of signatures, whatever their key is.
const CHALLENGE_BITS: u16 = 128;

impl Range {
    /// Of proofs that a committed number lies in a range.
    pub const SECURITY: Security = Security {
        back_end: "bulletproofs over Ristretto",
        proven_bits: None,
        conjectured_bits: RISTRETTO_BITS,
        basis: "discrete logarithms of ristretto255 are hard, the hash is a random oracle",
        zero_knowledge: true,
    };
}

impl Relation {
    /// Of proofs that committed numbers stand in a linear relation, equality among them. Their
    /// challenge has 128 bits.
    pub const SECURITY: Security =
        Security { back_end: "confide-sigma over Ristretto", ..Range::SECURITY };
}

impl SignatureProof {
    /// Of proofs under a key: the key's own strength (NIST SP 800-57 part 1, table 2), and
    /// no more than the challenge's.
    pub fn security(key: &PublicKey) -> Security {
        let conjectured_bits = match &key.kind {
            Kind::Rsa(key) if key.bits() < 3072 => 112,
            _ => CHALLENGE_BITS,
        };
        Security {
            back_end: "confide-sigma",
            proven_bits: None,
            conjectured_bits,
            basis: "soundness 2^-128 in the random-oracle model, and the key's own strength",
            zero_knowledge: true,
        }
    }
}
