//! The seam between a channel and whatever decides on the evidence it received.

use crate::report_data::ReportData;

/// How evidence is tied to the connection it came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingKind {
    /// Report data covers claims that hold the hash of the TLS key (`TlsSpki`).
    TlsSpki,
    /// Report data covers the TLS exporter of this very session (`TlsExporter`).
    TlsExporter,
}

/// What a peer presented, together with what its report data has to be on this connection.
///
/// The channel has already checked that `claims` name the key of this connection; whether the
/// quote is genuine, and whether it signs `expected_report_data`, is for the appraiser.
#[derive(Clone, Copy, Debug)]
pub struct PresentedEvidence<'a> {
    /// The binding that the channel used.
    pub binding: BindingKind,
    /// The CBOR claims exactly as the peer sent them (see [`crate::claims`]).
    pub claims: &'a [u8],
    /// Endorsements that the peer stapled; they authenticate themselves by their signatures.
    pub collateral: Option<&'a [u8]>,
    /// The report data that the quote must hold.
    pub expected_report_data: ReportData,
    /// Evidence of a GPU, where the peer sent some.
    pub gpu: Option<PresentedGpuEvidence<'a>>,
    /// The quote or SNP report, unparsed.
    pub quote: &'a [u8],
}

/// Evidence of a GPU together with the nonce that it has to hold on this connection.
///
/// The CPU's claims hold the SHA-256 of `evidence`, so that it cannot be swapped.
#[derive(Clone, Copy, Debug)]
pub struct PresentedGpuEvidence<'a> {
    /// The GPU's evidence, unparsed.
    pub evidence: &'a [u8],
    /// The nonce that the GPU must have signed.
    pub nonce: [u8; 32],
}

/// Decides whether a peer's evidence is accepted.
///
/// A channel hands out its stream only together with `Self::Appraised`.
pub trait Appraise: Send + Sync {
    /// The result of an accepted appraisal: claims read from signed bytes.
    type Appraised: Clone + Send + Sync + 'static;
    /// The error of a refused appraisal; it names subject, wanted and got.
    type Rejection: core::error::Error + Send + Sync + 'static;

    /// Appraises one peer's evidence.
    ///
    /// # Errors
    /// `Self::Rejection` where the evidence is not accepted.
    fn appraise(
        &self,
        presented: &PresentedEvidence<'_>,
    ) -> Result<Self::Appraised, Self::Rejection>;
}
