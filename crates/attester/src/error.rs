//! Why a device gave no evidence.

use std::{io, path::PathBuf, time::Duration};

use confide_evidence::{AttestError, ParseError};

/// Why a device gave no evidence.
#[derive(Debug, thiserror::Error)]
pub enum AttesterError {
    /// The device's file or folder is not there.
    #[error("no device at {}: {source}", path.display())]
    Absent {
        /// The path that was looked for.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file or socket of the device failed in a way that has no name of its own here.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The tree belongs to a device whose evidence this version does not know.
    #[error("provider: wanted tdx_guest or sev_guest, got {got:?}")]
    Provider {
        /// The value in the tree.
        got: String,
    },
    /// An attribute holds something else than its kernel documentation says.
    #[error("{}: wanted {wanted}, got {got:?}", path.display())]
    Attribute {
        /// The name of the attribute.
        path: PathBuf,
        /// The value that it should hold.
        wanted: &'static str,
        /// The value that it holds, shortened.
        got: String,
    },
    /// The host limits the rate of reports, and still did at the deadline.
    #[error("device busy: {tries} tries in {waited:?}")]
    Busy {
        /// How often the report was asked for.
        tries: u32,
        /// How long that took.
        waited: Duration,
    },
    /// The report exceeds the limit of the kernel (EFBIG) or of this program.
    #[error("{}: wanted at most {limit} bytes, got more", path.display())]
    TooBig {
        /// The name of the attribute.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// The read succeeded and gave nothing, which is no evidence.
    #[error("{}: wanted a report, got 0 bytes", path.display())]
    Empty {
        /// The name of the attribute.
        path: PathBuf,
    },
    /// The report has the wrong length for its kind.
    #[error("{subject}: wanted {wanted} bytes, got {got}")]
    Length {
        /// What was measured.
        subject: &'static str,
        /// The length it has to have.
        wanted: usize,
        /// The length it has.
        got: usize,
    },
    /// Another writer touched the entry on each try.
    #[error("report entry was written by another in each of {tries} tries")]
    Race {
        /// How often a new entry was made.
        tries: u32,
    },
    /// The report signs something else than what was asked.
    #[error("report data: wanted {wanted}, got {got}")]
    ReportData {
        /// What was asked, in hexadecimal.
        wanted: String,
        /// What the report holds, in hexadecimal.
        got: String,
    },
    /// The outblob does not parse as the evidence of its provider.
    #[error("report is no quote: {0}")]
    Quote(#[from] ParseError),
    /// The report is of another kind than its provider makes.
    #[error("report: wanted {wanted}, got {got}")]
    Kind {
        /// What the provider makes.
        wanted: &'static str,
        /// What the report is.
        got: &'static str,
    },
    /// The certificate table beside an SNP report is malformed.
    #[error("certificate table: {0}")]
    CertTable(&'static str),
    /// The quote generation service answered something else than a quote.
    #[error("quote generation service: {subject}: wanted {wanted}, got {got}")]
    Service {
        /// Which field of its answer.
        subject: &'static str,
        /// The value that it should hold.
        wanted: u64,
        /// What it holds.
        got: u64,
    },
    /// NVML could not be loaded, or lacks a call.
    #[error("cannot load {}: {source}", path.display())]
    Library {
        /// The library, or the call that it lacks.
        path: PathBuf,
        /// What the loader said.
        source: libloading::Error,
    },
    /// A call of NVML failed.
    #[error("{call}: wanted status 0, got {status}")]
    Nvml {
        /// Which call.
        call: &'static str,
        /// `nvmlReturn_t`
        status: i32,
    },
    /// The GPU is in no state to attest.
    #[error(
        "GPU: wanted confidential computing on and ready, \
         got on: {confidential_computing}, ready: {ready}"
    )]
    GpuMode {
        /// Whether confidential computing is on.
        confidential_computing: bool,
        /// Whether the GPUs accept work.
        ready: bool,
    },
    /// The GPU signed another nonce than it was given.
    #[error("GPU nonce: wanted {wanted}, got {got}")]
    GpuNonce {
        /// What was asked, in hexadecimal.
        wanted: String,
        /// What the report holds, in hexadecimal.
        got: String,
    },
    /// The device did not answer in time; it may still be busy with the call.
    #[error("device: wanted an answer within {deadline:?}, got none")]
    Deadline {
        /// How long was waited.
        deadline: Duration,
    },
    /// Too many callers wait already.
    #[error("device queue: wanted at most {limit} callers, got one more")]
    QueueFull {
        /// How many may wait.
        limit: usize,
    },
    /// The thread that talks to devices could not be started or ended.
    #[error("device thread is not running: {0}")]
    Thread(String),
}

impl AttesterError {
    /// The error as the channel knows it.
    pub(crate) fn into_attest_error(self, device: &str) -> AttestError {
        AttestError::Device { device: device.into(), reason: self.to_string() }
    }
}
