//! The arguments that name an attestation device, and how it is opened.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::ValueEnum;
use confide_attester::{
    AttesterError, DEADLINE_DEFAULT, Provider, TSM_ROOT, TdxGuest, TdxGuestOptions, Tsm, TsmOptions,
};
use confide_evidence::Attest;

use crate::error::CliError;

/// The arguments that name an attestation device.
#[derive(clap::Args, Debug)]
pub(crate) struct DeviceArgs {
    /// The device; by default the first in this list that this machine has
    #[arg(long, value_enum, value_name = "DEVICE", conflicts_with = "simulate")]
    device: Option<DeviceName>,
    /// A configfs-tsm tree somewhere other than the kernel's; its evidence counts as simulated unless its
    /// file system is configfs
    #[arg(long, value_name = "DIR", conflicts_with = "simulate")]
    tsm_root: Option<PathBuf>,
    /// The privilege level to sign for (SNP: VMPL 0 to 3); by default the guest's own
    #[arg(long, value_name = "N", conflicts_with = "simulate",
          value_parser = clap::value_parser!(u32).range(0..=3))]
    privlevel: Option<u32>,
    /// Deadline of the device, in seconds
    #[arg(long, value_name = "N", default_value_t = DEADLINE_DEFAULT.as_secs(),
          value_parser = clap::value_parser!(u64).range(1..=600))]
    device_deadline_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum DeviceName {
    /// The kernel's configfs-tsm: TDX and SEV-SNP guests, Linux 6.7 or newer
    Tsm,
    /// /dev/tdx_guest and the quote generation service of the host: older TDX guests
    TdxGuest,
}

/// A device that answered.
pub(crate) struct OpenedDevice {
    pub(crate) attester: Arc<dyn Attest>,
    /// The kind of its evidence.
    pub(crate) kind: &'static str,
    /// The source of its evidence, as it is printed.
    pub(crate) source: String,
}

impl DeviceArgs {
    /// Whether any of these arguments was given.
    pub(crate) fn is_given(&self) -> bool {
        self.device.is_some() || self.tsm_root.is_some() || self.privlevel.is_some()
    }

    /// The tree to inspect, for `--detect`.
    pub(crate) fn tsm_root(&self) -> PathBuf {
        self.tsm_root.clone().unwrap_or_else(|| TSM_ROOT.into())
    }

    /// Opens the device that is named, or the first that this machine has.
    pub(crate) fn open_device(&self) -> Result<OpenedDevice, CliError> {
        let opened = match self.device {
            Some(DeviceName::Tsm) => self.open_tsm(),
            Some(DeviceName::TdxGuest) => self.open_tdx_guest(),
            None => self.open_first_device(),
        };
        opened.map_err(explain_error)
    }

    /// Opens the first device that is present; one that is present and fails is not skipped.
    fn open_first_device(&self) -> Result<OpenedDevice, AttesterError> {
        match self.open_tsm() {
            Err(absent @ AttesterError::Absent { .. }) if self.tsm_root.is_none() => {
                match self.open_tdx_guest() {
                    Err(AttesterError::Absent { .. }) => Err(absent),
                    outcome => outcome,
                }
            }
            outcome => outcome,
        }
    }

    fn open_tsm(&self) -> Result<OpenedDevice, AttesterError> {
        let root = self.tsm_root();
        let source = format!("configfs-tsm at {}", root.display());
        let (privlevel, deadline) = (self.privlevel, self.deadline());
        let tsm = Tsm::open(TsmOptions { root, privlevel, deadline })?;
        let kind = match tsm.provider() {
            Provider::TdxGuest => "TDX quote",
            Provider::SevGuest => "SEV-SNP report",
        };
        Ok(OpenedDevice { attester: Arc::new(tsm), kind, source })
    }

    fn open_tdx_guest(&self) -> Result<OpenedDevice, AttesterError> {
        let options = TdxGuestOptions { deadline: self.deadline(), ..Default::default() };
        let source =
            format!("{} and the host's quote generation service", options.device.display());
        let device = TdxGuest::open(options)?;
        Ok(OpenedDevice { attester: Arc::new(device), kind: "TDX quote", source })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(self.device_deadline_s)
    }
}

/// Explains why a device gives no evidence, and what to try.
fn explain_error(error: AttesterError) -> CliError {
    let hint = match &error {
        AttesterError::Absent { .. } if cfg!(feature = "simulate") => {
            "`confide attest --detect` says what this machine has; without a device, \
             `confide attest --simulate tdx --out DIR` makes simulated evidence"
        }
        AttesterError::Absent { .. } => "`confide attest --detect` says what this machine has",
        AttesterError::Io { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "the device belongs to root: run as root, or give this user access to the folder"
        }
        AttesterError::Busy { .. } | AttesterError::QueueFull { .. } => {
            "the host limits the rate of reports: request them less often, or let sessions share a \
             report"
        }
        AttesterError::Deadline { .. } | AttesterError::Service { .. } => {
            "is the host's quote generation service running? --device-deadline-s N waits longer"
        }
        AttesterError::Empty { .. } => {
            "see the kernel's log; a host without a quote generation service often causes this"
        }
        _ => return CliError::new(error),
    };
    CliError::new(error).with_hint(hint)
}
