//! The arguments that name an attester, shared by every command that attests.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::ValueEnum;
use confide_attester::{AttesterWithGpu, NVML_LIBRARY, Nvml};
use confide_channel::ClientEvidence;
use confide_client::error_chain;
use confide_evidence::{Attest, collateral::COLLATERAL_LENGTH_MAX};
use confide_verifier::Roots;

#[cfg(feature = "simulate")]
use super::simulate::{load_simulated, missing_folder_error};
use super::{device::DeviceArgs, stapling::StaplingAttester};
#[cfg(not(feature = "simulate"))]
use crate::features::{load_simulated, missing_simulator_error as missing_folder_error};
use crate::{
    collateral::service::EndorsementSourceArgs,
    error::CliError,
    files::{ROOT_BYTES_MAX, read_file},
    process,
};

/// The arguments that name an attester.
#[derive(clap::Args, Debug)]
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
    /// Also show evidence of the NVIDIA GPU with this index (from 0); this needs session binding
    #[arg(long, value_name = "N", conflicts_with = "simulate")]
    pub(crate) gpu_index: Option<u32>,
    #[command(flatten)]
    pub(crate) service: EndorsementSourceArgs,
}

/// Life of a key that attests a client: as long as a session may last.
const CLIENT_KEY_VALIDITY: Duration = Duration::from_secs(24 * 3600);

/// The evidence of a client, which has no configuration; `guarantee` is its own claim.
pub(crate) fn client_evidence(attester: Arc<dyn Attest>, guarantee: &str) -> ClientEvidence {
    ClientEvidence {
        attester,
        clock: process::unix_now,
        config_digest: [0; 32],
        guarantee: guarantee.into(),
        key_validity: CLIENT_KEY_VALIDITY,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum AttesterName {
    /// A device of this machine
    Device,
    /// The simulated attester in a folder
    #[value(hide = cfg!(not(feature = "simulate")))]
    Simulated,
}

impl AttesterArgs {
    /// Opens the attester that the arguments name; `None` if they name none. It staples `collateral`
    /// where that is given, else the endorsements of the named service, else its own.
    pub(crate) fn open_attester(
        &self,
        collateral: Option<&Path>,
    ) -> Result<Option<Arc<dyn Attest>>, CliError> {
        let attester = match (&self.simulate, self.attester) {
            (Some(folder), None | Some(AttesterName::Simulated)) => load_simulated(folder)?,
            (None, Some(AttesterName::Device)) => self.open_device()?,
            (None, None) if self.device.is_given() || self.gpu_index.is_some() => {
                self.open_device()?
            }
            (Some(_), Some(AttesterName::Device)) => {
                let text = "wanted one attester, got --attester device and --simulate";
                return Err(CliError::new(text).with_hint("leave one of them out"));
            }
            (None, Some(AttesterName::Simulated)) => return Err(missing_folder_error()),
            (None, None) => return Ok(None),
        };
        if let Some(path) = collateral {
            let collateral = read_file(path, COLLATERAL_LENGTH_MAX as u64)?;
            return Ok(Some(Arc::new(StaplingAttester::with_collateral(attester, collateral))));
        }
        match self.service.start_source(&self.endorsement_roots()?)? {
            None => Ok(Some(attester)),
            Some(source) => Ok(Some(Arc::new(StaplingAttester::with_source(attester, source)?))),
        }
    }

    /// Opens the CPU's device, and the GPU where one is named.
    fn open_device(&self) -> Result<Arc<dyn Attest>, CliError> {
        let cpu = self.device.open_device()?.attester;
        let Some(index) = self.gpu_index else { return Ok(cpu) };
        let gpu = Nvml::new(NVML_LIBRARY, index);
        // A GPU that cannot attest fails here, and not at the first client.
        gpu.evidence(&[0; 32]).map_err(|error| {
            CliError::new(error_chain(&error))
                .with_hint("`confide attest --detect` says whether this machine has an NVIDIA GPU")
        })?;
        Ok(Arc::new(AttesterWithGpu::new(cpu, gpu)))
    }

    /// The roots under which fetched endorsements must verify before they are kept; whether to trust them
    /// is for the peers to judge.
    fn endorsement_roots(&self) -> Result<Roots, CliError> {
        match &self.simulate {
            None => Ok(Roots::production()),
            Some(folder) => {
                Ok(Roots::from_der(&read_file(&folder.join("root.der"), ROOT_BYTES_MAX)?))
            }
        }
    }
}
