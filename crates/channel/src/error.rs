//! Errors in opening an attested stream, with the phase and the end that caused them.

use std::{io, sync::Arc, time::Duration};

use confide_evidence::{
    AttestError,
    authenticator::AuthenticatorError,
    batch::BatchPathError,
    claims::ClaimsError,
    session_message::{Refusal, SessionMessageError},
    tagged_evidence::TaggedEvidenceError,
};

use crate::batch_error::BatchError;

/// A phase of opening or carrying an attested stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelPhase {
    /// Reading options and making keys, before any connection.
    Setup,
    /// Obtaining evidence from this end's own attester.
    Quote,
    /// The TLS handshake.
    Handshake,
    /// Sending the request of session binding, or waiting for it.
    Request,
    /// Sending evidence, or waiting for the peer's.
    Evidence,
    /// Sending the verdict on the client's evidence, or waiting for it.
    Verdict,
    /// Reaching the tunnel's proxy, or its target.
    Dial,
    /// The tunnel's HTTP upgrade.
    Upgrade,
    /// Carrying bytes through the tunnel.
    Relay,
}

impl std::fmt::Display for ChannelPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ChannelPhase::Setup => "setup",
            ChannelPhase::Quote => "quote",
            ChannelPhase::Handshake => "handshake",
            ChannelPhase::Request => "session request",
            ChannelPhase::Evidence => "session evidence",
            ChannelPhase::Verdict => "session verdict",
            ChannelPhase::Dial => "dial",
            ChannelPhase::Upgrade => "tunnel upgrade",
            ChannelPhase::Relay => "tunnel relay",
        })
    }
}

/// The end, or the part of the protocol, that caused an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// This end: its options, its keys or its attester.
    Local,
    /// The network or a silent peer: a second try may help.
    Network,
    /// The peer broke the protocol or refused.
    Peer,
    /// The peer's evidence, which the appraiser rejected.
    Evidence,
}

