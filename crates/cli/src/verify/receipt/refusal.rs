//! The reasons why a receipt is refused, each with its name.

use confide_disclosure::OpeningError;
use confide_evidence::UnixSeconds;
use confide_receipt::ReceiptError;
use confide_verifier::Rejection;

/// The reason why a receipt is refused or could not be judged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiptRefusal {
    #[error("{0}")]
    Report(ReceiptError),
    #[error("the report's evidence is not a quote or an SEV-SNP report")]
    UnknownEvidence,
    #[error("the report has no collateral for its evidence, and none was given")]
    NoCollateral,
    #[error("the report's evidence is refused: {}", .0.reason())]
    Evidence(Box<Rejection>),
    #[error("the keyset expired at {}, before {}, the time of judgement", UnixSeconds(*not_after), UnixSeconds(*at))]
    ExpiredKeyset { not_after: u64, at: u64 },
    #[error("the keyset lives for {got} s after the answer, wanted at most {wanted}")]
    KeysetLife { wanted: u64, got: u64 },
    #[error("{0}")]
    Receipt(ReceiptError),
    #[error(
        "the receipt's time {} is after {}, the time of judgement",
        UnixSeconds(*served_at), UnixSeconds(*at)
    )]
    Early { served_at: u64, at: u64 },
    #[error("the receipt has no single event confide.configuration with a SHA-256 digest")]
    NoConfiguration,
    #[error("the receipt states the configuration {got}, wanted {wanted}")]
    Configuration { wanted: String, got: String },
    #[error(
        "the receipt does not say that the model's weights were measured, and the policy demands it"
    )]
    NotMeasured,
    #[error("the receipt states the weights {got}, wanted {wanted}")]
    Weights { wanted: String, got: String },
    #[error("the request's body has another digest than the receipt states")]
    Request,
    #[error("the answer's body has another digest than the receipt states")]
    Response,
    #[error("the receipt has a commitment to the {name} in place of its digest")]
    Openable { name: &'static str },
    #[error("the receipt has no commitment to the {name}")]
    NoCommitment { name: &'static str },
    #[error("{error}")]
    Parts { name: &'static str, error: OpeningError },
}

impl ReceiptRefusal {
    /// The name for programs.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Report(ReceiptError::Digest { .. }) => "report_digest",
            Self::Report(ReceiptError::ReportData) => "nonce",
            Self::Report(_) => "report",
            Self::UnknownEvidence | Self::NoCollateral | Self::Evidence(_) => "evidence",
            Self::ExpiredKeyset { .. } | Self::Receipt(ReceiptError::Expired { .. }) => {
                "keyset_expired"
            }
            Self::KeysetLife { .. } => "keyset_life",
            Self::Receipt(ReceiptError::OtherKeyset) => "other_keyset",
            Self::Receipt(ReceiptError::UnknownKey { .. }) => "unknown_key",
            Self::Receipt(ReceiptError::Signature) => "signature",
            Self::Receipt(_) => "receipt",
            Self::Early { .. } => "served_at",
            Self::NoConfiguration | Self::Configuration { .. } => "configuration",
            Self::NotMeasured | Self::Weights { .. } => "weights",
            Self::Request => "request",
            Self::Response => "response",
            Self::Openable { name } | Self::NoCommitment { name } | Self::Parts { name, .. } => {
                name
            }
        }
    }

    /// Whether it could not be judged, rather than judged and refused.
    pub(super) fn is_unreadable(&self) -> bool {
        match self {
            Self::UnknownEvidence | Self::NoCollateral => true,
            Self::Evidence(rejection) => rejection.reason().is_unreadable(),
            _ => matches!(self.code(), "report" | "receipt"),
        }
    }

    /// The advice to the reader, where something can be done.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Report(ReceiptError::ReportData) => Some(
                "give --nonce HEX, the nonce with which this report was requested, or omit --nonce \
                 for a report that was requested without one",
            ),
            Self::NoCollateral => Some("give --collateral FILE, the endorsements in JSON"),
            Self::Evidence(_) => {
                Some("evidence is judged at --at, under the policy's roots; the default is now")
            }
            Self::ExpiredKeyset { .. } => Some(
                "an old receipt is judged at the time of its answer with --at TIME; nothing but the \
                 gateway's own clock says that it is so old",
            ),
            Self::Receipt(ReceiptError::OtherKeyset) => Some(
                "give a report with this keyset: it changes when the gateway renews its TLS key",
            ),
            Self::KeysetLife { .. } => Some("the policy's key_validity_s_max is the limit"),
            Self::NoConfiguration | Self::Configuration { .. } => Some(
                "pin the gateway's configuration with `confide policy pin FILE --digest HEX`; \
                 --dangerous-skip-config-digest accepts any configuration",
            ),
            Self::Openable { .. } => Some(
                "show parts with an excerpt (`confide disclose`), or give the receipt with digests, \
                 which the gateway has under the answer's X-Receipt-Id",
            ),
            Self::Request | Self::Response => {
                Some("give the body byte by byte as it was on the wire, without header fields")
            }
            _ => None,
        }
    }
}
