//! The exchange of session binding: evidence over the TLS exporter, after the handshake.
//!
//! ```text
//! client                                    server
//! Request  { context? }          ->
//!                                <-         Reply { context?, evidence? }
//! Evidence { evidence }          ->         only if the reply held a context
//!                                <-         Accepted
//! ```

use std::{
    borrow::Cow,
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use aws_lc_rs::rand;
use confide_evidence::{
    Appraise, BindingKind, PresentedEvidence, PresentedGpuEvidence,
    batch::BatchPath,
    binder::{
        CONTEXT_BYTES, EXPORTER_BYTES, EXPORTER_LABEL, RENEWAL_LABEL, Role, session_gpu_nonce,
        session_report_data,
    },
    claims::Claims,
    session_message::{SessionEvidence, SessionMessage},
};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::{client, server};
use zeroize::Zeroizing;

use crate::{
    batch::{BatchedQuote, QuoteBatcher},
    certificate::{PeerCertificate, sha256},
    deadline::Deadline,
    error::{ChannelError, ChannelPhase},
    frame,
    identity::Identity,
    options::SESSION_2,
};

/// The queue and the identity with which an end attests.
pub(crate) struct SessionAttester {
    pub(crate) batcher: QuoteBatcher,
    pub(crate) identity: Arc<Identity>,
}

/// The result of an exchange, and its cost in time and round trips.
pub(crate) struct ExchangeOutcome<T> {
    /// The appraiser's result; `None` if no evidence was demanded.
    pub(crate) appraised: Option<T>,
    pub(crate) appraisal: Duration,
    /// Sessions under the quote; see [`crate::ChannelTimings::batch`].
    pub(crate) batch: u32,
    pub(crate) quote: Duration,
    pub(crate) round_trips: u32,
}

impl<T> ExchangeOutcome<T> {
    /// The outcome before the exchange, with the one round trip of request and reply.
    pub(crate) fn new() -> Self {
        let (appraisal, quote) = (Duration::ZERO, Duration::ZERO);
        Self { appraised: None, appraisal, batch: 0, quote, round_trips: 1 }
    }

    /// Notes how many sessions share the quote of the end in `role`; the server's number takes
    /// precedence.
    fn note_batch_size(&mut self, role: Role, sessions: usize) {
        if role == Role::Server || self.batch == 0 {
            self.batch = sessions as u32;
        }
    }
}

/// A TLS stream whose handshake has ended.
pub(crate) trait TlsSession: AsyncRead + AsyncWrite + Unpin {
    fn exporter(&self, context: &[u8; CONTEXT_BYTES]) -> Result<[u8; 32], rustls::Error>;
    /// The secret from which the binders of fresh evidence are made.
    fn renewal_secret(&self) -> Result<Zeroizing<[u8; 32]>, rustls::Error>;
    fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]>;
    /// Whether both ends agreed on version 2 of the exchange, which allows batch paths.
    fn is_exchange_version_2(&self) -> bool;
}

