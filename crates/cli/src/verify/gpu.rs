//! The arguments of `confide verify evidence` for a GPU.

use std::path::PathBuf;

use confide_evidence::gpu::{OCSP_BYTES_MAX, RIM_BYTES_MAX};
use confide_verification::EvidenceInput;

use super::inputs::parse_hex;
use crate::{error::CliError, files::read_file};

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
    /// Reads what the arguments name into the input of a verdict.
    pub(super) fn read_into(&self, input: &mut EvidenceInput) -> Result<(), CliError> {
        input.nonce = self.nonce;
        input.rims = read_files(&self.rim, RIM_BYTES_MAX)?;
        input.ocsp = read_files(&self.ocsp, OCSP_BYTES_MAX)?;
        Ok(())
    }
}

fn read_files(paths: &[PathBuf], bytes_max: usize) -> Result<Vec<Vec<u8>>, CliError> {
    paths.iter().map(|path| read_file(path, bytes_max as u64)).collect()
}
