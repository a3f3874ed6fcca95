//! The reasons why an answer of the upstream cannot be read.

use std::error::Error;

use confide_http::ExchangeError;

/// The reason why an answer cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerFault {
    #[error(transparent)]
    Http1(#[from] ExchangeError),
    #[error("HTTP/2: {0}")]
    Http2(#[source] h2::Error),
    #[error("the request could not be sent to its end: {0}")]
    Http2Request(#[source] Box<dyn Error + Send + Sync>),
}
