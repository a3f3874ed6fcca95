//! Fresh evidence in a session that is already open.
//!
//! The program carries the messages over the session itself, for instance as an HTTP request: a
//! `Request` with a context from the client, and a `Reply` with evidence from the server. Both ends
//! keep a secret that they derived when the session was opened, so neither needs the TLS session.

use std::fmt;
#[cfg(feature = "native")]
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use confide_evidence::{
    Appraise,
    binder::{Role, renewed_exporter},
};
#[cfg(feature = "native")]
use confide_evidence::{authenticator::AuthenticatorError, binder::CONTEXT_BYTES};
use rustls::crypto::WebPkiSupportedAlgorithms;
use zeroize::Zeroizing;

#[cfg(not(feature = "native"))]
use crate::absent_attester::SessionAttester;
#[cfg(feature = "native")]
use crate::{deadline::Deadline, session_attester::SessionAttester, session_terms::SessionTerms};
use crate::{
    error::{ChannelError, ChannelPhase},
    exchange_message::{self, EvidenceDemand, ExchangeMessage},
    options::SessionVersion,
    session::SessionPeer,
    session_terms::ExchangeSession,
};

#[cfg(feature = "native")]
/// The largest number of requests for authenticators that a server answers on one connection. It
/// remembers their contexts, because each may be used once (RFC 9261 section 4).
const CONTEXTS_MAX: usize = 256;

/// The path at which a server of HTTP answers requests for fresh evidence (POST).
pub const EVIDENCE_PATH: &str = "/.well-known/confide/evidence";

/// The media type of such a request and its answer: one message of the session exchange.
pub const EVIDENCE_MEDIA_TYPE: &str = "application/vnd.confide.session";

#[cfg(feature = "native")]
/// The server's end of an open session, which gives fresh evidence about itself.
pub struct LiveSession {
    attesting: SessionAttester,
    secret: Zeroizing<[u8; 32]>,
    terms: SessionTerms,
    /// The contexts of all requests on this connection (version 3 only).
    used: Mutex<HashSet<[u8; CONTEXT_BYTES]>>,
}

#[cfg(feature = "native")]
impl LiveSession {
    /// The server's end of the session on `stream`, which the client opened with `context`.
    pub(crate) fn from_stream<S: ExchangeSession>(
        stream: &S,
        attesting: SessionAttester,
        context: Option<[u8; CONTEXT_BYTES]>,
    ) -> Result<Self, ChannelError> {
        let secret = stream.renewal_secret()?;
        let terms = SessionTerms::from_stream(stream, Role::Server)?;
        Ok(Self { attesting, secret, terms, used: Mutex::new(context.into_iter().collect()) })
    }

    /// Answers a client's request for fresh evidence. Both are messages of the session exchange,
    /// without the length in front. `deadline` is for the quote.
    ///
    /// # Errors
    /// An error of [`ErrorOrigin::Peer`](crate::ErrorOrigin::Peer) if the request cannot be read, has
    /// no context or (version 3) one that was used before, and those of making evidence.
    pub async fn answer(
        &self,
        request: &[u8],
        deadline: Duration,
    ) -> Result<Vec<u8>, ChannelError> {
        let (phase, version) = (ChannelPhase::Request, self.terms.version);
        let ExchangeMessage::Request(Some(demand)) =
            ExchangeMessage::decode(version, Role::Client, phase, request)?
        else {
            return Err(ChannelError::MessageKind { phase, wanted: "a request with a context" });
        };
        if version == SessionVersion::V3 {
            self.note_context(demand.context())?;
        }
        let exporter = renewed_exporter(&self.secret, demand.context());
        let deadline = Deadline::after(deadline);
        let obtained = self.attesting.obtain(&self.terms, &demand, &exporter, deadline).await?;
        exchange_message::encode_reply(version, None, Some(obtained.to_shown()))
    }

    fn note_context(&self, context: &[u8; CONTEXT_BYTES]) -> Result<(), ChannelError> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.contains(context) {
            return Err(AuthenticatorError::ContextReused.into());
        }
        if used.len() >= CONTEXTS_MAX {
            return Err(AuthenticatorError::TooManyRequests { wanted: CONTEXTS_MAX }.into());
        }
        used.insert(*context);
        Ok(())
    }
}

#[cfg(feature = "native")]
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
    demand: EvidenceDemand,
    version: SessionVersion,
}

impl EvidenceRequest {
    /// The message for the server.
    pub fn encode(&self) -> Vec<u8> {
        exchange_message::encode_request(self.version, Some(&self.demand))
    }
}

impl LivePeer {
    /// The client's end of the session on `stream`, with what attests the client, if it attests too.
    pub(crate) fn from_stream<S: ExchangeSession>(
        stream: &S,
        attesting: Option<&SessionAttester>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<Self, ChannelError> {
        let mine = attesting.map(|attesting| attesting.spki_hash());
        let secret = stream.renewal_secret()?;
        Ok(Self { peer: SessionPeer::from_stream(stream, Role::Server, mine, algorithms)?, secret })
    }

    /// Makes a request with a fresh context.
    ///
    /// # Errors
    /// [`ChannelError::Identity`] if there are no random bytes.
    pub fn request_evidence(&self) -> Result<EvidenceRequest, ChannelError> {
        let version = self.peer.terms.version;
        Ok(EvidenceRequest { demand: EvidenceDemand::fresh(version, Role::Client)?, version })
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
        let (phase, version) = (ChannelPhase::Evidence, self.peer.terms.version);
        let ExchangeMessage::Reply(None, shown) =
            ExchangeMessage::decode(version, Role::Server, phase, reply)?
        else {
            let wanted = "a reply without a context";
            return Err(ChannelError::MessageKind { phase, wanted });
        };
        let exporter = renewed_exporter(&self.secret, request.demand.context());
        let shown = shown.ok_or(ChannelError::NoEvidence)?;
        let appraised = self.peer.appraise(&request.demand, &exporter, shown, appraiser)?;
        Ok(appraised.0)
    }
}

impl fmt::Debug for LivePeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivePeer").finish_non_exhaustive()
    }
}
