//! The reasons why the gateway answers a request itself instead of passing on the upstream's
//! answer.

use std::{borrow::Cow, error::Error};

use confide_encrypted_body::{EncryptedBodyError, KEY_CONFIG_PROBLEM, OHTTP_KEY_PROBLEM};
use confide_http::{PaceFault, WEBSOCKET_VERSION};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use crate::{
    answer::{self, AnswerBody},
    authorizer::KeyRefusal,
    body::{BodyFault, find_body_fault},
    choice_error::ChoiceError,
    encrypted_body_fault::EncryptedBodyFault,
    evidence_fault::EvidenceFault,
    fault::{UpstreamFailure, UpstreamFault},
    observation::RequestObservation,
    path::PathFault,
    rate_limit::ceil_seconds,
    receipt_fault::ReceiptFault,
    upstream_request::UnansweredRequest,
};

/// Seconds after which a client may try again while the gateway is busy: a request often ends within
/// that time.
const RETRY_AFTER_S: &str = "1";

pub(crate) enum RequestRefusal {
    /// The allowed methods, as the `Allow` field lists them.
    Method(String),
    TransferCoding,
    WebSocketHandshake,
    Target(PathFault),
    Host,
    Key(KeyRefusal),
    TooLong {
        limit: u64,
    },
    /// A frame of an encrypted body is longer than the gateway takes.
    FrameTooLong {
        limit: usize,
    },
    BodyNotAllowed,
    BodyPaused,
    BodySlow {
        bytes_per_s: u64,
    },
    BodyBroken,
    Choice(ChoiceError),
    NoRoute,
    /// The head has more fields than allowed.
    TooManyFields,
    /// The limits on connections admit no further request at the same time.
    Busy,
    Upstream(UpstreamFailure),
    StreamOverHttp10,
    Evidence(EvidenceFault),
    Receipt(ReceiptFault),
    EncryptedBody(EncryptedBodyFault),
}

impl From<ChoiceError> for RequestRefusal {
    fn from(error: ChoiceError) -> Self {
        Self::Choice(error)
    }
}

impl From<EncryptedBodyFault> for RequestRefusal {
    fn from(fault: EncryptedBodyFault) -> Self {
        Self::EncryptedBody(fault)
    }
}

impl From<EncryptedBodyError> for RequestRefusal {
    fn from(error: EncryptedBodyError) -> Self {
        if let EncryptedBodyError::FrameTooLong { max, .. } = error {
            return Self::FrameTooLong { limit: max };
        }
        if matches!(
            error,
            EncryptedBodyError::TooManyFields { .. } | EncryptedBodyError::MessageTooLong { .. }
        ) {
            return Self::TooManyFields;
        }
        // The name stays here: whoever changed the body would learn from it.
        tracing::info!(fault = error.name(), "encrypted body not read");
        EncryptedBodyFault::from_error(error).into()
    }
}

impl From<EvidenceFault> for RequestRefusal {
    fn from(fault: EvidenceFault) -> Self {
        Self::Evidence(fault)
    }
}

impl From<ReceiptFault> for RequestRefusal {
    fn from(fault: ReceiptFault) -> Self {
        Self::Receipt(fault)
    }
}

impl RequestRefusal {
    /// The refusal of every request after a model server has named another model.
    pub(crate) fn changed_model() -> Self {
        let reason = "it has already named another model";
        Self::Upstream(UpstreamFailure::new(UpstreamFault::ModelChanged, reason))
    }

    /// The refusal for a request that got no answer: either its own body or the upstream is at
    /// fault.
    pub(crate) fn from_unanswered(unsent: UnansweredRequest) -> Self {
        match find_body_fault(&unsent.fault) {
            Some(fault) => Self::from_body_fault(fault),
            None => Self::Upstream(unsent.into_failure()),
        }
    }

    pub(crate) fn from_body_fault(fault: &BodyFault) -> Self {
        match fault {
            BodyFault::TooLong { limit } => Self::TooLong { limit: *limit },
            BodyFault::Pace(PaceFault::Paused { .. }) => Self::BodyPaused,
            BodyFault::Pace(PaceFault::Slow { bytes_per_s, .. }) => {
                Self::BodySlow { bytes_per_s: *bytes_per_s }
            }
            BodyFault::Trailers => Self::TooManyFields,
            // A request's body is no stream of events.
            BodyFault::Event(_) => Self::BodyBroken,
            BodyFault::Broken(error) => Self::from_broken_body(&**error),
        }
    }