/// Runs the client's half of the exchange.
pub(crate) async fn exchange_as_client<S: TlsSession, A: Appraise>(
    stream: &mut S,
    attesting: Option<&SessionAttester>,
    demand: Option<&A>,
    deadline: Deadline,
) -> Result<ExchangeOutcome<A::Appraised>, ChannelError> {
    let own = demand.map(|_| fresh_context()).transpose()?;
    let request = SessionMessage::Request { context: own };
    frame::write_message(stream, &request, ChannelPhase::Request, deadline).await?;
    let asked = Instant::now();
    let reply = frame::read_frame(stream, ChannelPhase::Evidence, deadline).await?;
    let quote = asked.elapsed();
    let SessionMessage::Reply { context, evidence } =
        frame::parse_message(&reply, ChannelPhase::Evidence)?
    else {
        return Err(ChannelError::MessageKind { phase: ChannelPhase::Evidence, wanted: "a reply" });
    };
    let mut outcome = ExchangeOutcome { quote, ..ExchangeOutcome::new() };
    let mine = attesting.map(|attesting| attesting.identity.spki_hash);
    let judged = appraise_peer(stream, Role::Server, own, mine, evidence, demand, &mut outcome);
    let Some(context) = context else {
        // The server expects no further message and would take one for application bytes.
        return judged.map(|()| outcome);
    };
    let shown = match judged {
        Ok(()) => {
            encode_evidence(stream, Role::Client, context, attesting, deadline, &mut outcome).await
        }
        Err(error) => Err(error),
    };
    let verdict = async {
        let message = shown?;
        frame::write_frame(stream, &message, ChannelPhase::Evidence, deadline).await
    };
    if let Err(error) = verdict.await {
        send_refusal(stream, &error, deadline).await;
        return Err(error);
    }
    let verdict = frame::read_frame(stream, ChannelPhase::Verdict, deadline).await?;
    outcome.round_trips += 1;
    match frame::parse_message(&verdict, ChannelPhase::Verdict)? {
        SessionMessage::Accepted => Ok(outcome),
        _ => Err(ChannelError::MessageKind { phase: ChannelPhase::Verdict, wanted: "accepted" }),
    }
}

/// Runs the server's half of the exchange. The client waits for an answer, so every failure is sent
/// to it.
pub(crate) async fn exchange_as_server<S: TlsSession, A: Appraise>(
    stream: &mut S,
    attesting: Option<&SessionAttester>,
    demand: Option<&A>,
    deadline: Deadline,
) -> Result<ExchangeOutcome<A::Appraised>, ChannelError> {
    let result = answer_exchange(stream, attesting, demand, deadline).await;
    if let Err(error) = &result {
        send_refusal(stream, error, deadline).await;
    }
    result
}

/// The appraiser type of an end that demands no evidence.
pub(crate) enum NoAppraiser {}

impl Appraise for NoAppraiser {
    type Appraised = ();
    type Rejection = Infallible;

    fn appraise(&self, _presented: &PresentedEvidence<'_>) -> Result<(), Infallible> {
        match *self {}
    }
}

/// Appraises a peer's evidence after checking that its claims name the peer's key.
pub(crate) fn appraise<A: Appraise>(
    appraiser: &A,
    presented: &PresentedEvidence<'_>,
    peer: [u8; 32],
    mine: Option<[u8; 32]>,
) -> Result<A::Appraised, ChannelError> {
    let claims = Claims::decode(presented.claims)?;
    if mine == Some(claims.pubkey_hash) {
        return Err(ChannelError::Reflected);
    }
    if claims.pubkey_hash != peer {
        return Err(ChannelError::KeyMismatch { claims: claims.pubkey_hash, connection: peer });
    }
    let evidence = presented.gpu.map(|gpu| sha256(gpu.evidence));
    if claims.gpu_evidence_hash != evidence {
        let claims = claims.gpu_evidence_hash;
        return Err(ChannelError::GpuEvidence { claims, evidence });
    }
    appraiser.appraise(presented).map_err(|rejection| ChannelError::Rejected(Box::new(rejection)))
}

pub(crate) fn peer_certificate<S: TlsSession>(stream: &S) -> Result<PeerCertificate, ChannelError> {
    let leaf = stream.peer_certificates().and_then(<[_]>::first);
    let none = || ChannelError::Certificate { reason: "it sent no certificate".into() };
    PeerCertificate::parse(leaf.ok_or_else(none)?)
}

