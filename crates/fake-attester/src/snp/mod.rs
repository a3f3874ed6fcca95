//! AMD's side of a *simulated* machine: keys, certificates and reports.
//!
//! Formats: AMD SEV Secure Nested Paging Firmware ABI Specification (56860), and Versioned Chip
//! Endorsement Key Certificate and KDS Interface Specification (57230).

mod certificates;
mod key;
pub(crate) mod product;
mod report;

pub(crate) use certificates::AmdPki;
pub(crate) use key::ChipKey;
pub use product::{Product, SnpSigner, SnpTcb};
pub(crate) use report::{ReportFields, Reporter};
