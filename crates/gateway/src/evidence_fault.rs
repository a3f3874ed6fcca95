//! The reasons why a client gets no fresh evidence.

use http::StatusCode;

/// The reason why a request for fresh evidence is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvidenceFault {
    /// The connection has no session binding.
    NoSessionBinding,
    /// The request cannot be read.
    Request,
    /// The interval between two pieces of evidence has not passed.
    TooSoon,
    /// The attester failed, or has too much to do.
    Unavailable,
}

impl EvidenceFault {
    /// The status, the code for programs and the text for people.
    pub(crate) fn to_status_and_message(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::NoSessionBinding => (
                StatusCode::NOT_FOUND,
                "no_fresh_evidence",
                "fresh evidence is given with session binding only",
            ),
            Self::Request => (
                StatusCode::BAD_REQUEST,
                "bad_evidence_request",
                "wanted a request of the session exchange, with a context",
            ),
            Self::TooSoon => (
                StatusCode::TOO_MANY_REQUESTS,
                "evidence_too_soon",
                "this connection had evidence a moment ago",
            ),
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "evidence_unavailable",
                "the attester gives no evidence now",
            ),
        }
    }
}
