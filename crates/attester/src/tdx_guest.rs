//! `/dev/tdx_guest`: a TD report by ioctl, and a quote over it from the service on the host.
//!
//! For TDX guests whose kernel has no configfs-tsm (before 6.7). The report is only valid on its
//! machine; the quote generation service, reached through the VM's socket, signs it for others.

use std::{
    io::ErrorKind,
    path::PathBuf,
    time::{Duration, Instant},
};

use confide_evidence::{Attest, AttestError, ReportData};

use crate::{
    device_calls, device_thread,
    error::AttesterError,
    qgs,
    tsm::{DEADLINE_DEFAULT, quote_report_data},
};

/// The device of the kernel's TDX guest driver.
pub const TDX_GUEST: &str = "/dev/tdx_guest";
/// The address of the host, `VMADDR_CID_HOST`.
const HOST: u32 = 2;
/// The port of the quote generation service, unless its host configures another.
const SERVICE_PORT: u32 = 4050;

/// The device and the service of a TDX guest.
#[derive(Clone, Debug)]
pub struct TdxGuestOptions {
    /// The path of the device of the TDX guest driver.
    pub device: PathBuf,
    /// The machine of the service, as an address of the VM socket family; 2 is the host.
    pub context: u32,
    /// The service's port.
    pub port: u32,
    /// The longest time of a quote, waiting for other callers included.
    pub deadline: Duration,
}

impl Default for TdxGuestOptions {
    fn default() -> Self {
        let deadline = DEADLINE_DEFAULT;
        Self { device: TDX_GUEST.into(), context: HOST, port: SERVICE_PORT, deadline }
    }
}

/// The attester of an older TDX guest.
#[derive(Debug)]
pub struct TdxGuest {
    options: TdxGuestOptions,
}

impl TdxGuest {
    /// Asks the device for one TD report, to check that it is a TDX guest's.
    ///
    /// # Errors
    /// If the device is absent, or gives no TD report.
    pub fn open(options: TdxGuestOptions) -> Result<Self, AttesterError> {
        let device = options.device.clone();
        device_thread::CPU.run_on_device(options.deadline, move |_| {
            request_td_report(device, &ReportData::ZERO)
        })?;
        Ok(Self { options })
    }

    /// Obtains a quote over `report_data`.
    ///
    /// # Errors
    /// If device or quote generation service fail or answer late, or the quote is over other data.
    pub fn quote(&self, report_data: &ReportData) -> Result<Vec<u8>, AttesterError> {
        let (options, wanted) = (self.options.clone(), *report_data);
        device_thread::CPU
            .run_on_device(options.deadline, move |until| request_quote(options, &wanted, until))
    }
}

impl Attest for TdxGuest {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        self.quote(report_data).map_err(|error| error.into_attest_error("tdx_guest"))
    }

    fn collateral(&self) -> Option<Vec<u8>> {
        None
    }

    fn is_simulated(&self) -> bool {
        false
    }
}

fn request_quote(
    options: TdxGuestOptions,
    wanted: &ReportData,
    until: Instant,
) -> Result<Vec<u8>, AttesterError> {
    let report = request_td_report(options.device, wanted)?;
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let (context, port) = (options.context, options.port);
    let mut service = device_calls::connect_vm(context, port, left).map_err(|source| {
        let path = format!("vsock:{context}:{port}").into();
        AttesterError::Io { action: "connect to", path, source }
    })?;
    let quote = qgs::request_quote(&mut service, &report, until)?;
    let got = quote_report_data(&quote)?;
    if got != *wanted {
        let (wanted, got) = (wanted.to_string(), got.to_string());
        return Err(AttesterError::ReportData { wanted, got });
    }
    Ok(quote)
}

fn request_td_report(
    path: PathBuf,
    wanted: &ReportData,
) -> Result<[u8; qgs::TD_REPORT_LENGTH], AttesterError> {
    device_calls::read_td_report(&path, &wanted.0).map_err(|source| match source.kind() {
        ErrorKind::NotFound => AttesterError::Absent { path, source },
        _ => AttesterError::Io { action: "get a TD report from", path, source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_device_is_named() {
        let options = TdxGuestOptions { device: "/dev/absent".into(), ..Default::default() };
        assert!(matches!(TdxGuest::open(options), Err(AttesterError::Absent { .. })));
    }
}
