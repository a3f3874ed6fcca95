//! `confide attest`: evidence of this machine, or *simulated* evidence.

pub(crate) mod chosen;
mod detect;
pub(crate) mod device;
mod tree;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::ValueEnum;
use confide_evidence::ReportData;
use confide_fake_attester::{FakeAttester, FakeError, Mode, Options, STATE_FILE, Tee};

use crate::{
    error::CliError,
    process::{print_whole, unix_now},
};
use device::{DeviceArgs, Opened};

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Make simulated evidence of this kind; no hardware is involved and nothing is protected
    #[arg(long, value_name = "TEE")]
    simulate: Option<SimulatedTee>,
    /// Where evidence, collateral, root, policy and the attester's state are written: a folder that
    /// is not there yet, or is empty
    #[arg(long, value_name = "DIR", required_unless_present = "detect")]
    out: Option<PathBuf>,
    /// What the quote signs: at most 64 bytes in hexadecimal, zeros are added at the end
    #[arg(long, value_name = "HEX", value_parser = report_data)]
    report_data: Option<ReportData>,
    /// Pretend to run in debug mode; the policy that is written allows it
    #[arg(long, requires = "simulate")]
    debug: bool,
    /// With a simulated GPU beside it; the policy that is written requires it, so it is accepted
    /// with session binding only
    #[arg(long, requires = "simulate")]
    gpu: bool,
    /// How long a quote takes: as software signs, or serial at 39 ms as measured on hardware
    #[arg(long, value_enum, default_value_t = SimulatedMode::Raw, requires = "simulate")]
    mode: SimulatedMode,
    /// Write a policy under which clients talk to this attester in whatever configuration; without
    /// this they refuse until `confide policy pin` has named one
    #[arg(long, requires = "simulate")]
    dangerous_platform_scope: bool,
    /// Put a new simulated attester in the place of the one in --out: other keys, another root, a
    /// policy without pins
    #[arg(long, requires = "simulate")]
    replace: bool,
    /// Where the keys come from: 32 bytes in hexadecimal; the same seed gives the same root
    #[arg(long, value_name = "HEX", value_parser = seed, requires = "simulate")]
    seed: Option<[u8; 32]>,
    /// Then serve a simulated configfs-tsm tree in this folder until told to stop (FUSE)
    #[arg(long, value_name = "MOUNTPOINT", requires = "simulate")]
    tsm: Option<PathBuf>,
    /// Say which devices this machine has, how that is known, and what is absent
    #[arg(long, conflicts_with_all = ["simulate", "report_data", "out"])]
    detect: bool,
    /// With --detect, say it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum SimulatedTee {
    /// A TDX quote, version 4
    Tdx,
    /// A TDX quote, version 5
    TdxV5,
    /// An SGX quote, version 3
    Sgx,
    /// An AMD SEV-SNP report
    Snp,
}

#[derive(Clone, Copy, ValueEnum)]
enum SimulatedMode {
    /// As fast as software signs
    Raw,
    /// One at a time, 39 ms each
    Device,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match (&args.out, args.simulate) {
        (Some(out), Some(tee)) => simulate(&args, tee, out)?,
        (Some(out), None) => ask_device(&args, out)?,
        (None, _) => detect::print(Path::new("/"), &args.device.tsm_root(), args.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn simulate(args: &Args, tee: SimulatedTee, out: &Path) -> Result<(), CliError> {
    if !(args.replace && out.join(STATE_FILE).is_file()) {
        let hint =
            "give another folder, or --replace to make a new simulated attester in its place";
        refuse_occupied(out, hint)?;
    }
    let mut attester = FakeAttester::new(options(args, tee)?).map_err(CliError::new)?;
    if args.gpu {
        attester = attester.with_gpu().map_err(CliError::new)?;
    }
    let evidence = attester.quote(&signed(args));
    attester.save(out).map_err(cannot_write)?;
    if args.dangerous_platform_scope {
        write(out, "policy.toml", attester.dangerous_policy_toml().as_bytes())?;
    }
    write(out, "evidence.bin", &evidence)?;
    match &args.tsm {
        None => print_whole(&simulated_summary(args, tee, out, &attester, evidence.len())),
        Some(mountpoint) => tree::serve(attester, mountpoint),
    }
}

/// A folder that holds something may hold a root and pins that somebody relies on.
fn refuse_occupied(out: &Path, hint: &str) -> Result<(), CliError> {
    let cannot = |error| CliError::new(format!("cannot read {}: {error}", out.display()));
    match fs::read_dir(out) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            Err(cannot(error).hint("--out names a folder; it is made where it is missing"))
        }
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(Err(error)) => Err(cannot(error)),
            Some(Ok(_)) => {
                let text = format!("{} exists and is not empty", out.display());
                Err(CliError::new(text).hint(hint))
            }
        },
    }
}

fn ask_device(args: &Args, out: &Path) -> Result<(), CliError> {
    refuse_occupied(out, "give another folder")?;
    let Opened { attester, kind, way } = args.device.open()?;
    let evidence = attester.attest(&signed(args)).map_err(CliError::new)?;
    fs::create_dir_all(out)
        .map_err(|error| CliError::new(format!("cannot make {}: {error}", out.display())))?;
    write(out, "evidence.bin", &evidence)?;
    let collateral = attester.collateral();
    if let Some(collateral) = &collateral {
        write(out, "collateral.json", collateral)?;
    }
    let mut text = format!("evidence of this machine in {}, from {way}\n", shown(out));
    if attester.simulated() {
        text += "simulated: that is not the kernel's own tree, so this protects nothing\n";
    }
    let file = |name: &str, what: &str| format!("  {name:24} {what}\n");
    text += &file("evidence.bin", &format!("{kind}, {} bytes", evidence.len()));
    if collateral.is_some() {
        text += &file("collateral.json", "the endorsements that the host gave with it");
    }
    print_whole(&text)
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), CliError> {
    let path = dir.join(name);
    fs::write(&path, bytes)
        .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))
}

