//! `confide attest --detect`: which devices this machine has, and how that is known.

use std::path::Path;

use confide_attester::{DetectedDevice, detect_with_tsm};
use serde_json::{Value, json};

use crate::{error::CliError, process::print_whole};

/// Prints what was found below `root`, as text or as JSON.
pub(crate) fn print(root: &Path, tsm: &Path, as_json: bool) -> Result<(), CliError> {
    let found = detect_with_tsm(root, tsm);
    let text = if as_json { format!("{:#}\n", machine(&found)) } else { human(&found) };
    print_whole(&text)
}

fn machine(found: &[DetectedDevice]) -> Value {
    let device = |detected: &DetectedDevice| {
        json!({
            "device": detected.device.name(),
            "present": detected.present,
            "because": detected.because,
        })
    };
    json!({ "devices": found.iter().map(device).collect::<Vec<_>>() })
}

fn human(found: &[DetectedDevice]) -> String {
    let mut text = String::new();
    for detected in found {
        let presence = if detected.present { "present" } else { "absent" };
        text += &format!("{:14} {presence}\n", detected.device.name());
        for line in &detected.because {
            text += &format!("  {line}\n");
        }
    }
    if !found.iter().any(|detected| detected.present) {
        text += "this machine has no device that attests\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use confide_attester::Device;

    use super::*;

    #[test]
    fn each_device_is_said_with_its_reasons() {
        let because = vec!["/dev/tdx_guest exists".to_owned()];
        let found = [DetectedDevice { device: Device::TdxGuest, present: true, because }];
        assert_eq!(human(&found), "tdx-guest      present\n  /dev/tdx_guest exists\n");
        assert_eq!(machine(&found)["devices"][0]["because"][0], "/dev/tdx_guest exists");
        assert!(human(&[]).ends_with("no device that attests\n"));
    }
}
