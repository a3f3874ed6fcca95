//! `confide attest`: evidence of this machine, or *simulated* evidence.

pub(crate) mod arguments;
mod detect;
pub(crate) mod device;
#[cfg(feature = "simulate")]
mod simulate;
pub(crate) mod stapling;
#[cfg(feature = "simulate")]
mod tree;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_evidence::ReportData;

#[cfg(not(feature = "simulate"))]
use crate::features::SimulationArgs;
use crate::{
    error::CliError,
    files::{make_folder, quote_for_shell, refuse_occupied_folder, write_file},
    process::print_text,
};
use device::{DeviceArgs, OpenedDevice};
#[cfg(feature = "simulate")]
use simulate::SimulationArgs;

/// The arguments of `confide attest`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    simulation: SimulationArgs,
    /// Folder for evidence, collateral, root, policy and the attester's state; it must be empty or not
    /// exist
    #[arg(long, value_name = "DIR", required_unless_present = "detect")]
    out: Option<PathBuf>,
    /// Report data for the quote to sign: at most 64 bytes in hexadecimal, padded with zeros
    #[arg(long, value_name = "HEX", value_parser = parse_report_data)]
    report_data: Option<ReportData>,
    /// List which attestation devices this machine has or lacks, and how that was determined
    #[arg(long, conflicts_with_all = ["simulate", "report_data", "out"])]
    detect: bool,
    /// With --detect, print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match &args.out {
        Some(out) if args.simulation.is_given() => {
            args.simulation.write_simulated_attester(args.report_data, out)?
        }
        Some(out) => write_device_evidence(&args, out)?,
        None => return detect::print_devices(Path::new("/"), &args.device.tsm_root(), args.json),
    }
    Ok(ExitCode::SUCCESS)
}

fn write_device_evidence(args: &Args, out: &Path) -> Result<(), CliError> {
    refuse_occupied_folder(out, "choose another folder")?;
    let OpenedDevice { attester, kind, source } = args.device.open_device()?;
    let report_data = args.report_data.unwrap_or(ReportData::ZERO);
    let evidence = attester.attest(&report_data).map_err(CliError::new)?;
    make_folder(out)?;
    write_file(&out.join("evidence.bin"), &evidence)?;
    let collateral = attester.collateral();
    if let Some(collateral) = &collateral {
        write_file(&out.join("collateral.json"), collateral)?;
    }
    let mut text = format!("evidence of this machine in {}, from {source}\n", quote_for_shell(out));
    if attester.is_simulated() {
        text += "simulated: the tree is not the kernel's own, so this protects nothing\n";
    }
    let file = |name: &str, content: &str| format!("  {name:24} {content}\n");
    text += &file("evidence.bin", &format!("{kind}, {} bytes", evidence.len()));
    if collateral.is_some() {
        text += &file("collateral.json", "the endorsements that the host supplied");
    }
    print_text(&text)
}

fn parse_report_data(text: &str) -> Result<ReportData, String> {
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
        assert_eq!(parse_report_data("").unwrap(), ReportData::ZERO);
        let data = parse_report_data("0102").unwrap();
        assert_eq!((data.0[0], data.0[1], data.0[2]), (1, 2, 0));
        assert_eq!(parse_report_data(&"ff".repeat(64)).unwrap().0, [0xff; 64]);
    }

    #[test]
    fn report_data_that_is_too_long_or_not_hexadecimal_is_refused() {
        assert!(parse_report_data(&"00".repeat(65)).is_err());
        assert!(parse_report_data("0").is_err());
        assert!(parse_report_data("zz").is_err());
    }
}
