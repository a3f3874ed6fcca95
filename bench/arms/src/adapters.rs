//! Arms of the suite `adapters`: what a private adapter costs, by scheme and by step.
//!
//! A *step* is one projection, 1536 to rank 32: from the vector of floats to `A·x`, everything in
//! this process, each part timed. `B` follows and is timed apart. The answer is compared with
//! float64; an answer that is not close enough voids the pair.

pub(crate) mod batch;
pub(crate) mod chat;
mod direct;
mod dot;
mod floor;
pub(crate) mod head;
pub(crate) mod make;
mod masked;
pub(crate) mod operations;
mod problem;
mod remote;
pub(crate) mod socket;
mod spans;
mod step;
pub(crate) mod token;

use std::time::Instant;

use clap::ValueEnum;
use confide_arm_line::{Hello, Report, Run, Sample, Stopwatch, speak};
use serde_json::json;

use crate::Outcome;
use problem::{Problem, Shape};
use spans::between;
use step::Step;

/// What protects the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheme {
    /// Plain LoRA in 32-bit floats.
    Plain,
    /// Masks made before, integers online.
    Masked,
    /// Encrypted, flooded.
    Direct,
    /// Encrypted, N = 2048, not flooded: the adapter is not protected.
    DangerousDirect2048,
    /// CKKS in report 003's layout.
    Ckks,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How `A·x` is computed.
    #[arg(long, value_enum)]
    scheme: Scheme,
    /// Ring degree, for ckks.
    #[arg(long, default_value_t = 16384)]
    n: usize,
    /// What differs from the report's best layout, for ckks.
    #[arg(long, value_enum)]
    factor: Option<Factor>,
}

/// One of the factors that report 003 names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Factor {
    /// Each product is decrypted and decoded before the next.
    OneByOne,
    /// Terms are summed under encryption, by rotations.
    Rotations,
    /// A second product, with B, under encryption.
    TwoProducts,
}

/// Steps shorter than this are repeated within a sample, so that the clock is not what is read.
const SHORT_MS: f64 = 0.2;
/// How often.
const REPEATS: usize = 64;

pub(crate) fn run(args: Args) -> Outcome {
    let problem = Problem::new(Shape::PUBLISHED);
    let mut step = step::new(&args, &problem)?;
    let hello = Hello {
        arm: format!("one projection, {:?}", args.scheme).to_lowercase(),
        version: format!("confide {}", env!("CARGO_PKG_VERSION")),
        simulated: false,
        guarantee: Some(step.guarantee()),
        threads: 1,
        note: None,
    };
    speak(&hello, |order| measure(order, &problem, step.as_mut())).map_err(|e| e.to_string())
}

fn measure(order: &Run, problem: &Problem, step: &mut dyn Step) -> Outcome<Report> {
    order.knows_only(&["width", "rank"])?;
    let shape = Shape::PUBLISHED;
    for (name, wanted) in [("width", shape.width), ("rank", shape.rank)] {
        let got = order.number(name, wanted as u64)?;
        if got != wanted as u64 {
            return Err(format!("param {name}: wanted {wanted}, got {got}"));
        }
    }
    let inputs: Vec<Vec<f32>> = (0..order.requests).map(|i| problem.input(order.seed, i)).collect();
    let watch = Stopwatch::start();
    let mut report = Report::default();
    for input in &inputs {
        report.samples.push(sample(problem, step, input)?);
    }
    (report.wall_s, report.cpu_s) = watch.stop();
    report.floor = step.floor();
    Ok(report)
}

/// One request: the step once, or the mean of many where it is short.
fn sample(problem: &Problem, step: &mut dyn Step, input: &[f32]) -> Outcome<Sample> {
    let mut delta = vec![0.0; problem.shape.output];
    let (mut total_ms, mut repeats) = (0.0, 0);
    let before = step.parts();
    while repeats == 0 || repeats < REPEATS && total_ms < SHORT_MS * repeats as f64 {
        delta.fill(0.0);
        step.before()?;
        let began = Instant::now();
        step.add(input, &mut delta)?;
        total_ms += began.elapsed().as_secs_f64() * 1e3;
        repeats += 1;
    }
    let mut sample = Sample::default();
    let mut parts_ms = 0.0;
    let mean = |ms: f64| json!(ms / repeats as f64);
    let parts = between(&before, &step.parts());
    for (name, ms) in &parts {
        sample.metrics.insert((*name).into(), mean(*ms));
        parts_ms += ms;
    }
    let b_ms = parts.get("b_ms").copied().unwrap_or_default();
    sample.metrics.insert("step_ms".into(), mean(total_ms - b_ms));
    sample.metrics.insert("remainder_ms".into(), mean(total_ms - parts_ms));
    let error = problem.error(input, &delta);
    sample.metrics.insert("delta_error_ratio".into(), json!(error));
    for (name, bytes) in step.wire_bytes() {
        sample.metrics.insert(name.into(), json!(bytes));
    }
    let close = error <= step.error_max();
    sample.answer = json!({ "rows": problem.shape.rank, "close": close });
    Ok(sample)
}
