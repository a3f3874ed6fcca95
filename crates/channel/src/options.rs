//! Options of both ends, and the timings of a connection.

use std::{sync::Arc, time::Duration};

use confide_evidence::{Attest, weights_claim::WeightsClaim};

/// How evidence is tied to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Ordinary TLS without evidence: the baseline of comparisons.
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

    /// The ALPN name of this binding; if there are several versions, the preferred one.
    pub fn alpn(self) -> &'static str {
        self.alpn_names()[0]
    }

    /// All ALPN names of this binding, the preferred one first.
    pub(crate) fn alpn_names(self) -> &'static [&'static str] {
        match self {
            Binding::None | Binding::Key => &["http/1.1"],
            Binding::Session => &[SESSION_2, SESSION_3, SESSION_1],
        }
    }
}

/// The exchange whose evidence is a quote over the binder itself.
const SESSION_1: &str = "confide-session/1";

/// The exchange whose evidence may also hold a batch path and a GPU's evidence. It is preferred: it
/// gives what version 3 gives with one signature less.
const SESSION_2: &str = "confide-session/2";

/// The exchange with exported authenticators (RFC 9261), which hold the evidence in a CMW (RFC 9999).
const SESSION_3: &str = "confide-session/3";

/// A version of the exchange of session binding. All give the same guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionVersion {
    /// A quote over the session's binder itself.
    V1,
    /// Also batch paths and a GPU's evidence.
    V2,
    /// As version 2, in exported authenticators (RFC 9261).
    V3,
}

impl SessionVersion {
    /// All versions, the oldest first.
    pub const ALL: [SessionVersion; 3] = [Self::V1, Self::V2, Self::V3];

    /// The version's number.
    pub fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }

    /// The version with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }

    /// The ALPN name of this version.
    pub fn alpn(self) -> &'static str {
        match self {
            Self::V1 => SESSION_1,
            Self::V2 => SESSION_2,
            Self::V3 => SESSION_3,
        }
    }

    /// The version with this ALPN name.
    pub(crate) fn from_alpn(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.alpn().as_bytes() == name)
    }
}

/// Options of the accepting end.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// How evidence is tied to the connection.
    pub binding: Binding,
    /// SHA-256 of the effective configuration; it goes into the claims.
    pub config_digest: [u8; 32],
    /// The guarantee that this end claims; it is one of the signed claims.
    pub guarantee: String,
    /// The lifetime of a key: the span from `not-before` to `not-after` in the claims. With
    /// [`Binding::None`] the certificate lives for a year and is never renewed.
    pub key_validity: Duration,
    /// The deadline of one whole call of [`crate::Server::accept`].
    pub deadline: Duration,
    /// Subject alternative names of the certificate: DNS names or addresses.
    pub names: Vec<String>,
    /// The weights of the models that may answer, if this end measured some; it goes into the
    /// claims.
    pub weights: Option<WeightsClaim>,
}

/// Options of the connecting end.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How the server's evidence is tied to the connection.
    pub binding: Binding,
    /// The deadline of one whole call of [`crate::Client::connect`].
    pub deadline: Duration,
}

/// The options of a client that attests to a server which appraises its clients (session binding
/// only).
#[derive(Clone)]
pub struct ClientEvidence {
    /// Obtains the evidence.
    pub attester: Arc<dyn Attest>,
    /// A clock that returns Unix seconds.
    pub clock: fn() -> u64,
    /// SHA-256 of the effective configuration, as [`ServerOptions::config_digest`].
    pub config_digest: [u8; 32],
    /// The guarantee that this end claims, as [`ServerOptions::guarantee`].
    pub guarantee: String,
    /// The lifetime of a key, as [`ServerOptions::key_validity`].
    pub key_validity: Duration,
}

/// Sizes of buffers and records. They change the speed only.
///
/// rustls asks the stream below it for 4 KiB at a time: a `BufReader` around a socket saves most
/// system calls when much is read. A session sends each write in records of its own, so a program
/// that writes small pieces should wrap it in a `BufWriter` of `write_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordTuning {
    /// Capacity of the read buffer between the layers of a nested session.
    pub buffer_bytes: usize,
    /// The largest plaintext of one record in bytes, 1 to [`RecordTuning::RECORD_BYTES_MAX`].
    pub record_bytes: usize,
    /// Plaintext bytes that a session buffers, encrypts and writes at once. It should be a multiple
    /// of `record_bytes`, so that the last record of a write is as full as the others.
    pub write_bytes: usize,
}

impl RecordTuning {
    /// The largest plaintext of a TLS record in bytes (RFC 8446 section 5.1).
    pub const RECORD_BYTES_MAX: usize = 16 * 1024;

    /// The bytes that a TLS 1.3 record adds to its plaintext: header, content type and tag.
    const RECORD_OVERHEAD_BYTES: usize = 5 + 1 + 16;

    /// The sizes for a session inside another TLS session: each inner record fills exactly one
    /// outer record of 16 KiB. A full inner record would spill 22 bytes into a second, tiny outer
    /// record.
    pub const fn for_nested_tls() -> Self {
        let record_bytes = Self::RECORD_BYTES_MAX - Self::RECORD_OVERHEAD_BYTES;
        Self { record_bytes, write_bytes: 4 * record_bytes, ..Self::new() }
    }

    const fn new() -> Self {
        let record_bytes = Self::RECORD_BYTES_MAX;
        Self { buffer_bytes: 64 * 1024, record_bytes, write_bytes: 4 * record_bytes }
    }

    /// The fragment size as rustls counts it, which includes the record's header.
    pub(crate) fn fragment_size(self) -> Option<usize> {
        Some(self.record_bytes + 5)
    }
}

impl Default for RecordTuning {
    fn default() -> Self {
        Self::new()
    }
}

/// The time of each step from an open byte stream to the first application byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelTimings {
    /// The TLS handshake.
    pub handshake: Duration,
    /// The wait for the peer's evidence, and on an attesting end also for its own.
    pub quote: Duration,
    /// Parsing and appraising the peer's evidence.
    pub appraisal: Duration,
    /// The number of sessions that share the quote of the end that attests (the server's if both
    /// do): 1 if it is over this session alone, 0 if no quote is bound to the session.
    pub batch: u32,
    /// Round trips before the client can send the first application byte. Opening the stream counts
    /// as one (TCP); for a carrier that needs more, see [`ChannelTimings::with_carrier_round_trips`].
    pub round_trips: u32,
}

impl ChannelTimings {
    /// Returns the timings for a carrier that needed `round_trips` to open, instead of TCP's one.
    pub fn with_carrier_round_trips(self, round_trips: u32) -> Self {
        Self { round_trips: self.round_trips.saturating_sub(1) + round_trips, ..self }
    }
}
