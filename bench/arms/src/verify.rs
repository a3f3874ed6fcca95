//! Appraisal of one quote, again and again.
//!
//! By default from bytes to verdict with nothing kept in between, parsing of the collateral's JSON
//! included. `--keep parsed` keeps the parsed endorsements; `--keep prepared` keeps them with all
//! their own signatures verified, and meets every quote as that of a new platform; `--keep
//! platform` runs through the memory of a running program, which knows the platform after the first
//! time. `--keep signature` is the floor of them all: one P-256 verification.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use crate::{signed::SignedMessage, trust::read_policy, version::VERSION};
use aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING;
use confide_appraiser::PlatformMemory;
use confide_arm_line::{Hello, Outcome, Report, Run, read_file, repeat_in_threads, serve_runs};
use confide_verifier::{
    Appraised, AwsLc, Crypto, Endorsements, Evidence, NoMemory, Policy, RecallPlatform, RootKind,
    UnixTime, appraise,
};
use serde_json::json;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The quote.
    #[arg(long)]
    quote: PathBuf,
    /// Its collateral (JSON).
    #[arg(long)]
    collateral: PathBuf,
    /// The time of appraisal, in seconds since 1970.
    #[arg(long)]
    at: u64,
    /// A policy; by default, the platform's default policy.
    #[arg(long)]
    policy: Option<PathBuf>,
    /// What is kept between appraisals: nothing, parsed, prepared or platform;
    /// `signature` appraises nothing and verifies one P-256 signature.
    #[arg(long, default_value = "nothing")]
    keep: String,
}

struct AppraisalInput {
    quote: Vec<u8>,
    collateral: Vec<u8>,
    policy: Policy,
    at: UnixTime,
}

pub(crate) fn run(args: Args) -> Outcome {
    let policy = match &args.policy {
        None => Policy::default(),
        Some(path) => read_policy(path)?,
    };
    let input = AppraisalInput {
        quote: read_file(&args.quote)?,
        collateral: read_file(&args.collateral)?,
        policy,
        at: UnixTime::since_unix_epoch(Duration::from_secs(args.at)),
    };
    let accepted = input.appraise_bytes()?;
    let hello = Hello {
        simulated: accepted.root().kind == RootKind::Custom,
        threads: 128,
        note: Some(format!("evidence: {}", args.quote.display())),
        ..Hello::new(format!("confide verify, {} kept", args.keep), VERSION)
    };
    let endorsements = Endorsements::parse(&input.collateral)?;
    let prepared = endorsements.clone().prepare(&input.policy.roots, input.at, &AwsLc)?;
    let platforms = PlatformMemory::default();
    let appraise_prepared = |memory: &dyn RecallPlatform| {
        let (evidence, policy) = (input.evidence(), &input.policy);
        prepared.appraise(&evidence, policy, input.at, &AwsLc, memory)
    };
    serve_runs(&hello, |order| match args.keep.as_str() {
        "nothing" => measure(order, SIGNATURES, || input.appraise_bytes()),
        "parsed" => measure(order, SIGNATURES, || {
            Ok(appraise(&input.evidence(), &endorsements, &input.policy, input.at, &AwsLc)?)
        }),
        "prepared" => measure(order, 3, || Ok(appraise_prepared(&NoMemory)?.0)),
        "platform" => measure(order, 1, || {
            let (appraised, learned) = appraise_prepared(&platforms)?;
            platforms.keep(learned, prepared.endorsements_id());
            Ok(appraised)
        }),
        "signature" => measure_floor(order),
        other => {
            Err(format!("--keep {other}: wanted nothing, parsed, prepared, platform or signature")
                .into())
        }
    })
}

impl AppraisalInput {
    fn evidence(&self) -> Evidence<'_> {
        Evidence { quote: &self.quote, claims: None, report_data: None, gpu: None, binding: None }
    }

    fn appraise_bytes(&self) -> Outcome<Appraised> {
        let endorsements = Endorsements::parse(&self.collateral)?;
        Ok(appraise(&self.evidence(), &endorsements, &self.policy, self.at, &AwsLc)?)
    }
}

fn measure(
    order: &Run,
    signatures: u32,
    work: impl Fn() -> Outcome<Appraised> + Sync,
) -> Outcome<Report> {
    order.refuse_unknown_params(&["workers"])?;
    let workers = order.integer_param("workers", 1)?;
    let mut report = repeat_in_threads(order, "verify", workers, work, |count, last| {
        json!({
            "accepted": count,
            "tcb_status": last.tcb_status().map(|status| status.as_str()),
        })
    })?;
    let floor = measure_verifications_per_s(&sign_message()?, workers)? / f64::from(signatures);
    let name = format!("{signatures} P-256 verifications (aws-lc-rs), {workers} at once");
    report.floor = Some((name, "rate_per_s".into(), floor));
    Ok(report)
}

/// One P-256 verification with a key that is read already, measured as an appraisal is.
fn measure_floor(order: &Run) -> Outcome<Report> {
    order.refuse_unknown_params(&["workers"])?;
    let signed = sign_message()?;
    let workers = order.integer_param("workers", 1)?;
    repeat_in_threads(
        order,
        "verify",
        workers,
        || signed.verify(),
        |count, ()| json!({ "accepted": count }),
    )
}

/// From the root to the quote: root CRL, platform CA, PCK CRL, PCK, TCB signer, TCB info, QE
/// identity, QE report, quote.
const SIGNATURES: u32 = 9;

const MESSAGE: [u8; 632] = [7; 632];

/// A message of a quote's length with its signature.
fn sign_message() -> Outcome<SignedMessage> {
    SignedMessage::new(&ECDSA_P256_SHA256_FIXED_SIGNING, &MESSAGE, |public, signature| {
        let key = AwsLc.prepare_p256(public)?;
        Some(Box::new(move || key.verify(&MESSAGE, &signature)))
    })
}

/// Verifications a second on this many threads together, now.
fn measure_verifications_per_s(signed: &SignedMessage, workers: u64) -> Outcome<f64> {
    const REPEATS: u32 = 200;
    let start = Instant::now();
    thread::scope(|scope| {
        let repeat = || (0..REPEATS).try_for_each(|_| signed.verify());
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(repeat)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a worker panicked")?)
    })?;
    Ok(workers as f64 * f64::from(REPEATS) / start.elapsed().as_secs_f64())
}