fn options(args: &Args, tee: SimulatedTee) -> Result<Options, CliError> {
    Ok(Options {
        seed: args.seed.map_or_else(Options::random_seed, Ok).map_err(CliError::new)?,
        tee: match tee {
            SimulatedTee::Tdx => Tee::Tdx,
            SimulatedTee::TdxV5 => Tee::TdxV5,
            SimulatedTee::Sgx => Tee::Sgx,
            SimulatedTee::Snp => Tee::Snp,
        },
        debug: args.debug,
        issued_at: unix_now(),
        mode: match args.mode {
            SimulatedMode::Raw => Mode::Raw,
            SimulatedMode::Device => Mode::Device,
        },
    })
}

/// What the quote signs; all zero unless asked otherwise.
fn signed(args: &Args) -> ReportData {
    args.report_data.unwrap_or(ReportData::ZERO)
}

fn cannot_write(error: FakeError) -> CliError {
    CliError::new(error).hint("--out names a folder; it is made where it is missing")
}

fn simulated_summary(
    args: &Args,
    tee: SimulatedTee,
    out: &Path,
    attester: &FakeAttester,
    bytes: usize,
) -> String {
    let kind = match tee {
        SimulatedTee::Tdx => "TDX quote, version 4",
        SimulatedTee::TdxV5 => "TDX quote, version 5",
        SimulatedTee::Sgx => "SGX quote, version 3",
        SimulatedTee::Snp => "SEV-SNP report, version 3",
    };
    let debug = if args.debug { "on" } else { "off" };
    let days = (attester.collateral_until() + 1 - attester.issued_at()) / 86_400;
    let mut files = vec![
        ("evidence.bin", format!("{kind}, {bytes} bytes, debug {debug}")),
        ("collateral.json", format!("simulated endorsements, good for {days} days")),
        ("root.der", "the simulated root certificate".into()),
        ("policy.toml", "accepts this simulated attester and no other".into()),
        (STATE_FILE, "the simulated attester itself: whoever reads it can sign".into()),
    ];
    if attester.endorsement_key_der().is_some() {
        files.push(("endorsement-key.der", "the simulated endorsement key's certificate".into()));
        files.push(("chain.pem", "the simulated signing key and root above it".into()));
        files.push(("crl.der", "the simulated root's revocation list".into()));
    }
    let dir = shown(out);
    let mut text = format!("simulated evidence in {dir}: made by software, it protects nothing\n");
    for (name, what) in files {
        text += &format!("  {name:24} {what}\n");
    }
    let gateway = |binding| {
        format!(
            "confide gateway --simulate {dir} --binding {binding} --upstream URL \
             --listen 127.0.0.1:0\n"
        )
    };
    // The file holds no evidence of the GPU, which the policy requires.
    text += &match args.gpu {
        true => format!("next: {}", gateway("session")),
        false => format!("next: {}\nor: {}", verification(args, out), gateway("key")),
    };
    if !args.dangerous_platform_scope {
        let policy = shown(&out.join("policy.toml"));
        text += &format!(
            "then, for clients: confide policy pin {policy} --digest HEX, the gateway's config_digest\n"
        );
    }
    text
}

/// The command that verifies what was simulated, the same for every kind of evidence.
fn verification(args: &Args, out: &Path) -> String {
    let file = |name: &str| shown(&out.join(name));
    let (evidence, collateral) = (file("evidence.bin"), file("collateral.json"));
    let policy = file("policy.toml");
    let signed = args.report_data.map_or(String::new(), |data| format!(" --report-data {data}"));
    format!(
        "confide verify evidence {evidence} --collateral {collateral} --policy {policy}{signed}"
    )
}

/// A path as a shell takes it.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+@%=:,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn report_data(text: &str) -> Result<ReportData, String> {
    let bytes = hex::decode(text).map_err(|error| format!("wanted hexadecimal: {error}"))?;
    let mut data = ReportData::ZERO;
    match data.0.get_mut(..bytes.len()) {
        Some(start) => start.copy_from_slice(&bytes),
        None => return Err(format!("wanted at most 64 bytes, got {}", bytes.len())),
    }
    Ok(data)
}

fn seed(text: &str) -> Result<[u8; 32], String> {
    let mut seed = [0; 32];
    hex::decode_to_slice(text, &mut seed)
        .map_err(|error| format!("wanted 64 hexadecimal digits: {error}"))?;
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_report_data_is_filled_with_zeros() {
        assert_eq!(report_data("").unwrap(), ReportData::ZERO);
        let data = report_data("0102").unwrap();
        assert_eq!((data.0[0], data.0[1], data.0[2]), (1, 2, 0));
        assert_eq!(report_data(&"ff".repeat(64)).unwrap().0, [0xff; 64]);
    }

    #[test]
    fn report_data_that_is_too_long_or_not_hexadecimal_is_refused() {
        assert!(report_data(&"00".repeat(65)).is_err());
        assert!(report_data("0").is_err());
        assert!(report_data("zz").is_err());
    }

    #[test]
    fn paths_are_shown_as_a_shell_takes_them() {
        assert_eq!(shown(Path::new("sim/evidence.bin")), "sim/evidence.bin");
        assert_eq!(shown(Path::new("my sim")), "'my sim'");
        assert_eq!(shown(Path::new("it's")), r"'it'\''s'");
    }
}
