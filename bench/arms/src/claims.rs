//! `confide-arm claim`: one statement about a TLS session, shown or proved, by one means.
//!
//! Every way answers the same question of whoever checks; what it hides differs and is told as the
//! arm's guarantee. What a way does ahead of time, before a statement is asked for (a commitment, a
//! circuit's keys), is not in `prove_ms`.

mod bytes;
#[cfg(feature = "circuits")]
mod circuit;
mod number;
mod signature;

use std::time::Instant;

use clap::ValueEnum;
use confide_arm_line::{Hello, Report, Run, Sample, Stopwatch, speak};
use serde::Serialize;
use serde_json::{Map, json};

use crate::Outcome;

/// What is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Statement {
    /// A key signed a text: RSA-2048, PKCS#1 v1.5, SHA-256.
    Signature,
    /// The same by ECDSA on P-256.
    EcdsaSignature,
    /// 100 bytes of a transcript of 64 KiB.
    Excerpt,
    /// A committed number is at most 4096.
    AtMost,
    /// A digest is that of some text of 1 KiB.
    Preimage,
    /// A leaf of 1,024 contains some bytes.
    Contains,
}

/// By what means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// What is claimed is shown, and checked as it is.
    Native,
    /// A sigma protocol.
    Sigma,
    /// An opening of a salted tree.
    Opening,
    /// A zero-knowledge circuit.
    Circuit,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is claimed.
    #[arg(long, value_enum)]
    statement: Statement,
    /// By what means.
    #[arg(long, value_enum)]
    by: By,
}

/// One way to make a claim and to check it.
trait ClaimMethod {
    /// What the claim hides from whoever checks it, and what it shows.
    fn hides(&self) -> &'static str;
    /// Makes the claim; gives the bytes that are sent. `None` where there is nothing to make.
    fn prove(&mut self) -> Outcome<Option<usize>>;
    /// Checks what was made, or shown.
    fn check(&mut self) -> Outcome;
    /// The bytes that are sent where nothing has to be made.
    fn shown_bytes(&self) -> usize {
        0
    }
    /// How often each is repeated in a sample, so that the clock is not what is read.
    fn repeats(&self) -> u32 {
        16
    }
}

/// A hello that may say that this program was built without what the arm needs.
#[derive(Serialize)]
struct ClaimHello {
    #[serde(flatten)]
    hello: Hello,
    #[serde(skip_serializing_if = "Option::is_none")]
    cannot: Option<String>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let way = way(args.statement, args.by);
    let (mut way, cannot) = match way {
        Ok(way) => (Some(way), None),
        Err(reason) => (None, Some(reason)),
    };
    let hello = ClaimHello {
        hello: Hello {
            arm: format!("{:?} by {:?}", args.statement, args.by).to_lowercase(),
            version: format!("confide {}", env!("CARGO_PKG_VERSION")),
            simulated: false,
            guarantee: way.as_ref().map(|way| way.hides().to_string()),
            threads: 1,
            note: way.as_ref().map(|way| way.hides().to_string()),
        },
        cannot,
    };
    speak(&hello, |order| match &mut way {
        Some(way) => measure(order, way.as_mut()),
        None => Err("it cannot work here, as it said".into()),
    })
    .map_err(|error| error.to_string())
}

fn way(statement: Statement, by: By) -> Outcome<Box<dyn ClaimMethod>> {
    Ok(match (statement, by) {
        (Statement::Signature, By::Native) => Box::new(signature::Native::rsa()?),
        (Statement::Signature, By::Sigma) => Box::new(signature::Sigma::rsa()?),
        (Statement::EcdsaSignature, By::Native) => Box::new(signature::Native::ecdsa()?),
        (Statement::EcdsaSignature, By::Sigma) => Box::new(signature::Sigma::ecdsa()?),
        (Statement::Excerpt, By::Native) => Box::new(bytes::Whole::transcript()),
        (Statement::Excerpt, By::Opening) => Box::new(bytes::Opening::excerpt()?),
        (Statement::AtMost, By::Native) => Box::new(number::Opened::new()?),
        (Statement::AtMost, By::Sigma) => Box::new(number::InRange::new()?),
        (Statement::Preimage, By::Native) => Box::new(bytes::Whole::message()),
        (Statement::Contains, By::Opening) => Box::new(bytes::Opening::leaf()?),
        #[cfg(feature = "circuits")]
        (Statement::Preimage, By::Circuit) => Box::new(circuit::Preimage::new()?),
        #[cfg(feature = "circuits")]
        (Statement::Contains, By::Circuit) => Box::new(circuit::Contains::new()?),
        #[cfg(not(feature = "circuits"))]
        (Statement::Preimage | Statement::Contains, By::Circuit) => {
            return Err("confide-arm was built without its feature circuits".into());
        }
        _ => return Err(format!("{statement:?} is not claimed by {by:?}")),
    })
}

fn measure(order: &Run, way: &mut dyn ClaimMethod) -> Outcome<Report> {
    order.knows_only(&[])?;
    let watch = Stopwatch::start();
    let mut report = Report::default();
    for _ in 0..order.requests {
        report.samples.push(sample(way)?);
    }
    (report.wall_s, report.cpu_s) = watch.stop();
    Ok(report)
}

fn sample(way: &mut dyn ClaimMethod) -> Outcome<Sample> {
    let repeats = way.repeats();
    let mean_ms =
        |started: Instant| started.elapsed().as_secs_f64() * 1e3 / f64::from(repeats.max(1));
    let mut metrics = Map::new();
    let started = Instant::now();
    let mut made = None;
    for _ in 0..repeats {
        made = way.prove()?;
    }
    let prove_ms = mean_ms(started);
    // What is only shown was not made: it has no time of its own, and 0 is no measurement.
    if made.is_some() {
        metrics.insert("prove_ms".into(), json!(prove_ms));
    }
    let started = Instant::now();
    for _ in 0..repeats {
        way.check()?;
    }
    metrics.insert("check_ms".into(), json!(mean_ms(started)));
    metrics.insert("proof_bytes".into(), json!(made.unwrap_or_else(|| way.shown_bytes())));
    Ok(Sample { metrics, answer: json!({ "holds": true }), ..Sample::default() })
}