/// The reason why no attested stream was opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// An option of this end is out of bounds.
    #[error("option {option} is {got}, wanted {wanted}")]
    Option {
        /// The name of the option.
        option: &'static str,
        /// The value that was wanted.
        wanted: &'static str,
        /// The value that came.
        got: String,
    },
    /// The binding needs evidence, and no attester is configured.
    #[error("binding {binding} needs an attester, got none")]
    NoAttester {
        /// The binding that was asked for.
        binding: &'static str,
    },
    /// The binding does not support this call.
    #[error("{call} needs binding {wanted}")]
    Binding {
        /// The name of the call.
        call: &'static str,
        /// The binding that the call needs.
        wanted: &'static str,
    },
    /// This end could not make its key or certificate.
    #[error("key or certificate could not be made: {reason}")]
    Identity {
        /// The library's error.
        reason: String,
    },
    /// Evidence and collateral make the certificate larger than TLS peers accept.
    #[error("certificate with evidence is {got} bytes, wanted under {wanted}")]
    CertificateSize {
        /// The limit in bytes.
        wanted: usize,
        /// The size of the certificate in bytes.
        got: usize,
    },
    /// This end's attester returned no evidence.
    #[error("own evidence is unavailable")]
    Attester(#[source] Arc<AttestError>),
    /// Too many sessions wait for a quote of this end's attester.
    #[error("own evidence is unavailable: too many sessions wait for a quote")]
    QuoteQueue(#[source] BatchError),
    /// This end's attester panicked or the runtime is shutting down.
    #[error("the task that obtains evidence ended without an answer")]
    AttesterTask,
    /// This end's attester returned something that no peer would read.
    #[error("own {part} is {got} bytes, wanted 1 to {wanted}")]
    OwnEvidence {
        /// `quote`, `collateral` or `GPU evidence`.
        part: &'static str,
        /// The limit in bytes.
        wanted: usize,
        /// The length of the part in bytes.
        got: usize,
    },
    /// This end's evidence is of another version of the session exchange than the session.
    #[error("own evidence is of another version than session binding {version}")]
    OwnEvidenceVersion {
        /// The number of the session's version.
        version: u8,
    },
    /// No peer would read this end's claims.
    #[error("the claims of this end are invalid: no peer would accept them")]
    OwnClaims(#[source] ClaimsError),
    /// This end's key has expired, and no new one could be made.
    #[error("the key of this end has expired and could not be renewed")]
    KeyEnded {
        /// The error of the last renewal.
        #[source]
        source: Arc<ChannelError>,
    },
    /// Nothing was received, or nothing could be sent, before the deadline.
    #[error("{phase} did not end within {} ms", deadline.as_millis())]
    Timeout {
        /// The phase in which the call waited.
        phase: ChannelPhase,
        /// The deadline of the whole call.
        deadline: Duration,
    },
    /// Reading or writing failed.
    #[error("{phase} failed")]
    Io {
        /// The phase in which it failed.
        phase: ChannelPhase,
        /// The error of the operating system or of the TLS library.
        #[source]
        source: io::Error,
    },
    /// The TLS handshake failed.
    #[error("TLS handshake failed")]
    Tls(#[source] rustls::Error),
    /// The server's name cannot be sent in a handshake.
    #[error("server name {name:?} is neither a DNS name nor an address")]
    ServerName {
        /// The name that was given.
        name: String,
    },
    /// The peer speaks another application protocol.
    #[error("peer negotiated {}, wanted {wanted}", got.as_deref().unwrap_or("no ALPN protocol"))]
    Protocol {
        /// The wanted ALPN name.
        wanted: &'static str,
        /// The agreed ALPN name.
        got: Option<String>,
    },
    /// The peer's certificate cannot be read.
    #[error("peer certificate is unreadable: {reason}")]
    Certificate {
        /// The parser's error.
        reason: String,
    },
    /// The peer's certificate lacks an extension, or has it more than once.
    #[error("peer certificate has {got} extensions {oid}, wanted {wanted}")]
    Extension {
        /// The object identifier.
        oid: &'static str,
        /// The number of extensions that is allowed.
        wanted: &'static str,
        /// The number of extensions that the certificate has.
        got: usize,
    },
    /// The evidence extension cannot be read.
    #[error("peer evidence extension is unreadable")]
    Tagged(#[from] TaggedEvidenceError),
    /// The path from the session's binder to what the quote signs cannot be read.
    #[error("peer batch path is unreadable")]
    BatchPath(#[from] BatchPathError),
    /// The claims cannot be read.
    #[error("peer claims are unreadable")]
    Claims(#[from] ClaimsError),
    /// The claims name a key that differs from this connection's.
    #[error("evidence is for key {}, wanted the connection's key {}", hex(claims), hex(connection))]
    KeyMismatch {
        /// The hash in the claims.
        claims: [u8; 32],
        /// The hash of the connection's key.
        connection: [u8; 32],
    },
    /// The GPU evidence hash in the claims differs from that of the received GPU evidence, or one
    /// of the two is missing.
    #[error(
        "claims name {}, but {} was received",
        describe_gpu_evidence(claims),
        describe_gpu_evidence(evidence)
    )]
    GpuEvidence {
        /// `gpu-evidence-hash` in the claims.
        claims: Option<[u8; 32]>,
        /// SHA-256 of the GPU evidence.
        evidence: Option<[u8; 32]>,
    },
    /// The peer sent this end's own evidence back.
    #[error("peer sent back this end's own evidence")]
    Reflected,
    /// A frame is longer than the limit.
    #[error("frame in {phase} is {got} bytes, wanted at most {wanted}")]
    FrameLength {
        /// The phase in which it came.
        phase: ChannelPhase,
        /// The limit in bytes.
        wanted: usize,
        /// The length that the frame announces, in bytes.
        got: usize,
    },
    /// The peer ended the stream before the end of a frame.
    #[error("peer ended the stream in {phase}")]
    UnexpectedEnd {
        /// The phase in which it ended.
        phase: ChannelPhase,
    },
    /// A message of session binding cannot be read.
    #[error("peer message in {phase} is unreadable")]
    Message {
        /// The phase in which it came.
        phase: ChannelPhase,
        /// The reason why the message cannot be read.
        #[source]
        source: SessionMessageError,
    },
    /// A message of session binding came out of order.
    #[error("peer sent an unexpected message in {phase}, wanted {wanted}")]
    MessageKind {
        /// The phase in which it came.
        phase: ChannelPhase,
        /// The kind of message that was wanted.
        wanted: &'static str,
    },
    /// An authenticator, or the request for one, was refused.
    #[error("peer authenticator was refused")]
    Authenticator(#[from] AuthenticatorError),
    /// The peer was asked for evidence and sent none.
    #[error("peer sent no evidence")]
    NoEvidence,
    /// The peer refuses to continue.
    #[error("peer refused in {phase}: {refusal}")]
    Refused {
        /// The phase in which it came.
        phase: ChannelPhase,
        /// The peer's reason.
        refusal: Refusal,
    },
    /// The appraiser rejected the evidence. The box holds its `Rejection`: see
    /// [`ChannelError::rejection`].
    #[error("peer evidence was rejected")]
    Rejected(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The tunnel could not be opened, or it broke.
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
}

/// The reason why a tunnel was not opened, or broke.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunnelError {
    /// The proxy address cannot be used.
    #[error("tunnel address {url:?} is unusable, wanted ws://HOST:PORT[/PATH]")]
    Url {
        /// The address of the proxy, shortened.
        url: String,
    },
    /// The target is not a host and a port.
    #[error("tunnel target {target:?} is unusable, wanted HOST:PORT")]
    Target {
        /// The target, shortened.
        target: String,
    },
    /// The target is not on the allow-list.
    #[error("tunnel target {target} is not on the allow-list")]
    TargetRefused {
        /// The target, as `HOST:PORT`.
        target: String,
    },
    /// The request does not ask for a tunnel.
    #[error("tunnel request is unusable: {reason}")]
    Request {
        /// The HTTP status that answers it.
        status: u16,
        /// The reason in words.
        reason: &'static str,
    },
    /// The request's head is longer than the limit.
    #[error("tunnel request head is over {wanted} bytes")]
    HeadLength {
        /// The limit in bytes.
        wanted: usize,
    },
    /// The target could not be reached.
    #[error("tunnel target {target} could not be reached")]
    TargetUnreachable {
        /// The target, as `HOST:PORT`.
        target: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The proxy answered the upgrade with another status.
    #[error("tunnel proxy answered {status}: {body}")]
    ProxyRefused {
        /// The HTTP status.
        status: u16,
        /// The beginning of the answer's body.
        body: String,
    },
    /// The WebSocket broke.
    #[cfg(feature = "native")]
    #[error("tunnel WebSocket failed in {phase}")]
    WebSocket {
        /// The phase in which it failed.
        phase: ChannelPhase,
        /// The library's error.
        #[source]
        source: Box<tokio_tungstenite::tungstenite::Error>,
    },
    /// The WebSocket ended without the end-of-stream mark.
    #[error("tunnel ended without its end-of-stream mark")]
    Truncated,
}

impl ChannelError {
    /// The party through which the error came about.
    pub fn origin(&self) -> ErrorOrigin {
        match self {
            Self::Option { .. }
            | Self::NoAttester { .. }
            | Self::Binding { .. }
            | Self::Identity { .. }
            | Self::CertificateSize { .. }
            | Self::Attester(_)
            | Self::QuoteQueue(_)
            | Self::AttesterTask
            | Self::OwnEvidence { .. }
            | Self::OwnEvidenceVersion { .. }
            | Self::OwnClaims(_)
            | Self::KeyEnded { .. }
            | Self::ServerName { .. } => ErrorOrigin::Local,
            Self::Timeout { phase: ChannelPhase::Quote, .. } => ErrorOrigin::Local,
            Self::Timeout { .. } | Self::Io { .. } | Self::UnexpectedEnd { .. } => {
                ErrorOrigin::Network
            }
            Self::Rejected(_) => ErrorOrigin::Evidence,
            Self::Tunnel(TunnelError::Url { .. } | TunnelError::Target { .. }) => {
                ErrorOrigin::Local
            }
            Self::Tunnel(TunnelError::TargetUnreachable { .. } | TunnelError::Truncated) => {
                ErrorOrigin::Network
            }
            #[cfg(feature = "native")]
            Self::Tunnel(TunnelError::WebSocket { .. }) => ErrorOrigin::Network,
            _ => ErrorOrigin::Peer,
        }
    }

    /// The name of the check that the peer failed before its evidence reached an appraiser. Unreadable
    /// evidence counts as failed too, since a second try would fail in the same way.
    pub fn failed_check(&self) -> Option<&'static str> {
        match self {
            Self::KeyMismatch { .. } | Self::Reflected => Some("channel_binding"),
            Self::GpuEvidence { .. } => Some("gpu"),
            Self::NoEvidence
            | Self::Certificate { .. }
            | Self::Extension { .. }
            | Self::Tagged(_)
            | Self::BatchPath(_)
            | Self::Claims(_)
            | Self::FrameLength { .. }
            | Self::Message { .. }
            | Self::MessageKind { .. } => Some("evidence"),
            _ => None,
        }
    }

    /// Returns the appraiser's rejection, if the error is one and `R` is its type.
    pub fn rejection<R: std::error::Error + 'static>(&self) -> Option<&R> {
        match self {
            Self::Rejected(rejection) => rejection.downcast_ref(),
            _ => None,
        }
    }
}

impl From<BatchError> for ChannelError {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Attester(source) => Self::Attester(source),
            BatchError::Full { .. } | BatchError::Late { .. } => Self::QuoteQueue(error),
            BatchError::WorkerEnded => Self::AttesterTask,
            BatchError::OwnEvidence { part, wanted, got } => {
                Self::OwnEvidence { part, wanted, got }
            }
            BatchError::Randomness => Self::Identity { reason: "no random bytes".into() },
        }
    }
}

fn describe_gpu_evidence(hash: &Option<[u8; 32]>) -> String {
    hash.as_ref().map_or("no GPU evidence".into(), |hash| format!("GPU evidence {}", hex(hash)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
