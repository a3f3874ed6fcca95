//! The reasons why a client gets no receipt and no report.

use http::StatusCode;

/// The reason why a request for a receipt or a report is refused. Its code is also the `type` of the
/// error, by which clients of aci/1 tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiptFault {
    /// There is no such receipt, or it belongs to another API key: the client does not learn which.
    NotFound,
    /// There is no such keyset, or it has ended.
    KeysetNotFound,
    /// The receipt belongs to an API key, and none was presented.
    KeyMissing,
    /// The nonce has another form.
    Nonce,
    /// The secret for a receipt that can be opened has another form, or there are two.
    Secret,
    /// The client's network had a report a moment ago.
    TooSoon,
    /// Too many reports wait for the attester.
    Busy,
    /// The attester failed.
    Unavailable,
}

impl ReceiptFault {
    /// The status, the code for programs and the text for people.
    pub(crate) fn to_status_and_message(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "not_found",
                "there is no such receipt, or no longer, or not for this API key",
            ),
            Self::KeysetNotFound => {
                (StatusCode::NOT_FOUND, "not_found", "there is no such keyset, or no longer")
            }
            Self::KeyMissing => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "wanted the API key with which the request was made",
            ),
            Self::Nonce => (
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                "wanted one nonce of 64 lower-case hexadecimal digits, or none",
            ),
            Self::Secret => (
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                "x-receipt-secret: wanted one value of 64 hexadecimal digits, or none",
            ),
            Self::TooSoon => (
                StatusCode::TOO_MANY_REQUESTS,
                "evidence_too_soon",
                "this network had a report a moment ago",
            ),
            Self::Busy | Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "evidence_unavailable",
                "the attester gives no evidence now",
            ),
        }
    }
}
