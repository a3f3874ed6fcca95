//! Linear relations between committed numbers, equality first (docs/sigma-proofs.md, "Relations").
//!
//! `Σ weight·x = constant` holds exactly when `Σ weight·C − constant·B` is a multiple of `H`: the
//! prover shows that it knows the factor, by Schnorr's protocol.

use curve25519_dalek::{
    ristretto::{CompressedRistretto, RistrettoPoint},
    scalar::Scalar,
};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::{
    challenge::{CHALLENGE_LENGTH, challenge, check_context},
    error::SigmaError,
    pedersen::{Blinding, Commitment, bases},
    random::{self, Entropy, Stream},
};

const TAG: &str = "confide/sigma/v1/linear";

/// The length of a proof in bytes: a challenge of 16 and a response of 32.
pub const RELATION_PROOF_LENGTH: usize = CHALLENGE_LENGTH + 32;

/// The greatest number of terms of a relation: with weights of 64 bits no sum of 64-bit numbers
/// reaches the order.
const TERMS_MAX: usize = 1024;

/// The relation `Σ weight·x = constant`, each x behind a commitment.
///
/// It holds modulo the group's order; over the integers where every x is known to have 64 bits,
/// from its committer or from a range proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    terms: Vec<(i64, Commitment)>,
    constant: i128,
}

impl Relation {
    /// Makes a relation of one to 1,024 terms.
    ///
    /// # Errors
    ///
    /// [`SigmaError::Malformed`] without terms or for a term of weight 0, [`SigmaError::TooLong`]
    /// for too many.
    pub fn new(terms: Vec<(i64, Commitment)>, constant: i128) -> Result<Self, SigmaError> {
        if terms.len() > TERMS_MAX {
            return Err(SigmaError::TooLong { what: "relation", max: TERMS_MAX, got: terms.len() });
        }
        if terms.is_empty() || terms.iter().any(|(weight, _)| *weight == 0) {
            return Err(SigmaError::Malformed { what: "relation" });
        }
        Ok(Self { terms, constant })
    }

    /// The relation that two commitments hide one number.
    pub fn equal(one: Commitment, other: Commitment) -> Self {
        Self { terms: vec![(1, one), (-1, other)], constant: 0 }
    }

    /// The encoding that is hashed: count, then weight and commitment of each term, then constant.
    fn encode(&self) -> Vec<u8> {
        let mut out = (self.terms.len() as u32).to_be_bytes().to_vec();
        for (weight, commitment) in &self.terms {
            out.extend(weight.to_be_bytes());
            out.extend(commitment.to_bytes());
        }
        out.extend(self.constant.to_be_bytes());
        out
    }

    /// `Σ weight·C − constant·B`: a multiple of H exactly when the relation holds.
    fn difference(&self) -> RistrettoPoint {
        let sum: RistrettoPoint =
            self.terms.iter().map(|(weight, c)| scalar(i128::from(*weight)) * c.point()).sum();
        sum - bases().b * &scalar(self.constant)
    }
}

/// Proves a relation; `blindings` are in the order of its terms.
///
/// # Errors
///
/// [`SigmaError::RelationDoesNotHold`] if it does not hold or a blinding is not its term's.
pub fn prove_relation(
    context: &[u8],
    relation: &Relation,
    blindings: &[&Blinding],
) -> Result<[u8; RELATION_PROOF_LENGTH], SigmaError> {
    prove_relation_with(&random::entropy()?, context, relation, blindings)
}

/// Proves that two commitments hide one number, without revealing it.
///
/// # Errors
///
/// As [`prove_relation`].
pub fn prove_equal(
    context: &[u8],
    one: (&Commitment, &Blinding),
    other: (&Commitment, &Blinding),
) -> Result<[u8; RELATION_PROOF_LENGTH], SigmaError> {
    prove_relation(context, &Relation::equal(*one.0, *other.0), &[one.1, other.1])
}

