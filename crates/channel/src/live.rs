//! Fresh evidence in a session that is already open.
//!
//! The program carries the messages over the session itself, for instance as an HTTP request: a
//! `Request` with a context from the client, and a `Reply` with evidence from the server. Both ends
//! keep a secret that they derived when the session was opened, so neither needs the TLS session.

use std::{fmt, time::Duration};

use confide_evidence::{
    Appraise,
    binder::{CONTEXT_BYTES, Role, renewed_exporter},
    session_message::SessionMessage,
};
use zeroize::Zeroizing;

use crate::{
    deadline::Deadline,
    error::{ChannelError, ChannelPhase},
    frame,
    session::{SessionAttester, SessionPeer, TlsSession, fresh_context},
};

/// The path at which a server of HTTP answers requests for fresh evidence (POST).
pub const EVIDENCE_PATH: &str = "/.well-known/confide/evidence";

/// The media type of such a request and its answer: one message of the session exchange.
pub const EVIDENCE_MEDIA_TYPE: &str = "application/vnd.confide.session";

/// The server's end of an open session, which gives fresh evidence about itself.
pub struct LiveSession {
    pub(crate) attesting: SessionAttester,
    pub(crate) reads_version_2: bool,
    pub(crate) secret: Zeroizing<[u8; 32]>,
}

impl LiveSession {
    /// The server's end of the session on `stream`.
    pub(crate) fn from_stream<S: TlsSession>(
        stream: &S,
        attesting: SessionAttester,
    ) -> Result<Self, ChannelError> {
        let secret = stream.renewal_secret().map_err(ChannelError::Tls)?;
        Ok(Self { attesting, reads_version_2: stream.is_exchange_version_2(), secret })
    }

    /// Answers a client's request for fresh evidence. Both are messages of the session exchange,
    /// without the length in front. `deadline` is for the quote.
    ///
    /// # Errors
    /// An error of [`ErrorOrigin::Peer`](crate::ErrorOrigin::Peer) if the request cannot be read or
    /// has no context, and those of making evidence.
    pub async fn answer(
        &self,
        request: &[u8],
        deadline: Duration,
    ) -> Result<Vec<u8>, ChannelError> {
        let phase = ChannelPhase::Request;
        let SessionMessage::Request { context: Some(context) } =
            frame::parse_message(request, phase)?
        else {
            return Err(ChannelError::MessageKind { phase, wanted: "a request with a context" });
        };
        let exporter = renewed_exporter(&self.secret, &context);
        let deadline = Deadline::after(deadline);
        let obtained =
            self.attesting.obtain(Role::Server, &exporter, self.reads_version_2, deadline).await?;
        Ok(obtained.encode_with(|evidence| SessionMessage::Reply {
            context: None,
            evidence: Some(evidence),
        }))
    }
}

impl fmt::Debug for LiveSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveSession").finish_non_exhaustive()
    }
}

/// The client's end of an open session, which asks for fresh evidence and appraises it.
pub struct LivePeer {
    pub(crate) peer: SessionPeer,
    pub(crate) secret: Zeroizing<[u8; 32]>,
}

/// A request for fresh evidence, whose context is used once.
#[derive(Debug)]
pub struct EvidenceRequest {
    context: [u8; CONTEXT_BYTES],
}

impl EvidenceRequest {
    /// The message for the server.
    pub fn encode(&self) -> Vec<u8> {
        SessionMessage::Request { context: Some(self.context) }.encode()
    }
}

impl LivePeer {
    /// The client's end of the session on `stream`, with what attests the client, if it attests too.
    pub(crate) fn from_stream<S: TlsSession>(
        stream: &S,
        attesting: Option<&SessionAttester>,
    ) -> Result<Self, ChannelError> {
        let mine = attesting.map(|attesting| attesting.identity.spki_hash);
        let secret = stream.renewal_secret().map_err(ChannelError::Tls)?;
        Ok(Self { peer: SessionPeer::from_stream(stream, Role::Server, mine)?, secret })
    }

    /// Makes a request with a fresh context.
    ///
    /// # Errors
    /// [`ChannelError::Identity`] if there are no random bytes.
    pub fn request_evidence(&self) -> Result<EvidenceRequest, ChannelError> {
        Ok(EvidenceRequest { context: fresh_context()? })
    }

    /// Appraises the server's reply to `request`.
    ///
    /// # Errors
    /// [`ChannelError::NoEvidence`], [`ChannelError::Rejected`] and similar errors if the evidence is
    /// missing, unreadable, of another session or request, or not accepted.
    pub fn appraise_reply<A: Appraise>(
        &self,
        request: EvidenceRequest,
        reply: &[u8],
        appraiser: &A,
    ) -> Result<A::Appraised, ChannelError> {
        let phase = ChannelPhase::Evidence;
        let SessionMessage::Reply { context: None, evidence } = frame::parse_message(reply, phase)?
        else {
            let wanted = "a reply without a context";
            return Err(ChannelError::MessageKind { phase, wanted });
        };
        let exporter = renewed_exporter(&self.secret, &request.context);
        let evidence = evidence.ok_or(ChannelError::NoEvidence)?;
        self.peer.appraise(&exporter, evidence, appraiser).map(|(appraised, _)| appraised)
    }
}

impl fmt::Debug for LivePeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivePeer").finish_non_exhaustive()
    }
}
