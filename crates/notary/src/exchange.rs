//! One exchange, from the client's request to the signed statement.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use confide_disclosure::{NotaryEvidence, Seed, SessionFacts, notarise};
use http_body::{Body, Frame as BodyFrame};
use tokio::{sync::mpsc, time::timeout_at};

use crate::{
    answer::AnswerBody,
    error::ExchangeError,
    exchange_slots::{ClientIdentity, ExchangeSlots},
    frames::Frame,
    head,
    key::{BoundKey, SigningKeys},
    limits::{FRAME_BYTES_MAX, RESPONSE_HEAD_BYTES_MAX},
    policy::NotaryPolicy,
    request::FetchRequest,
    signed::SignedStatement,
    transcript::Transcript,
    upstream::{Upstream, UpstreamAnswer, UpstreamSession},
};

/// The largest number of frames that wait for a client that reads slowly.
const FRAMES_WAITING: usize = 8;

/// The largest transcript in bytes that is signed on the calling thread: about a millisecond.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The state that all exchanges of a notary share.
pub(crate) struct ExchangeContext {
    pub(crate) clock: fn() -> u64,
    pub(crate) keys: SigningKeys,
    pub(crate) policy: Arc<NotaryPolicy>,
    pub(crate) slots: Arc<ExchangeSlots>,
    pub(crate) upstream: Upstream,
}

/// The frames of one answer, as they arrive.
pub(crate) struct FrameStream(mpsc::Receiver<Bytes>);

impl Body for FrameStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(BodyFrame::data(bytes))))
    }
}

impl ExchangeContext {
    /// Sends the request, and returns the stream of frames once the head of the answer has arrived.
    /// A later failure becomes the last frame.
    pub(crate) async fn run(
        self: &Arc<Self>,
        request: FetchRequest,
        client: &ClientIdentity,
    ) -> Result<FrameStream, ExchangeError> {
        let limits = self.policy.limits();
        let target = request.target();
        if !self.policy.allows_target(target.host(), target.port()) {
            let (host, port) = (target.host().into(), target.port());
            return Err(ExchangeError::HostRefused { host, port });
        }
        if request.body().len() > limits.request_bytes {
            return Err(ExchangeError::RequestTooLarge { wanted: limits.request_bytes });
        }
        let slot = self.slots.acquire(client, limits.queue).await?;
        // Before anything is sent: the client entrusts its secrets to the key that it has verified,
        // and that key has to sign the answer, even if it is renewed during the exchange.
        let key = self.keys.usable_key().await?;
        if key.spki_hash != *request.signing_key_hash() {
            return Err(ExchangeError::KeyRenewed);
        }
        let answer = self.upstream.send(&request).await?;
        let host = || target.host().to_owned();
        let wanted = RESPONSE_HEAD_BYTES_MAX;
        let head = head::encode_head(&answer.response, answer.session.http)
            .ok_or_else(|| ExchangeError::TooLong { host: host(), wanted })?;
        let (frames, body) = mpsc::channel(FRAMES_WAITING);
        let this = self.clone();
        tokio::spawn(async move {
            let relayed = tokio::select! {
                biased;
                relayed = this.relay_answer(&request, key, answer, head, &frames) => relayed,
                () = frames.closed() => Ok(None),
            };
            let last = match relayed {
                Ok(None) => return tracing::debug!("the client disconnected"),
                Ok(Some(signed)) => Frame::Signed(signed.encode()),
                Err(error) => {
                    tracing::info!(code = error.code(), "an exchange ended without a statement");
                    Frame::Refused(error.refusal())
                }
            };
            drop(slot);
            let _ = frames.send(last.encode().into()).await;
        });
        Ok(FrameStream(body))
    }

    /// Relays the answer, records it and signs it; returns `None` if the client disconnected.
    async fn relay_answer(
        &self,
        request: &FetchRequest,
        key: Arc<BoundKey>,
        answer: UpstreamAnswer,
        head: Vec<u8>,
        frames: &mpsc::Sender<Bytes>,
    ) -> Result<Option<SignedStatement>, ExchangeError> {
        let (target, limits) = (request.target(), self.policy.limits());
        let UpstreamAnswer { session, response, until, driver: _driver } = answer;
        let mut body =
            AnswerBody::new(response, session.http, request.method(), target, limits, until)?;
        let pass = async |frame: Frame| {
            // A slow client occupies a slot, so it has until the exchange's deadline.
            let passed = timeout_at(until, frames.send(frame.encode().into())).await;
            let deadline = limits.exchange;
            passed.map_err(|_| ExchangeError::ClientTimeout { deadline }).map(|sent| sent.is_ok())
        };
        if !pass(Frame::Head(head.clone())).await? {
            return Ok(None);
        }
        let mut received = Vec::new();
        while let Some(piece) = body.next_piece().await? {
            received.extend_from_slice(&piece);
            for part in piece.chunks(FRAME_BYTES_MAX) {
                if !pass(Frame::Body(part.to_vec())).await? {
                    return Ok(None);
                }
            }
        }
        drop(body);
        let seen = RecordedExchange { request: request.clone(), session, head, body: received };
        self.sign(seen, key).await.map(Some)
    }

    async fn sign(
        &self,
        seen: RecordedExchange,
        key: Arc<BoundKey>,
    ) -> Result<SignedStatement, ExchangeError> {
        let time = (self.clock)();
        match seen.request.body().len() + seen.body.len() {
            0..=INLINE_BYTES_MAX => seen.sign(&key, time),
            _ => tokio::task::spawn_blocking(move || seen.sign(&key, time))
                .await
                .unwrap_or_else(|error| Err(not_signed_error(&error))),
        }
    }
}

/// Both directions of a complete exchange.
struct RecordedExchange {
    request: FetchRequest,
    session: UpstreamSession,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl RecordedExchange {
    fn sign(self, key: &BoundKey, time: u64) -> Result<SignedStatement, ExchangeError> {
        if !key.is_valid_at(time) {
            return Err(ExchangeError::KeyExpired);
        }
        let seed = Seed::generate().map_err(|error| not_signed_error(&error))?;
        let Self { request, session, head, body } = self;
        let transcript =
            Transcript::new(&request, &head, &body).map_err(|error| not_signed_error(&error))?;
        let facts = SessionFacts {
            host: request.target().host().into(),
            port: request.target().port(),
            certificate_chain_hash: session.certificate_chain_hash,
            tls: session.tls,
            time,
            http: session.http,
        };
        // The client has the evidence already.
        let evidence = NotaryEvidence::default();
        let notarised =
            notarise(&key.key, seed, facts, transcript.as_session_transcript(), evidence)
                .map_err(|error| not_signed_error(&error))?;
        Ok(SignedStatement {
            seed: notarised.seed.clone(),
            statement: notarised.statement.encode(),
            signature: notarised.signature,
        })
    }
}

fn not_signed_error(error: &impl std::fmt::Display) -> ExchangeError {
    ExchangeError::NotSigned { reason: error.to_string() }
}
