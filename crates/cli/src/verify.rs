//! `confide verify`: whether evidence or a proof is believed, check by check.

mod disclosure;
mod evidence;
mod gpu;
#[cfg(feature = "prove")]
mod proof;
mod serve;

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Subcommand;
use confide_evidence::{
    ParseError, ReportData, certificate::Certificate, claims::CLAIMS_BYTES_MAX,
    collateral::COLLATERAL_LENGTH_MAX, gpu::DeviceCertificate, pem, quote::QUOTE_LENGTH_MAX,
    snp::AmdCertificate,
};
use confide_verifier::{
    Appraised, AwsLc, Check, Endorsements, Evidence, Expect, Outcome, POLICY_LENGTH_MAX, Policy,
    Reason, Rejection, RootKind, Roots, Scope, UnixTime, appraise,
};
use serde_json::{Value, json};

#[cfg(not(feature = "prove"))]
use crate::features::proof;
use crate::{error::CliError, policy::file, process::unix_now, time::time};
pub(crate) use disclosure::{claim_words, name_words, text_proofs};

/// Longest root certificate: Intel's has 659 bytes.
const ROOT_LENGTH_MAX: u64 = 16 * 1024;

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
    /// Check evidence of a kind that its bytes tell.
    Evidence(evidence::EvidenceArgs),
    /// Check a proof that `confide prove` wrote.
    #[command(hide = cfg!(not(feature = "prove")))]
    Proof(proof::Args),
    /// Check what somebody shows and proves of a session that a notary saw.
    Disclosure(disclosure::DisclosureArgs),
    /// Appraise over HTTP, and sign the results.
    Serve(serve::Args),
}

#[derive(clap::Args)]
struct QuoteArgs {
    /// The quote: SGX version 3, TDX version 4, or version 5, binary.
    file: PathBuf,
    /// Endorsements: QuoteCollateralV3, JSON.
    #[arg(long, value_name = "FILE")]
    collateral: PathBuf,
    /// The time to judge at: `now`, an RFC 3339 date or Unix seconds; without it, now.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<u64>,
    /// What the evidence has to be, TOML; without it, any program on an up-to-date platform.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The 64 bytes that the quote must hold, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = report_data)]
    report_data: Option<ReportData>,
    /// CBOR claims: the report data has to be their SHA-256 and 32 zero bytes (key binding).
    // A report data of one's own beside them would leave the claims unsigned.
    #[arg(long, value_name = "FILE", conflicts_with = "report_data")]
    claims: Option<PathBuf>,
    /// A root certificate to trust instead of the policy's, DER or PEM.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Accept whatever TCB status and advisories, `Revoked` excepted, whatever the policy says.
    #[arg(long)]
    dangerous_accept_any_tcb_status: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let args = match args.what {
        What::Quote(args) => args,
        What::Disclosure(args) => return disclosure::run(args),
        What::Evidence(args) => return evidence::run(args),
        What::Proof(args) => return proof::run(args),
        What::Serve(args) => return serve::run(args),
    };
    let judged = judge(&args);
    let (text, status) = match &judged {
        Ok(Ok(appraised)) if args.json => (line(&appraised.to_json()), ExitCode::SUCCESS),
        Ok(Ok(appraised)) => (yes(appraised), ExitCode::SUCCESS),
        Ok(Err(rejection)) if args.json => (line(&rejection.to_json()), refusal(rejection)),
        Ok(Err(rejection)) => (no(rejection), refusal(rejection)),
        Err(unreadable) if args.json => (line(&unreadable.to_json()), NOT_JUDGED.into()),
        Err(unreadable) => return Err(unreadable.error()),
    };
    print(&text).map(|()| status)
}

fn print(text: &str) -> Result<(), CliError> {
    // A reader that went away did not get the verdict: that is no success.
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| CliError::new(format!("cannot write the verdict: {error}")))
}

