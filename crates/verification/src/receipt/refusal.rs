//! The reasons why a receipt is refused, each with its name.

use confide_evidence::UnixSeconds;
use confide_receipt::ReceiptError;
use confide_transcript::OpeningError;
use confide_verifier::Rejection;

use crate::option_style::OptionStyle;

/// The reason why a receipt is refused or could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptRefusal {
    /// The report cannot be used.
    #[error("{0}")]
    Report(ReceiptError),
    /// The evidence in the report is of no kind that is judged here.
    #[error("the report's evidence is not a quote or an SEV-SNP report")]
    UnknownEvidence,
    /// There are no endorsements.
    #[error("the report has no collateral for its evidence, and none was given")]
    NoCollateral,
    /// The evidence in the report is refused.
    #[error("the report's evidence is refused: {}", .0.reason())]
    Evidence(Box<Rejection>),
    /// The keyset has expired.
    #[error("the keyset expired at {}, before {}, the time of judgement", UnixSeconds(*not_after), UnixSeconds(*at))]
    ExpiredKeyset {
        /// Unix seconds at which it expired.
        not_after: u64,
        /// Unix seconds of the judgement.
        at: u64,
    },
    /// The keyset lives longer than the policy permits, in seconds.
    #[error("the keyset lives for {got} s after the answer, wanted at most {wanted}")]
    KeysetLife {
        /// The policy's limit.
        wanted: u64,
        /// The keyset's life after the answer.
        got: u64,
    },
    /// The receipt cannot be used.
    #[error("{0}")]
    Receipt(ReceiptError),
    /// The receipt is of a later time than that of the judgement.
    #[error(
        "the receipt's time {} is after {}, the time of judgement",
        UnixSeconds(*served_at), UnixSeconds(*at)
    )]
    Early {
        /// Unix seconds of the answer, by the gateway's clock.
        served_at: u64,
        /// Unix seconds of the judgement.
        at: u64,
    },
    /// The receipt does not state one configuration.
    #[error("the receipt has no single event confide.configuration with a SHA-256 digest")]
    NoConfiguration,
    /// The receipt states another configuration than the policy pins.
    #[error("the receipt states the configuration {got}, wanted {wanted}")]
    Configuration {
        /// What the policy names.
        wanted: String,
        /// What the receipt states.
        got: String,
    },
    /// The policy demands measured weights.
    #[error(
        "the receipt does not say that the model's weights were measured, and the policy demands it"
    )]
    NotMeasured,
    /// The receipt states other weights than the policy names.
    #[error("the receipt states the weights {got}, wanted {wanted}")]
    Weights {
        /// What the policy names.
        wanted: String,
        /// What the receipt states.
        got: String,
    },
    /// The request is another one.
    #[error("the request's body has another digest than the receipt states")]
    Request,
    /// The answer is another one.
    #[error("the answer's body has another digest than the receipt states")]
    Response,
    /// The receipt commits to a body and has no digest of it.
    #[error("the receipt has a commitment to the {name} in place of its digest")]
    Openable {
        /// The body: `request` or `response`.
        name: &'static str,
    },
    /// The receipt has no commitment to a body.
    #[error("the receipt has no commitment to the {name}")]
    NoCommitment {
        /// The body: `request` or `response`.
        name: &'static str,
    },
    /// The shown parts of a body are not those of the commitment.
    #[error("{error}")]
    Parts {
        /// The body: `request` or `response`.
        name: &'static str,
        /// The fault.
        error: OpeningError,
    },
}

impl ReceiptRefusal {
    /// The name for programs.
    pub fn code(&self) -> &'static str {
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
    pub fn is_unreadable(&self) -> bool {
        match self {
            Self::UnknownEvidence | Self::NoCollateral => true,
            Self::Evidence(rejection) => rejection.reason().is_unreadable(),
            _ => matches!(self.code(), "report" | "receipt"),
        }
    }

    /// The advice to the reader, where something can be done; options are written in this style.
    pub fn hint(&self, style: OptionStyle) -> Option<String> {
        let option = |name, value| style.format_with_value(name, value);
        let (nonce, at) = (style.format("nonce"), style.format("at"));
        Some(match self {
            Self::Report(ReceiptError::ReportData) => format!(
                "give {}, the nonce with which this report was requested, or omit {nonce} for a report that was \
                 requested without one",
                option("nonce", "HEX")
            ),
            Self::NoCollateral => {
                format!("give {}, the endorsements in JSON", option("collateral", "FILE"))
            }
            Self::Evidence(_) => format!(
                "evidence is judged at {at}, under the policy's roots; the default is now"
            ),
            Self::ExpiredKeyset { .. } => format!(
                "an old receipt is judged at the time of its answer with {}; nothing but the gateway's own clock says \
                 that it is so old",
                option("at", "TIME")
            ),
            Self::Receipt(ReceiptError::OtherKeyset) => {
                "give a report with this keyset: it changes when the gateway renews its TLS key".into()
            }
            Self::KeysetLife { .. } => "the policy's key_validity_s_max is the limit".into(),
            Self::NoConfiguration | Self::Configuration { .. } => format!(
                "pin the gateway's configuration with `confide policy pin FILE --digest HEX`; {} accepts any \
                 configuration",
                style.format("dangerous_skip_config_digest")
            ),
            Self::Openable { .. } => {
                "show parts with an excerpt (`confide disclose`), or give the receipt with digests, which the gateway \
                 has under the answer's X-Receipt-Id"
                    .into()
            }
            Self::Request | Self::Response => {
                "give the body byte by byte as it was on the wire, without header fields".into()
            }
            _ => return None,
        })
    }
}
