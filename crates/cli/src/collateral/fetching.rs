//! An attester whose endorsements are fetched: what a real device needs to staple any.

use std::{sync::Arc, time::Duration};

use confide_collateral::{Platform, Source};
use confide_evidence::{Attest, AttestError, ReportData};

use crate::error::CliError;

/// Longest wait for endorsements at the start: without them the peer has to fetch.
const STAPLE_DEADLINE: Duration = Duration::from_secs(10);

/// Staples what a source has for the platform that the attester runs on.
pub(crate) struct FetchingAttester {
    attester: Arc<dyn Attest>,
    source: Arc<Source>,
    platform: Platform,
}

impl FetchingAttester {
    /// Obtains evidence once, to see which platform this is, and waits for its endorsements.
    pub(crate) fn new(attester: Arc<dyn Attest>, source: Arc<Source>) -> Result<Self, CliError> {
        let evidence = attester.attest(&ReportData::ZERO).map_err(CliError::new)?;
        let platform = Platform::of_evidence(&evidence, None).map_err(CliError::new)?;
        if let Err(error) = source.ensure_blocking(&platform, STAPLE_DEADLINE) {
            tracing::warn!(%error, "no endorsements are stapled before the service gives them");
        }
        Ok(Self { attester, source, platform })
    }
}

impl Attest for FetchingAttester {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        self.attester.attest(report_data)
    }

    /// Never waits: all sessions of a batch stand behind this call.
    fn collateral(&self) -> Option<Vec<u8>> {
        match self.source.current(&self.platform) {
            Some(set) => Some(set.json().to_vec()),
            None => {
                self.source.request(&self.platform);
                self.attester.collateral()
            }
        }
    }

    fn gpu(&self, nonce: &[u8; 32]) -> Result<Option<Vec<u8>>, AttestError> {
        self.attester.gpu(nonce)
    }

    fn is_simulated(&self) -> bool {
        self.attester.is_simulated()
    }
}
