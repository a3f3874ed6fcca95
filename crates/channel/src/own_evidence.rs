//! Obtains evidence from this end's attester, and checks its length before a peer sees it.

use std::sync::Arc;

use confide_evidence::{
    Attest, ReportData,
    gpu::GPU_EVIDENCE_BYTES_MAX,
    tagged_evidence::{COLLATERAL_BYTES_MAX, QUOTE_BYTES_MAX},
};

use crate::batch_error::BatchError;

/// Obtains a quote. Blocks while the attester works.
pub(crate) fn obtain_quote(
    attester: &dyn Attest,
    report_data: &ReportData,
) -> Result<Vec<u8>, BatchError> {
    let quote = attester.attest(report_data);
    let quote = quote.map_err(|error| BatchError::Attester(Arc::new(error)))?;
    check_length("quote", &quote, QUOTE_BYTES_MAX)?;
    Ok(quote)
}

pub(crate) fn obtain_collateral(attester: &dyn Attest) -> Result<Option<Vec<u8>>, BatchError> {
    let collateral = attester.collateral();
    if let Some(collateral) = &collateral {
        check_length("collateral", collateral, COLLATERAL_BYTES_MAX)?;
    }
    Ok(collateral)
}

/// Obtains GPU evidence over `nonce`. Blocks while the attester works.
pub(crate) fn obtain_gpu_evidence(
    attester: &dyn Attest,
    nonce: &[u8; 32],
) -> Result<Option<Vec<u8>>, BatchError> {
    let gpu =
        attester.gpu_evidence(nonce).map_err(|error| BatchError::Attester(Arc::new(error)))?;
    if let Some(gpu) = &gpu {
        check_length("GPU evidence", gpu, GPU_EVIDENCE_BYTES_MAX)?;
    }
    Ok(gpu)
}

fn check_length(part: &'static str, bytes: &[u8], wanted: usize) -> Result<(), BatchError> {
    match bytes.len() {
        got if got == 0 || got > wanted => Err(BatchError::OwnEvidence { part, wanted, got }),
        _ => Ok(()),
    }
}
