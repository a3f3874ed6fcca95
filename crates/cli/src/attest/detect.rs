//! `confide attest --detect`: which devices this machine has, and how that is known.

use std::{path::Path, process::ExitCode};

use confide_attester::{DetectedDevice, detect_devices_with_tsm};
use serde_json::json;

use crate::{answer::CommandReport, error::CliError};

/// Prints the devices that were found below `root`, as text or as JSON.
pub(crate) fn print_devices(root: &Path, tsm: &Path, as_json: bool) -> Result<ExitCode, CliError> {
    describe_devices(&detect_devices_with_tsm(root, tsm)).print(as_json)
}

fn describe_devices(found: &[DetectedDevice]) -> CommandReport {
    let (mut text, mut devices) = (String::new(), Vec::new());
    for DetectedDevice { device, present, because } in found {
        let presence = if *present { "present" } else { "absent" };
        text += &format!("{:14} {presence}\n", device.name());
        text.extend(because.iter().map(|line| format!("  {line}\n")));
        devices.push(json!({ "device": device.name(), "present": present, "because": because }));
    }
    if !found.iter().any(|detected| detected.present) {
        text += "this machine has no attestation device\n";
    }
    CommandReport::new(text, json!({ "devices": devices }))
}

#[cfg(test)]
mod tests {
    use confide_attester::Device;

    use super::*;

    #[test]
    fn each_device_is_said_with_its_reasons() {
        let because = vec!["/dev/tdx_guest exists".to_owned()];
        let found = [DetectedDevice { device: Device::TdxGuest, present: true, because }];
        let CommandReport { text, json, .. } = describe_devices(&found);
        assert_eq!(text, "tdx-guest      present\n  /dev/tdx_guest exists\n");
        assert_eq!(json["devices"][0]["because"][0], "/dev/tdx_guest exists");
        assert!(describe_devices(&[]).text.ends_with("no attestation device\n"));
    }
}
