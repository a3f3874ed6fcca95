//! `confide-arm claim`: one statement about a TLS session, shown or proved, by one means.
//!
//! Every means answers the same question of the party that checks; what it hides differs and is the
//! arm's guarantee. What it does ahead of time, before a statement is asked for (a commitment, a
//! circuit's keys), is not in `prove_ms`.

mod bytes;
#[cfg(feature = "circuits")]
mod circuit;
mod method;
mod number;
mod signature;

use std::time::Instant;

use self::method::ClaimMethod;
use crate::version::VERSION;
use clap::ValueEnum;
use confide_arm_line::{Hello, Outcome, Report, Run, Sample, separate_unmet_need, serve_runs};
use serde_json::json;

/// The statement that is claimed.
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

/// The means by which it is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProofMethod {
    /// The claimed value is shown and checked directly.
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
    /// The statement that is claimed.
    #[arg(long, value_enum)]
    statement: Statement,
    /// The means by which it is claimed.
    #[arg(long, value_enum)]
    by: ProofMethod,
}

pub(crate) fn run(args: Args) -> Outcome {
    let mut method = separate_unmet_need(open_method(args.statement, args.by))?;
    let mut hello =
        Hello::new(format!("{:?} by {:?}", args.statement, args.by).to_lowercase(), VERSION);
    match &method {
        Ok(method) => {
            hello.guarantee = Some(method.describe_disclosure().to_owned());
            hello.note = Some(method.describe_disclosure().to_owned());
        }
        Err(need) => hello.cannot = Some(need.to_string()),
    }
    serve_runs(&hello, |order| match &mut method {
        Ok(method) => measure(order, method.as_mut()),
        Err(need) => Err(need.to_string().into()),
    })
}

fn open_method(statement: Statement, by: ProofMethod) -> Outcome<Box<dyn ClaimMethod>> {
    Ok(match (statement, by) {
        (Statement::Signature, ProofMethod::Native) => Box::new(signature::NativeSignature::rsa()?),
        (Statement::Signature, ProofMethod::Sigma) => {
            Box::new(signature::SigmaSignatureProof::rsa()?)
        }
        (Statement::EcdsaSignature, ProofMethod::Native) => {
            Box::new(signature::NativeSignature::ecdsa()?)
        }
        (Statement::EcdsaSignature, ProofMethod::Sigma) => {
            Box::new(signature::SigmaSignatureProof::ecdsa()?)
        }
        (Statement::Excerpt, ProofMethod::Native) => Box::new(bytes::DisclosedText::transcript()),
        (Statement::Excerpt, ProofMethod::Opening) => Box::new(bytes::LeafOpening::excerpt()?),
        (Statement::AtMost, ProofMethod::Native) => Box::new(number::DisclosedNumber::new()?),
        (Statement::AtMost, ProofMethod::Sigma) => Box::new(number::RangeProof::new()?),
        (Statement::Preimage, ProofMethod::Native) => Box::new(bytes::DisclosedText::message()),
        (Statement::Contains, ProofMethod::Opening) => Box::new(bytes::LeafOpening::leaf()?),
        #[cfg(feature = "circuits")]
        (Statement::Preimage, ProofMethod::Circuit) => Box::new(circuit::PreimageProof::new()?),
        #[cfg(feature = "circuits")]
        (Statement::Contains, ProofMethod::Circuit) => Box::new(circuit::ContainsProof::new()?),
        #[cfg(not(feature = "circuits"))]
        (Statement::Preimage | Statement::Contains, ProofMethod::Circuit) => {
            let need = "confide-arm was built without its feature circuits";
            return Err(confide_arm_line::UnmetNeed(need.into()).into());
        }
        _ => return Err(format!("{statement:?} is not claimed by {by:?}").into()),
    })
}

fn measure(order: &Run, method: &mut dyn ClaimMethod) -> Outcome<Report> {
    order.refuse_unknown_params(&[])?;
    order.measure_each(|_| measure_sample(method))
}

fn measure_sample(method: &mut dyn ClaimMethod) -> Outcome<Sample> {
    let repeats = method.repetitions();
    let mean_ms =
        |started: Instant| started.elapsed().as_secs_f64() * 1e3 / f64::from(repeats.max(1));
    let mut sample = Sample::default();
    let started = Instant::now();
    let mut made = None;
    for _ in 0..repeats {
        made = method.prove()?;
    }
    let prove_ms = mean_ms(started);
    // A value that is only shown is not made: it has no time of its own, and 0 is not a measurement.
    if made.is_some() {
        sample.set("prove_ms", prove_ms);
    }
    let started = Instant::now();
    for _ in 0..repeats {
        method.verify_claim()?;
    }
    sample.set("check_ms", mean_ms(started));
    sample.set("proof_bytes", made.unwrap_or_else(|| method.disclosed_bytes()) as f64);
    sample.answer = json!({ "holds": true });
    Ok(sample)
}
