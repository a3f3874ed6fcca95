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

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use confide_appraiser::Platforms;
use confide_arm_line::{Hello, Report, Run, repeat_in_threads, speak};
use confide_verifier::{
    Appraised, AwsLc, Crypto, Endorsements, Evidence, NoMemory, P256Key, Policy, RecallPlatform,
    Rejection, RootKind, UnixTime, appraise,
};
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
    /// What is kept from one appraisal to the next: nothing, parsed, prepared or platform;
    /// `signature` appraises nothing and verifies one P-256 signature.
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
    let platforms = Platforms::default();
    let known = |memory: &dyn RecallPlatform| {
        let (evidence, policy) = (input.evidence(), &input.policy);
        prepared.appraise(&evidence, policy, input.at, &AwsLc, memory)
    };
    speak(&hello, |order| match args.keep.as_str() {
        "nothing" => measure(order, SIGNATURES, || input.appraise_bytes()),
        "parsed" => measure(order, SIGNATURES, || {
            let crypto: &dyn Crypto = &AwsLc;
            let appraised =
                appraise(&input.evidence(), &endorsements, &input.policy, input.at, crypto);
            to_outcome(appraised)
        }),
        "prepared" => {
            measure(order, 3, || to_outcome(known(&NoMemory).map(|(appraised, _)| appraised)))
        }
        "platform" => measure(order, 1, || {
            to_outcome(known(&platforms).map(|(appraised, learned)| {
                platforms.keep(learned, prepared.generation());
                appraised
            }))
        }),
        "signature" => measure_floor(order),
        other => {
            Err(format!("--keep {other}: wanted nothing, parsed, prepared, platform or signature"))
        }
    })
    .map_err(|error| error.to_string())
}

impl Input {
    fn evidence(&self) -> Evidence<'_> {
        Evidence { quote: &self.quote, claims: None, report_data: None, gpu: None, binding: None }
    }

    fn appraise_bytes(&self) -> Outcome<Appraised> {
        let endorsements =
            Endorsements::parse(&self.collateral).map_err(|error| error.to_string())?;
        to_outcome(appraise(&self.evidence(), &endorsements, &self.policy, self.at, &AwsLc))
    }
}

fn to_outcome(outcome: Result<Appraised, Rejection>) -> Outcome<Appraised> {
    outcome.map_err(|rejection| rejection.to_string())
}

fn measure(
    order: &Run,
    signatures: u32,
    work: impl Fn() -> Outcome<Appraised> + Sync,
) -> Outcome<Report> {
    order.knows_only(&["workers"])?;
    let workers = order.number("workers", 1)?;
    let mut report = repeat_in_threads(order, "verify", workers, work, |count, last| {
        json!({
            "accepted": count,
            "tcb_status": last.tcb_status().map(|status| status.as_str()),
        })
    })?;
    let floor = Signed::new()?.rate(workers)? / f64::from(signatures);
    let name = format!("{signatures} P-256 verifications (aws-lc-rs), {workers} at once");
    report.floor = Some((name, "rate_per_s".into(), floor));
    Ok(report)
}

/// One P-256 verification with a key that is read already, measured as an appraisal is.
fn measure_floor(order: &Run) -> Outcome<Report> {
    order.knows_only(&["workers"])?;
    let signed = Signed::new()?;
    let workers = order.number("workers", 1)?;
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

/// A message of a quote's length with its signature.
struct Signed {
    key: Box<dyn P256Key>,
    signature: [u8; 64],
}

const MESSAGE: [u8; 632] = [7; 632];

impl Signed {
    fn new() -> Outcome<Self> {
        let unspecified = |_| "aws-lc-rs failed".to_string();
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(unspecified)?;
        let signature = key.sign(&random, &MESSAGE).map_err(unspecified)?;
        let public = key.public_key().as_ref().try_into();
        let key = public.ok().and_then(|public| AwsLc.prepare_p256(public));
        let (Some(key), Ok(signature)) = (key, signature.as_ref().try_into()) else {
            return Err("a P-256 key has 65 bytes and its signature 64".into());
        };
        Ok(Self { key, signature })
    }

    fn verify(&self) -> Outcome {
        match self.key.verify(&MESSAGE, &self.signature) {
            true => Ok(()),
            false => Err("a signature made here does not verify".into()),
        }
    }

    /// Verifications a second on this many threads together, now.
    fn rate(&self, workers: u64) -> Outcome<f64> {
        const REPEATS: u32 = 200;
        let start = Instant::now();
        thread::scope(|scope| {
            let repeat = || (0..REPEATS).try_for_each(|_| self.verify());
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(repeat)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a worker died".to_string())?)
        })?;
        Ok(workers as f64 * f64::from(REPEATS) / start.elapsed().as_secs_f64())
    }
}
