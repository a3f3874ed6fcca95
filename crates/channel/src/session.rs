//! The exchange of session binding: evidence over the TLS exporter, after the handshake.
//!
//! ```text
//! client                                    server
//! Request  { context? }          ->
//!                                <-         Reply { context?, evidence? }
//! Evidence { evidence }          ->         only if the reply held a context
//!                                <-         Accepted
//! ```

use std::{convert::Infallible, time::Duration};

use confide_evidence::{
    Appraise, BindingKind, PresentedEvidence, PresentedGpuEvidence, ReportData,
    authenticator::AuthenticatorError,
    batch::BatchPath,
    binder::{
        CONTEXT_BYTES, EXPORTER_BYTES, Role, authenticator_report_data, key_report_data,
        session_gpu_nonce, session_report_data,
    },
    claims::Claims,
    cmw::parse_cmw,
    evidence_wrapper::{EvidenceWrapper, EvidenceWrapperError},
    session_message::{SessionEvidence, SessionMessage},
};
use rustls::crypto::WebPkiSupportedAlgorithms;
use tokio::io::AsyncWriteExt;

#[cfg(not(feature = "native"))]
use crate::absent_attester::{ObtainedEvidence, SessionAttester};
#[cfg(feature = "native")]
use crate::session_attester::{ObtainedEvidence, SessionAttester};
use crate::{
    certificate::{PeerCertificate, sha256},
    deadline::Deadline,
    error::{ChannelError, ChannelPhase},
    exchange_message::{self, EvidenceDemand, ExchangeMessage, ShownEvidence},
    frame,
    options::SessionVersion,
    session_terms::{ExchangeSession, SessionTerms},
    stopwatch::Stopwatch,
};

/// The result of an exchange, and its cost in time and round trips.
pub(crate) struct ExchangeOutcome<T> {
    /// The appraiser's result; `None` if no evidence was demanded.
    pub(crate) appraised: Option<T>,
    pub(crate) appraisal: Duration,
    /// Sessions under the quote; see [`crate::ChannelTimings::batch`].
    pub(crate) batch: u32,
    /// The context that the client chose, at the server.
    pub(crate) context: Option<[u8; CONTEXT_BYTES]>,
    pub(crate) quote: Duration,
    pub(crate) round_trips: u32,
}

impl<T> ExchangeOutcome<T> {
    /// The outcome before the exchange, with the one round trip of request and reply.
    pub(crate) fn new() -> Self {
        let (appraisal, quote) = (Duration::ZERO, Duration::ZERO);
        Self { appraised: None, appraisal, batch: 0, context: None, quote, round_trips: 1 }
    }

    /// Notes how many sessions share the quote of the end in `role`; the server's number takes
    /// precedence.
    fn note_batch_size(&mut self, role: Role, sessions: usize) {
        if role == Role::Server || self.batch == 0 {
            self.batch = sessions as u32;
        }
    }
}

/// What one end checks the other end's evidence with.
pub(crate) struct PeerChecks<'a, A> {
    pub(crate) appraiser: &'a A,
    /// What checks the signatures of authenticators (version 3).
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

