//! `openssl speed`: one process, or one on every core.

use std::process::Command;

use confide_arm_line::Report;
use confide_tools::openssl::{self, Rates};
use serde_json::json;

use super::{Outcome, Threads, ToolHello, Watch, metric, output, stdout, version};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Processes side by side: a number, or all
    #[arg(long, default_value = "1")]
    processes: Threads,
}

/// Bytes of a block of ciphers and digests: a TLS record's most.
const BLOCK_BYTES: &str = "16384";
const MIB: f64 = 1_048_576.0;

pub(crate) fn run(args: &Args) -> Outcome {
    let count = args.processes.count();
    let version = version(Command::new("openssl").arg("version"));
    ToolHello::new(format!("openssl speed, {count} processes"), version, count).speak(|run| {
        run.knows_only(&["algorithm", "seconds"])?;
        let (algorithm, seconds) = (run.text("algorithm", "")?, run.number("seconds", 1)?);
        let chosen: &[&str] = match algorithm.as_str() {
            "P-256" => &["ecdsap256"],
            "X25519" => &["ecdhx25519"],
            "AES-256-GCM" => &["-bytes", BLOCK_BYTES, "-evp", "aes-256-gcm"],
            "SHA-256" => &["-bytes", BLOCK_BYTES, "-evp", "sha256"],
            other => return Err(format!("param algorithm: {other} is not one of those known")),
        };
        let mut command = Command::new("openssl");
        command.args(["speed", "-mr", "-seconds", &seconds.to_string()]);
        if count > 1 {
            command.args(["-multi", &count.to_string()]);
        }
        command.args(chosen);
        let watch = Watch::start();
        let rates =
            openssl::read(&stdout(&output(&mut command)?)).map_err(|error| error.to_string())?;
        let mut report = watch.report();
        figures(&mut report, &algorithm, &rates, count);
        if report.metrics.is_empty() {
            return Err(format!("openssl gave no rate of {algorithm}"));
        }
        report.answer = json!({ "algorithm": algorithm });
        Ok(report)
    })
}

/// Of one process: with several, their mean.
fn figures(report: &mut Report, algorithm: &str, rates: &Rates, processes: usize) {
    let each = |value: f64| Some(value / processes.max(1) as f64);
    for of in rates.signatures.iter().filter(|of| of.bits == 256) {
        metric(report, "p256_sign_per_s", each(of.sign_per_s));
        metric(report, "p256_verify_per_s", each(of.verify_per_s));
    }
    for of in rates.agreements.iter().filter(|of| of.bits == 253) {
        metric(report, "x25519_per_s", each(of.per_s));
    }
    let name = match algorithm {
        "AES-256-GCM" => "aes_gcm_mib_per_s",
        _ => "sha256_mib_per_s",
    };
    for of in &rates.bytes {
        metric(report, name, each(of.per_s / MIB));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cipher_on_all_cores_has_a_figure() {
        let text = include_str!("../../recorded/openssl-multi-aes.txt");
        let mut report = Report::default();
        figures(&mut report, "AES-256-GCM", &openssl::read(text).expect("recorded"), 2);
        assert!(report.metrics.contains_key("aes_gcm_mib_per_s"));
    }

    #[test]
    fn a_figure_is_of_one_process() {
        let rates = openssl::read(include_str!("../../recorded/openssl-multi.txt")).expect("it");
        let mut report = Report::default();
        figures(&mut report, "P-256", &rates, 2);
        assert_eq!(report.metrics["p256_sign_per_s"], 70_603.0);
        assert_eq!(report.metrics["p256_verify_per_s"], 23_876.5);
    }
}
