//! Failures, and the exceptions that Python sees.

use confide_client::{
    AnswerError, AppraisalError, Blame, ClientError, ExchangeError, Http1Error, error_chain,
};
use confide_verification::{
    EvidenceError, OptionStyle, POLICY_HINT, PeerRefusal, describe_policy_error,
};
use pyo3::{prelude::*, types::PyDict};
use serde_json::{Value, json};

/// The module with the classes of exceptions.
const MODULE: &str = "confide.errors";

/// The phase of an exchange that failed, named as httpx names its exceptions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TransportFault {
    Connect,
    ConnectTimeout,
    Pool,
    Protocol,
    Read,
    ReadTimeout,
    WriteTimeout,
}

impl TransportFault {
    /// The name of the exception in httpx.
    fn exception(self) -> &'static str {
        match self {
            Self::Connect => "ConnectError",
            Self::ConnectTimeout => "ConnectTimeout",
            Self::Pool => "PoolTimeout",
            Self::Protocol => "RemoteProtocolError",
            Self::Read => "ReadError",
            Self::ReadTimeout => "ReadTimeout",
            Self::WriteTimeout => "WriteTimeout",
        }
    }
}

/// The reason why there is no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was given cannot be used.
    Input { message: String, hint: Option<String> },
    /// The policy cannot be used.
    Policy { message: String },
    /// Evidence was judged and refused.
    Attestation { message: String, check: String, hint: Option<String>, document: Box<Value> },
    /// A receipt was judged and refused, or there is none.
    Receipt { message: String, check: String, hint: Option<String>, document: Box<Value> },
    /// The network, or a peer that is silent or broken.
    Transport { fault: TransportFault, message: String },
}

impl Failure {
    /// What was given cannot be used.
    pub(crate) fn input(message: impl ToString) -> Self {
        Self::Input { message: message.to_string(), hint: None }
    }

    /// The policy cannot be used.
    pub(crate) fn policy(error: &dyn std::fmt::Display) -> Self {
        Self::Policy { message: describe_policy_error(error) }
    }

    /// A phase of the exchange failed.
    pub(crate) fn transport(fault: TransportFault, message: impl ToString) -> Self {
        Self::Transport { fault, message: message.to_string() }
    }

    /// Evidence that could not be judged.
    pub(crate) fn of_evidence(error: &EvidenceError) -> Self {
        let style = OptionStyle::Keyword;
        Self::Input { message: error.describe(style), hint: error.hint(style) }
    }

    /// The failure of a request to the attested end at `url`.
    pub(crate) fn of_client(url: &str, error: &ClientError) -> Self {
        match (error.blame(), error.refusal()) {
            (Blame::Evidence, Some(refusal)) => Self::Attestation {
                message: refusal.describe_without_hint(url),
                hint: Some(refusal.hint.to_owned()),
                document: Box::new(describe_refusal(url, &refusal, error.rejection())),
                check: refusal.check,
            },
            (Blame::Local, _) => Self::input(format!("{url}: {}", error.reason())),
            (Blame::Evidence | Blame::Network, _) => {
                let text = format!("{url} could not be judged: {}", error.reason());
                Self::transport(fault_of(error), text)
            }
        }
    }

    /// The failure of an answer that broke off.
    pub(crate) fn of_answer(error: &AnswerError) -> Self {
        let fault = match error {
            AnswerError::Paused { .. } => TransportFault::ReadTimeout,
            AnswerError::Broken(_) => TransportFault::Read,
            AnswerError::Encryption(_) => TransportFault::Protocol,
        };
        Self::transport(fault, error_chain(error))
    }

    /// The exception; it is the interpreter's own one if the package is damaged.
    pub(crate) fn into_exception(self, py: Python<'_>) -> PyErr {
        self.try_into_exception(py).unwrap_or_else(|error| error)
    }

    fn try_into_exception(self, py: Python<'_>) -> PyResult<PyErr> {
        let fields = PyDict::new(py);
        let (class, message) = match self {
            Self::Input { message, hint } => {
                fields.set_item("hint", hint)?;
                ("InputError", message)
            }
            Self::Policy { message } => {
                fields.set_item("hint", POLICY_HINT)?;
                ("PolicyError", message)
            }
            Self::Attestation { message, check, hint, document } => {
                set_verdict(&fields, &check, hint, &document)?;
                ("AttestationError", message)
            }
            Self::Receipt { message, check, hint, document } => {
                set_verdict(&fields, &check, hint, &document)?;
                ("ReceiptError", message)
            }
            Self::Transport { fault, message } => {
                fields.set_item("exception", fault.exception())?;
                ("TransportFault", message)
            }
        };
        let exception = py.import(MODULE)?.getattr(class)?.call((message,), Some(&fields))?;
        Ok(PyErr::from_value(exception))
    }
}

fn set_verdict(
    fields: &Bound<'_, PyDict>,
    check: &str,
    hint: Option<String>,
    document: &Value,
) -> PyResult<()> {
    fields.set_item("check", check)?;
    fields.set_item("hint", hint)?;
    fields.set_item("document", document.to_string())
}

/// The verification document of a peer that was refused.
fn describe_refusal(url: &str, refusal: &PeerRefusal, rejection: Option<&AppraisalError>) -> Value {
    let PeerRefusal { check, text: reason, .. } = refusal;
    let mut document = match rejection.and_then(AppraisalError::rejection) {
        Some(rejection) => rejection.to_json(),
        None => {
            json!({ "outcome": "rejected", "scope": "platform", "reason": reason, "checks": [] })
        }
    };
    document["endpoint"] = url.into();
    document["failed_check"] = check.as_str().into();
    document
}

fn fault_of(error: &ClientError) -> TransportFault {
    match error {
        ClientError::DialTimeout { .. } => TransportFault::ConnectTimeout,
        ClientError::QueueFull { .. } | ClientError::Busy { .. } => TransportFault::Pool,
        ClientError::Slow { .. } => TransportFault::ReadTimeout,
        ClientError::Http(ExchangeError::Malformed(error)) if *error != Http1Error::CutShort => {
            TransportFault::Protocol
        }
        ClientError::Http(_) => TransportFault::Read,
        _ => TransportFault::Connect,
    }
}
