//! Linear relations between committed numbers, such as equality (docs/sigma-proofs.md,
//! "Relations").
//!
//! `Σ weight·x = constant` holds exactly if the prover can write `Σ weight·C − constant·B` as a
//! multiple of `H`: it proves by Schnorr's protocol that it knows the factor.

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
    random::{self, Entropy, SecretStream},
};

const TAG: &str = "confide/sigma/v1/linear";

/// The length of a proof in bytes: a challenge of 16 and a response of 32.
pub const RELATION_PROOF_LENGTH: usize = CHALLENGE_LENGTH + 32;

/// The greatest number of terms of a relation: with weights of 64 bits no sum of 64-bit numbers
/// reaches the group's order.
const TERMS_MAX: usize = 1024;

/// The relation `Σ weight·x = constant` between committed numbers x.
///
/// A proof shows it modulo the group's order. It holds over the integers if every x has at most 64
/// bits, which the committer ensures or a range proof shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearRelation {
    terms: Vec<(i64, Commitment)>,
    constant: i128,
}

impl LinearRelation {
    /// Makes a relation of one to 1,024 terms.
    ///
    /// # Errors
    ///
    /// [`SigmaError::Malformed`] if there is no term or one of weight 0, [`SigmaError::TooLong`] if
    /// there are too many.
    pub fn new(terms: Vec<(i64, Commitment)>, constant: i128) -> Result<Self, SigmaError> {
        if terms.len() > TERMS_MAX {
            return Err(SigmaError::TooLong { what: "relation", max: TERMS_MAX, got: terms.len() });
        }
        if terms.is_empty() || terms.iter().any(|(weight, _)| *weight == 0) {
            return Err(SigmaError::Malformed { what: "relation" });
        }
        Ok(Self { terms, constant })
    }

    /// The relation that two commitments are to the same number.
    pub fn equality(one: Commitment, other: Commitment) -> Self {
        Self { terms: vec![(1, one), (-1, other)], constant: 0 }
    }

    /// Encodes the relation for the hash: the count, weight and commitment of each term, the
    /// constant.
    fn encode(&self) -> Vec<u8> {
        let mut out = (self.terms.len() as u32).to_be_bytes().to_vec();
        for (weight, commitment) in &self.terms {
            out.extend(weight.to_be_bytes());
            out.extend(commitment.to_bytes());
        }
        out.extend(self.constant.to_be_bytes());
        out
    }

    /// Computes `Σ weight·C − constant·B`, of which the prover knows the factor to H.
    fn difference_point(&self) -> RistrettoPoint {
        let sum: RistrettoPoint =
            self.terms.iter().map(|(weight, c)| to_scalar(i128::from(*weight)) * c.point()).sum();
        sum - bases().b * &to_scalar(self.constant)
    }
}

/// Proves a relation; `blindings` are in the order of its terms.
///
/// # Errors
///
/// [`SigmaError::RelationDoesNotHold`] if it does not hold or a blinding is not that of its term.
pub fn prove_relation(
    context: &[u8],
    relation: &LinearRelation,
    blindings: &[&Blinding],
) -> Result<[u8; RELATION_PROOF_LENGTH], SigmaError> {
    prove_relation_with(&random::draw_entropy()?, context, relation, blindings)
}

/// Proves that two commitments are to the same number, without revealing it.
///
/// # Errors
///
/// Those of [`prove_relation`].
pub fn prove_equal(
    context: &[u8],
    one: (&Commitment, &Blinding),
    other: (&Commitment, &Blinding),
) -> Result<[u8; RELATION_PROOF_LENGTH], SigmaError> {
    prove_relation(context, &LinearRelation::equality(*one.0, *other.0), &[one.1, other.1])
}

/// Checks a proof of [`prove_equal`].
///
/// # Errors
///
/// Those of [`verify_relation`].
pub fn verify_equal(
    context: &[u8],
    one: &Commitment,
    other: &Commitment,
    proof: &[u8],
) -> Result<(), SigmaError> {
    verify_relation(context, &LinearRelation::equality(*one, *other), proof)
}

/// Checks that a relation holds.
///
/// # Errors
///
/// [`SigmaError::Refused`] if the proof is not valid, [`SigmaError::Malformed`] if the bytes are
/// not a proof.
pub fn verify_relation(
    context: &[u8],
    relation: &LinearRelation,
    proof: &[u8],
) -> Result<(), SigmaError> {
    check_context(context)?;
    let malformed = SigmaError::Malformed { what: "relation proof" };
    let (claimed, response) = proof.split_first_chunk().ok_or(malformed.clone())?;
    let response: [u8; 32] = response.try_into().map_err(|_| malformed.clone())?;
    let response = Option::from(Scalar::from_canonical_bytes(response)).ok_or(malformed)?;
    let nonce_point = recompute_nonce_point(&relation.difference_point(), claimed, &response);
    let expected = relation_challenge(context, relation, &nonce_point.compress());
    if claimed.ct_eq(&expected).into() { Ok(()) } else { Err(SigmaError::Refused) }
}