/// Runs the client's half of the exchange.
pub(crate) async fn exchange_as_client<S: ExchangeSession, A: Appraise>(
    stream: &mut S,
    attesting: Option<&SessionAttester>,
    demand: Option<&PeerChecks<'_, A>>,
    deadline: Deadline,
) -> Result<ExchangeOutcome<A::Appraised>, ChannelError> {
    let version = stream.version();
    let own = demand.map(|_| EvidenceDemand::fresh(version, Role::Client)).transpose()?;
    let request = exchange_message::encode_request(version, own.as_ref());
    frame::write_frame(stream, &request, ChannelPhase::Request, deadline).await?;
    let asked = Stopwatch::start();
    let reply = frame::read_frame(stream, ChannelPhase::Evidence, deadline).await?;
    let quote = asked.read();
    let ExchangeMessage::Reply(theirs, shown) =
        ExchangeMessage::decode(version, Role::Server, ChannelPhase::Evidence, &reply)?
    else {
        return Err(ChannelError::MessageKind { phase: ChannelPhase::Evidence, wanted: "a reply" });
    };
    let mut outcome = ExchangeOutcome { quote, ..ExchangeOutcome::new() };
    let mine = attesting.map(|attesting| attesting.spki_hash());
    let judged =
        appraise_peer(stream, Role::Server, own.as_ref(), mine, shown, demand, &mut outcome);
    let Some(theirs) = theirs else {
        // The server expects no further message and would take one for application bytes.
        return judged.map(|()| outcome);
    };
    let shown = match judged {
        Ok(()) => {
            obtain_evidence(stream, Role::Client, &theirs, attesting, deadline, &mut outcome).await
        }
        Err(error) => Err(error),
    };
    let verdict = async {
        let message = exchange_message::encode_evidence(shown?.to_shown());
        frame::write_frame(stream, &message, ChannelPhase::Evidence, deadline).await
    };
    if let Err(error) = verdict.await {
        send_refusal(stream, &error, deadline).await;
        return Err(error);
    }
    let verdict = frame::read_frame(stream, ChannelPhase::Verdict, deadline).await?;
    outcome.round_trips += 1;
    match ExchangeMessage::decode(version, Role::Server, ChannelPhase::Verdict, &verdict)? {
        ExchangeMessage::Accepted => Ok(outcome),
        _ => Err(ChannelError::MessageKind { phase: ChannelPhase::Verdict, wanted: "accepted" }),
    }
}

