//! Appraisal of one quote, again and again.
//!
//! By default from bytes to verdict with nothing kept in between, parsing of the collateral's JSON
//! included. `--keep parsed` keeps the parsed endorsements, `--keep prepared` also the outcome of
//! all their own signatures, as a relying party with cached collateral does.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use confide_arm_line::{Hello, Report, Run, repeat_in_threads, speak};
use confide_verifier::{
    Appraised, Crypto, Endorsements, Evidence, Nothing, Policy, Rejection, RootKind, UnixTime,
    appraise,
};
use confide_verifier_aws_lc::AwsLc;
use serde_json::json;

use crate::{Outcome, read};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The quote.
    #[arg(long)]
    quote: PathBuf,
    /// Its collateral (JSON).
    #[arg(long)]
    collateral: PathBuf,
    /// The time of appraisal, unix seconds.
    #[arg(long)]
    at: u64,
    /// A policy; without it, the default policy of the platform.
    #[arg(long)]
    policy: Option<PathBuf>,
    /// What is kept from one appraisal to the next: nothing, parsed or prepared.
    #[arg(long, default_value = "nothing")]
    keep: String,
}

struct Input {
    quote: Vec<u8>,
    collateral: Vec<u8>,
    policy: Policy,
    at: UnixTime,
}

pub(crate) fn run(args: Args) -> Outcome {
    let policy = match &args.policy {
        None => Policy::default(),
        Some(path) => {
            let text = String::from_utf8(read(path)?).map_err(|error| error.to_string())?;
            Policy::from_toml(&text).map_err(|error| error.to_string())?
        }
    };
    let input = Input {
        quote: read(&args.quote)?,
        collateral: read(&args.collateral)?,
        policy,
        at: UnixTime::since_unix_epoch(Duration::from_secs(args.at)),
    };
    let accepted = input.appraise_bytes()?;
    let hello = Hello {
        arm: format!("confide verify, {} kept", args.keep),
        version: format!("confide {}", env!("CARGO_PKG_VERSION")),
        simulated: accepted.root().kind == RootKind::Custom,
        guarantee: None,
        threads: 128,
        note: Some(format!("evidence: {}", args.quote.display())),
    };
    let endorsements = Endorsements::parse(&input.collateral).map_err(|error| error.to_string())?;
    let prepared = endorsements
        .clone()
        .prepare(&input.policy.roots, input.at, &AwsLc)
        .map_err(|error| error.to_string())?;
    speak(&hello, |order| match args.keep.as_str() {
        "nothing" => measure(order, || input.appraise_bytes()),
        "parsed" => measure(order, || {
            let crypto: &dyn Crypto = &AwsLc;
            let appraised =
                appraise(&input.evidence(), &endorsements, &input.policy, input.at, crypto);
            said(appraised)
        }),
        "prepared" => measure(order, || {
            let (evidence, policy) = (input.evidence(), &input.policy);
            let appraised = prepared.appraise(&evidence, policy, input.at, &AwsLc, &Nothing);
            said(appraised.map(|(appraised, _)| appraised))
        }),
        other => Err(format!("--keep {other}: wanted nothing, parsed or prepared")),
    })
    .map_err(|error| error.to_string())
}

impl Input {
    fn evidence(&self) -> Evidence<'_> {
        Evidence { quote: &self.quote, claims: None, report_data: None, gpu: None }
    }

    fn appraise_bytes(&self) -> Outcome<Appraised> {
        let endorsements =
            Endorsements::parse(&self.collateral).map_err(|error| error.to_string())?;
        said(appraise(&self.evidence(), &endorsements, &self.policy, self.at, &AwsLc))
    }
}

fn said(outcome: Result<Appraised, Rejection>) -> Outcome<Appraised> {
    outcome.map_err(|rejection| rejection.to_string())
}

fn measure(order: &Run, work: impl Fn() -> Outcome<Appraised> + Sync) -> Outcome<Report> {
    order.knows_only(&["workers"])?;
    let workers = order.number("workers", 1)?;
    let mut report = repeat_in_threads(
        order,
        "verify",
        workers,
        work,
        |count, last| json!({ "accepted": count, "tcb_status": last.tcb_status().map(|status| status.as_str()) }),
    )?;
    if workers == 1 {
        let name = format!("{SIGNATURES} P-256 verifications (aws-lc-rs), one core");
        report.floor = Some((name, "rate_per_s".into(), signature_rate()? / SIGNATURES));
    }
    Ok(report)
}

/// From the root to the quote: root CRL, platform CA, PCK CRL, PCK, TCB signer, TCB info, QE
/// identity, QE report, quote.
const SIGNATURES: f64 = 9.0;

/// P-256 verifications a second on this thread, over a message of a quote's length, now.
fn signature_rate() -> Outcome<f64> {
    const REPEATS: u32 = 200;
    let unspecified = |_| "aws-lc-rs failed".to_string();
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(unspecified)?;
    let message = [7; 632];
    let signature = key.sign(&random, &message).map_err(unspecified)?;
    let public = key.public_key().as_ref();
    let (public, signature) = (public.try_into(), signature.as_ref().try_into());
    let (Ok(public), Ok(signature)) = (public, signature) else {
        return Err("a P-256 key has 65 bytes and its signature 64".into());
    };
    let start = Instant::now();
    for _ in 0..REPEATS {
        if !AwsLc.verify_p256(public, &message, signature) {
            return Err("a signature made here does not verify".into());
        }
    }
    Ok(f64::from(REPEATS) / start.elapsed().as_secs_f64())
}
