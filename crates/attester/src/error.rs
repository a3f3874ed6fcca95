//! The reasons for which a device gives no evidence.

use std::{io, path::PathBuf, time::Duration};

use confide_evidence::{AttestError, ParseError};

/// The reason for which a device gave no evidence.
#[derive(Debug, thiserror::Error)]
pub enum AttesterError {
    /// The file or folder of the device does not exist.
    #[error("no device at {}: {source}", path.display())]
    Absent {
        /// The path of the device.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file or socket of the device failed in a way that has no variant of its own.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The tree belongs to a device whose evidence this version does not know.
    #[error("provider: wanted tdx_guest or sev_guest, got {got:?}")]
    Provider {
        /// The name of the provider in the tree.
        got: String,
    },
    /// An attribute holds something other than its kernel documentation says.
    #[error("{}: wanted {wanted}, got {got:?}", path.display())]
    Attribute {
        /// The path of the attribute.
        path: PathBuf,
        /// The value that it should hold.
        wanted: &'static str,
        /// The value that it holds, shortened.
        got: String,
    },
    /// The host limits the rate of reports, and still did at the deadline.
    #[error("device busy: {tries} tries in {waited:?}")]
    Busy {
        /// The number of times that the report was asked for.
        tries: u32,
        /// The time that all tries took.
        waited: Duration,
    },
    /// The report is longer than the kernel (EFBIG) or this program allows.
    #[error("{}: wanted at most {limit} bytes, got more", path.display())]
    TooBig {
        /// The path of the attribute.
        path: PathBuf,
        /// The limit in bytes.
        limit: usize,
    },
    /// The read succeeded and gave no bytes, which is not evidence.
    #[error("{}: wanted a report, got 0 bytes", path.display())]
    Empty {
        /// The path of the attribute.
        path: PathBuf,
    },
    /// The report has the wrong length for its kind.
    #[error("{subject}: wanted {wanted} bytes, got {got}")]
    Length {
        /// The name of the part that has the wrong length.
        subject: &'static str,
        /// The length that it must have, in bytes.
        wanted: usize,
        /// The length that it has, in bytes.
        got: usize,
    },
    /// Another writer touched the entry on each try.
    #[error("report entry was overwritten by another process in each of {tries} tries")]
    Race {
        /// The number of entries that were made.
        tries: u32,
    },
    /// The report signs other data than was asked for.
    #[error("report data: wanted {wanted}, got {got}")]
    ReportData {
        /// The data that was asked for, in hexadecimal.
        wanted: String,
        /// The data in the report, in hexadecimal.
        got: String,
    },
    /// The outblob cannot be parsed as the evidence of its provider.
    #[error("report is not a quote: {0}")]
    Quote(#[from] ParseError),
    /// The report is of another kind than the provider makes.
    #[error("report: wanted {wanted}, got {got}")]
    Kind {
        /// The kind that the provider makes.
        wanted: &'static str,
        /// The kind of the report.
        got: &'static str,
    },
    /// The certificate table that came with an SNP report is malformed.
    #[error("certificate table: {0}")]
    CertTable(&'static str),
    /// The quote generation service answered something other than a quote.
    #[error("quote generation service: {subject}: wanted {wanted}, got {got}")]
    Service {
        /// The name of the field of its answer.
        subject: &'static str,
        /// The value that it should hold.
        wanted: u64,
        /// The value that it holds.
        got: u64,
    },
    /// NVML could not be loaded, or lacks a call.
    #[error("cannot load {}: {source}", path.display())]
    Library {
        /// The library, or the call that it lacks.
        path: PathBuf,
        /// The loader's error.
        source: libloading::Error,
    },
    /// A call of NVML failed.
    #[error("{call}: wanted status 0, got {status}")]
    Nvml {
        /// The name of the function.
        call: &'static str,
        /// The `nvmlReturn_t` that it returned.
        status: i32,
    },
    /// The GPU is not ready to attest.
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
        /// The nonce that was given, in hexadecimal.
        wanted: String,
        /// The nonce in the report, in hexadecimal.
        got: String,
    },
    /// The device did not answer in time; it may still be busy with the call.
    #[error("device: wanted an answer within {deadline:?}, got none")]
    Deadline {
        /// The longest wait.
        deadline: Duration,
    },
    /// As many callers wait as are allowed to.
    #[error("device queue: wanted at most {limit} waiting callers, got one more")]
    QueueFull {
        /// The most callers that may wait.
        limit: usize,
    },
    /// The thread that calls the devices could not be started, or has ended.
    #[error("device thread is not running: {0}")]
    Thread(String),
}

impl AttesterError {
    /// The error of the trait [`confide_evidence::Attest`], with the name of the device.
    pub(crate) fn into_attest_error(self, device: &str) -> AttestError {
        AttestError::Device { device: device.into(), reason: self.to_string() }
    }
}
