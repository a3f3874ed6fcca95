//! Options of both ends, and what a connection took.

use std::{sync::Arc, time::Duration};

use confide_evidence::Attest;

/// How evidence is tied to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Ordinary TLS without evidence: the arm that the others are compared with.
    None,
    /// Evidence in the certificate over the TLS key (`TlsSpki`).
    Key,
    /// Evidence after the handshake over the TLS exporter (`TlsExporter`).
    Session,
}

impl Binding {
    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Binding::None => "none",
            Binding::Key => "key",
            Binding::Session => "session",
        }
    }

    /// The ALPN name spoken inside this binding.
    pub fn alpn(self) -> &'static str {
        match self {
            Binding::None | Binding::Key => "http/1.1",
            Binding::Session => "confide-session/1",
        }
    }
}

/// Options of the accepting end.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// How evidence is tied to the connection.
    pub binding: Binding,
    /// SHA-256 of the effective configuration; it goes into the claims.
    pub config_digest: [u8; 32],
    /// What this end says of itself; it goes into the claims.
    pub guarantee: String,
    /// How long a key lives: the span from `not-before` to `not-after` in the claims.
    /// Without binding the certificate lives for [`crate::PLAIN_VALIDITY`] and is never renewed.
    pub key_validity: Duration,
    /// One deadline for everything in [`crate::Server::accept`].
    pub deadline: Duration,
    /// Subject alternative names of the certificate: DNS names or addresses.
    pub names: Vec<String>,
}

/// Options of the connecting end.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How the server's evidence is tied to the connection.
    pub binding: Binding,
    /// One deadline for everything in [`crate::Client::connect`].
    pub deadline: Duration,
}

/// What a client attests with, where servers appraise their clients (session binding only).
#[derive(Clone)]
pub struct ClientEvidence {
    /// Obtains the evidence.
    pub attester: Arc<dyn Attest>,
    /// Unix seconds.
    pub clock: fn() -> u64,
    /// As in [`ServerOptions`].
    pub config_digest: [u8; 32],
    /// As in [`ServerOptions`].
    pub guarantee: String,
    /// As in [`ServerOptions`].
    pub key_validity: Duration,
}

/// Sizes that change speed and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Largest TLS record sent: plaintext and 5-byte header, as rustls counts. On the wire it is
    /// 17 bytes longer (content type and tag). At most [`Tuning::RECORD_BYTES_MAX`].
    pub record_bytes: usize,
    /// Capacity of the read buffer between the layers of a nested session.
    pub buffer_bytes: usize,
}

impl Tuning {
    /// 16 KiB of plaintext and the record's 5-byte header.
    pub const RECORD_BYTES_MAX: usize = 16 * 1024 + 5;

    /// For a session inside another TLS session: a whole inner record, with its header, content
    /// type and tag, fills exactly one outer record of 16 KiB. The default would spill 22 bytes
    /// of each inner record into a second, tiny outer one.
    pub const fn inside_tls() -> Self {
        Self { record_bytes: 16 * 1024 - 17, ..Self::new() }
    }

    const fn new() -> Self {
        Self { record_bytes: Self::RECORD_BYTES_MAX, buffer_bytes: 64 * 1024 }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::new()
    }
}

/// What it took to get from an open byte stream to the first application byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// The TLS handshake.
    pub handshake: Duration,
    /// Waiting for evidence: the peer's, and on an attesting end its own.
    pub quote: Duration,
    /// Parsing and appraising the peer's evidence.
    pub appraisal: Duration,
    /// Round trips before the first application byte can be sent by the client. The stream's own
    /// opening counts as one (TCP); a carrier that needed more is added by [`Timings::over`].
    pub round_trips: u32,
}

impl Timings {
    /// The same on a carrier that needed `round_trips` to open, instead of TCP's one.
    pub fn over(self, round_trips: u32) -> Self {
        Self { round_trips: self.round_trips.saturating_sub(1) + round_trips, ..self }
    }
}
