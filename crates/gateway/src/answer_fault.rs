//! The reasons why an answer of the upstream cannot be read.

use std::{error::Error, io};

use confide_http::http1::Http1Error;

/// The reason why an answer cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerFault {
    #[error("the upstream ended the connection")]
    ConnectionClosed,
    #[error(transparent)]
    Stream(#[from] io::Error),
    #[error("invalid HTTP/1.1: {0}")]
    Malformed(#[from] Http1Error),
    #[error("the upstream changed the protocol unasked")]
    UnaskedUpgrade,
    #[error("HTTP/2: {0}")]
    Http2(#[source] h2::Error),
    #[error("the request could not be sent to its end: {0}")]
    Request(#[source] Box<dyn Error + Send + Sync>),
}
