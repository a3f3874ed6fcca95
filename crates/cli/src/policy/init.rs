//! `confide policy init`: a strict policy, from evidence of a machine that is as it should be.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_evidence::quote::{Body, EnclaveReport, QUOTE_LENGTH_MAX, Quote, TdReport};
use confide_verifier::Policy;

use crate::{
    error::{CliError, read_file},
    process::print_whole,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Evidence: a quote or report, binary.
    #[arg(long, value_name = "EVIDENCE")]
    from: PathBuf,
    /// Where to write it; an existing file is kept. Without it, standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let evidence = read_file(&args.from, QUOTE_LENGTH_MAX as u64)?;
    let text = policy_from(&evidence).map_err(|error| {
        CliError::new(format!("{}: {error}", args.from.display()))
            .hint("wanted a DCAP quote or an SNP report, binary")
    })?;
    // What was written has to be a policy, whatever the evidence held.
    Policy::from_toml(&text).map_err(CliError::new)?;
    match &args.out {
        None => print_whole(&text)?,
        Some(path) => write_new(path, &text)?,
    }
    eprintln!(
        "confide: the values were read from {} and not verified: run `confide verify evidence` on \
         it with this policy before you trust them",
        args.from.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn write_new(path: &Path, text: &str) -> Result<(), CliError> {
    let shown = path.display();
    let cannot = |error: std::io::Error| {
        let failure = CliError::new(format!("cannot write {shown}: {error}"));
        match error.kind() {
            std::io::ErrorKind::AlreadyExists => failure.hint("remove it, or give another name"),
            _ => failure,
        }
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(cannot)?;
    file.write_all(text.as_bytes()).map_err(cannot)
}

fn policy_from(evidence: &[u8]) -> Result<String, String> {
    let quote = Quote::parse(evidence).map_err(|error| error.to_string())?;
    let mut text = String::from(HEAD);
    match quote.body {
        Body::Tdx(report) => trust_domain(&mut text, report),
        Body::Sgx(report) => enclave(&mut text, report),
    }
    Ok(text)
}

const HEAD: &str = "\
# What evidence has to be. docs/policy.md documents every key; `confide policy explain` says it in words.

# The vendors' production roots. A simulated attester has a root of its own, as \"sha256:…\".
roots = [\"intel-production\"]

# Intel's verdict on the platform, and the advisories that may apply to it.
tcb_status = \"UpToDate\"
advisories = []

# A key that is bound in evidence lives a day at most.
key_validity_s_max = 86400

# The attested end's configuration: `confide gateway --print-config-digest` prints it. Without it a yes
# speaks of the platform only.
# config_digest = \"…\"
";

fn trust_domain(text: &mut String, report: TdReport<'_>) {
    *text += "\n# The trust domain: what it started from, and what it has loaded since.\n[workload.tdx]\n";
    let [rtmr0, rtmr1, rtmr2, rtmr3] = report.rtmrs();
    for (name, value) in [
        ("mrtd", report.mr_td()),
        ("rtmr0", rtmr0),
        ("rtmr1", rtmr1),
        ("rtmr2", rtmr2),
        ("rtmr3", rtmr3),
        ("mrconfigid", report.mr_config_id()),
        ("mrowner", report.mr_owner()),
        ("mrownerconfig", report.mr_owner_config()),
        ("mrseam", report.mr_seam()),
    ] {
        value_line(text, name, value);
    }
    if let Some(service_td) = report.mr_service_td() {
        value_line(text, "mr_service_td", service_td);
    }
}

fn enclave(text: &mut String, report: EnclaveReport<'_>) {
    *text += "\n# The enclave.\n[workload.sgx]\n";
    value_line(text, "mrenclave", report.mr_enclave());
    value_line(text, "mrsigner", report.mr_signer());
    let _ = writeln!(text, "isv_prod_id = \"{}\"", report.isv_prod_id());
    let _ = writeln!(text, "isv_svn_min = {}", report.isv_svn());
    value_line(text, "config_id", report.config_id());
}

fn value_line(text: &mut String, name: &str, value: &[u8]) {
    let _ = writeln!(text, "{name} = \"{}\"", hex::encode(value));
}
