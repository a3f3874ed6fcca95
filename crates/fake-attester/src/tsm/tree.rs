//! The description of a simulated tree, and the faults that can be injected into it.

use std::time::Duration;

use confide_evidence::ReportData;

/// The guest of which the tree pretends to be part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TsmProvider {
    /// `tdx_guest`.
    Tdx,
    /// `sev_guest`.
    Sev,
}

/// A fault of the tree, for tests of its readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TsmFault {
    /// The next reads of a new report answer EBUSY, this many times.
    Busy(u32),
    /// Reports are longer than the kernel allows: EFBIG.
    TooBig,
    /// Reports are read successfully and hold nothing.
    Empty,
    /// Reports lose their last byte.
    Short,
    /// Before the next reads of a new report, this many times, another writer writes its inblob.
    Race(u32),
    /// Reports sign other bytes than were asked, and no counter says so.
    ForeignReportData,
    /// A report takes this much longer.
    Slow(Duration),
    /// The provider has this name.
    Provider(String),
    /// The provider has gone: ENXIO.
    Unloaded,
}

/// Makes a report; called with the lock of the tree held, as the kernel does.
type MakeReport = Box<dyn Fn(&ReportData) -> Vec<u8> + Send + Sync>;

/// A simulated tree that is not mounted yet.
pub struct TsmTree {
    pub(super) provider: TsmProvider,
    pub(super) report: MakeReport,
    pub(super) auxblob: Vec<u8>,
    pub(super) services: bool,
}

impl TsmTree {
    /// A tree whose reports come from anywhere.
    pub fn with_reports(
        provider: TsmProvider,
        report: impl Fn(&ReportData) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let report = Box::new(report);
        Self { provider, report, auxblob: Vec::new(), services: false }
    }

    /// The same tree with this certificate table along with each report (`sev_guest` only).
    pub fn with_auxblob(mut self, bytes: Vec<u8>) -> Self {
        self.auxblob = bytes;
        self
    }

    /// The same tree with the attributes that an SVSM brings (`sev_guest` only).
    pub fn with_service_attributes(mut self) -> Self {
        self.services = true;
        self
    }
}