/// Checks a proof of [`prove_equal`].
///
/// # Errors
///
/// As [`verify_relation`].
pub fn verify_equal(
    context: &[u8],
    one: &Commitment,
    other: &Commitment,
    proof: &[u8],
) -> Result<(), SigmaError> {
    verify_relation(context, &Relation::equal(*one, *other), proof)
}

/// Checks that a relation holds.
///
/// # Errors
///
/// [`SigmaError::Refused`] if the proof does not show it, [`SigmaError::Malformed`] if it is
/// none.
pub fn verify_relation(
    context: &[u8],
    relation: &Relation,
    proof: &[u8],
) -> Result<(), SigmaError> {
    check_context(context)?;
    let malformed = SigmaError::Malformed { what: "relation proof" };
    let (claimed, response) = proof.split_first_chunk().ok_or(malformed.clone())?;
    let response: [u8; 32] = response.try_into().map_err(|_| malformed.clone())?;
    let response = Option::from(Scalar::from_canonical_bytes(response)).ok_or(malformed)?;
    let nonce_point = recompute(&relation.difference(), claimed, &response);
    let expected = hash(context, relation, &nonce_point.compress());
    if claimed.ct_eq(&expected).into() { Ok(()) } else { Err(SigmaError::Refused) }
}

pub(crate) fn prove_relation_with(
    entropy: &Entropy,
    context: &[u8],
    relation: &Relation,
    blindings: &[&Blinding],
) -> Result<[u8; RELATION_PROOF_LENGTH], SigmaError> {
    check_context(context)?;
    let factor = factor(relation, blindings)?;
    let secret = Zeroizing::new(factor.to_bytes());
    let encoded = relation.encode();
    let parts: [&[u8]; 4] = [TAG.as_bytes(), &encoded, context, secret.as_slice()];
    let mut wide = Zeroizing::new([0; 64]);
    Stream::new(entropy, &parts).fill(wide.as_mut());
    let nonce = Zeroizing::new(Scalar::from_bytes_mod_order_wide(&wide));
    let challenge = hash(context, relation, &(&bases().h * &nonce).compress());
    let response = *nonce + short(&challenge) * *factor;
    let mut proof = [0; RELATION_PROOF_LENGTH];
    proof[..CHALLENGE_LENGTH].copy_from_slice(&challenge);
    proof[CHALLENGE_LENGTH..].copy_from_slice(response.as_bytes());
    verify_relation(context, relation, &proof).map_err(|_| SigmaError::SelfCheck)?;
    Ok(proof)
}

/// `Σ weight·blinding`, after a check that the relation holds with these blindings.
fn factor(relation: &Relation, blindings: &[&Blinding]) -> Result<Zeroizing<Scalar>, SigmaError> {
    if blindings.len() != relation.terms.len() {
        return Err(SigmaError::RelationDoesNotHold);
    }
    let pairs = relation.terms.iter().zip(blindings);
    let sum = pairs.map(|((weight, _), blinding)| scalar(i128::from(*weight)) * blinding.0).sum();
    let factor = Zeroizing::new(sum);
    match bool::from((&bases().h * &factor).ct_eq(&relation.difference())) {
        true => Ok(factor),
        false => Err(SigmaError::RelationDoesNotHold),
    }
}

/// The nonce point that an accepting transcript has: `response·H − challenge·D`.
fn recompute(
    difference: &RistrettoPoint,
    challenge: &[u8; CHALLENGE_LENGTH],
    response: &Scalar,
) -> RistrettoPoint {
    &bases().h * response - short(challenge) * difference
}

fn hash(
    context: &[u8],
    relation: &Relation,
    nonce_point: &CompressedRistretto,
) -> [u8; CHALLENGE_LENGTH] {
    challenge(TAG, &[&relation.encode(), context, nonce_point.as_bytes()])
}

/// A challenge as a scalar: its 16 bytes, most significant first.
fn short(challenge: &[u8; CHALLENGE_LENGTH]) -> Scalar {
    Scalar::from(u128::from_be_bytes(*challenge))
}

