//! Appraisal of one SEV-SNP report, again and again.
//!
//! By default from bytes to verdict with nothing kept in between. `--keep key` keeps the chip key
//! that was verified down from the root, as for every report but the first of a machine. `--keep
//! signature` is the floor: one P-384 verification with a key that is read already.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{signed::SignedMessage, trust::read_policy, version::VERSION};
use aws_lc_rs::signature::ECDSA_P384_SHA384_FIXED_SIGNING;
use confide_arm_line::{Hello, Outcome, Report, Run, read_file, repeat_in_threads, serve_runs};
use confide_evidence::snp::SIGNED_LENGTH;
use confide_verifier::{Appraised, AwsLc, Crypto, Evidence, RootKind, UnixTime, snp};
use serde_json::json;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The report.
    #[arg(long)]
    report: PathBuf,
    /// Its endorsements (JSON).
    #[arg(long)]
    endorsements: PathBuf,
    /// The time of appraisal, in seconds since 1970.
    #[arg(long)]
    at: u64,
    /// The policy.
    #[arg(long)]
    policy: PathBuf,
    /// What is kept between appraisals: nothing or key; `signature` appraises nothing and verifies
    /// one P-384 signature.
    #[arg(long, default_value = "nothing")]
    keep: String,
}

pub(crate) fn run(args: Args) -> Outcome {
    let policy = read_policy(&args.policy)?;
    let (report, document) = (read_file(&args.report)?, read_file(&args.endorsements)?);
    let evidence = Evidence { quote: &report, ..Evidence::default() };
    let at = UnixTime::since_unix_epoch(Duration::from_secs(args.at));
    let from_bytes = || -> Outcome<Appraised> {
        let parsed = snp::Endorsements::parse(&document)?;
        Ok(snp::appraise(&evidence, &parsed, &policy, at, &AwsLc)?)
    };
    let hello = Hello {
        simulated: from_bytes()?.root().kind == RootKind::Custom,
        threads: 128,
        note: Some(format!("evidence: {}", args.report.display())),
        ..Hello::new(format!("confide verify-snp, {} kept", args.keep), VERSION)
    };
    let parsed = snp::Endorsements::parse(&document)?;
    let key = parsed.prepare(&policy.roots, at, &AwsLc)?;
    let signed = sign_message()?;
    let floor = || signed.verify();
    serve_runs(&hello, |order| match args.keep.as_str() {
        "nothing" => measure(order, &signed, from_bytes),
        "key" => measure(order, &signed, || Ok(key.appraise(&evidence, &policy, at, &AwsLc)?)),
        "signature" => measure(order, &signed, floor),
        other => Err(format!("--keep {other}: wanted nothing, key or signature").into()),
    })
}

fn measure<T: Send>(
    order: &Run,
    signed: &SignedMessage,
    work: impl Fn() -> Outcome<T> + Sync,
) -> Outcome<Report> {
    order.refuse_unknown_params(&["workers"])?;
    let workers = order.integer_param("workers", 1)?;
    let mut report =
        repeat_in_threads(order, "verify", workers, work, |count, _| json!({ "accepted": count }))?;
    let name = "1 P-384 verification (aws-lc-rs), one thread".to_string();
    report.floor = Some((name, "rate_per_s".into(), measure_verifications_per_s(signed)?));
    Ok(report)
}

const MESSAGE: [u8; SIGNED_LENGTH] = [7; SIGNED_LENGTH];

/// A message of a report's length with its signature.
fn sign_message() -> Outcome<SignedMessage> {
    SignedMessage::new(&ECDSA_P384_SHA384_FIXED_SIGNING, &MESSAGE, |public, signature| {
        let key = AwsLc.prepare_p384(public)?;
        Some(Box::new(move || key.verify(&MESSAGE, &signature)))
    })
}

/// Verifications a second on this thread, now.
fn measure_verifications_per_s(signed: &SignedMessage) -> Outcome<f64> {
    const REPEATS: u32 = 100;
    let start = Instant::now();
    (0..REPEATS).try_for_each(|_| signed.verify())?;
    Ok(f64::from(REPEATS) / start.elapsed().as_secs_f64())
}
