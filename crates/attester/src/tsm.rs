//! configfs-tsm: one entry for each report, made and removed again.
//!
//! Linux, `Documentation/ABI/testing/configfs-tsm` (6.7): the bytes written to `inblob` are signed
//! into `outblob`; `generation` counts the writes, so that a second writer is noticed; `provider`
//! names the format. The kernel takes over a written `inblob` when the file is closed, and does not
//! report errors there: only `generation` and the report itself tell.

mod entry;
mod provider;

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use confide_evidence::{
    Attest, AttestError, ReportData,
    quote::{Body, QUOTE_LENGTH_MAX, Quote},
};

use crate::{
    cert_table::CertTable, device_calls::is_configfs, device_thread, error::AttesterError,
};
use entry::Entry;
pub use provider::Provider;

/// The path at which the kernel shows its tree.
pub const TSM_ROOT: &str = "/sys/kernel/config/tsm";
/// The default deadline of a report: as long as a virtual machine monitor gives the quote
/// generation service (QEMU: 30 s), and six times what the 128th caller of a device of 39 ms waits.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// A new entry belongs to its maker alone, so a race means that somebody writes into entries of
/// others.
const RACE_TRIES: u32 = 3;
/// The first pause between two tries at a busy device: a quote takes 39 ms, a host that limits the
/// rate (SNP) asks for two seconds, so the pause doubles from the one to the other.
const BUSY_WAIT_FIRST: Duration = Duration::from_millis(40);
const BUSY_WAIT_MAX: Duration = Duration::from_secs(2);
/// The length of a report in bytes: SEV Secure Nested Paging Firmware ABI, table
/// "ATTESTATION_REPORT".
const SNP_REPORT_LENGTH: usize = 1184;
const SNP_REPORT_DATA_AT: usize = 0x50;
/// The offset of the signing key in bits 2 to 4: 0 for VCEK, 1 for VLEK.
const SNP_KEY_INFO_AT: usize = 0x48;

/// The tree that is asked, and the conditions.
#[derive(Clone, Debug)]
pub struct TsmOptions {
    /// The folder that holds `report`.
    pub root: PathBuf,
    /// The privilege level to sign for (SNP: VMPL 0 to 3); `None` lets the provider choose.
    pub privlevel: Option<u32>,
    /// The longest time of a report, waiting for other callers included.
    pub deadline: Duration,
}

impl Default for TsmOptions {
    fn default() -> Self {
        Self { root: TSM_ROOT.into(), privlevel: None, deadline: DEADLINE_DEFAULT }
    }
}

/// One report from a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// A DCAP quote or an SNP report; it holds the report data that was asked for.
    pub evidence: Vec<u8>,
    /// The SNP certificate table as the host gave it; empty if there is none.
    pub auxblob: Vec<u8>,
}

/// The attester of a configfs-tsm tree.
#[derive(Debug)]
pub struct Tsm {
    options: TsmOptions,
    provider: Provider,
    kernels: bool,
    /// The endorsements of the last report: a new firmware changes the endorsement key under a
    /// running guest.
    endorsements: Mutex<Option<Vec<u8>>>,
}

impl Tsm {
    /// Opens the tree and makes an empty entry in it, to learn its provider.
    ///
    /// # Errors
    /// If the tree is absent, or its provider is neither `tdx_guest` nor `sev_guest`.
    pub fn open(options: TsmOptions) -> Result<Self, AttesterError> {
        let reports = options.root.join("report");
        let (provider, kernels) =
            device_thread::CPU.run_on_device(options.deadline, move |_| {
                let kernels = is_configfs(&reports)
                    .map_err(|source| AttesterError::Absent { path: reports.clone(), source })?;
                Ok((Entry::create(&reports)?.read_provider()?, kernels))
            })?;
        Ok(Self { options, provider, kernels, endorsements: Mutex::new(None) })
    }

    /// The provider of this tree's reports.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Whether the tree is the kernel's own, and not another file system of the same layout.
    pub fn is_kernel_tree(&self) -> bool {
        self.kernels
    }

    /// Obtains a report over `report_data`.
    ///
    /// # Errors
    /// If the kernel refuses or stays busy until the deadline, another writer touches the entry on each
    /// try, or the report is malformed or over other data.
    pub fn report(&self, report_data: &ReportData) -> Result<Report, AttesterError> {
        let (options, provider, wanted) = (self.options.clone(), self.provider, *report_data);
        let report = device_thread::CPU.run_on_device(options.deadline, move |until| {
            read_report(&options, provider, &wanted, until)
        })?;
        self.keep_endorsements(&report)?;
        Ok(report)
    }

    fn keep_endorsements(&self, report: &Report) -> Result<(), AttesterError> {
        if self.provider == Provider::SevGuest {
            let vlek = (report.evidence[SNP_KEY_INFO_AT] >> 2) & 7 == 1;
            let endorsements = CertTable::parse(&report.auxblob)?.endorsements(vlek);
            *self.endorsements.lock().unwrap_or_else(PoisonError::into_inner) = endorsements;
        }
        Ok(())
    }
}

impl Attest for Tsm {
    fn attest(&self, report_data: &ReportData) -> Result<Vec<u8>, AttestError> {
        let report = self.report(report_data);
        Ok(report.map_err(|error| error.into_attest_error(self.provider.name()))?.evidence)
    }