fn refusal(rejection: &Rejection) -> ExitCode {
    match rejection.reason().is_unreadable() {
        true => NOT_JUDGED.into(),
        false => REJECTED.into(),
    }
}

type Judged = Result<Result<Appraised, Rejection>, Unreadable>;

/// An input that could not be read.
#[derive(Debug)]
struct Unreadable {
    reason: String,
    hint: Option<&'static str>,
}

impl Unreadable {
    fn new(reason: String) -> Self {
        Self { reason, hint: None }
    }

    fn error(&self) -> CliError {
        let error = CliError::new(&self.reason).status(NOT_JUDGED);
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "outcome": "error",
            "scope": "platform",
            "root": null,
            "tcb_status": null,
            "advisories": [],
            "claims": {},
            "checks": [],
            "reason": self.reason,
        })
    }
}

fn judge(args: &QuoteArgs) -> Judged {
    let policy = policy(args)?;
    let quote = read(&args.file, QUOTE_LENGTH_MAX as u64)?;
    let claims = match &args.claims {
        None => None,
        Some(path) => Some(read(path, CLAIMS_BYTES_MAX as u64)?),
    };
    let collateral = read(&args.collateral, COLLATERAL_LENGTH_MAX as u64)?;
    let endorsements = match Endorsements::parse(&collateral) {
        Ok(endorsements) => endorsements,
        Err(error) => return Ok(Err(Rejection::before_checks(Reason::Malformed(error)))),
    };
    let evidence = Evidence {
        quote: &quote,
        claims: claims.as_deref(),
        report_data: args.report_data,
        gpu: None,
        binding: None,
    };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(args.at.unwrap_or_else(unix_now)));
    Ok(appraise(&evidence, &endorsements, &policy, now, &AwsLc))
}

fn policy(args: &QuoteArgs) -> Result<Policy, Unreadable> {
    let mut policy = match &args.policy {
        None => Policy::default(),
        Some(path) => read_policy(path)?,
    };
    if let Some(path) = &args.root {
        policy.roots = Roots::from_der(&read_root(path)?);
    }
    if args.dangerous_accept_any_tcb_status {
        policy.tcb_status = Expect::DangerousAny;
        policy.advisories = Expect::DangerousAny;
    }
    Ok(policy)
}

fn read_policy(path: &Path) -> Result<Policy, Unreadable> {
    let bytes = read(path, POLICY_LENGTH_MAX as u64)?;
    let wrong = |reason: String| Unreadable {
        reason: format!("{}: {reason}", path.display()),
        hint: Some(file::HINT),
    };
    let text = String::from_utf8(bytes).map_err(|_| wrong("policy is not UTF-8".to_string()))?;
    Policy::from_toml(&text).map_err(|error| wrong(file::describe(&error)))
}

/// The DER of a certificate that may be of any vendor, given as DER or as one PEM certificate.
fn read_root(path: &Path) -> Result<Vec<u8>, Unreadable> {
    const SUBJECT: &str = "root certificate";
    let bytes = read(path, ROOT_LENGTH_MAX)?;
    let wrong = |error: ParseError| Unreadable {
        reason: format!("{}: {error}", path.display()),
        hint: Some("--root takes one certificate, DER or PEM"),
    };
    let der = match bytes.trim_ascii_start().starts_with(b"-----BEGIN") {
        false => bytes,
        true => match &mut pem::decode_chain(SUBJECT, &bytes).map_err(wrong)?[..] {
            [der] => std::mem::take(der),
            _ => return Err(wrong(ParseError::TooMany { subject: SUBJECT, limit: 1 })),
        },
    };
    match Certificate::parse(SUBJECT, &der) {
        Ok(_) => Ok(der),
        Err(_) if AmdCertificate::parse(SUBJECT, &der).is_ok() => Ok(der),
        Err(_) if DeviceCertificate::parse(SUBJECT, &der).is_ok() => Ok(der),
        Err(error) => Err(wrong(error)),
    }
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Unreadable> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let all = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    match all {
        Err(error) => Err(Unreadable::new(format!("cannot read {shown}: {error}"))),
        Ok(_) if bytes.len() as u64 > limit => Err(Unreadable::new(format!(
            "{shown} is too long: wanted at most {limit} bytes, got more"
        ))),
        Ok(_) => Ok(bytes),
    }
}

