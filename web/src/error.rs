//! Errors as the host sees them: the party at fault, the failed check and a hint.

use std::error::Error;

use confide_channel::{ChannelError, ErrorOrigin};
use confide_verification::{OptionStyle, hint_for_check};
use serde_json::{Value, json};

use crate::appraiser::AppraisalError;

/// The reason why a connection was not opened, or a request got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The policy, the address or an option of the caller cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The attested channel was not opened.
    #[error("attested channel was not opened")]
    Channel(#[source] ChannelError),
    /// Evidence that came by another way was not accepted.
    #[error("{0}")]
    Evidence(AppraisalError),
    /// HTTP on an accepted connection failed.
    #[error("connection broke before the answer ended")]
    Http(#[source] hyper::Error),
}

impl WebError {
    /// The party at fault: `attestation`, `network` or `usage`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Http(_) => "network",
            Self::Evidence(_) => "attestation",
            Self::Channel(error) if failed_check(error).is_some() => "attestation",
            Self::Channel(error) => match error.origin() {
                ErrorOrigin::Evidence => "attestation",
                ErrorOrigin::Local => "usage",
                _ => "network",
            },
        }
    }

    /// The error in the form that the JavaScript layer turns into an exception.
    pub fn to_json(&self) -> Value {
        let check = match self {
            Self::Channel(error) => failed_check(error),
            Self::Evidence(error) => Some(error.failed_check()),
            _ => None,
        };
        let rejection = match self {
            Self::Channel(error) => error.rejection::<AppraisalError>(),
            Self::Evidence(error) => Some(error),
            _ => None,
        };
        let text = rejection.map_or_else(|| error_chain(self), ToString::to_string);
        let message = check.map_or(text.clone(), |check| format!("check `{check}` failed: {text}"));
        json!({
            "kind": self.kind(),
            "message": message,
            "check": check,
            "hint": check.map(|check| hint_for_check(check, OptionStyle::Member)),
            "verification": rejection.map_or(Value::Null, AppraisalError::to_json),
        })
    }
}

/// The error and its causes, separated by colons.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// The name of the check that the peer failed, in the channel or before the appraiser.
fn failed_check(error: &ChannelError) -> Option<&str> {
    let appraised = || error.rejection::<AppraisalError>().map(AppraisalError::failed_check);
    error.failed_check().or_else(appraised)
}

#[cfg(test)]
mod tests {
    use std::io;

    use confide_channel::ChannelPhase;

    use super::*;

    #[test]
    fn an_error_names_the_party_at_fault_the_check_and_a_hint() {
        let io = ChannelError::Io {
            phase: ChannelPhase::Handshake,
            source: io::ErrorKind::ConnectionReset.into(),
        };
        let rejected = ChannelError::Rejected(Box::new(AppraisalError::NoCollateral));
        for (error, kind, check) in [
            (WebError::Usage("policy".into()), "usage", None),
            (WebError::Channel(io), "network", None),
            (WebError::Channel(ChannelError::NoEvidence), "attestation", Some("evidence")),
            (WebError::Channel(ChannelError::Reflected), "attestation", Some("channel_binding")),
            (WebError::Channel(rejected), "attestation", Some("collateral")),
        ] {
            let json = error.to_json();
            assert_eq!((json["kind"].as_str(), json["check"].as_str()), (Some(kind), check));
            assert_eq!(json["hint"].is_string(), check.is_some());
        }
    }

    #[test]
    fn a_message_is_that_of_the_other_clients() {
        let rejected = ChannelError::Rejected(Box::new(AppraisalError::NoCollateral));
        let json = WebError::Channel(rejected).to_json();
        let wanted = "check `collateral` failed: collateral is missing: wanted the caller's or the \
                      peer's stapled collateral, got neither";
        assert_eq!(json["message"], wanted);
    }
}