pub(crate) fn prove_relation_with(
    entropy: &Entropy,
    context: &[u8],
    relation: &LinearRelation,
    blindings: &[&Blinding],
) -> Result<[u8; RELATION_PROOF_LENGTH], SigmaError> {
    check_context(context)?;
    let blinding_factor = blinding_factor(relation, blindings)?;
    let secret = Zeroizing::new(blinding_factor.to_bytes());
    let encoded = relation.encode();
    let parts: [&[u8]; 4] = [TAG.as_bytes(), &encoded, context, secret.as_slice()];
    let mut wide = Zeroizing::new([0; 64]);
    SecretStream::new(entropy, &parts).fill(wide.as_mut());
    let nonce = Zeroizing::new(Scalar::from_bytes_mod_order_wide(&wide));
    let challenge = relation_challenge(context, relation, &(&bases().h * &nonce).compress());
    let response = *nonce + challenge_scalar(&challenge) * *blinding_factor;
    let mut proof = [0; RELATION_PROOF_LENGTH];
    proof[..CHALLENGE_LENGTH].copy_from_slice(&challenge);
    proof[CHALLENGE_LENGTH..].copy_from_slice(response.as_bytes());
    verify_relation(context, relation, &proof).map_err(|_| SigmaError::SelfCheck)?;
    Ok(proof)
}

/// Computes `Σ weight·blinding`, and checks that the relation holds with these blindings.
fn blinding_factor(
    relation: &LinearRelation,
    blindings: &[&Blinding],
) -> Result<Zeroizing<Scalar>, SigmaError> {
    if blindings.len() != relation.terms.len() {
        return Err(SigmaError::RelationDoesNotHold);
    }
    let pairs = relation.terms.iter().zip(blindings);
    let sum =
        pairs.map(|((weight, _), blinding)| to_scalar(i128::from(*weight)) * blinding.0).sum();
    let blinding_factor = Zeroizing::new(sum);
    match bool::from((&bases().h * &blinding_factor).ct_eq(&relation.difference_point())) {
        true => Ok(blinding_factor),
        false => Err(SigmaError::RelationDoesNotHold),
    }
}

/// Computes the nonce point of an accepting transcript: `response·H − challenge·D`.
fn recompute_nonce_point(
    difference: &RistrettoPoint,
    challenge: &[u8; CHALLENGE_LENGTH],
    response: &Scalar,
) -> RistrettoPoint {
    &bases().h * response - challenge_scalar(challenge) * difference
}

fn relation_challenge(
    context: &[u8],
    relation: &LinearRelation,
    nonce_point: &CompressedRistretto,
) -> [u8; CHALLENGE_LENGTH] {
    challenge(TAG, &[&relation.encode(), context, nonce_point.as_bytes()])
}

/// Converts a challenge to a scalar: its 16 bytes, most significant first.
fn challenge_scalar(challenge: &[u8; CHALLENGE_LENGTH]) -> Scalar {
    Scalar::from(u128::from_be_bytes(*challenge))
}

fn to_scalar(number: i128) -> Scalar {
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
        let relation = LinearRelation::new(terms.clone(), 13).unwrap();
        let proof = prove_relation(b"", &relation, &[&r, &s, &t]).unwrap();
        assert_eq!(verify_relation(b"", &relation, &proof), Ok(()));
        let wrong = LinearRelation::new(terms, 14).unwrap();
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
        let difference = LinearRelation::equality(one, other).difference_point();
        let (challenge, response) = ([0x5a; CHALLENGE_LENGTH], Scalar::from(123_456_789_u64));
        let nonce_point = recompute_nonce_point(&difference, &challenge, &response);
        let left = &bases().h * &response;
        assert_eq!(left, nonce_point + challenge_scalar(&challenge) * difference);
    }

    #[test]
    fn empty_and_weightless_relations_are_refused() {
        let malformed = Err(SigmaError::Malformed { what: "relation" });
        assert_eq!(LinearRelation::new(Vec::new(), 0), malformed);
        assert_eq!(LinearRelation::new(vec![(0, commit(1, 1).0)], 0), malformed);
        let many = vec![(1, commit(1, 1).0); TERMS_MAX + 1];
        assert!(matches!(LinearRelation::new(many, 0), Err(SigmaError::TooLong { .. })));
    }
}
