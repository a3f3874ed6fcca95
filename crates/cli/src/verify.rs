//! `confide verify`: whether evidence is believed, check by check.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Subcommand;
use confide_evidence::{
    ReportData, claims::CLAIMS_BYTES_MAX, collateral::COLLATERAL_LENGTH_MAX,
    quote::QUOTE_LENGTH_MAX,
};
use confide_verifier::{
    Appraised, Check, Endorsements, Evidence, Expect, Outcome, POLICY_LENGTH_MAX, Policy, Reason,
    Rejection, RootKind, Roots, Scope, UnixTime, appraise,
};
use confide_verifier_aws_lc::AwsLc;
use serde_json::json;

use crate::error::{CliError, read_file};

/// Longest root certificate: Intel's has 659 bytes.
const ROOT_LENGTH_MAX: u64 = 16 * 1024;
/// Room for hexadecimal or white space around a quote is not given; one byte more is read so that
/// the parser names the limit.
const QUOTE_FILE_MAX: u64 = QUOTE_LENGTH_MAX as u64 + 1;

const REJECTED: u8 = 1;
const NOT_JUDGED: u8 = 2;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Check a quote against endorsements, and against a policy where one is given.
    Quote(QuoteArgs),
}

#[derive(clap::Args)]
struct QuoteArgs {
    /// The quote: SGX version 3 or TDX version 4, binary.
    file: PathBuf,
    /// Endorsements: QuoteCollateralV3, JSON.
    #[arg(long, value_name = "FILE")]
    collateral: PathBuf,
    /// The time to judge at, in Unix seconds.
    #[arg(long, value_name = "UNIX")]
    at: u64,
    /// What the evidence has to be, TOML; without it, any program on an up-to-date platform.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The 64 bytes that the quote must hold, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = report_data)]
    report_data: Option<ReportData>,
    /// CBOR claims that the report data covers (key binding).
    #[arg(long, value_name = "FILE")]
    claims: Option<PathBuf>,
    /// A root certificate to trust instead of the policy's, DER.
    #[arg(long, value_name = "DER-FILE")]
    root: Option<PathBuf>,
    /// Accept whatever TCB status and advisories, `Revoked` excepted.
    #[arg(long)]
    dangerous_accept_any_tcb_status: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let What::Quote(args) = args.what;
    let judged = judge(&args);
    if args.json {
        print_json(&judged);
    } else {
        print_table(judged.as_ref());
    }
    match judged {
        Ok(Ok(_)) => Ok(ExitCode::SUCCESS),
        Ok(Err(rejection)) if !rejection.reason().is_unjudged() => Ok(ExitCode::from(REJECTED)),
        Ok(Err(_)) => Ok(ExitCode::from(NOT_JUDGED)),
        // With --json the reason is in the object already.
        Err(_) if args.json => Ok(ExitCode::from(NOT_JUDGED)),
        Err(unreadable) => Err(unreadable.error.status(NOT_JUDGED)),
    }
}

type Judged = Result<Result<Appraised, Rejection>, Unreadable>;

/// An input that could not be read: what the program says, and the same for the JSON object.
struct Unreadable {
    error: CliError,
    reason: String,
}

fn judge(args: &QuoteArgs) -> Judged {
    let policy = policy(args)?;
    let quote = read(&args.file, QUOTE_FILE_MAX)?;
    let claims = match &args.claims {
        None => None,
        Some(path) => Some(read(path, CLAIMS_BYTES_MAX as u64)?),
    };
    let collateral = read(&args.collateral, COLLATERAL_LENGTH_MAX as u64)?;
    let endorsements = match Endorsements::parse(&collateral) {
        Ok(endorsements) => endorsements,
        Err(error) => return Ok(Err(Rejection::unchecked(Reason::Malformed(error)))),
    };
    let evidence =
        Evidence { quote: &quote, claims: claims.as_deref(), report_data: args.report_data };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(args.at));
    Ok(appraise(&evidence, &endorsements, &policy, now, &AwsLc))
}

fn policy(args: &QuoteArgs) -> Result<Policy, Unreadable> {
    let mut policy = match &args.policy {
        None => Policy::default(),
        Some(path) => read_policy(path)?,
    };
    if let Some(path) = &args.root {
        policy.roots = Roots::custom(&read(path, ROOT_LENGTH_MAX)?);
    }
    if args.dangerous_accept_any_tcb_status {
        policy.tcb_status = Expect::DangerousAny;
        policy.advisories = Expect::DangerousAny;
    }
    Ok(policy)
}

fn read_policy(path: &Path) -> Result<Policy, Unreadable> {
    let bytes = read(path, POLICY_LENGTH_MAX as u64)?;
    let wrong = |reason: String| {
        let reason = format!("{}: {reason}", path.display());
        let error = CliError::new(&reason).hint("docs/policy.md lists every key of a policy");
        Unreadable { error, reason }
    };
    let text = String::from_utf8(bytes).map_err(|_| wrong("policy is not UTF-8".to_string()))?;
    Policy::from_toml(&text).map_err(|error| wrong(error.to_string()))
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Unreadable> {
    read_file(path, limit).map_err(|error| Unreadable {
        error,
        reason: format!("cannot read {} within {limit} bytes", path.display()),
    })
}

fn print_json(judged: &Judged) {
    let object = match judged {
        Ok(Ok(appraised)) => appraised.to_json(),
        Ok(Err(rejection)) => rejection.to_json(),
        Err(unreadable) => json!({
            "outcome": "error",
            "scope": "platform",
            "root": null,
            "tcb_status": null,
            "advisories": [],
            "claims": {},
            "checks": [],
            "reason": unreadable.reason,
        }),
    };
    println!("{object}");
}

fn print_table(judged: Result<&Result<Appraised, Rejection>, &Unreadable>) {
    match judged {
        Ok(Ok(appraised)) => {
            print_checks(appraised.checks());
            println!("{}", yes(appraised));
        }
        Ok(Err(rejection)) => {
            print_checks(rejection.checks());
            let verdict = if rejection.reason().is_unjudged() { "not judged" } else { "no" };
            print_line("accepted", verdict, &rejection.reason().to_string());
        }
        Err(_) => {}
    }
}

fn print_checks(checks: &[Check]) {
    for check in checks {
        let outcome = check.outcome.as_str().replace('_', " ");
        print_line(&check.name.replace('_', " "), &outcome, &check.detail);
    }
}

fn print_line(name: &str, outcome: &str, detail: &str) {
    println!("{name:<19}{outcome:<15}{detail}");
}

fn yes(appraised: &Appraised) -> String {
    let passed = |name| {
        let mut checks = appraised.checks().iter();
        checks.any(|check| check.name == name && check.outcome == Outcome::Passed)
    };
    let scope = match (appraised.scope(), passed("measurements"), passed("report_data")) {
        (Scope::Workload, ..) => "platform and workload",
        (_, false, _) => "the platform only: which program runs there was not checked",
        (_, true, false) => "the platform only: that the program spoke here was not checked",
        (_, true, true) => "the platform only: how the program is configured was not checked",
    };
    let root = match appraised.root().kind {
        RootKind::Production => "",
        RootKind::Custom => "; the root is not Intel's",
    };
    format!("{:<19}{:<15}{scope}{root}", "accepted", "yes")
}

fn report_data(text: &str) -> Result<ReportData, String> {
    let mut bytes = [0; 64];
    hex::decode_to_slice(text, &mut bytes)
        .map_err(|_| format!("wanted 128 hexadecimal digits, got {}", text.len()))?;
    Ok(ReportData(bytes))
}
