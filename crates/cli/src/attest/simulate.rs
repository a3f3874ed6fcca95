//! `confide attest --simulate`: *simulated* evidence, and the attester that makes it.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::ValueEnum;
use confide_evidence::{Attest, ReportData};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, FakeError, Mode, STATE_FILE, Tee};

use super::tree;
use crate::{
    error::CliError,
    files::{quote_for_shell, refuse_occupied_folder, write_file},
    process::{print_text, unix_now},
};

/// The arguments of `confide attest --simulate`.
#[derive(clap::Args)]
pub(super) struct SimulationArgs {
    /// Make simulated evidence of this kind: it involves no hardware and protects nothing
    #[arg(long, value_name = "TEE")]
    simulate: Option<SimulatedTee>,
    /// Simulate debug mode; the policy in --out then allows it
    #[arg(long, requires = "simulate")]
    debug: bool,
    /// Add a simulated GPU; the policy in --out then requires it, so clients need session binding
    #[arg(long, requires = "simulate")]
    gpu: bool,
    /// Time for a quote: `raw` is as fast as software signs, `device` makes one at a time in 39 ms each, as
    /// measured on hardware
    #[arg(long, value_enum, default_value_t = SimulatedMode::Raw, requires = "simulate")]
    mode: SimulatedMode,
    /// Write a policy that accepts this attester in any configuration. Without this flag, clients refuse
    /// every server until `confide policy pin` has named its configuration
    #[arg(long, requires = "simulate")]
    dangerous_platform_scope: bool,
    /// Replace the simulated attester in --out: new keys, a new root, a policy without pins
    #[arg(long, requires = "simulate")]
    replace: bool,
    /// Seed of the keys, 32 bytes in hexadecimal: the same seed gives the same root
    #[arg(long, value_name = "HEX", value_parser = parse_seed, requires = "simulate")]
    seed: Option<[u8; 32]>,
    /// Then serve a simulated configfs-tsm tree in this folder until SIGTERM (FUSE)
    #[arg(long, value_name = "MOUNTPOINT", requires = "simulate")]
    tsm: Option<PathBuf>,
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

impl SimulationArgs {
    /// Whether evidence is to be simulated.
    pub(super) fn is_given(&self) -> bool {
        self.simulate.is_some()
    }

    /// Makes a simulated attester and writes it to `out`, with evidence that signs `report_data`.
    pub(super) fn write_simulated_attester(
        &self,
        report_data: Option<ReportData>,
        out: &Path,
    ) -> Result<(), CliError> {
        let Some(tee) = self.simulate else {
            return Err(CliError::new("--simulate is missing"));
        };
        if !(self.replace && out.join(STATE_FILE).is_file()) {
            let hint =
                "choose another folder, or replace the simulated attester there with --replace";
            refuse_occupied_folder(out, hint)?;
        }
        let mut attester = FakeAttester::new(self.attester_options(tee)?).map_err(CliError::new)?;
        if self.gpu {
            attester = attester.with_gpu().map_err(CliError::new)?;
        }
        let evidence = attester.quote(&report_data.unwrap_or(ReportData::ZERO));
        attester.save(out).map_err(|error| {
            CliError::new(error)
                .with_hint("--out takes a folder, which is made if it does not exist")
        })?;
        if self.dangerous_platform_scope {
            write_file(&out.join("policy.toml"), attester.dangerous_policy_toml())?;
        }
        write_file(&out.join("evidence.bin"), &evidence)?;
        match &self.tsm {
            None => {
                print_text(&self.render_summary(report_data, tee, out, &attester, evidence.len()))
            }
            Some(mountpoint) => tree::serve_tsm_tree(attester, mountpoint),
        }
    }

    fn attester_options(&self, tee: SimulatedTee) -> Result<FakeAttesterOptions, CliError> {
        Ok(FakeAttesterOptions {
            seed: self
                .seed
                .map_or_else(FakeAttesterOptions::random_seed, Ok)
                .map_err(CliError::new)?,
            tee: match tee {
                SimulatedTee::Tdx => Tee::Tdx,
                SimulatedTee::TdxV5 => Tee::TdxV5,
                SimulatedTee::Sgx => Tee::Sgx,
                SimulatedTee::Snp => Tee::Snp,
            },
            debug: self.debug,
            issued_at: unix_now(),
            mode: match self.mode {
                SimulatedMode::Raw => Mode::Raw,
                SimulatedMode::Device => Mode::Device,
            },
        })
    }

