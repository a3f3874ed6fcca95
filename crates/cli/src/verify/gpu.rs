//! `confide verify evidence` for a GPU: a report with its chain beside it, or a container.

use std::path::PathBuf;

use confide_evidence::gpu::{
    CHAIN_BYTES_MAX, GpuEvidence, OCSP_BYTES_MAX, OCSP_MAX, RIM_BYTES_MAX, RIMS_MAX,
};
use confide_verifier::{AwsLc, GpuAppraised, GpuCase, Policy, Rejection, UnixTime};

use super::{Unreadable, read};

/// What a GPU's evidence is judged with.
#[derive(clap::Args)]
pub(super) struct GpuArgs {
    /// GPU: the nonce that the report has to hold, 32 bytes in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = nonce)]
    nonce: Option<[u8; 32]>,
    /// GPU: a reference manifest (RIM) of the driver or the VBIOS; may be given twice.
    #[arg(long, value_name = "FILE")]
    rim: Vec<PathBuf>,
    /// GPU: a revocation answer (OCSP, DER); may be given for every certificate.
    #[arg(long, value_name = "FILE")]
    ocsp: Vec<PathBuf>,
}

impl GpuArgs {
    /// Whether any of the options was given.
    pub(super) fn is_given(&self) -> bool {
        self.nonce.is_some() || !self.rim.is_empty() || !self.ocsp.is_empty()
    }
}

/// Judges a report or a container; `chain` is the PEM file beside a bare report.
pub(super) fn judge(
    file: &[u8],
    chain: Option<&PathBuf>,
    args: &GpuArgs,
    policy: &Policy,
    now: UnixTime,
) -> Result<Result<GpuAppraised, Rejection>, Unreadable> {
    let Some(nonce) = args.nonce else {
        return Err(Unreadable {
            reason: "evidence of a GPU is judged over a nonce, and none was given".into(),
            hint: Some("--nonce HEX is what the GPU was asked to sign"),
        });
    };
    let chain = chain.map(|path| read(path, CHAIN_BYTES_MAX as u64)).transpose()?;
    let rims = files(&args.rim, RIMS_MAX, RIM_BYTES_MAX, "--rim")?;
    let ocsp = files(&args.ocsp, OCSP_MAX, OCSP_BYTES_MAX, "--ocsp")?;
    let case = match (GpuEvidence::is_container(file), &chain) {
        (true, None) => GpuCase::from_container(file, nonce),
        (true, Some(_)) => {
            return Err(Unreadable::new(
                "the file holds its chain; --chain is for a report".into(),
            ));
        }
        (false, Some(chain)) => GpuCase::from_report(file, chain, nonce),
        (false, None) => {
            return Err(Unreadable {
                reason: "a GPU's report comes with its certificates, and none were given".into(),
                hint: Some("--chain PEM holds the certificates, attestation key first"),
            });
        }
    };
    let mut case = match case {
        Ok(case) => case,
        Err(reason) => return Ok(Err(GpuCase::unreadable(reason))),
    };
    case.rims.extend(rims.iter().map(Vec::as_slice));
    case.ocsp.extend(ocsp.iter().map(Vec::as_slice));
    Ok(case.appraise(policy, now, &AwsLc))
}

fn files(
    paths: &[PathBuf],
    count_max: usize,
    bytes_max: usize,
    option: &str,
) -> Result<Vec<Vec<u8>>, Unreadable> {
    if paths.len() > count_max {
        let got = paths.len();
        return Err(Unreadable::new(format!("{option}: wanted at most {count_max}, got {got}")));
    }
    paths.iter().map(|path| read(path, bytes_max as u64)).collect()
}

fn nonce(text: &str) -> Result<[u8; 32], String> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes)
        .map_err(|error| format!("wanted 64 hexadecimal digits, got {}: {error}", text.len()))?;
    Ok(bytes)
}
