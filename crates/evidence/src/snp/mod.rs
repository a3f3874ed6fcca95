//! SEV-SNP attestation reports, and what AMD's certificates say of the chip that signs them.
//!
//! Layout: AMD SEV Secure Nested Paging Firmware ABI Specification (56860), section
//! "MSG_REPORT_REQ", table "ATTESTATION_REPORT Structure". All numbers are little-endian.

mod certificate;
mod product;
mod report;

pub use certificate::{AmdCertificate, AmdKey, ChipKeyExtensions};
pub use product::{Product, Tcb};
pub(crate) use report::REPORT_LENGTH;
pub use report::{
    Cpuid, FirmwareVersion, GuestPolicy, PlatformInfo, Report, SIGNED_LENGTH, SigningKey,
};