fn scalar(number: i128) -> Scalar {
    let size = Scalar::from(number.unsigned_abs());
    if number < 0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(value: u64, seed: u8) -> (Commitment, Blinding) {
        let blinding = Blinding::from_seed(&[seed; 32]);
        (Commitment::new(value, &blinding), blinding)
    }

    #[test]
    fn equal_numbers_are_proved_equal_and_others_are_not() {
        let ((one, r), (other, s), (third, t)) = (commit(5, 1), commit(5, 2), commit(6, 3));
        let proof = prove_equal(b"root", (&one, &r), (&other, &s)).unwrap();
        assert_eq!(verify_equal(b"root", &one, &other, &proof), Ok(()));
        assert_eq!(verify_equal(b"other", &one, &other, &proof), Err(SigmaError::Refused));
        assert_eq!(verify_equal(b"root", &other, &one, &proof), Err(SigmaError::Refused));
        assert_eq!(verify_equal(b"root", &one, &third, &proof), Err(SigmaError::Refused));
        let unequal = prove_equal(b"root", (&one, &r), (&third, &t));
        assert_eq!(unequal, Err(SigmaError::RelationDoesNotHold));
    }

    #[test]
    fn a_sum_with_weights_and_a_constant_is_proved() {
        let ((a, r), (b, s), (c, t)) = (commit(100, 1), commit(30, 2), commit(157, 3));
        // 2·100 − 30 − 157 = 13
        let terms = vec![(2, a), (-1, b), (-1, c)];
        let relation = Relation::new(terms.clone(), 13).unwrap();
        let proof = prove_relation(b"", &relation, &[&r, &s, &t]).unwrap();
        assert_eq!(verify_relation(b"", &relation, &proof), Ok(()));
        let wrong = Relation::new(terms, 14).unwrap();
        assert_eq!(verify_relation(b"", &wrong, &proof), Err(SigmaError::Refused));
        let refused = Err(SigmaError::RelationDoesNotHold);
        assert_eq!(prove_relation(b"", &wrong, &[&r, &s, &t]), refused);
        assert_eq!(prove_relation(b"", &relation, &[&s, &r, &t]), refused);
        assert_eq!(prove_relation(b"", &relation, &[&r, &s]), refused);
    }

    #[test]
    fn every_changed_bit_is_refused() {
        let ((one, r), (other, s)) = (commit(9, 1), commit(9, 2));
        let proof = prove_equal(b"", (&one, &r), (&other, &s)).unwrap();
        for bit in 0..proof.len() * 8 {
            let mut changed = proof;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(verify_equal(b"", &one, &other, &changed).is_err(), "bit {bit}");
        }
        assert!(verify_equal(b"", &one, &other, &proof[..47]).is_err());
        assert!(verify_equal(b"", &one, &other, &[&proof[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_simulator_without_the_blindings_makes_accepting_transcripts() {
        // The challenge is chosen first: a transcript reveals nothing of the witness.
        let ((one, _), (other, _)) = (commit(1, 1), commit(2, 2));
        let difference = Relation::equal(one, other).difference();
        let (challenge, response) = ([0x5a; CHALLENGE_LENGTH], Scalar::from(123_456_789_u64));
        let nonce_point = recompute(&difference, &challenge, &response);
        let left = &bases().h * &response;
        assert_eq!(left, nonce_point + short(&challenge) * difference);
    }

    #[test]
    fn empty_and_weightless_relations_are_refused() {
        let malformed = Err(SigmaError::Malformed { what: "relation" });
        assert_eq!(Relation::new(Vec::new(), 0), malformed);
        assert_eq!(Relation::new(vec![(0, commit(1, 1).0)], 0), malformed);
        let many = vec![(1, commit(1, 1).0); TERMS_MAX + 1];
        assert!(matches!(Relation::new(many, 0), Err(SigmaError::TooLong { .. })));
    }
}
