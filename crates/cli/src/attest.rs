//! `confide attest`: evidence of this machine, or *simulated* evidence.

pub(crate) mod chosen;
mod detect;
pub(crate) mod device;
#[cfg(feature = "simulate")]
mod simulate;
#[cfg(feature = "simulate")]
mod tree;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_evidence::ReportData;

#[cfg(not(feature = "simulate"))]
use crate::features::SimulationArgs;
use crate::{error::CliError, process::print_whole};
use device::{DeviceArgs, Opened};
#[cfg(feature = "simulate")]
use simulate::SimulationArgs;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    simulation: SimulationArgs,
    /// Where evidence, collateral, root, policy and the attester's state are written: a folder that
    /// is not there yet, or is empty
    #[arg(long, value_name = "DIR", required_unless_present = "detect")]
    out: Option<PathBuf>,
    /// What the quote signs: at most 64 bytes in hexadecimal, zeros are added at the end
    #[arg(long, value_name = "HEX", value_parser = report_data)]
    report_data: Option<ReportData>,
    /// Say which devices this machine has, how that is known, and what is absent
    #[arg(long, conflicts_with_all = ["simulate", "report_data", "out"])]
    detect: bool,
    /// With --detect, say it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match &args.out {
        Some(out) if args.simulation.is_given() => args.simulation.write(args.report_data, out)?,
        Some(out) => ask_device(&args, out)?,
        None => detect::print(Path::new("/"), &args.device.tsm_root(), args.json)?,
    }
    Ok(ExitCode::SUCCESS)
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
    if attester.is_simulated() {
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

/// What the quote signs; all zero unless asked otherwise.
fn signed(args: &Args) -> ReportData {
    args.report_data.unwrap_or(ReportData::ZERO)
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
