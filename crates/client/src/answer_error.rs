//! The reasons why an answer broke off.

use std::time::Duration;

use confide_encrypted_body::EncryptedBodyError;
use confide_http::ExchangeError;

/// The reason why an answer broke off.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The connection ended before the answer did.
    #[error("answer ended early: {0}")]
    Broken(#[source] ExchangeError),
    /// The answer was changed or cut on its way.
    #[error("encrypted answer: {0}")]
    Encryption(#[source] EncryptedBodyError),
    /// No bytes of the answer arrived for too long.
    #[error("answer paused too long: wanted at most {limit:?}")]
    Paused {
        /// The longest pause.
        limit: Duration,
    },
}
