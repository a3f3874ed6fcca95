//! Obtains evidence from the devices of this machine; the only crate that calls one.
//!
//! - [`Tsm`]: configfs-tsm, the kernel's interface since 6.7, for TDX guests and SEV-SNP guests.
//! - [`TdxGuest`]: `/dev/tdx_guest` and the quote generation service, for older TDX guests.
//! - [`Nvml`]: an NVIDIA GPU, through the management library of its driver.
//! - [`detect_devices`]: the devices that this machine has, and how they were recognised.
//!
//! A device may hang, and the kernel makes one report at a time. All calls of the process therefore
//! run one after the other on one thread, and each caller waits for a bounded time. There is no
//! simulation in this crate: tests make the same calls on a file system of their own.

mod cert_table;
mod detect;
#[cfg_attr(not(target_os = "linux"), path = "device_calls_absent.rs")]
mod device_calls;
mod device_thread;
mod error;
mod nvml;
pub mod qgs;
mod tdx_guest;
mod tsm;

pub use cert_table::CertTable;
pub use detect::{DetectedDevice, Device, detect_devices, detect_devices_with_tsm};
pub use device_thread::WAITING_MAX;
pub use error::AttesterError;
pub use nvml::{AttesterWithGpu, NVML_DEADLINE, NVML_LIBRARY, Nvml, NvmlState};
pub use tdx_guest::{TDX_GUEST, TdxGuest, TdxGuestOptions};
pub use tsm::{DEADLINE_DEFAULT, Provider, Report, TSM_ROOT, Tsm, TsmOptions};
