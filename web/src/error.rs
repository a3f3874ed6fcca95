//! Errors as the host sees them: the party at fault, the failed check and a hint.

use std::error::Error;

use confide_channel::{ChannelError, ErrorOrigin};
use confide_verification::{ConnectionPromise, GuaranteeChanged, PeerRefusal};
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
    /// A later connection promises something else than the first.
    #[error("{changed}")]
    GuaranteeChanged {
        /// What was promised and what is.
        changed: GuaranteeChanged,
        /// What was verified of the later connection.
        verification: Box<Value>,
    },
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
            Self::Evidence(_) | Self::GuaranteeChanged { .. } => "attestation",
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
        let refusal = self.refusal();
        let verification = match (self, self.rejection()) {
            (Self::GuaranteeChanged { verification, .. }, _) => (**verification).clone(),
            (_, rejection) => rejection.map_or(Value::Null, AppraisalError::to_json),
        };
        json!({
            "kind": self.kind(),
            "message": refusal.as_ref().map_or_else(|| error_chain(self), ToString::to_string),
            "check": refusal.as_ref().map(|refusal| refusal.check.as_str()),
            "hint": refusal.as_ref().map(|refusal| refusal.hint),
            "verification": verification,
        })
    }

    /// What a user is told if the evidence is to blame.
    fn refusal(&self) -> Option<PeerRefusal> {
        let rejection = self.rejection();
        Some(match (self, rejection) {
            (_, Some(rejection)) => {
                let (check, reason) = (rejection.failed_check(), rejection.reason());
                PeerRefusal::new(check, rejection, reason, rejection.has_own_endorsements())
            }
            (Self::Channel(error), None) => {
                PeerRefusal::new(failed_check(error)?, error_chain(error), None, false)
            }
            (Self::GuaranteeChanged { changed, .. }, None) => {
                PeerRefusal::new("guarantee", changed, None, false)
            }
            _ => return None,
        })
    }

    fn rejection(&self) -> Option<&AppraisalError> {
        match self {
            Self::Channel(error) => error.rejection(),
            Self::Evidence(error) => Some(error),
            _ => None,
        }
    }
}

/// Checks that a later connection promises what the first one did; both are described by their verdicts as JSON.
///
/// # Errors
/// [`WebError::GuaranteeChanged`] if it does not, [`WebError::Usage`] for texts that are no verdicts.
pub(crate) fn check_guarantee(first: &str, later: &str) -> Result<(), WebError> {
    let read = |text| {
        let unreadable = |error| WebError::Usage(format!("verdict is not readable: {error}"));
        serde_json::from_str::<Value>(text).map_err(unreadable)
    };
    let later = read(later)?;
    let compared = read_promise(&read(first)?)?.check_later(read_promise(&later)?);
    compared.map_err(|changed| WebError::GuaranteeChanged { changed, verification: later.into() })
}

/// The promise in a verdict. A verdict without a guarantee promises nothing that could be compared.
fn read_promise(verdict: &Value) -> Result<ConnectionPromise, WebError> {
    let unusable = |member| WebError::Usage(format!("verdict has no usable member {member}"));
    let guarantee = verdict["guarantee"].as_str().ok_or_else(|| unusable("guarantee"))?;
    let claimed = match verdict.get("claimed_guarantee") {
        Some(Value::String(claimed)) => Some(claimed.clone()),
        Some(Value::Null) => None,
        _ => return Err(unusable("claimed_guarantee")),
    };
    Ok(ConnectionPromise { guarantee: guarantee.into(), claimed })
}

/// The error and its causes, separated by colons.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
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
    use confide_verification::hint_for_check;

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
        let wanted = "check `collateral` failed: collateral is missing: wanted the peer's stapled \
                      collateral or the caller's own, got neither";
        assert_eq!(json["message"], wanted);
    }

    #[test]
    fn a_later_connection_has_to_promise_the_same() {
        let first = r#"{"guarantee": "none (simulated)", "claimed_guarantee": "gateway only"}"#;
        let unclaimed = r#"{"guarantee": "none (simulated)", "claimed_guarantee": null}"#;
        assert!(check_guarantee(first, first).is_ok());
        assert!(check_guarantee(unclaimed, unclaimed).is_ok());
        let json = check_guarantee(first, unclaimed).unwrap_err().to_json();
        assert_eq!(
            (json["kind"].as_str(), json["check"].as_str()),
            (Some("attestation"), Some("guarantee"))
        );
        assert!(json["message"].as_str().unwrap().ends_with("(claimed: `-`)"), "{json}");
    }

    /// Issue: two verdicts without a guarantee were taken for the same promise.
    #[test]
    fn a_verdict_without_a_guarantee_is_like_no_other() {
        let whole = r#"{"guarantee": "none (simulated)", "claimed_guarantee": null}"#;
        for lacking in [
            "",
            "{}",
            r#"{"claimed_guarantee": null}"#,
            r#"{"guarantee": 1, "claimed_guarantee": null}"#,
            r#"{"guarantee": "none (simulated)"}"#,
            r#"{"guarantee": "none (simulated)", "claimed_guarantee": 1}"#,
        ] {
            for (first, later) in [(lacking, lacking), (whole, lacking), (lacking, whole)] {
                let refused = check_guarantee(first, later);
                assert!(matches!(refused, Err(WebError::Usage(_))), "{first} {later}");
            }
        }
    }

    #[test]
    fn go_gives_the_verifiers_advice_where_it_compares_keys_itself() {
        let hint = hint_for_check("channel_binding", None, false);
        assert!(include_str!("../../go/client.go").contains(hint), "{hint}");
    }
}
