//! An attester whose endorsements come from elsewhere: from a file of the operator's, or fetched from a service.

use std::{sync::Arc, time::Duration};

use confide_collateral::{Platform, Source};
use confide_evidence::{Attest, AttestError, ReportData};

use crate::error::CliError;

/// The longest wait for endorsements at the start: without them the peer has to fetch them.
const STAPLE_DEADLINE: Duration = Duration::from_secs(10);

/// An attester that staples other endorsements than its own.
pub(crate) struct StaplingAttester {
    attester: Arc<dyn Attest>,
    endorsements: Endorsements,
}

enum Endorsements {
    /// The endorsements of a file.
    Fixed(Vec<u8>),
    /// The endorsements that a service has for the attester's platform.
    Fetched { source: Arc<Source>, platform: Platform },
}

impl StaplingAttester {
    /// Staples the content of a file.
    pub(crate) fn with_collateral(attester: Arc<dyn Attest>, collateral: Vec<u8>) -> Self {
        Self { attester, endorsements: Endorsements::Fixed(collateral) }
    }

    /// Obtains evidence once to learn which platform this is, and waits for its endorsements.
    pub(crate) fn with_source(
        attester: Arc<dyn Attest>,
        source: Arc<Source>,
    ) -> Result<Self, CliError> {
        let evidence = attester.attest(&ReportData::ZERO).map_err(CliError::new)?;
        let platform = Platform::from_evidence(&evidence, None).map_err(CliError::new)?;
        if let Err(error) = source.find_or_fetch_blocking(&platform, STAPLE_DEADLINE) {
            tracing::warn!(%error, "peers get no endorsements until the service supplies them");
        }
        Ok(Self { attester, endorsements: Endorsements::Fetched { source, platform } })
    }
}

impl Attest for StaplingAttester {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        self.attester.attest(report_data)
    }

    /// Never waits: all sessions of a batch wait for this call.
    fn collateral(&self) -> Option<Vec<u8>> {
        let (source, platform) = match &self.endorsements {
            Endorsements::Fixed(collateral) => return Some(collateral.clone()),
            Endorsements::Fetched { source, platform } => (source, platform),
        };
        if let Some(set) = source.current_set(platform) {
            return Some(set.json().to_vec());
        }
        source.prefetch(platform);
        self.attester.collateral()
    }

    fn gpu_evidence(&self, nonce: &[u8; 32]) -> Result<Option<Vec<u8>>, AttestError> {
        self.attester.gpu_evidence(nonce)
    }

    fn is_simulated(&self) -> bool {
        self.attester.is_simulated()
    }
}
