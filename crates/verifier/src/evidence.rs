//! What a peer presented, and how it reached this end.

use confide_evidence::{BindingKind, PresentedEvidence, PresentedGpuEvidence, ReportData};

/// The evidence that a peer presented.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    /// The quote, unparsed.
    pub quote: &'a [u8],
    /// The CBOR claims of the attested end, where there are any.
    pub claims: Option<&'a [u8]>,
    /// The wanted report data. With claims and without this, it has to be their SHA-256
    /// and 32 zero bytes (key binding). With both, the caller vouches that this value was computed
    /// over those claims (session binding): nothing here could find out that it was not.
    pub report_data: Option<ReportData>,
    /// Evidence of a GPU that belongs to this CPU, with the nonce that it has to hold.
    pub gpu: Option<PresentedGpuEvidence<'a>>,
    /// The binding of the channel that carried the evidence; `None` outside a channel.
    pub binding: Option<BindingKind>,
}

impl<'a> From<&PresentedEvidence<'a>> for Evidence<'a> {
    /// The evidence that a channel received, with the report data that this connection demands.
    fn from(presented: &PresentedEvidence<'a>) -> Self {
        Self {
            quote: presented.quote,
            claims: Some(presented.claims),
            report_data: Some(presented.expected_report_data),
            gpu: presented.gpu,
            binding: Some(presented.binding),
        }
    }
}
