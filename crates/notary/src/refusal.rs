//! A notary's answer if there is no statement.

use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

/// The longest message of a refusal, in bytes.
const MESSAGE_BYTES_MAX: usize = 512;

/// The reason for which there is no statement. `code` is for programs, `message` for people;
/// neither contains a part of a request or of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// One of a closed list: `docs/notary.md`, "Refusals".
    pub code: String,
    /// The message: the subject, what was wanted, and what was received.
    pub message: String,
}

impl Refusal {
    /// Makes a refusal; a long message is cut off.
    pub fn new(code: &str, message: impl std::fmt::Display) -> Self {
        let mut message = message.to_string();
        if message.len() > MESSAGE_BYTES_MAX {
            let cut = (0..=MESSAGE_BYTES_MAX).rev().find(|at| message.is_char_boundary(*at));
            message.truncate(cut.unwrap_or(0));
        }
        Self { code: code.into(), message }
    }

    /// Encodes the refusal as one JSON object.
    pub(crate) fn to_json(&self) -> String {
        json!({ "code": self.code, "message": self.message }).to_string()
    }

    /// The HTTP status of an answer that consists of this refusal.
    pub(crate) fn status(&self) -> StatusCode {
        match self.code.as_str() {
            "host_refused" | "address_refused" => StatusCode::FORBIDDEN,
            "key_renewed" => StatusCode::CONFLICT,
            "busy" => StatusCode::SERVICE_UNAVAILABLE,
            "client_busy" => StatusCode::TOO_MANY_REQUESTS,
            "client_unknown" => StatusCode::UNAUTHORIZED,
            "request_too_large" => StatusCode::PAYLOAD_TOO_LARGE,
            "request_timeout" => StatusCode::REQUEST_TIMEOUT,
            "not_found" => StatusCode::NOT_FOUND,
            "method_not_allowed" => StatusCode::METHOD_NOT_ALLOWED,
            "request_malformed" => StatusCode::BAD_REQUEST,
            _ => StatusCode::BAD_GATEWAY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_as_it_is_written_whatever_its_text() {
        for text in ["", "wanted \"a\", got \\ and \u{0}\n", &"\u{1}".repeat(600)] {
            let refusal = Refusal::new("busy", text);
            assert_eq!(serde_json::from_str::<Refusal>(&refusal.to_json()).unwrap(), refusal);
        }
    }
}
