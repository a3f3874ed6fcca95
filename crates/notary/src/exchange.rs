//! One request, from what the client asked to the signed statement.

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
    frames::Frame,
    head,
    key::{BoundKey, Keys},
    limits::{FRAME_BYTES_MAX, RESPONSE_HEAD_BYTES_MAX},
    places::{Client, Places},
    policy::NotaryPolicy,
    request::FetchRequest,
    signed::Signed,
    transcript::Transcript,
    upstream::{Answer, Session, Upstream},
};

/// Frames that wait for a client that reads slowly.
const FRAMES_WAITING: usize = 8;

/// Transcripts beyond this are committed to on a thread of their own: about a millisecond.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The state that all exchanges of a notary share.
pub(crate) struct Exchanges {
    pub(crate) clock: fn() -> u64,
    pub(crate) keys: Keys,
    pub(crate) policy: Arc<NotaryPolicy>,
    pub(crate) places: Arc<Places>,
    pub(crate) upstream: Upstream,
}

/// The frames of one answer, as they come.
pub(crate) struct Frames(mpsc::Receiver<Bytes>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(BodyFrame::data(bytes))))
    }
}

impl Exchanges {
    /// Fetches, and gives frames as soon as the head of the answer is there. A failure before that
    /// is the error; a later one is the last frame.
    pub(crate) async fn run(
        self: &Arc<Self>,
        request: FetchRequest,
        client: &Client,
    ) -> Result<Frames, ExchangeError> {
        let limits = self.policy.limits();
        let target = request.target();
        if !self.policy.serves(target.host(), target.port()) {
            let (host, port) = (target.host().into(), target.port());
            return Err(ExchangeError::Host { host, port });
        }
        if request.body().len() > limits.request_bytes {
            return Err(ExchangeError::RequestTooLarge { wanted: limits.request_bytes });
        }
        let place = self.places.take(client, limits.queue).await?;
        // Before anything leaves: the client sends its secrets to the key that it has verified, and
        // whatever becomes of that key meanwhile, it signs the answer.
        let key = self.keys.usable().await?;
        if key.spki_hash != *request.key() {
            return Err(ExchangeError::KeyRenewed);
        }
        let answer = self.upstream.send(&request).await?;
        let host = || target.host().to_owned();
        let wanted = RESPONSE_HEAD_BYTES_MAX;
        let head = head::write(&answer.response, answer.session.http)
            .ok_or_else(|| ExchangeError::TooLong { host: host(), wanted })?;
        let (frames, body) = mpsc::channel(FRAMES_WAITING);
        let this = self.clone();
        tokio::spawn(async move {
            let relayed = tokio::select! {
                biased;
                relayed = this.relay(&request, key, answer, head, &frames) => relayed,
                () = frames.closed() => Ok(None),
            };
            let last = match relayed {
                Ok(None) => return tracing::debug!("the client went away"),
                Ok(Some(signed)) => Frame::Signed(signed.encode()),
                Err(error) => {
                    tracing::info!(code = error.code(), "an exchange gave no statement");
                    Frame::Refused(error.refusal())
                }
            };
            drop(place);
            let _ = frames.send(last.encode().into()).await;
        });
        Ok(Frames(body))
    }

    /// Passes the answer on and keeps it; gives `None` if the client went away.
    async fn relay(
        &self,
        request: &FetchRequest,
        key: Arc<BoundKey>,
        answer: Answer,
        head: Vec<u8>,
        frames: &mpsc::Sender<Bytes>,
    ) -> Result<Option<Signed>, ExchangeError> {
        let (target, limits) = (request.target(), self.policy.limits());
        let Answer { session, response, until, driver: _driver } = answer;
        let mut body =
            AnswerBody::new(response, session.http, request.method(), target, limits, until)?;
        let pass = async |frame: Frame| {
            // A client that reads slowly holds a place, so it has the exchange's time and no more.
            let passed = timeout_at(until, frames.send(frame.encode().into())).await;
            let deadline = limits.exchange;
            passed.map_err(|_| ExchangeError::ClientSlow { deadline }).map(|sent| sent.is_ok())
        };
        if !pass(Frame::Head(head.clone())).await? {
            return Ok(None);
        }
        let mut received = Vec::new();
        while let Some(piece) = body.next().await? {
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
    ) -> Result<Signed, ExchangeError> {
        let time = (self.clock)();
        match seen.request.body().len() + seen.body.len() {
            0..=INLINE_BYTES_MAX => seen.sign(&key, time),
            _ => tokio::task::spawn_blocking(move || seen.sign(&key, time))
                .await
                .unwrap_or_else(|error| Err(not_signed(&error))),
        }
    }
}

/// Both directions of an exchange, complete.
struct RecordedExchange {
    request: FetchRequest,
    session: Session,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl RecordedExchange {
    fn sign(self, key: &BoundKey, time: u64) -> Result<Signed, ExchangeError> {
        if !key.holds(time) {
            return Err(ExchangeError::KeyEnded);
        }
        let seed = Seed::generate().map_err(|error| not_signed(&error))?;
        let Self { request, session, head, body } = self;
        let transcript =
            Transcript::new(&request, &head, &body).map_err(|error| not_signed(&error))?;
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
        let notarised = notarise(&key.key, seed, facts, transcript.session(), evidence)
            .map_err(|error| not_signed(&error))?;
        Ok(Signed {
            seed: notarised.seed.clone(),
            statement: notarised.statement.encode(),
            signature: notarised.signature,
        })
    }
}

fn not_signed(error: &impl std::fmt::Display) -> ExchangeError {
    ExchangeError::Commit { reason: error.to_string() }
}