async fn answer_exchange<S: TlsSession, A: Appraise>(
    stream: &mut S,
    attesting: Option<&SessionAttester>,
    demand: Option<&A>,
    deadline: Deadline,
) -> Result<ExchangeOutcome<A::Appraised>, ChannelError> {
    let request = frame::read_frame(stream, ChannelPhase::Request, deadline).await?;
    let SessionMessage::Request { context } =
        frame::parse_message(&request, ChannelPhase::Request)?
    else {
        return Err(ChannelError::MessageKind {
            phase: ChannelPhase::Request,
            wanted: "a request",
        });
    };
    let mut outcome = ExchangeOutcome::new();
    let own = demand.map(|_| fresh_context()).transpose()?;
    let reply = match context {
        Some(context) => {
            let role = Role::Server;
            let quote =
                obtain_evidence(stream, role, &context, attesting, deadline, &mut outcome).await?;
            quote.encode_with(|evidence| SessionMessage::Reply {
                context: own,
                evidence: Some(evidence),
            })
        }
        None => SessionMessage::Reply { context: own, evidence: None }.encode(),
    };
    frame::write_frame(stream, &reply, ChannelPhase::Evidence, deadline).await?;
    if demand.is_none() {
        return Ok(outcome);
    }
    let asked = Instant::now();
    let shown = frame::read_frame(stream, ChannelPhase::Evidence, deadline).await?;
    outcome.quote += asked.elapsed();
    let SessionMessage::Evidence(evidence) = frame::parse_message(&shown, ChannelPhase::Evidence)?
    else {
        return Err(ChannelError::MessageKind {
            phase: ChannelPhase::Evidence,
            wanted: "evidence",
        });
    };
    let mine = attesting.map(|attesting| attesting.identity.spki_hash);
    appraise_peer(stream, Role::Client, own, mine, Some(evidence), demand, &mut outcome)?;
    frame::write_message(stream, &SessionMessage::Accepted, ChannelPhase::Verdict, deadline)
        .await?;
    outcome.round_trips += 1;
    Ok(outcome)
}

/// Appraises the evidence that the peer in `role` sent over the context that this end chose.
fn appraise_peer<S: TlsSession, A: Appraise>(
    stream: &S,
    role: Role,
    context: Option<[u8; CONTEXT_BYTES]>,
    mine: Option<[u8; 32]>,
    evidence: Option<SessionEvidence<'_>>,
    demand: Option<&A>,
    outcome: &mut ExchangeOutcome<A::Appraised>,
) -> Result<(), ChannelError> {
    let (Some(appraiser), Some(context)) = (demand, context) else {
        let wanted = "a reply without evidence";
        let phase = ChannelPhase::Evidence;
        return match evidence {
            None => Ok(()),
            Some(_) => Err(ChannelError::MessageKind { phase, wanted }),
        };
    };
    let began = Instant::now();
    let evidence = evidence.ok_or(ChannelError::NoEvidence)?;
    let peer = SessionPeer::from_stream(stream, role, mine)?;
    let exporter = export_keying_material(stream, &context)?;
    let (appraised, sessions) = peer.appraise(&exporter, evidence, appraiser)?;
    outcome.appraised = Some(appraised);
    outcome.note_batch_size(role, sessions);
    outcome.appraisal = began.elapsed();
    Ok(())
}

/// The end whose evidence is appraised, as its session shows it.
pub(crate) struct SessionPeer {
    pub(crate) role: Role,
    pub(crate) spki_hash: [u8; 32],
    /// The hash of this end's own key, if it attests too.
    pub(crate) mine: Option<[u8; 32]>,
    /// Whether both ends agreed on version 2 of the exchange.
    pub(crate) reads_version_2: bool,
}

impl SessionPeer {
    /// The other end of `stream`.
    pub(crate) fn from_stream<S: TlsSession>(
        stream: &S,
        role: Role,
        mine: Option<[u8; 32]>,
    ) -> Result<Self, ChannelError> {
        let spki_hash = peer_certificate(stream)?.spki_hash()?;
        Ok(Self { role, spki_hash, mine, reads_version_2: stream.is_exchange_version_2() })
    }

