//! `confide policy init`: a strict policy from the evidence of a machine in its proper state.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_evidence::{
    EvidenceKind,
    certificate::Certificate,
    claims::{CLAIMS_BYTES_MAX, Claims},
    detect_kind,
    pck::PckExtension,
    pem,
    quote::{Body, EnclaveReport, QUOTE_LENGTH_MAX, Quote, TdReport},
    snp::{Product, Report, Tcb},
};
use confide_verifier::Policy;

use super::pin;
use crate::{error::CliError, files::read_file, process::print_text};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Evidence: a quote or report, binary.
    #[arg(long, value_name = "EVIDENCE")]
    from: PathBuf,
    /// The digest of the server's configuration, from its ready line or `--print-config-digest`.
    #[arg(long, value_name = "HEX", value_parser = pin::parse_digest)]
    config_digest: Option<String>,
    /// Take the digest from these claims (CBOR) that came with the evidence.
    #[arg(long, value_name = "FILE", conflicts_with = "config_digest")]
    claims: Option<PathBuf>,
    /// Pin no configuration: clients then use a server although only its platform is known.
    #[arg(long, conflicts_with_all = ["config_digest", "claims"])]
    dangerous_platform_scope: bool,
    /// Write the policy to this new file; an existing file is never replaced. By default, standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let evidence = read_file(&args.from, QUOTE_LENGTH_MAX as u64)?;
    let configuration = configuration_lines(args)?;
    let text = draft_policy(&evidence, &configuration).map_err(|error| {
        CliError::in_file(&args.from)(error).with_hint("give a DCAP quote or an SNP report, binary")
    })?;
    // Whatever the evidence held, the text has to be a valid policy.
    Policy::from_toml(&text).map_err(CliError::new)?;
    match &args.out {
        None => print_text(&text)?,
        Some(path) => write_new_file(path, &text)?,
    }
    eprintln!(
        "note: the values from {} were not verified: run `confide verify evidence` on that file with \
         this policy before you trust them",
        args.from.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// The policy's lines on the server's configuration.
fn configuration_lines(args: &Args) -> Result<String, CliError> {
    let digest = match (&args.config_digest, &args.claims) {
        (Some(digest), _) => digest.clone(),
        (None, Some(path)) => {
            let claims = read_file(path, CLAIMS_BYTES_MAX as u64)?;
            let claims = Claims::decode(&claims).map_err(|error| {
                CliError::in_file(path)(error)
                    .with_hint("give the claims of an attested server, CBOR")
            })?;
            hex::encode(claims.config_digest)
        }
        (None, None) if args.dangerous_platform_scope => return Ok(ANY_CONFIGURATION.into()),
        (None, None) => {
            let text = "no configuration is given: clients would refuse a policy without one";
            return Err(CliError::new(text).with_hint(
                "give --config-digest the HEX that `confide gateway … --print-config-digest` prints; \
                 --dangerous-platform-scope writes a policy that accepts any configuration",
            ));
        }
    };
    Ok(format!("{CONFIGURATION}config_digest = \"{digest}\"\n"))
}

fn write_new_file(path: &Path, text: &str) -> Result<(), CliError> {
    let shown = path.display();
    let cannot = |error: std::io::Error| {
        let failure = CliError::new(format!("cannot write {shown}: {error}"));
        match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                failure.with_hint("remove it, or choose another name")
            }
            _ => failure,
        }
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(cannot)?;
    file.write_all(text.as_bytes()).map_err(cannot)
}

fn draft_policy(evidence: &[u8], configuration: &str) -> Result<String, String> {
    let mut text = format!("{HEAD}{configuration}{BINDING}");
    if detect_kind(evidence) == Some(EvidenceKind::SnpReport) {
        let report = Report::parse(evidence).map_err(|error| error.to_string())?;
        write_snp_guest(&mut text, &report);
        return Ok(text);
    }
    let quote = Quote::parse(evidence).map_err(|error| error.to_string())?;
    write_intel_platform(&mut text, &quote);
    match quote.body {
        Body::Tdx(report) => write_trust_domain(&mut text, report),
        Body::Sgx(report) => write_enclave(&mut text, report),
    }
    Ok(text)
}