fn line(object: &Value) -> String {
    format!("{object}\n")
}

fn no(rejection: &Rejection) -> String {
    let verdict = if rejection.reason().is_unreadable() { "not judged" } else { "no" };
    table(rejection.checks(), verdict, &rejection.reason().to_string())
}

fn yes(appraised: &Appraised) -> String {
    let passed = |name| {
        let mut checks = appraised.checks().iter();
        checks.any(|check| check.name == name && check.outcome == Outcome::Passed)
    };
    let (verdict, why) = match (appraised.scope(), passed("measurements"), passed("report_data")) {
        (Scope::Workload, ..) => ("yes", "platform and program"),
        _ if appraised.is_debug() => (PLATFORM_ONLY, "the host can change the program at will"),
        (_, false, _) => (PLATFORM_ONLY, "which program runs there was not checked"),
        (_, true, false) => {
            (PLATFORM_ONLY, "whether that program made this evidence for you was not checked")
        }
        (_, true, true) => (PLATFORM_ONLY, "program or configuration were not checked as a whole"),
    };
    let root = match appraised.root().kind {
        RootKind::Production => "",
        RootKind::Custom => "; the root is not a vendor's",
    };
    table(appraised.checks(), verdict, &format!("{why}{root}"))
}

/// What stands in place of `yes` where nothing is known of the program.
const PLATFORM_ONLY: &str = "platform only";

fn table(checks: &[Check], verdict: &str, why: &str) -> String {
    let mut text = String::new();
    for Check { name, outcome, detail } in checks {
        let (name, outcome) = (name.replace('_', " "), outcome.as_str().replace('_', " "));
        let _ = writeln!(text, "{name:<19}{outcome:<15}{detail}");
    }
    let _ = writeln!(text, "{:<19}{verdict:<15}{why}", "accepted");
    text
}