    /// Appraises evidence over a session with this exporter. Returns the result, and how many
    /// sessions share the quote.
    pub(crate) fn appraise<A: Appraise>(
        &self,
        exporter: &[u8; EXPORTER_BYTES],
        evidence: SessionEvidence<'_>,
        appraiser: &A,
    ) -> Result<(A::Appraised, usize), ChannelError> {
        if evidence.needs_version_2() && !self.reads_version_2 {
            let wanted = "evidence of version 1";
            return Err(ChannelError::MessageKind { phase: ChannelPhase::Evidence, wanted });
        }
        let binder = session_report_data(self.role, &self.spki_hash, exporter, evidence.claims);
        let path = evidence.batch.map(BatchPath::decode).transpose()?;
        // This end computes the binder itself, so a path of another session leads to another root.
        let expected = path.as_ref().map_or(binder, |path| path.root_report_data(&binder));
        let nonce = session_gpu_nonce(self.role, &self.spki_hash, exporter);
        let presented = PresentedEvidence {
            binding: BindingKind::TlsExporter,
            claims: evidence.claims,
            collateral: evidence.collateral,
            expected_report_data: expected,
            gpu: evidence.gpu.map(|evidence| PresentedGpuEvidence { evidence, nonce }),
            quote: evidence.quote,
        };
        let appraised = appraise(appraiser, &presented, self.spki_hash, self.mine)?;
        Ok((appraised, path.map_or(1, |path| path.size())))
    }
}

/// Obtains this end's evidence over the peer's context, and encodes the message with it.
async fn encode_evidence<S: TlsSession, T>(
    stream: &S,
    role: Role,
    context: [u8; CONTEXT_BYTES],
    attesting: Option<&SessionAttester>,
    deadline: Deadline,
    outcome: &mut ExchangeOutcome<T>,
) -> Result<Vec<u8>, ChannelError> {
    let quote = obtain_evidence(stream, role, &context, attesting, deadline, outcome).await?;
    Ok(quote.encode_with(SessionMessage::Evidence))
}

pub(crate) struct ObtainedEvidence<'a> {
    batched: BatchedQuote,
    claims: Cow<'a, [u8]>,
    gpu: Option<Vec<u8>>,
    path: Option<Vec<u8>>,
}

impl ObtainedEvidence<'_> {
    pub(crate) fn encode_with<'a>(
        &'a self,
        message: impl FnOnce(SessionEvidence<'a>) -> SessionMessage<'a>,
    ) -> Vec<u8> {
        let evidence = SessionEvidence {
            quote: &self.batched.quote,
            claims: &self.claims,
            collateral: self.batched.collateral.as_deref(),
            batch: self.path.as_deref(),
            gpu: self.gpu.as_deref(),
        };
        message(evidence).encode()
    }
}

/// Obtains evidence over the session and the peer's context.
async fn obtain_evidence<'a, S: TlsSession, T>(
    stream: &S,
    role: Role,
    context: &[u8; CONTEXT_BYTES],
    attesting: Option<&'a SessionAttester>,
    deadline: Deadline,
    outcome: &mut ExchangeOutcome<T>,
) -> Result<ObtainedEvidence<'a>, ChannelError> {
    let attesting = attesting.ok_or(ChannelError::NoAttester { binding: "session" })?;
    let began = Instant::now();
    let exporter = export_keying_material(stream, context)?;
    let reads_version_2 = stream.is_exchange_version_2();
    let obtained = attesting.obtain(role, &exporter, reads_version_2, deadline).await?;
    outcome.note_batch_size(role, obtained.batched.sessions());
    outcome.quote += began.elapsed();
    Ok(obtained)
}

