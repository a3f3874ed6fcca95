//! Appraisal of one SEV-SNP report, again and again.
//!
//! By default from bytes to verdict with nothing kept in between. `--keep key` keeps the chip key
//! that was verified down from the root, as for every report but the first of a machine. `--keep
//! signature` is the floor: one P-384 verification with a key that is read already.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use confide_arm_line::{Hello, Report, Run, repeat_in_threads, speak};
use confide_evidence::snp::SIGNED_LENGTH;
use confide_verifier::{
    Appraised, AwsLc, Crypto, Evidence, P384Key, Policy, Rejection, RootKind, UnixTime, snp,
};
use serde_json::json;

use crate::{Outcome, read};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The report.
    #[arg(long)]
    report: PathBuf,
    /// Its endorsements (JSON).
    #[arg(long)]
    endorsements: PathBuf,
    /// The time of appraisal, unix seconds.
    #[arg(long)]
    at: u64,
    /// The policy.
    #[arg(long)]
    policy: PathBuf,
    /// What is kept from one appraisal to the next: nothing or key; `signature` appraises nothing
    /// and verifies one P-384 signature.
    #[arg(long, default_value = "nothing")]
    keep: String,
}

pub(crate) fn run(args: Args) -> Outcome {
    let text = String::from_utf8(read(&args.policy)?).map_err(|error| error.to_string())?;
    let policy = Policy::from_toml(&text).map_err(|error| error.to_string())?;
    let (report, document) = (read(&args.report)?, read(&args.endorsements)?);
    let evidence = Evidence { quote: &report, ..Evidence::default() };
    let at = UnixTime::since_unix_epoch(Duration::from_secs(args.at));
    let from_bytes = || {
        let parsed = snp::Endorsements::parse(&document).map_err(|error| error.to_string())?;
        to_outcome(snp::appraise(&evidence, &parsed, &policy, at, &AwsLc))
    };
    let hello = Hello {
        arm: format!("confide verify-snp, {} kept", args.keep),
        version: format!("confide {}", env!("CARGO_PKG_VERSION")),
        simulated: from_bytes()?.root().kind == RootKind::Custom,
        guarantee: None,
        threads: 128,
        note: Some(format!("evidence: {}", args.report.display())),
    };
    let parsed = snp::Endorsements::parse(&document).map_err(|error| error.to_string())?;
    let key = parsed.prepare(&policy.roots, at, &AwsLc).map_err(|error| error.to_string())?;
    let signed = Signed::new()?;
    let floor = || signed.verify();
    speak(&hello, |order| match args.keep.as_str() {
        "nothing" => measure(order, &signed, from_bytes),
        "key" => {
            measure(order, &signed, || to_outcome(key.appraise(&evidence, &policy, at, &AwsLc)))
        }
        "signature" => measure(order, &signed, floor),
        other => Err(format!("--keep {other}: wanted nothing, key or signature")),
    })
    .map_err(|error| error.to_string())
}

fn to_outcome(outcome: Result<Appraised, Rejection>) -> Outcome<Appraised> {
    outcome.map_err(|rejection| rejection.to_string())
}

fn measure<T: Send>(
    order: &Run,
    signed: &Signed,
    work: impl Fn() -> Outcome<T> + Sync,
) -> Outcome<Report> {
    order.knows_only(&["workers"])?;
    let workers = order.number("workers", 1)?;
    let mut report =
        repeat_in_threads(order, "verify", workers, work, |count, _| json!({ "accepted": count }))?;
    let name = "1 P-384 verification (aws-lc-rs), one thread".to_string();
    report.floor = Some((name, "rate_per_s".into(), signed.rate()?));
    Ok(report)
}

/// A message of a report's length with its signature.
struct Signed {
    key: Box<dyn P384Key>,
    signature: [u8; 96],
}

const MESSAGE: [u8; SIGNED_LENGTH] = [7; SIGNED_LENGTH];

impl Signed {
    fn new() -> Outcome<Self> {
        let unspecified = |_| "aws-lc-rs failed".to_string();
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).map_err(unspecified)?;
        let signature = key.sign(&random, &MESSAGE).map_err(unspecified)?;
        let public = key.public_key().as_ref().try_into();
        let key = public.ok().and_then(|public| AwsLc.prepare_p384(public));
        let (Some(key), Ok(signature)) = (key, signature.as_ref().try_into()) else {
            return Err("a P-384 key has 97 bytes and its signature 96".into());
        };
        Ok(Self { key, signature })
    }

    fn verify(&self) -> Outcome {
        match self.key.verify(&MESSAGE, &self.signature) {
            true => Ok(()),
            false => Err("a signature made here does not verify".into()),
        }
    }

    /// Verifications a second on this thread, now.
    fn rate(&self) -> Outcome<f64> {
        const REPEATS: u32 = 100;
        let start = Instant::now();
        (0..REPEATS).try_for_each(|_| self.verify())?;
        Ok(f64::from(REPEATS) / start.elapsed().as_secs_f64())
    }
}
