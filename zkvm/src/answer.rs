//! Lines on standard output.

use std::{io::Write as _, time::Instant};

use confide_prover::line::{Phase, Progress, ProverMessage, Refusal, RefusalReason};
use confide_zkvm_machine::{Fault, ProofStep, Rejection};

/// The longest detail of a refusal: it is for people, and holds nothing of the input.
const DETAIL_BYTES_MAX: usize = 300;

/// A stage that ends in a refusal.
pub struct StageRefusal(pub Refusal);

impl StageRefusal {
    /// Makes a refusal by its reason; a long detail is cut.
    pub fn new(why: RefusalReason, detail: impl ToString) -> Self {
        let mut detail = detail.to_string();
        let mut end = DETAIL_BYTES_MAX.min(detail.len());
        while !detail.is_char_boundary(end) {
            end -= 1;
        }
        detail.truncate(end);
        Self(Refusal { why, detail })
    }
}

impl From<Fault> for StageRefusal {
    fn from(fault: Fault) -> Self {
        let why = match fault {
            Fault::Exit(_) | Fault::Stopped(_) => RefusalReason::ClaimRefused,
            Fault::Memory { .. } => RefusalReason::Memory,
            Fault::Load(_) | Fault::Backend(_) => RefusalReason::Fault,
        };
        Self::new(why, fault)
    }
}

impl From<Rejection> for StageRefusal {
    fn from(rejection: Rejection) -> Self {
        let why = match rejection {
            Rejection::Malformed(_) => RefusalReason::MalformedProof,
            Rejection::Parameters => RefusalReason::Parameters,
            Rejection::AnotherProgram => RefusalReason::AnotherProgram,
            Rejection::Segments(_) => RefusalReason::Segments,
            Rejection::PublicValues => RefusalReason::PublicValues,
            Rejection::Unsound(_) => RefusalReason::Unsound,
        };
        Self::new(why, rejection)
    }
}

/// Prints one line. A reader that is gone is no reason to go on.
pub fn print_message(line: &ProverMessage) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(line.to_text().as_bytes()).and_then(|()| out.flush());
    if written.is_err() {
        std::process::exit(2);
    }
}

/// Prints the progress of the work.
pub fn print_progress(phase: Phase, done: u32, of: Option<u32>) {
    print_message(&ProverMessage::Progress(Progress { phase, done, of }));
}

/// Prints a step of a machine.
pub fn print_step(step: ProofStep) {
    match step {
        ProofStep::Segment { done, of } => print_progress(Phase::Segment, done, Some(of)),
        ProofStep::Aggregate { done, of } => print_progress(Phase::Aggregate, done, Some(of)),
        ProofStep::Wrap => print_progress(Phase::Wrap, 0, Some(1)),
    }
}

/// Wall-clock time of the parts of a stage.
pub struct StageTimer {
    last: Instant,
    parts: std::collections::BTreeMap<String, f64>,
}

impl StageTimer {
    /// Starts the first part.
    pub fn start() -> Self {
        Self { last: Instant::now(), parts: Default::default() }
    }

    /// Ends a part and starts the next.
    pub fn record_part(&mut self, name: &str) {
        self.parts.insert(name.to_string(), self.last.elapsed().as_secs_f64());
        self.last = Instant::now();
    }

    /// Returns the seconds of all parts.
    pub fn into_seconds(self) -> std::collections::BTreeMap<String, f64> {
        self.parts
    }
}