impl SessionAttester {
    /// Obtains evidence from the attester: in a batch with other sessions if the peer reads version
    /// 2 of the exchange, with its batch paths and a GPU's evidence.
    pub(crate) async fn obtain(
        &self,
        role: Role,
        exporter: &[u8; EXPORTER_BYTES],
        reads_version_2: bool,
        deadline: Deadline,
    ) -> Result<ObtainedEvidence<'_>, ChannelError> {
        let Identity { claims, spki_hash, .. } = &*self.identity;
        let batcher = &self.batcher;
        let mut claims = Cow::Borrowed(claims.as_slice());
        let mut gpu = None;
        let batched = if reads_version_2 {
            let nonce = session_gpu_nonce(role, spki_hash, exporter);
            gpu = deadline.limit(ChannelPhase::Quote, batcher.obtain_gpu_evidence(nonce)).await??;
            if let Some(evidence) = &gpu {
                claims = Cow::Owned(claims_with_gpu(&claims, evidence)?);
            }
            let binder = session_report_data(role, spki_hash, exporter, &claims);
            deadline.limit(ChannelPhase::Quote, batcher.attest(binder)).await??
        } else {
            let binder = session_report_data(role, spki_hash, exporter, &claims);
            deadline.limit(ChannelPhase::Quote, batcher.attest_alone(binder)).await??
        };
        let path = batched.path.as_ref().map(BatchPath::encode);
        Ok(ObtainedEvidence { batched, claims, gpu, path })
    }
}

/// Adds the hash of the GPU evidence to this end's claims, for one session.
fn claims_with_gpu(claims: &[u8], evidence: &[u8]) -> Result<Vec<u8>, ChannelError> {
    let claims = Claims::decode(claims).map_err(ChannelError::OwnClaims)?;
    Ok(Claims { gpu_evidence_hash: Some(sha256(evidence)), ..claims }.encode())
}

/// Sends a waiting peer the reason why the exchange ends. Errors are ignored.
async fn send_refusal<S: TlsSession>(stream: &mut S, error: &ChannelError, deadline: Deadline) {
    if let Some(refusal) = frame::refusal_for_error(error) {
        let message = SessionMessage::Refused(refusal);
        let _ = frame::write_message(stream, &message, ChannelPhase::Evidence, deadline).await;
        let _ = deadline.limit_io(ChannelPhase::Evidence, stream.shutdown()).await;
    }
}

pub(crate) fn fresh_context() -> Result<[u8; CONTEXT_BYTES], ChannelError> {
    let mut context = [0; CONTEXT_BYTES];
    let failed = |_| ChannelError::Identity { reason: "no random bytes".into() };
    rand::fill(&mut context).map_err(failed)?;
    Ok(context)
}

fn export_keying_material<S: TlsSession>(
    stream: &S,
    context: &[u8; CONTEXT_BYTES],
) -> Result<[u8; EXPORTER_BYTES], ChannelError> {
    stream.exporter(context).map_err(ChannelError::Tls)
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsSession for client::TlsStream<S> {
    fn exporter(&self, context: &[u8; CONTEXT_BYTES]) -> Result<[u8; 32], rustls::Error> {
        self.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, Some(context))
    }

    fn renewal_secret(&self) -> Result<Zeroizing<[u8; 32]>, rustls::Error> {
        let secret = Zeroizing::new([0; 32]);
        self.get_ref().1.export_keying_material(secret, RENEWAL_LABEL, None)
    }

    fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.get_ref().1.peer_certificates()
    }

    fn is_exchange_version_2(&self) -> bool {
        self.get_ref().1.alpn_protocol() == Some(SESSION_2.as_bytes())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsSession for server::TlsStream<S> {
    fn exporter(&self, context: &[u8; CONTEXT_BYTES]) -> Result<[u8; 32], rustls::Error> {
        self.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, Some(context))
    }

    fn renewal_secret(&self) -> Result<Zeroizing<[u8; 32]>, rustls::Error> {
        let secret = Zeroizing::new([0; 32]);
        self.get_ref().1.export_keying_material(secret, RENEWAL_LABEL, None)
    }

    fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.get_ref().1.peer_certificates()
    }

    fn is_exchange_version_2(&self) -> bool {
        self.get_ref().1.alpn_protocol() == Some(SESSION_2.as_bytes())
    }
}
