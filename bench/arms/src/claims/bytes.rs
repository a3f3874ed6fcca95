//! Claims that bytes belong to a committed transcript.

use confide_arm_line::Outcome;
use confide_disclosure::{
    CommittedDirection, Direction, DirectionCommitment, Seed, TranscriptOpening,
};
use sha2::{Digest, Sha256};

use super::method::ClaimMethod;

/// Bytes of the transcript, which has 1,024 leaves.
const TRANSCRIPT_BYTES: usize = 64 * 1024;

/// The range of the excerpt: 100 bytes across three leaves.
const EXCERPT: std::ops::Range<u64> = 20_030..20_130;

/// Bytes like those of an answer: text that does not repeat.
pub(super) fn sample_text(length: usize) -> Vec<u8> {
    (0..length).map(|i| b"abcdefghijklmnopqrstuvwxyz 0123456789"[(i * i / 7 + i) % 37]).collect()
}

/// Everything is shown, and its digest compared.
pub(super) struct DisclosedText {
    text: Vec<u8>,
    digest: [u8; 32],
}

impl DisclosedText {
    pub(super) fn transcript() -> Self {
        Self::new(TRANSCRIPT_BYTES)
    }

    pub(super) fn message() -> Self {
        Self::new(1024)
    }

    fn new(length: usize) -> Self {
        let text = sample_text(length);
        Self { digest: Sha256::digest(&text).into(), text }
    }
}

impl ClaimMethod for DisclosedText {
    fn describe_disclosure(&self) -> &'static str {
        "nothing: all bytes are shown"
    }

    fn prove(&mut self) -> Outcome<Option<usize>> {
        Ok(None)
    }

    fn verify_claim(&mut self) -> Outcome {
        let got: [u8; 32] = Sha256::digest(&self.text).into();
        if got == self.digest { Ok(()) } else { Err("another digest".into()) }
    }

    fn disclosed_bytes(&self) -> usize {
        self.text.len()
    }
}

/// Some leaves of the transcript are opened.
pub(super) struct LeafOpening {
    committed: CommittedDirection<'static>,
    commitment: DirectionCommitment,
    range: std::ops::Range<u64>,
    opening: TranscriptOpening,
}

impl LeafOpening {
    /// The opening of an excerpt of 100 bytes.
    pub(super) fn excerpt() -> Outcome<Self> {
        Self::new(EXCERPT)
    }

    /// The opening of one leaf, which contains the bytes that are claimed.
    pub(super) fn leaf() -> Outcome<Self> {
        Self::new(64 * 17..64 * 18)
    }

    fn new(range: std::ops::Range<u64>) -> Outcome<Self> {
        let committed = commit_transcript()?;
        let commitment = committed.commitment();
        Ok(Self { committed, commitment, range, opening: TranscriptOpening::default() })
    }
}

/// The tree of the transcript. Seed and text are leaked, since a process makes one only.
pub(super) fn commit_transcript() -> Outcome<CommittedDirection<'static>> {
    let seed: &'static Seed = Box::leak(Box::new(Seed::from_bytes([7; 32])));
    let text: &'static [u8] = Vec::leak(sample_text(TRANSCRIPT_BYTES));
    Ok(CommittedDirection::new(seed, Direction::Response, text)?)
}

impl ClaimMethod for LeafOpening {
    fn describe_disclosure(&self) -> &'static str {
        "the leaves that are not opened; place, length and root are public; openings can be linked"
    }

    fn prove(&mut self) -> Outcome<Option<usize>> {
        let opened = self.committed.open(std::slice::from_ref(&self.range));
        self.opening = opened?;
        // As a disclosure writes it: index, salt, length and chunk of each leaf, the nodes, counts.
        let leaves = self.opening.leaves.iter().map(|leaf| 4 + 16 + 1 + leaf.chunk.len());
        Ok(Some(8 + leaves.sum::<usize>() + 32 * self.opening.siblings.len()))
    }

    fn verify_claim(&mut self) -> Outcome {
        let shown = self.opening.check(Direction::Response, &self.commitment);
        Ok(shown.map(drop)?)
    }

    fn repetitions(&self) -> u32 {
        256
    }
}