    /// The endorsements from the host's certificate table next to the last report (SNP). TDX has
    /// none.
    fn collateral(&self) -> Option<Vec<u8>> {
        self.endorsements.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A tree that is not the kernel's is not accepted as a device.
    fn is_simulated(&self) -> bool {
        !self.kernels
    }
}

fn read_report(
    options: &TsmOptions,
    provider: Provider,
    wanted: &ReportData,
    until: Instant,
) -> Result<Report, AttesterError> {
    for _ in 0..RACE_TRIES {
        let entry = Entry::create(&options.root.join("report"))?;
        if let Some(report) = try_read_report(&entry, options, provider, wanted, until)? {
            check_report_data(provider, &report.evidence, wanted)?;
            return Ok(report);
        }
    }
    Err(AttesterError::Race { tries: RACE_TRIES })
}

/// Makes one report; `None` if another writer was at the entry.
fn try_read_report(
    entry: &Entry,
    options: &TsmOptions,
    provider: Provider,
    wanted: &ReportData,
    until: Instant,
) -> Result<Option<Report>, AttesterError> {
    let found = entry.read_provider()?;
    if found != provider {
        return Err(AttesterError::Kind { wanted: provider.name(), got: found.name() });
    }
    let before = entry.read_generation()?;
    entry.write("inblob", &wanted.0)?;
    let mut writes = 1;
    if let Some(level) = options.privlevel {
        entry.write("privlevel", level.to_string().as_bytes())?;
        writes += 1;
    }
    let evidence = retry_while_busy(until, || entry.read("outblob", QUOTE_LENGTH_MAX));
    let auxblob = match (&evidence, provider) {
        (Ok(_), Provider::SevGuest) => {
            retry_while_busy(until, || entry.read("auxblob", QUOTE_LENGTH_MAX))?
        }
        _ => Vec::new(),
    };
    // Checked before the result is used, an error included: it may belong to the other's write.
    if entry.read_generation()? != before.wrapping_add(writes) {
        return Ok(None);
    }
    match evidence? {
        evidence if evidence.is_empty() => {
            Err(AttesterError::Empty { path: entry.path("outblob") })
        }
        evidence => Ok(Some(Report { evidence, auxblob })),
    }
}

/// Reads again, after a growing pause, while the device answers that it is busy.
fn retry_while_busy(
    until: Instant,
    read: impl Fn() -> Result<Vec<u8>, AttesterError>,
) -> Result<Vec<u8>, AttesterError> {
    let begun = Instant::now();
    let (mut tries, mut wait) = (1, BUSY_WAIT_FIRST);
    loop {
        match read() {
            Err(error) if is_busy(&error) => {
                if Instant::now() + wait >= until {
                    return Err(AttesterError::Busy { tries, waited: begun.elapsed() });
                }
                thread::sleep(wait);
                wait = (wait * 2).min(BUSY_WAIT_MAX);
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Whether a read is worth repeating. EBUSY: the host limits the rate, or another quote is under
/// way. EAGAIN and EINTR: as in any read.
fn is_busy(error: &AttesterError) -> bool {
    let AttesterError::Io { source, .. } = error else { return false };
    matches!(
        source.kind(),
        ErrorKind::ResourceBusy | ErrorKind::WouldBlock | ErrorKind::Interrupted
    )
}

/// Checks that the evidence is of the provider's kind and signs the report data that was asked for.
fn check_report_data(
    provider: Provider,
    evidence: &[u8],
    wanted: &ReportData,
) -> Result<(), AttesterError> {
    let got = match provider {
        Provider::TdxGuest => quote_report_data(evidence)?,
        Provider::SevGuest => snp_report_data(evidence)?,
    };
    if got != *wanted {
        let (wanted, got) = (wanted.to_string(), got.to_string());
        return Err(AttesterError::ReportData { wanted, got });
    }
    Ok(())
}

/// The report data that a TDX quote signs; a quote of another TEE is refused.
pub(crate) fn quote_report_data(evidence: &[u8]) -> Result<ReportData, AttesterError> {
    let quote = Quote::parse(evidence)?;
    if matches!(quote.body, Body::Sgx(_)) {
        return Err(AttesterError::Kind { wanted: "a TDX quote", got: "an SGX quote" });
    }
    Ok(quote.report_data())
}

fn snp_report_data(evidence: &[u8]) -> Result<ReportData, AttesterError> {
    let (subject, wanted, got) = ("SNP report", SNP_REPORT_LENGTH, evidence.len());
    if got != wanted {
        return Err(AttesterError::Length { subject, wanted, got });
    }
    let mut data = ReportData::ZERO;
    data.0.copy_from_slice(&evidence[SNP_REPORT_DATA_AT..SNP_REPORT_DATA_AT + 64]);
    Ok(data)
}

/// The provider of the tree under `root`, read from an entry that is made for this.
pub(crate) fn read_provider(root: &Path, deadline: Duration) -> Result<Provider, AttesterError> {
    let reports = root.join("report");
    device_thread::CPU.run_on_device(deadline, move |_| Entry::create(&reports)?.read_provider())
}