fn report_data(text: &str) -> Result<ReportData, String> {
    let mut bytes = [0; 64];
    hex::decode_to_slice(text, &mut bytes)
        .map_err(|error| format!("wanted 128 hexadecimal digits, got {}: {error}", text.len()))?;
    Ok(ReportData(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use confide_evidence::claims::Claims;
    use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, Tee};

    use super::*;

    #[test]
    fn claims_beside_a_report_data_of_ones_own_are_not_taken_for_signed() {
        let case = Case::new("claims");
        let signed = claims(7).encode();
        let bound = ReportData::from_digest(confide_verifier::Crypto::sha256(&AwsLc, &[&signed]));
        case.write("claims", &signed);
        case.write("evidence.bin", &case.attester.quote(&bound));
        let yes = judge(&case.args(&["--claims", &case.path("claims")]).unwrap());
        assert!(yes.unwrap().unwrap().claims().is_some());
        // Claims that the quote does not cover, and what the quote does hold.
        case.write("claims", &claims(8).encode());
        let no = judge(&case.args(&["--claims", &case.path("claims")]).unwrap());
        assert!(matches!(no.unwrap().unwrap_err().reason(), Reason::Value { .. }));
        let both = ["--claims", &case.path("claims"), "--report-data", &bound.to_string()];
        assert!(case.args(&both).is_err());
    }

    #[test]
    fn what_cannot_be_read_is_named_and_not_judged() {
        let case = Case::new("unreadable");
        case.write("pem", b"-----BEGIN CERTIFICATE-----");
        case.write("long", &vec![0; POLICY_LENGTH_MAX + 1]);
        for (option, file, wanted) in [
            ("--root", "absent", "absent: No such file"),
            ("--root", "pem", "root certificate is malformed"),
            ("--policy", "absent", "absent: No such file"),
            ("--policy", "long", "wanted at most 65536 bytes"),
            ("--policy", "pem", "policy is not valid"),
            ("--claims", ".", "cannot read"),
            ("--claims", "long", "wanted at most 1024 bytes"),
        ] {
            let unreadable = judge(&case.args(&[option, &case.path(file)]).unwrap()).unwrap_err();
            assert!(unreadable.reason.contains(wanted), "{option} {file}: {}", unreadable.reason);
            assert!(!line(&unreadable.to_json()).trim_end().contains('\n'));
        }
    }

    #[test]
    fn an_empty_or_oversized_quote_and_empty_collateral_are_not_judged() {
        let case = Case::new("empty");
        let args = case.args(&[]).unwrap();
        case.write("evidence.bin", &vec![0; QUOTE_LENGTH_MAX + 1]);
        assert!(judge(&args).unwrap_err().reason.contains("wanted at most 32768 bytes"));
        for name in ["evidence.bin", "collateral.json"] {
            case.write(name, b"");
            let rejection = judge(&args).unwrap().unwrap_err();
            assert!(rejection.reason().is_unreadable(), "{rejection}");
            assert_eq!(rejection.to_json()["outcome"], "error");
        }
    }

    #[test]
    fn report_data_is_64_bytes_in_hexadecimal_and_a_time_is_a_number() {
        let case = Case::new("arguments");
        for bad in ["", "00", &"0".repeat(127), &"0".repeat(130), &"g".repeat(128)] {
            assert!(case.args(&["--report-data", bad]).is_err(), "{bad}");
        }
        case.args(&["--report-data", &"aB".repeat(64)]).unwrap();
        for bad in ["-1", "1.5", "", "today", "18446744073709551616"] {
            let args = ["t", "quote", "q", "--collateral", "c", "--at", bad];
            assert!(Test::try_parse_from(args).is_err(), "{bad}");
        }
    }

    struct Case {
        dir: PathBuf,
        attester: FakeAttester,
    }

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        args: Args,
    }

    impl Case {
        fn new(name: &str) -> Self {
            let options = FakeAttesterOptions {
                seed: [3; 32],
                tee: Tee::Tdx,
                debug: false,
                issued_at: NOW,
                mode: Mode::Raw,
            };
            let attester = FakeAttester::new(options).unwrap();
            let dir = format!("confide-verify-{name}-{}", std::process::id());
            let case = Self { dir: std::env::temp_dir().join(dir), attester };
            case.attester.save(&case.dir).unwrap();
            case.write("evidence.bin", &case.attester.quote(&ReportData::ZERO));
            case
        }

        fn path(&self, name: &str) -> String {
            self.dir.join(name).display().to_string()
        }

        fn write(&self, name: &str, bytes: &[u8]) {
            fs::write(self.dir.join(name), bytes).unwrap();
        }

        fn args(&self, more: &[&str]) -> Result<QuoteArgs, clap::Error> {
            let (quote, collateral) = (self.path("evidence.bin"), self.path("collateral.json"));
            let (at, root) = (NOW.to_string(), self.path("root.der"));
            let mut all = vec!["t", "quote", &quote, "--collateral", &collateral, "--at", &at];
            if !more.contains(&"--root") {
                all.extend(["--root", &root]);
            }
            all.extend(more);
            Test::try_parse_from(all).map(|test| {
                let What::Quote(args) = test.args.what else { panic!("another command") };
                args
            })
        }
    }

    impl Drop for Case {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    /// 2026-06-01.
    const NOW: u64 = 1_780_272_000;

    fn claims(config: u8) -> Claims {
        Claims {
            config_digest: [config; 32],
            gpu_evidence_hash: None,
            guarantee: "operator is outside the TEE".into(),
            nonce: None,
            not_after: NOW + 60,
            not_before: NOW,
            pubkey_hash: [1; 32],
        }
    }
}