const HEAD: &str = "\
# The policy for evidence. docs/policy.md documents every key; `confide policy explain` describes it in words.

# A key that is bound by evidence is valid for at most a day.
key_validity_s_max = 86400
";

const CONFIGURATION: &str = "
# SHA-256 of the server's configuration; `confide policy pin` sets another.
";

const ANY_CONFIGURATION: &str = "
# DANGEROUS: any configuration passes, and clients use a server although only its platform is known.
# `confide policy pin` ends both.
config_digest = \"dangerous-any\"
dangerous_scope = \"platform\"
";

const BINDING: &str = "
# To demand evidence that is bound to the TLS session, not to its key:
# binding = \"session\"
";

const INTEL: &str = "
# Intel's production root. A simulated attester has a root of its own, as \"sha256:…\".
roots = [\"intel-production\"]

# Intel's verdict on the platform, and the advisories that may apply to it.
tcb_status = \"UpToDate\"
advisories = []
";

const AMD: &str = "
# AMD's production roots. A simulated attester has a root of its own, as \"sha256:…\".
roots = [\"amd-production\"]
formats = [\"snp\"]
";

fn write_intel_platform(text: &mut String, quote: &Quote<'_>) {
    *text += INTEL;
    let _ = writeln!(text, "formats = [\"{}\"]", quote.tee().as_str());
    if let Some(ppid) = ppid(quote) {
        *text += "
# The machine that gave this evidence. Remove the line to accept any machine.
";
        write_hex_value(text, "ppids", &ppid);
    }
}

/// The platform's identifier, where its certificate has one.
fn ppid(quote: &Quote<'_>) -> Option<[u8; 16]> {
    let chain = pem::decode_chain("PCK chain", quote.pck_chain).ok()?;
    let leaf = Certificate::parse("PCK certificate", chain.first()?).ok()?;
    PckExtension::parse(leaf.sgx_extension?).ok().map(|extension| extension.ppid)
}

fn write_snp_guest(text: &mut String, report: &Report<'_>) {
    *text += AMD;
    *text += "
# The platform. AMD publishes no verdict on security versions: these are the minimum.
[snp]
";
    let product = report.cpuid().and_then(|cpuid| Product::from_cpuid(cpuid.family, cpuid.model));
    let product = product.unwrap_or(Product::Milan);
    let versions = [report.reported_tcb(), report.committed_tcb(), report.launch_tcb()];
    let [reported, committed, launch] = versions.map(|bytes| product.tcb(bytes));
    let least = |part: fn(&Tcb) -> u8| part(&reported).min(part(&committed)).min(part(&launch));
    let fmc = reported.fmc.map(|_| least(|tcb| tcb.fmc.unwrap_or(0)));
    let fmc = fmc.map_or(String::new(), |fmc| format!("fmc = {fmc}, "));
    let _ = writeln!(
        text,
        "tcb_min = {{ {fmc}bootloader = {}, tee = {}, snp = {}, microcode = {} }}",
        least(|tcb| tcb.bootloader),
        least(|tcb| tcb.tee),
        least(|tcb| tcb.snp),
        least(|tcb| tcb.microcode)
    );
    if *report.chip_id() != [0; 64] {
        *text += "# The machine that gave this evidence. Remove the line to accept any machine.
";
        write_hex_value(text, "chip_ids", report.chip_id());
    }
    *text += "
# The guest.
[workload.snp]
";
    for (name, value) in [
        ("measurement", &report.measurement()[..]),
        ("host_data", report.host_data()),
        ("family_id", report.family_id()),
        ("image_id", report.image_id()),
        ("id_key_digest", report.id_key_digest()),
        ("author_key_digest", report.author_key_digest()),
    ] {
        write_hex_value(text, name, value);
    }
    let _ = writeln!(text, "guest_svn_min = {}", report.guest_svn());
    let _ = writeln!(text, "vmpl_max = {}", report.vmpl().min(3));
    let _ = writeln!(text, "# Remove what this guest does not need.");
    let _ = writeln!(text, "smt = {}", report.policy().allows_smt());
    let _ = writeln!(text, "migrate_ma = {}", report.policy().allows_migration_agent());
}

fn write_trust_domain(text: &mut String, report: TdReport<'_>) {
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
        write_hex_value(text, name, value);
    }
    if let Some(service_td) = report.mr_service_td() {
        write_hex_value(text, "mr_service_td", service_td);
    }
}

fn write_enclave(text: &mut String, report: EnclaveReport<'_>) {
    *text += "\n# The enclave.\n[workload.sgx]\n";
    write_hex_value(text, "mrenclave", report.mr_enclave());
    write_hex_value(text, "mrsigner", report.mr_signer());
    let _ = writeln!(text, "isv_prod_id = \"{}\"", report.isv_prod_id());
    let _ = writeln!(text, "isv_svn_min = {}", report.isv_svn());
    write_hex_value(text, "config_id", report.config_id());
}

fn write_hex_value(text: &mut String, name: &str, value: &[u8]) {
    let _ = writeln!(text, "{name} = \"{}\"", hex::encode(value));
}

#[cfg(test)]
mod tests {
    use confide_evidence::ReportData;
    use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, Tee};
    use confide_verifier::{DangerousScope, Expect};

    use super::*;

    /// 2026-06-01.
    const NOW: u64 = 1_780_272_000;

    #[test]
    fn what_is_written_for_each_kind_of_evidence_is_a_policy_without_weakenings() {
        for tee in [Tee::Tdx, Tee::TdxV5, Tee::Sgx, Tee::Snp] {
            let seed = [3; 32];
            let options =
                FakeAttesterOptions { seed, tee, debug: false, issued_at: NOW, mode: Mode::Raw };
            let attester = FakeAttester::new(options).unwrap();
            let quote = attester.quote(&ReportData::ZERO);
            let pinned =
                configuration_lines(&args(&["--config-digest", &"ab".repeat(32)])).unwrap();
            let text = draft_policy(&quote, &pinned).unwrap();
            let policy = Policy::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let mut sentences = policy.explain().into_iter();
            let dangerous = sentences
                .find(|sentence| sentence.stance == confide_verifier::FieldTreatment::Dangerous);
            assert_eq!(dangerous, None, "{text}");
            assert!(policy.workload.is_some());
            assert_eq!(policy.config_digest, Some(Expect::Exactly([0xab; 32])));
            assert_eq!(policy.dangerous_scope, None);
        }
        assert!(draft_policy(b"no evidence", "").is_err());
    }

    /// Issue: `policy init` never writes a policy under which clients accept any configuration,
    /// unless it is asked to by name.
    #[test]
    fn a_policy_without_a_configuration_is_written_only_under_a_dangerous_name() {
        let none = configuration_lines(&args(&[])).unwrap_err();
        assert!(none.hint_text().unwrap().contains("--config-digest"), "{none:?}");
        let any = configuration_lines(&args(&["--dangerous-platform-scope"])).unwrap();
        let policy = Policy::from_toml(&any).unwrap();
        assert_eq!(policy.dangerous_scope, Some(DangerousScope::Platform));
        assert_eq!(policy.config_digest, Some(Expect::DangerousAny));
        let claims = Claims {
            config_digest: [7; 32],
            gpu_evidence_hash: None,
            guarantee: "gateway only".into(),
            nonce: None,
            not_after: NOW + 60,
            not_before: NOW,
            pubkey_hash: [1; 32],
            weights: None,
        };
        let path = std::env::temp_dir().join(format!("confide-init-{}", std::process::id()));
        std::fs::write(&path, claims.encode()).unwrap();
        let from_claims =
            configuration_lines(&args(&["--claims", path.to_str().unwrap()])).unwrap();
        assert!(from_claims.contains(&"07".repeat(32)), "{from_claims}");
        std::fs::write(&path, b"no claims").unwrap();
        assert!(configuration_lines(&args(&["--claims", path.to_str().unwrap()])).is_err());
        std::fs::remove_file(path).unwrap();
    }

    #[derive(clap::Parser)]
    struct Test {
        #[command(flatten)]
        args: Args,
    }

    fn args(more: &[&str]) -> Args {
        let all = [&["init", "--from", "evidence.bin"], more].concat();
        <Test as clap::Parser>::try_parse_from(all).unwrap().args
    }
}
