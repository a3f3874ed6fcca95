//! The 64 bytes that a quote signs on behalf of the attested program.

use core::fmt;

/// The `report_data` field of a TD report or enclave report: 64 bytes chosen by the attester.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReportData(pub [u8; 64]);

impl ReportData {
    /// All zero, as a program leaves it that binds nothing.
    pub const ZERO: ReportData = ReportData([0; 64]);

    /// A 32-byte digest followed by 32 zero bytes (the layout of the interoperable RA-TLS profile).
    pub fn from_digest(digest: [u8; 32]) -> Self {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&digest);
        Self(bytes)
    }
}

impl AsRef<[u8]> for ReportData {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ReportData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ReportData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReportData({self})")
    }
}
