//! Streams that come only together with an attestation result.

use tokio_rustls::client;
#[cfg(feature = "native")]
use tokio_rustls::server;

use crate::{live::LivePeer, options::ChannelTimings};

/// A stream to a server whose evidence was accepted.
///
/// Only [`crate::Client::connect`] makes one, and the only way to the stream is
/// [`AttestedServerStream::into_parts`], which returns the result with it.
#[derive(Debug)]
pub struct AttestedServerStream<S, T> {
    pub(crate) stream: client::TlsStream<S>,
    pub(crate) appraised: T,
    pub(crate) timings: ChannelTimings,
    pub(crate) live: Option<LivePeer>,
}

impl<S, T> AttestedServerStream<S, T> {
    /// Takes the end of the open session that asks the server for fresh evidence; `None` without
    /// session binding, and after the first call.
    pub fn take_live_peer(&mut self) -> Option<LivePeer> {
        self.live.take()
    }

    /// The appraiser's result for the server's evidence.
    pub fn appraisal(&self) -> &T {
        &self.appraised
    }

    /// The time that each step took.
    pub fn timings(&self) -> ChannelTimings {
        self.timings
    }

    /// The stream together with the result.
    pub fn into_parts(self) -> (client::TlsStream<S>, T, ChannelTimings) {
        (self.stream, self.appraised, self.timings)
    }
}

/// A stream to a client whose evidence was accepted: see [`crate::Server::accept_attested`].
#[cfg(feature = "native")]
#[derive(Debug)]
pub struct AttestedClientStream<S, T> {
    pub(crate) stream: server::TlsStream<S>,
    pub(crate) appraised: T,
    pub(crate) timings: ChannelTimings,
}

#[cfg(feature = "native")]
impl<S, T> AttestedClientStream<S, T> {
    /// The appraiser's result for the client's evidence.
    pub fn appraisal(&self) -> &T {
        &self.appraised
    }

    /// The time that each step took.
    pub fn timings(&self) -> ChannelTimings {
        self.timings
    }

    /// The stream together with the result.
    pub fn into_parts(self) -> (server::TlsStream<S>, T, ChannelTimings) {
        (self.stream, self.appraised, self.timings)
    }
}
