//! Whom a long-running command attests with: arguments that `gateway` and `verify serve` share.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::ValueEnum;
use confide_attester::{GpuAttester, NVML_LIBRARY, Nvml};
use confide_channel::ClientEvidence;
use confide_client::with_causes;
use confide_evidence::{Attest, AttestError, ReportData, collateral::COLLATERAL_LENGTH_MAX};
use confide_verifier::Roots;

use super::device::DeviceArgs;
#[cfg(feature = "simulate")]
use super::simulate::{load_simulated, no_folder};
#[cfg(not(feature = "simulate"))]
use crate::features::{load_simulated, no_simulator as no_folder};
use crate::{
    collateral::{fetching::FetchingAttester, service::ServiceArgs},
    error::{CliError, read_file},
    process,
};

/// A root certificate is about 700 bytes.
const ROOT_BYTES_MAX: u64 = 16 * 1024;

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct AttesterArgs {
    /// Attest with the simulated attester in this folder (made by `confide attest --simulate`)
    #[arg(long, value_name = "DIR", hide = cfg!(not(feature = "simulate")))]
    pub(crate) simulate: Option<PathBuf>,
    #[cfg_attr(
        feature = "simulate",
        doc = "Where evidence comes from; --simulate implies `simulated`"
    )]
    #[cfg_attr(not(feature = "simulate"), doc = "Where evidence comes from")]
    #[arg(long, value_enum, value_name = "ATTESTER")]
    attester: Option<AttesterName>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Beside the device's evidence show that of the NVIDIA GPU with this index (from 0); it
    /// travels with session binding only
    #[arg(long, value_name = "N", conflicts_with = "simulate")]
    pub(crate) gpu_index: Option<u32>,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// How long a key that attests a client is good: as long as a session of it may last.
const CLIENT_KEY_VALIDITY: Duration = Duration::from_secs(24 * 3600);

/// The evidence of a client, which has no configuration; `guarantee` is what it says of itself.
pub(crate) fn client_evidence(attester: Arc<dyn Attest>, guarantee: &str) -> ClientEvidence {
    ClientEvidence {
        attester,
        clock: process::unix_now,
        config_digest: [0; 32],
        guarantee: guarantee.into(),
        key_validity: CLIENT_KEY_VALIDITY,
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum AttesterName {
    /// A device of this machine
    Device,
    /// The simulated attester in a folder
    #[value(hide = cfg!(not(feature = "simulate")))]
    Simulated,
}

impl AttesterArgs {
    /// The attester that the arguments name; `None` where they name none. It staples
    /// `collateral` where that is given, else what the named service has, else its own.
    pub(crate) fn open(
        &self,
        collateral: Option<&Path>,
    ) -> Result<Option<Arc<dyn Attest>>, CliError> {
        let attester = match (&self.simulate, self.attester) {
            (Some(folder), None | Some(AttesterName::Simulated)) => load_simulated(folder)?,
            (None, Some(AttesterName::Device)) => self.device()?,
            (None, None) if self.device.any() || self.gpu_index.is_some() => self.device()?,
            (Some(_), Some(AttesterName::Device)) => {
                let text = "wanted one attester, got --attester device and --simulate";
                return Err(CliError::new(text).hint("leave one of them out"));
            }
            (None, Some(AttesterName::Simulated)) => {
                return Err(no_folder());
            }
            (None, None) => return Ok(None),
        };
        if let Some(path) = collateral {
            let collateral = read_file(path, COLLATERAL_LENGTH_MAX as u64)?;
            return Ok(Some(Arc::new(Stapling { attester, collateral })));
        }
        match self.service.start(&self.endorsement_roots()?)? {
            None => Ok(Some(attester)),
            Some(source) => Ok(Some(Arc::new(FetchingAttester::new(attester, source)?))),
        }
    }

    /// The CPU's device, and the GPU beside it where one was named.
    fn device(&self) -> Result<Arc<dyn Attest>, CliError> {
        let cpu = self.device.open()?.attester;
        let Some(index) = self.gpu_index else { return Ok(cpu) };
        let gpu = Nvml::new(NVML_LIBRARY, index);
        // A GPU that cannot attest is found out here, and not by the first client.
        gpu.evidence(&[0; 32]).map_err(|error| {
            CliError::new(with_causes(&error))
                .hint("`confide attest --detect` says whether this machine has an NVIDIA GPU")
        })?;
        Ok(Arc::new(GpuAttester::new(cpu, gpu)))
    }

    /// The roots under which fetched endorsements must verify before they are kept. Whether they
    /// are believed is for the peers to judge.
    fn endorsement_roots(&self) -> Result<Roots, CliError> {
        match &self.simulate {
            None => Ok(Roots::production()),
            Some(folder) => {
                Ok(Roots::from_der(&read_file(&folder.join("root.der"), ROOT_BYTES_MAX)?))
            }
        }
    }
}

/// An attester whose collateral was given by the operator.
struct Stapling {
    attester: Arc<dyn Attest>,
    collateral: Vec<u8>,
}

impl Attest for Stapling {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        self.attester.attest(report_data)
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        Some(self.collateral.clone())
    }

    fn gpu(&self, nonce: &[u8; 32]) -> Result<Option<Vec<u8>>, AttestError> {
        self.attester.gpu(nonce)
    }

    fn is_simulated(&self) -> bool {
        self.attester.is_simulated()
    }
}