    fn render_summary(
        &self,
        report_data: Option<ReportData>,
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
        let debug = if self.debug { "on" } else { "off" };
        let days = (attester.collateral_valid_until() + 1 - attester.issued_at()) / 86_400;
        let mut files = vec![
            ("evidence.bin", format!("{kind}, {bytes} bytes, debug {debug}")),
            ("collateral.json", format!("simulated endorsements, good for {days} days")),
            ("root.der", "the simulated root certificate".into()),
            ("policy.toml", "accepts this simulated attester and no other".into()),
            (STATE_FILE, "the simulated attester itself: anyone who reads it can sign".into()),
        ];
        if attester.endorsement_key_der().is_some() {
            files.extend([
                ("endorsement-key.der", "the simulated endorsement key's certificate".to_owned()),
                ("chain.pem", "the certificates of the simulated signing key and root".into()),
                ("crl.der", "the simulated root's revocation list".into()),
            ]);
        }
        let dir = quote_for_shell(out);
        let mut text =
            format!("simulated evidence in {dir}: made by software, it protects nothing\n");
        text.extend(files.iter().map(|(name, content)| format!("  {name:24} {content}\n")));
        let gateway = |binding| {
            format!(
                "confide gateway --simulate {dir} --binding {binding} --upstream URL \
                 --listen 127.0.0.1:0\n"
            )
        };
        // The file holds no evidence of the GPU, which the policy requires.
        text += &if self.gpu {
            format!("next: {}", gateway("session"))
        } else {
            format!("next: {}\nor: {}", verification_command(report_data, out), gateway("key"))
        };
        if !self.dangerous_platform_scope {
            let policy = quote_for_shell(&out.join("policy.toml"));
            text += &format!(
                "then, for clients: confide policy pin {policy} --digest HEX, the gateway's config_digest\n"
            );
        }
        text
    }
}

/// The command that verifies the simulated evidence, the same for every kind.
fn verification_command(report_data: Option<ReportData>, out: &Path) -> String {
    let file = |name: &str| quote_for_shell(&out.join(name));
    let (evidence, collateral) = (file("evidence.bin"), file("collateral.json"));
    let policy = file("policy.toml");
    let option = report_data.map_or(String::new(), |data| format!(" --report-data {data}"));
    format!(
        "confide verify evidence {evidence} --collateral {collateral} --policy {policy}{option}"
    )
}

fn parse_seed(text: &str) -> Result<[u8; 32], String> {
    let mut seed = [0; 32];
    hex::decode_to_slice(text, &mut seed)
        .map_err(|error| format!("wanted 64 hexadecimal digits: {error}"))?;
    Ok(seed)
}

/// Loads the simulated attester in `folder`.
pub(super) fn load_simulated(folder: &Path) -> Result<Arc<dyn Attest>, CliError> {
    let attester = FakeAttester::load(folder).map_err(|error| {
        let hint = load_error_hint(&error);
        CliError::new(error).with_hint(hint)
    })?;
    Ok(Arc::new(attester))
}

/// The refusal of `--attester simulated` without a folder.
pub(super) fn missing_folder_error() -> CliError {
    CliError::new("--attester simulated has no folder to load").with_hint(
        "make one with `confide attest --simulate tdx --out DIR` and give --simulate DIR",
    )
}

/// The hint depends on whether the folder is missing, not readable by this user, or damaged.
fn load_error_hint(error: &FakeError) -> &'static str {
    match error {
        FakeError::File { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            "only its owner may read a simulated attester: run as that user, or make another one \
             with `confide attest --simulate tdx --out DIR`"
        }
        FakeError::State { .. } => {
            "`confide attest --simulate tdx --out DIR` makes a simulated attester; this file is \
             damaged, or of another version"
        }
        _ => "make the folder with `confide attest --simulate tdx --out DIR`",
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_attester_that_may_not_be_read_is_not_answered_with_how_to_make_one() {
        let file = |kind| FakeError::File {
            action: "read",
            path: "sim/simulated-attester.json".into(),
            source: io::Error::from(kind),
        };
        assert!(load_error_hint(&file(ErrorKind::PermissionDenied)).starts_with("only its owner"));
        assert!(load_error_hint(&file(ErrorKind::NotFound)).starts_with("make the folder"));
        let state = FakeError::State { path: "s".into(), reason: "no JSON".into() };
        assert!(load_error_hint(&state).contains("damaged"));
    }
}