#[cfg(feature = "native")]
/// Runs the server's half of the exchange. The client waits for an answer, so every failure is sent
/// to it.
pub(crate) async fn exchange_as_server<S: ExchangeSession, A: Appraise>(
    stream: &mut S,
    attesting: Option<&SessionAttester>,
    demand: Option<&PeerChecks<'_, A>>,
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

pub(crate) fn peer_certificate<S: ExchangeSession>(
    stream: &S,
) -> Result<PeerCertificate, ChannelError> {
    let none = || ChannelError::Certificate { reason: "it sent no certificate".into() };
    PeerCertificate::parse(stream.peer_certificate().ok_or_else(none)?)
}

/// Appraises the evidence that came in the certificate of the server (key binding).
pub(crate) fn appraise_certificate<S: ExchangeSession, A: Appraise>(
    stream: &S,
    appraiser: &A,
) -> Result<ExchangeOutcome<A::Appraised>, ChannelError> {
    let began = Stopwatch::start();
    let certificate = peer_certificate(stream)?;
    let tagged = certificate.parse_evidence()?;
    let presented = PresentedEvidence {
        binding: BindingKind::TlsSpki,
        claims: tagged.claims,
        collateral: certificate.parse_collateral()?,
        expected_report_data: key_report_data(tagged.claims),
        gpu: None,
        quote: tagged.quote,
    };
    let appraised = Some(appraise(appraiser, &presented, certificate.spki_hash()?, None)?);
    let appraisal = began.read();
    Ok(ExchangeOutcome { appraised, appraisal, round_trips: 0, ..ExchangeOutcome::new() })
}

#[cfg(feature = "native")]
async fn answer_exchange<S: ExchangeSession, A: Appraise>(
    stream: &mut S,
    attesting: Option<&SessionAttester>,
    demand: Option<&PeerChecks<'_, A>>,
    deadline: Deadline,
) -> Result<ExchangeOutcome<A::Appraised>, ChannelError> {
    let version = stream.version();
    let request = frame::read_frame(stream, ChannelPhase::Request, deadline).await?;
    let ExchangeMessage::Request(theirs) =
        ExchangeMessage::decode(version, Role::Client, ChannelPhase::Request, &request)?
    else {
        return Err(ChannelError::MessageKind {
            phase: ChannelPhase::Request,
            wanted: "a request",
        });
    };
    let mut outcome = ExchangeOutcome::new();
    let own = demand.map(|_| EvidenceDemand::fresh(version, Role::Server)).transpose()?;
    let obtained = match &theirs {
        Some(theirs) => {
            let role = Role::Server;
            Some(obtain_evidence(stream, role, theirs, attesting, deadline, &mut outcome).await?)
        }
        None => None,
    };
    outcome.context = theirs.map(|theirs| *theirs.context());
    let shown = obtained.as_ref().map(ObtainedEvidence::to_shown);
    let reply = exchange_message::encode_reply(version, own.as_ref(), shown)?;
    frame::write_frame(stream, &reply, ChannelPhase::Evidence, deadline).await?;
    if demand.is_none() {
        return Ok(outcome);
    }
    let asked = Stopwatch::start();
    let shown = frame::read_frame(stream, ChannelPhase::Evidence, deadline).await?;
    outcome.quote += asked.read();
    let ExchangeMessage::Evidence(shown) =
        ExchangeMessage::decode(version, Role::Client, ChannelPhase::Evidence, &shown)?
    else {
        return Err(ChannelError::MessageKind {
            phase: ChannelPhase::Evidence,
            wanted: "evidence",
        });
    };
    let mine = attesting.map(|attesting| attesting.spki_hash());
    appraise_peer(stream, Role::Client, own.as_ref(), mine, Some(shown), demand, &mut outcome)?;
    frame::write_message(stream, &SessionMessage::Accepted, ChannelPhase::Verdict, deadline)
        .await?;
    outcome.round_trips += 1;
    Ok(outcome)
}

/// Appraises the evidence that the peer in `role` sent for the demand of this end.
fn appraise_peer<S: ExchangeSession, A: Appraise>(
    stream: &S,
    role: Role,
    own: Option<&EvidenceDemand>,
    mine: Option<[u8; 32]>,
    shown: Option<ShownEvidence<'_>>,
    demand: Option<&PeerChecks<'_, A>>,
    outcome: &mut ExchangeOutcome<A::Appraised>,
) -> Result<(), ChannelError> {
    let (Some(checks), Some(own)) = (demand, own) else {
        let wanted = "a reply without evidence";
        let phase = ChannelPhase::Evidence;
        return match shown {
            None => Ok(()),
            Some(_) => Err(ChannelError::MessageKind { phase, wanted }),
        };
    };
    let began = Stopwatch::start();
    let shown = shown.ok_or(ChannelError::NoEvidence)?;
    let peer = SessionPeer::from_stream(stream, role, mine, checks.algorithms)?;
    let exporter = stream.exporter(own.context())?;
    let (appraised, sessions) = peer.appraise(own, &exporter, shown, checks.appraiser)?;
    outcome.appraised = Some(appraised);
    outcome.note_batch_size(role, sessions);
    outcome.appraisal = began.read();
    Ok(())
}

/// The end whose evidence is appraised, as its session shows it.
pub(crate) struct SessionPeer {
    pub(crate) terms: SessionTerms,
    /// The DER SubjectPublicKeyInfo of its key.
    spki: Vec<u8>,
    pub(crate) spki_hash: [u8; 32],
    /// The hash of this end's own key, if it attests too.
    mine: Option<[u8; 32]>,
    /// What checks the signatures of its authenticators.
    algorithms: WebPkiSupportedAlgorithms,
}

impl SessionPeer {
    /// The other end of `stream`, which is in `role`.
    pub(crate) fn from_stream<S: ExchangeSession>(
        stream: &S,
        role: Role,
        mine: Option<[u8; 32]>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<Self, ChannelError> {
        let spki = peer_certificate(stream)?.spki()?.to_vec();
        Ok(Self::new(SessionTerms::from_stream(stream, role)?, spki, mine, algorithms))
    }

    /// A peer with this SubjectPublicKeyInfo; `mine` is the hash of this end's own, if it attests.
    pub(crate) fn new(
        terms: SessionTerms,
        spki: Vec<u8>,
        mine: Option<[u8; 32]>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        Self { terms, spki_hash: sha256(&spki), spki, mine, algorithms }
    }

    /// Appraises what the peer showed for `demand`, over a session with this exporter. Returns the
    /// result, and how many sessions share the quote.
    pub(crate) fn appraise<A: Appraise>(
        &self,
        demand: &EvidenceDemand,
        exporter: &[u8; EXPORTER_BYTES],
        shown: ShownEvidence<'_>,
        appraiser: &A,
    ) -> Result<(A::Appraised, usize), ChannelError> {
        let wrong_version =
            |wanted| Err(ChannelError::MessageKind { phase: ChannelPhase::Evidence, wanted });
        let role = self.terms.attester;
        match (shown, &self.terms.keys, demand) {
            (ShownEvidence::Bare(evidence), None, _) => {
                if evidence.needs_version_2() && self.terms.version == SessionVersion::V1 {
                    return wrong_version("evidence of version 1");
                }
                let binder = session_report_data(role, &self.spki_hash, exporter, evidence.claims);
                self.appraise_bound(binder, exporter, evidence, appraiser)
            }
            (
                ShownEvidence::Authenticated(shown),
                Some(keys),
                EvidenceDemand::Authenticator { request, bytes },
            ) => {
                let cmw =
                    keys.verify(request, bytes, shown.authenticator, &self.spki, &self.algorithms)?;
                let wrapper = parse_cmw(cmw).map_err(AuthenticatorError::Cmw)?;
                let wrapper =
                    EvidenceWrapper::from_cmw(wrapper).map_err(AuthenticatorError::Wrapper)?;
                check_bulk("collateral", wrapper.collateral, shown.collateral)?;
                check_bulk("GPU evidence", wrapper.gpu, shown.gpu)?;
                let evidence = SessionEvidence {
                    quote: &wrapper.quote,
                    claims: &wrapper.claims,
                    collateral: shown.collateral,
                    batch: wrapper.batch.as_deref(),
                    gpu: shown.gpu,
                };
                let binder = authenticator_report_data(
                    role,
                    keys.hash,
                    &self.spki,
                    exporter,
                    evidence.claims,
                );
                self.appraise_bound(binder, exporter, evidence, appraiser)
            }
            _ => wrong_version("evidence of the agreed version"),
        }
    }

    /// Appraises evidence whose quote has to be over `binder`, or over a batch that holds it.
    fn appraise_bound<A: Appraise>(
        &self,
        binder: ReportData,
        exporter: &[u8; EXPORTER_BYTES],
        evidence: SessionEvidence<'_>,
        appraiser: &A,
    ) -> Result<(A::Appraised, usize), ChannelError> {
        let path = evidence.batch.map(BatchPath::decode).transpose()?;
        // This end computes the binder itself, so a path of another session leads to another root.
        let expected = path.as_ref().map_or(binder, |path| path.root_report_data(&binder));
        let nonce = session_gpu_nonce(self.terms.attester, &self.spki_hash, exporter);
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

/// Checks that what came next to an authenticator is what its wrapper names.
fn check_bulk(
    label: &'static str,
    named: Option<[u8; 32]>,
    shown: Option<&[u8]>,
) -> Result<(), ChannelError> {
    match named == shown.map(sha256) {
        true => Ok(()),
        false => Err(AuthenticatorError::Wrapper(EvidenceWrapperError::Bulk { label }).into()),
    }
}

/// Obtains evidence over the session for the peer's demand.
async fn obtain_evidence<'a, S: ExchangeSession, T>(
    stream: &S,
    role: Role,
    demand: &EvidenceDemand,
    attesting: Option<&'a SessionAttester>,
    deadline: Deadline,
    outcome: &mut ExchangeOutcome<T>,
) -> Result<ObtainedEvidence<'a>, ChannelError> {
    let attesting = attesting.ok_or(ChannelError::NoAttester { binding: "session" })?;
    let began = Stopwatch::start();
    let exporter = stream.exporter(demand.context())?;
    let terms = SessionTerms::from_stream(stream, role)?;
    let obtained = attesting.obtain(&terms, demand, &exporter, deadline).await?;
    outcome.note_batch_size(role, obtained.sessions());
    outcome.quote += began.read();
    Ok(obtained)
}

/// Sends a waiting peer the reason why the exchange ends. Errors are ignored.
async fn send_refusal<S: ExchangeSession>(
    stream: &mut S,
    error: &ChannelError,
    deadline: Deadline,
) {
    if let Some(refusal) = frame::refusal_for_error(error) {
        let message = SessionMessage::Refused(refusal);
        let _ = frame::write_message(stream, &message, ChannelPhase::Evidence, deadline).await;
        let _ = deadline.limit_io(ChannelPhase::Evidence, stream.shutdown()).await;
    }
}