    /// The refusal for the error of a body: a fault of an encrypted body, or of what carries it.
    pub(crate) fn from_broken_body(error: &(dyn Error + 'static)) -> Self {
        if let Some(error) = error.downcast_ref::<EncryptedBodyError>() {
            return (*error).into();
        }
        if let Some(error) = error.downcast_ref::<ChoiceError>() {
            return Self::Choice(*error);
        }
        error.downcast_ref().map_or(Self::BodyBroken, Self::from_body_fault)
    }

    pub(crate) fn into_response(
        self,
        observation: &mut RequestObservation,
    ) -> Response<AnswerBody> {
        let (status, code, message) = self.to_status_and_message();
        self.record(code, observation);
        let mut response = match self {
            Self::Receipt(_) => answer::error_response_of_type(status, code, code, &message),
            Self::EncryptedBody(EncryptedBodyFault::UnknownKey) => {
                answer::problem_response(status, KEY_CONFIG_PROBLEM, &message)
            }
            Self::EncryptedBody(EncryptedBodyFault::UnknownOhttpKey) => {
                answer::problem_response(status, OHTTP_KEY_PROBLEM, &message)
            }
            _ => answer::error_response(status, code, &message),
        };
        self.insert_fields(response.headers_mut());
        response
    }

    /// The status, the code for programs and the text for people.
    fn to_status_and_message(&self) -> (StatusCode, &'static str, Cow<'static, str>) {
        let bad = StatusCode::BAD_REQUEST;
        let timeout = StatusCode::REQUEST_TIMEOUT;
        let (status, code, message) = match self {
            Self::Upstream(failure) => failure.fault.to_status_and_message(),
            Self::Key(refusal) => refusal.to_status_and_message(),
            Self::Evidence(fault) => fault.to_status_and_message(),
            Self::Receipt(fault) => fault.to_status_and_message(),
            Self::EncryptedBody(fault) => fault.to_status_and_message(),
            Self::Choice(error) => {
                let (status, code) = error.to_status_and_code();
                return (status, code, error.to_string().into());
            }
            Self::Target(fault) => return (bad, "bad_request_target", fault.to_string().into()),
            Self::TooLong { limit } => {
                let text = format!("request body is too long: wanted at most {limit} bytes");
                return (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", text.into());
            }
            Self::FrameTooLong { limit } => return describe_long_frame(*limit),
            Self::BodySlow { bytes_per_s } => {
                let text = format!(
                    "request body arrived too slowly: wanted at least {bytes_per_s} bytes/s"
                );
                return (timeout, "request_timeout", text.into());
            }
            Self::Method(_) => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this method is not proxied for this path",
            ),
            Self::TransferCoding => (
                StatusCode::NOT_IMPLEMENTED,
                "transfer_coding",
                "request body has an unsupported transfer coding: wanted none or chunked",
            ),
            Self::WebSocketHandshake => (
                bad,
                "bad_websocket_handshake",
                "wanted a WebSocket handshake of version 13 (RFC 6455 or RFC 8441)",
            ),
            Self::Host => (bad, "bad_host", "wanted exactly one host, as HOST[:PORT]"),
            Self::BodyNotAllowed => {
                (bad, "body_not_allowed", "a request with this method must not have a body")
            }
            Self::BodyPaused => (timeout, "request_timeout", "request body paused too long"),
            Self::BodyBroken => (bad, "request_broken", "request body ended early"),
            Self::NoRoute => (
                StatusCode::NOT_FOUND,
                "route_not_allowed",
                "this path is not among the proxied routes",
            ),
            Self::TooManyFields => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "too_many_fields",
                "the head of the request has too many fields",
            ),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "gateway_busy",
                "too many requests at once: a limit on connections is reached",
            ),
            // HTTP/1.0 has no chunks, so a broken stream would look complete.
            Self::StreamOverHttp10 => (
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "http_1_1_needed",
                "a streamed answer or an encrypted body needs HTTP/1.1",
            ),
        };
        (status, code, message.into())
    }

    /// Logs and counts the refusal by its code.
    fn record(&self, code: &'static str, observation: &mut RequestObservation) {
        match self {
            Self::Upstream(UpstreamFailure { reason, .. }) => {
                observation.record_upstream_failure(code);
                tracing::warn!(code, %reason, "upstream failed");
            }
            _ => {
                observation.record_refusal(code);
                tracing::info!(code, "request not proxied");
            }
        }
    }

    /// Inserts the fields that tell the client what to change, or when to try again.
    fn insert_fields(&self, headers: &mut HeaderMap) {
        match self {
            Self::Method(allowed) => {
                if let Ok(allowed) = HeaderValue::from_str(allowed) {
                    headers.insert(header::ALLOW, allowed);
                }
            }
            Self::Busy
            | Self::EncryptedBody(EncryptedBodyFault::TooMany | EncryptedBodyFault::NoKeys)
            | Self::Evidence(EvidenceFault::TooSoon | EvidenceFault::Unavailable)
            | Self::Receipt(
                ReceiptFault::Busy | ReceiptFault::TooSoon | ReceiptFault::Unavailable,
            ) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
            }
            Self::Choice(error) if error.is_transient() => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
            }
            Self::WebSocketHandshake => {
                headers.insert(header::SEC_WEBSOCKET_VERSION, WEBSOCKET_VERSION);
            }
            Self::Key(refusal) => insert_key_fields(*refusal, headers),
            _ => {}
        }
    }
}

/// The status, the code and the text for a frame over the limit.
fn describe_long_frame(limit: usize) -> (StatusCode, &'static str, Cow<'static, str>) {
    let text = format!("frame of the encrypted body is too long: wanted at most {limit} bytes");
    (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", text.into())
}

/// Inserts the fields that tell a client how to present its key, or when to try again.
fn insert_key_fields(refusal: KeyRefusal, headers: &mut HeaderMap) {
    if refusal == KeyRefusal::InvalidKey {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(retry_after) = refusal.retry_after() {
        headers.insert(header::RETRY_AFTER, ceil_seconds(retry_after).into());
    }
    if let KeyRefusal::Limit(refusal) = refusal {
        refusal.fields.insert_into(headers);
    }
}
