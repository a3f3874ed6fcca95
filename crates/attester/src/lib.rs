//! Obtains evidence from the devices of this machine; the only room that touches one.
//!
//! - [`Tsm`]: configfs-tsm, the kernel's interface since 6.7, for TDX guests and SEV-SNP guests.
//! - [`TdxGuest`]: `/dev/tdx_guest` and the quote generation service, for older TDX guests.
//! - [`Nvml`]: an NVIDIA GPU, through the management library of its driver.
//! - [`detect`]: which of them this machine has, and how that is known.
//!
//! A device may hang, and the kernel makes one report at a time. All calls of the process
//! therefore run one after the other on one thread, and each caller waits for a bounded time.
//! Nothing here knows a simulation: tests lead the very same calls to a file system of their own.

mod cert_table;
mod detect;
mod device_calls;
mod device_thread;
mod error;
mod nvml;
pub mod qgs;
mod tdx_guest;
mod tsm;

pub use cert_table::CertTable;
pub use detect::{DetectedDevice, Device, detect, detect_with_tsm};
pub use device_thread::WAITING_MAX;
pub use error::AttesterError;
pub use nvml::{GpuAttester, NVML_DEADLINE, NVML_LIBRARY, Nvml, NvmlState};
pub use tdx_guest::{TDX_GUEST, TdxGuest, TdxGuestOptions};
pub use tsm::{DEADLINE_DEFAULT, Provider, Report, TSM_ROOT, Tsm, TsmOptions};
