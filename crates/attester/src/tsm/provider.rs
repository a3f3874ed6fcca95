//! The providers of reports that a tree may name.

/// The provider of a tree's reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// A TDX guest: DCAP quotes.
    TdxGuest,
    /// An SEV-SNP guest: attestation reports, with a certificate table where the host has one.
    SevGuest,
}

impl Provider {
    /// The name as the tree writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::TdxGuest => "tdx_guest",
            Self::SevGuest => "sev_guest",
        }
    }
}
