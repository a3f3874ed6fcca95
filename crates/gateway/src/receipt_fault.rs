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
    /// There is no nonce, in a form that is fresh or nothing.
    NonceMissing,
    /// A signature of another algorithm than Ed25519 is wanted.
    Algorithm,
    /// Another parameter has another form, or is there twice.
    Parameter,
    /// There is no such signing address, or its keyset has ended.
    AddressNotFound,
    /// The answer was cut, so that there is nothing to sign in a form without a word for that.
    AnswerCut,
    /// The form names a key for encrypted bodies, and there is none.
    BodyKeyMissing,
    /// The form has no place for the evidence of this machine.
    EvidenceKind,
    /// The client's network had a report a moment ago.
    TooSoon,
    /// Too many reports wait for the attester.
    Busy,
    /// The attester failed.
    Unavailable,
}

impl ReceiptFault {
    /// The status, the code for programs and the text for people.
    pub(crate) fn to_status_and_message(self) -> StatusAndMessage {
        match self {
            Self::NotFound => {
                not_found("there is no such receipt, or no longer, or not for this API key")
            }
            Self::KeysetNotFound => not_found("there is no such keyset, or no longer"),
            Self::KeyMissing => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "wanted the API key with which the request was made",
            ),
            Self::Nonce => {
                bad_request("wanted one nonce of 64 lower-case hexadecimal digits, or none")
            }
            Self::Secret => {
                bad_request("x-receipt-secret: wanted one value of 64 hexadecimal digits, or none")
            }
            Self::NonceMissing => bad_request(
                "wanted a nonce of your own: nonce= and 64 lower-case hexadecimal digits",
            ),
            Self::Algorithm => bad_request(
                "wanted signing_algo=ed25519: there is no key for ecdsa, which is meant without it",
            ),
            Self::Parameter => bad_request(
                "wanted each parameter once: include_tls_fingerprint=true or false, and \
                 signing_address= with 64 hexadecimal digits",
            ),
            Self::AddressNotFound => not_found("there is no such signing_address, or no longer"),
            Self::AnswerCut => {
                not_found("the answer was cut and has no signature; its receipt says so")
            }
            Self::BodyKeyMissing => not_found(
                "this gateway has no key for encrypted bodies, which the document has to name",
            ),
            Self::EvidenceKind => (
                StatusCode::NOT_IMPLEMENTED,
                "evidence_kind_unsupported",
                "this form has no place for the evidence of this machine: dstack's takes TDX quotes, \
                 Tinfoil's TDX quotes and SEV-SNP reports",
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

type StatusAndMessage = (StatusCode, &'static str, &'static str);

fn bad_request(message: &'static str) -> StatusAndMessage {
    (StatusCode::BAD_REQUEST, "invalid_request_error", message)
}

fn not_found(message: &'static str) -> StatusAndMessage {
    (StatusCode::NOT_FOUND, "not_found", message)
}
