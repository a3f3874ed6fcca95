//! `confide verify evidence` for a GPU: a report with a separate chain, or a container.

use std::path::{Path, PathBuf};

use confide_evidence::gpu::{
    CHAIN_BYTES_MAX, GpuEvidence, OCSP_BYTES_MAX, OCSP_MAX, RIM_BYTES_MAX, RIMS_MAX,
};
use confide_verifier::{AwsLc, GpuAppraisal, GpuAppraised, Policy, Rejection, UnixTime};

use super::inputs::parse_hex;
use crate::{
    error::CliError,
    files::{read_file, read_optional_file},
};

/// The arguments for the evidence of a GPU.
#[derive(clap::Args)]
pub(super) struct GpuArgs {
    /// GPU: the nonce that the report must contain, 32 bytes in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = parse_hex::<32>)]
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

/// Judges a report or a container; `chain` is the PEM file of a bare report.
pub(super) fn judge_gpu_evidence(
    file: &[u8],
    chain: Option<&Path>,
    args: &GpuArgs,
    policy: &Policy,
    now: UnixTime,
) -> Result<Result<GpuAppraised, Rejection>, CliError> {
    let Some(nonce) = args.nonce else {
        return Err(CliError::new("evidence of a GPU needs a nonce, and none was given")
            .with_hint("give --nonce HEX, the nonce that the GPU was asked to sign"));
    };
    let chain = read_optional_file(chain, CHAIN_BYTES_MAX as u64)?;
    let rims = read_files(&args.rim, RIMS_MAX, RIM_BYTES_MAX, "--rim")?;
    let ocsp = read_files(&args.ocsp, OCSP_MAX, OCSP_BYTES_MAX, "--ocsp")?;
    let case = match (GpuEvidence::is_container(file), &chain) {
        (true, None) => GpuAppraisal::from_container(file, nonce),
        (true, Some(_)) => {
            return Err(CliError::new(
                "the container holds its own chain; --chain is for a report",
            ));
        }
        (false, Some(chain)) => GpuAppraisal::from_report(file, chain, nonce),
        (false, None) => {
            let text = "a GPU's report needs its certificates, and none were given";
            return Err(CliError::new(text)
                .with_hint("give --chain PEM with the certificates, attestation key first"));
        }
    };
    let mut case = match case {
        Ok(case) => case,
        Err(reason) => return Ok(Err(GpuAppraisal::reject_unreadable(reason))),
    };
    case.rims.extend(rims.iter().map(Vec::as_slice));
    case.ocsp.extend(ocsp.iter().map(Vec::as_slice));
    Ok(case.appraise(policy, now, &AwsLc))
}

fn read_files(
    paths: &[PathBuf],
    count_max: usize,
    bytes_max: usize,
    option: &str,
) -> Result<Vec<Vec<u8>>, CliError> {
    if paths.len() > count_max {
        let got = paths.len();
        return Err(CliError::new(format!("{option}: wanted at most {count_max}, got {got}")));
    }
    paths.iter().map(|path| read_file(path, bytes_max as u64)).collect()
}
