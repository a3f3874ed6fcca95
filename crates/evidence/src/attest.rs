//! The seam between a channel and whatever obtains evidence for it.

use alloc::{string::String, sync::Arc, vec::Vec};

use crate::report_data::ReportData;

/// Obtains evidence over 64 bytes chosen by the caller.
///
/// Implementations may block for tens of milliseconds (a TDX quote takes about 39 ms and the
/// device is serial), so asynchronous callers run them on a blocking thread.
pub trait Attest: Send + Sync {
    /// Obtains a quote whose report data is `report_data`.
    ///
    /// # Errors
    /// [`AttestError::Device`] if the device refuses, fails or answers too late.
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError>;

    /// Endorsements for the quotes this attester makes, where it has them (stapled for the peer).
    ///
    /// The bytes are the JSON of [`crate::collateral`].
    fn collateral(&self) -> Option<Vec<u8>>;

    /// Obtains evidence of this machine's GPU over `nonce`; `None` if no GPU attests.
    ///
    /// # Errors
    /// [`AttestError::Device`] if there is a GPU that attests and it gives no evidence.
    fn gpu_evidence(&self, _nonce: &[u8; 32]) -> Result<Option<Vec<u8>>, AttestError> {
        Ok(None)
    }

    /// Whether the evidence is made by software that only imitates a TEE.
    fn is_simulated(&self) -> bool;
}

impl<A: Attest + ?Sized> Attest for Arc<A> {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        (**self).attest(report_data)
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        (**self).collateral()
    }

    fn gpu_evidence(&self, nonce: &[u8; 32]) -> Result<Option<Vec<u8>>, AttestError> {
        (**self).gpu_evidence(nonce)
    }

    fn is_simulated(&self) -> bool {
        (**self).is_simulated()
    }
}

/// The reason why no evidence could be obtained.
#[derive(Debug, thiserror::Error)]
pub enum AttestError {
    /// The device refused or failed; the text names the device and what it said.
    #[error("attester {device} gave no evidence: {reason}")]
    Device {
        /// The device or simulator asked.
        device: String,
        /// The device's answer.
        reason: String,
    },
}
