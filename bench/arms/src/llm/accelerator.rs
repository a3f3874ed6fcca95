//! The share of time in which an accelerator of this machine had work, by its own count.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
};

/// NVIDIA's own program; `utilization.gpu` is the share of a sample period in which a kernel ran.
const PROGRAM: &str = "nvidia-smi";
/// Milliseconds between two samples.
const EVERY_MS: &str = "200";
/// An hour of samples of eight devices, 8 bytes each.
const OUTPUT_BYTES_MAX: u64 = 2 << 20;

/// The note on that figure for a reader.
pub(super) fn accelerator_note() -> String {
    match list_devices() {
        Some(devices) => format!("accelerator share: {devices}, every {EVERY_MS} ms"),
        None => "accelerator share: no device here".into(),
    }
}

/// A child process that samples the devices until it is stopped.
pub(super) struct UtilisationSampler {
    child: Child,
}

impl UtilisationSampler {
    /// Starts sampling; `None` if there is no device.
    pub(super) fn start() -> Option<Self> {
        let child = Command::new(PROGRAM)
            .args(["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"])
            .args(["-lms", EVERY_MS])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Self { child })
    }

    /// Stops; gives the mean share (0 to 1) over all samples and devices, `None` without samples.
    pub(super) fn stop(mut self) -> Option<f64> {
        let _ = self.child.kill();
        let mut text = String::new();
        let out = self.child.stdout.take()?;
        let read = out.take(OUTPUT_BYTES_MAX).read_to_string(&mut text);
        let _ = self.child.wait();
        read.ok().and_then(|_| parse_mean_share(&text))
    }
}

fn list_devices() -> Option<String> {
    let output = Command::new(PROGRAM)
        .args(["--query-gpu=name", "--format=csv,noheader"])
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let names: Vec<&str> = text.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Lines of whole percents; what is not a number (`[N/A]`) is not a sample.
fn parse_mean_share(text: &str) -> Option<f64> {
    let shares: Vec<f64> = text
        .lines()
        .filter_map(|line| line.trim().parse::<f64>().ok())
        .filter(|percent| (0.0..=100.0).contains(percent))
        .collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_mean_of_what_was_said_and_nothing_is_no_zero() {
        assert_eq!(parse_mean_share("0\n50\n 100 \n[N/A]\n"), Some(0.5));
        assert_eq!(parse_mean_share("[N/A]\n"), None);
        assert_eq!(parse_mean_share(""), None);
    }
}
