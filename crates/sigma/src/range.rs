//! Proofs that a committed number lies in a public range (Bulletproofs, Bünz et al. 2018).
//!
//! `x − low` and `high − x` both lie in `[0, 2^n)`, with the smallest n of 8, 16, 32 and 64 that
//! covers the range: one aggregated proof of two numbers, or of one if the range has exactly 2^n
//! numbers. This is sound for every committed scalar, since the group's order is far above 2^65.

use std::sync::OnceLock;

use bulletproofs::{BulletproofGens, RangeProof};
use curve25519_dalek::{
    ristretto::{CompressedRistretto, RistrettoPoint},
    scalar::Scalar,
};
use merlin::Transcript;
use zeroize::Zeroizing;

use crate::{
    challenge::check_context,
    error::SigmaError,
    pedersen::{Blinding, Commitment, bases},
    random::{self, Entropy, SecretStream},
};

const TAG: &[u8] = b"confide/sigma/v1/range";

/// The numbers from a low end to a high end, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    low: u64,
    high: u64,
}

impl Range {
    /// Makes a range between two ends, both included.
    ///
    /// # Errors
    ///
    /// [`SigmaError::EmptyRange`] if the low end is above the high one.
    pub fn new(low: u64, high: u64) -> Result<Self, SigmaError> {
        if low <= high { Ok(Self { low, high }) } else { Err(SigmaError::EmptyRange { low, high }) }
    }

    /// The range of all `x <= bound`.
    pub fn at_most(bound: u64) -> Self {
        Self { low: 0, high: bound }
    }

    /// The range of all `x >= bound`.
    pub fn at_least(bound: u64) -> Self {
        Self { low: bound, high: u64::MAX }
    }

    /// The smallest number in the range.
    pub fn low(&self) -> u64 {
        self.low
    }

    /// The largest number in the range.
    pub fn high(&self) -> u64 {
        self.high
    }

