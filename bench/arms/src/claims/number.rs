//! Claims that a committed number is at most a bound.

use confide_arm_line::Outcome;
use confide_sigma::{Blinding, Commitment, Range, prove_range, verify_range};

use super::method::ClaimMethod;

const NUMBER: u64 = 1234;
const BOUND: u64 = 4096;

/// The context to which proofs are bound.
const CONTEXT: &[u8] = b"confide bench";

struct CommittedNumber {
    blinding: Blinding,
    commitment: Commitment,
}

impl CommittedNumber {
    fn new() -> Outcome<Self> {
        let blinding = Blinding::random()?;
        Ok(Self { commitment: Commitment::new(NUMBER, &blinding), blinding })
    }
}

/// The claim that shows number and blinding.
pub(super) struct DisclosedNumber(CommittedNumber);

impl DisclosedNumber {
    pub(super) fn new() -> Outcome<Self> {
        CommittedNumber::new().map(Self)
    }
}

impl ClaimMethod for DisclosedNumber {
    fn describe_disclosure(&self) -> &'static str {
        "nothing of this number: it is shown with its opening"
    }

    fn prove(&mut self) -> Outcome<Option<usize>> {
        Ok(None)
    }

    fn verify_claim(&mut self) -> Outcome {
        let opened = self.0.commitment.opens_to(NUMBER, &self.0.blinding);
        if opened && NUMBER <= BOUND { Ok(()) } else { Err("it opens to another number".into()) }
    }

    fn disclosed_bytes(&self) -> usize {
        8 + 32
    }
}

/// The claim by a range proof, which hides the number.
pub(super) struct RangeProof {
    committed: CommittedNumber,
    range: Range,
    proof: Vec<u8>,
}

impl RangeProof {
    pub(super) fn new() -> Outcome<Self> {
        let (range, proof) = (Range::at_most(BOUND), Vec::new());
        Ok(Self { committed: CommittedNumber::new()?, range, proof })
    }
}

impl ClaimMethod for RangeProof {
    fn describe_disclosure(&self) -> &'static str {
        "the number, except that it is at most 4096 (zero-knowledge: yes)"
    }

    fn prove(&mut self) -> Outcome<Option<usize>> {
        let proof = prove_range(CONTEXT, &self.range, NUMBER, &self.committed.blinding);
        self.proof = proof?;
        Ok(Some(self.proof.len()))
    }

    fn verify_claim(&mut self) -> Outcome {
        let held = verify_range(CONTEXT, &self.range, &self.committed.commitment, &self.proof);
        Ok(held?)
    }

    fn repetitions(&self) -> u32 {
        4
    }
}