    /// Whether a number is in the range.
    pub fn contains(&self, value: u64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The length of every proof for this range, in bytes.
    fn proof_length(&self) -> usize {
        let (bits, parties) = self.proof_dimensions();
        32 * (9 + 2 * (bits * parties).trailing_zeros() as usize)
    }

    /// The number of bits of a shifted number, and the number of shifted numbers in the proof.
    fn proof_dimensions(&self) -> (usize, usize) {
        let span = self.high - self.low;
        let bits = match span {
            0..=0xff => 8,
            0x100..=0xffff => 16,
            0x1_0000..=0xffff_ffff => 32,
            _ => 64,
        };
        let whole = span == u64::MAX >> (64 - bits);
        (bits, if whole { 1 } else { 2 })
    }

    /// The commitments to `x − low` and, if the proof has two numbers, to `high − x`.
    fn shifted_commitments(&self, commitment: &Commitment) -> Vec<CompressedRistretto> {
        let base = bases().b;
        let above: RistrettoPoint = commitment.point() - base * &Scalar::from(self.low);
        let below: RistrettoPoint = base * &Scalar::from(self.high) - commitment.point();
        let both = [above.compress(), below.compress()];
        both[..self.proof_dimensions().1].to_vec()
    }

    fn transcript(&self, context: &[u8], commitment: &Commitment) -> Transcript {
        let mut transcript = Transcript::new(TAG);
        transcript.append_message(b"context", context);
        transcript.append_u64(b"low", self.low);
        transcript.append_u64(b"high", self.high);
        transcript.append_message(b"commitment", &commitment.to_bytes());
        transcript
    }
}

/// Proves that the number behind `Commitment::new(value, blinding)` lies in the range.
///
/// # Errors
///
/// [`SigmaError::OutsideRange`] if it does not, [`SigmaError::TooLong`] if the context is too long.
pub fn prove_range(
    context: &[u8],
    range: &Range,
    value: u64,
    blinding: &Blinding,
) -> Result<Vec<u8>, SigmaError> {
    prove_range_with(&random::draw_entropy()?, context, range, value, blinding)
}

pub(crate) fn prove_range_with(
    entropy: &Entropy,
    context: &[u8],
    range: &Range,
    value: u64,
    blinding: &Blinding,
) -> Result<Vec<u8>, SigmaError> {
    check_context(context)?;
    if !range.contains(value) {
        return Err(SigmaError::OutsideRange);
    }
    let commitment = Commitment::new(value, blinding);
    let ends = [range.low.to_be_bytes(), range.high.to_be_bytes()];
    let secret = (Zeroizing::new(value.to_be_bytes()), blinding.to_bytes());
    let parts: [&[u8]; 6] =
        [TAG, context, &ends[0], &ends[1], secret.0.as_slice(), secret.1.as_slice()];
    let mut stream = SecretStream::new(entropy, &parts);
    let (bits, parties) = range.proof_dimensions();
    let values = Zeroizing::new([value - range.low, range.high - value]);
    let blindings = Zeroizing::new([blinding.0, -blinding.0]);
    let (proof, shifted) = RangeProof::prove_multiple_with_rng(
        generators(),
        &bases().pair,
        &mut range.transcript(context, &commitment),
        &values[..parties],
        &blindings[..parties],
        bits,
        &mut stream,
    )
    .map_err(|_| SigmaError::SelfCheck)?;
    if shifted != range.shifted_commitments(&commitment) {
        return Err(SigmaError::SelfCheck);
    }
    let proof = proof.to_bytes();
    verify_range(context, range, &commitment, &proof).map_err(|_| SigmaError::SelfCheck)?;
    Ok(proof)
}

/// Checks that a commitment's number lies in the range.
///
/// # Errors
///
/// [`SigmaError::Refused`] if the proof is not valid, [`SigmaError::Malformed`] if it is not a
/// proof for a range of this size.
pub fn verify_range(
    context: &[u8],
    range: &Range,
    commitment: &Commitment,
    proof: &[u8],
) -> Result<(), SigmaError> {
    check_context(context)?;
    let malformed = SigmaError::Malformed { what: "range proof" };
    if proof.len() != range.proof_length() {
        return Err(malformed);
    }
    let parsed = RangeProof::from_bytes(proof).map_err(|_| malformed)?;
    // The weights that combine the proof's two equations: the prover must not be able to predict
    // them.
    let mut weights = SecretStream::new(&random::draw_entropy()?, &[TAG, b"weights", proof]);
    let outcome = parsed.verify_multiple_with_rng(
        generators(),
        &bases().pair,
        &mut range.transcript(context, commitment),
        &range.shifted_commitments(commitment),
        range.proof_dimensions().0,
        &mut weights,
    );
    outcome.map_err(|_| SigmaError::Refused)
}

/// The bases of the vector commitments, which are computed on first use: 256 hashes to the group.
fn generators() -> &'static BulletproofGens {
    static GENERATORS: OnceLock<BulletproofGens> = OnceLock::new();
    GENERATORS.get_or_init(|| BulletproofGens::new(64, 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blinding() -> Blinding {
        Blinding::from_seed(&[5; 32])
    }

    #[test]
    fn numbers_at_both_ends_and_between_are_proved() {
        let ranges = [
            Range::at_most(4096),
            Range::at_least(18),
            Range::new(7, 7).unwrap(),
            Range::new(100, 355).unwrap(),
            Range::new(0, u64::MAX).unwrap(),
            Range::new(u64::MAX - 1, u64::MAX).unwrap(),
            Range::new(1 << 40, 1 << 41).unwrap(),
        ];
        for range in ranges {
            let middle = range.low() + (range.high() - range.low()) / 2;
            for value in [range.low(), middle, range.high()] {
                let proof = prove_range(b"test", &range, value, &blinding()).unwrap();
                assert_eq!(proof.len(), range.proof_length(), "{range:?}");
                let commitment = Commitment::new(value, &blinding());
                assert_eq!(verify_range(b"test", &range, &commitment, &proof), Ok(()), "{range:?}");
            }
        }
    }

    #[test]
    fn a_number_outside_is_not_proved() {
        let range = Range::new(10, 20).unwrap();
        for value in [0, 9, 21, u64::MAX] {
            let got = prove_range(b"", &range, value, &blinding());
            assert_eq!(got, Err(SigmaError::OutsideRange));
        }
        assert_eq!(Range::new(2, 1), Err(SigmaError::EmptyRange { low: 2, high: 1 }));
    }

    #[test]
    fn a_proof_holds_for_its_own_range_context_and_commitment_only() {
        let range = Range::at_most(4096);
        let commitment = Commitment::new(1000, &blinding());
        let proof = prove_range(b"root", &range, 1000, &blinding()).unwrap();
        let refused = Err(SigmaError::Refused);
        assert_eq!(verify_range(b"other", &range, &commitment, &proof), refused);
        assert_eq!(verify_range(b"root", &Range::at_most(4097), &commitment, &proof), refused);
        let lower = Range::new(1, 4096).unwrap();
        assert_eq!(verify_range(b"root", &lower, &commitment, &proof), refused);
        let other = Commitment::new(1001, &blinding());
        assert_eq!(verify_range(b"root", &range, &other, &proof), refused);
    }

    #[test]
    fn every_changed_byte_is_refused() {
        let range = Range::new(0, 200).unwrap();
        let commitment = Commitment::new(77, &blinding());
        let proof = prove_range(b"", &range, 77, &blinding()).unwrap();
        for index in 0..proof.len() {
            let mut changed = proof.clone();
            changed[index] ^= 1 << (index % 8);
            assert!(verify_range(b"", &range, &commitment, &changed).is_err(), "byte {index}");
        }
        for length in [0, 31, 32, proof.len() - 32, proof.len() - 1] {
            assert!(verify_range(b"", &range, &commitment, &proof[..length]).is_err());
        }
        assert!(verify_range(b"", &range, &commitment, &[&proof[..], &[0; 32]].concat()).is_err());
    }

    #[test]
    fn a_commitment_to_a_number_beyond_64_bits_cannot_pass_for_a_small_one() {
        // −1 as a scalar: a committer may put in any scalar, and the verifier must not believe it.
        let minus_one = bases().pair.commit(-Scalar::ONE, blinding().0);
        let commitment = Commitment::from_point(minus_one);
        let range = Range::at_most(100);
        let honest = prove_range(b"", &range, 0, &blinding()).unwrap();
        assert_eq!(verify_range(b"", &range, &commitment, &honest), Err(SigmaError::Refused));
    }
}
