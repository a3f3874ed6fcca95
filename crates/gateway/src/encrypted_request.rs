//! Requests whose bodies are encrypted to a key of the keyset, for proxies in front that terminate
//! TLS (EHBP). A body is decrypted as it arrives, and from there on the request is one like any other.

use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use confide_encrypted_body::{
    BodyEnd, BodyKem, ENCAPSULATED_KEY_FIELD, EncapsulatedKey, EncryptedBodyError, FrameReader,
    KEYS_TYPE, RequestOpener, SealedFrame, TAG_BYTES, encode_key_config,
};
use confide_http::Peer;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Version, header, request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::{
    answer::{self, AnswerBody},
    body::LimitedBody,
    body_keys::RequestNovelty,
    buffer::{BodyBuffers, BudgetShare},
    choice_error::ChoiceError,
    client_body::ClientBody,
    encrypted_body_fault::EncryptedBodyFault,
    limits::GatewayLimits,
    peer_rates::PeerRates,
    receipt_fault::ReceiptFault,
    receipt_signer::ReceiptSigner,
    refusal::RequestRefusal,
    request_model::run_blocking,
    sealed_answer::{AnswerTerms, BODY_END_FIELD},
    trailers::TrailerRule,
};

const KEY_FIELD: HeaderName = HeaderName::from_static(ENCAPSULATED_KEY_FIELD);

/// The largest number of bytes of a frame after the first, which is decrypted between two pieces of
/// other streams: some 0.5 ms. Clients either send one frame or small ones.
const LATER_FRAME_BYTES_MAX: usize = 1024 * 1024 + TAG_BYTES;
/// The number of bytes of a first frame that is decrypted at once and not on another thread.
const OPEN_AT_ONCE_BYTES: usize = 256 * 1024;
/// How many times as long as a body its encrypted form may be: a client that puts every token into a
/// frame of its own needs more than the bytes of its text.
const EXPANSION_MAX: u64 = 2;

/// Opens the encrypted requests of one version of the configuration.
pub(crate) struct EncryptedRequests {
    signer: Arc<ReceiptSigner>,
    rates: PeerRates,
}

/// The fields of a request with an encrypted body.
struct EncryptedHead {
    encapsulated: EncapsulatedKey,
    end: BodyEnd,
}

impl EncryptedHead {
    /// Takes the fields out of a head, with those that describe the encrypted form.
    fn take(head: &mut request::Parts) -> Result<Self, EncryptedBodyError> {
        let mut values = head.headers.get_all(KEY_FIELD).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(EncryptedBodyError::EncapsulatedKey);
        };
        let encapsulated = EncapsulatedKey::parse(value.as_bytes())?;
        let ends = head.headers.get_all(BODY_END_FIELD).iter();
        let end = BodyEnd::parse(ends.map(HeaderValue::as_bytes))?;
        // Trailers would not be encrypted.
        let encoded = [header::CONTENT_LENGTH, header::TE, header::TRAILER];
        // An answer "not modified" would have no body that could vouch for it.
        let conditions = [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE];
        for name in [KEY_FIELD, BODY_END_FIELD].iter().chain(&encoded).chain(&conditions) {
            head.headers.remove(name);
        }
        // A field that names the coding of the text would be taken for that of the encrypted body.
        head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Ok(Self { encapsulated, end })
    }
}

/// Opens the body of a request if it claims to be encrypted, and sets the terms of the answer.
/// Returns the body, which is decrypted as it is read.
///
/// This takes memory and time, so the request has to be authorised before.
pub(crate) async fn open_body(
    requests: Option<&EncryptedRequests>,
    head: &mut request::Parts,
    body: ClientBody,
    buffers: &BodyBuffers,
    peer: Peer,
    terms: &mut Option<Box<AnswerTerms>>,
) -> Result<ClientBody, RequestRefusal> {
    let requests = match requests {
        Some(requests) if head.headers.contains_key(KEY_FIELD) => requests,
        _ => return Ok(body),
    };
    // Boxed, because other requests do not need the space.
    let (body, answer_terms) = Box::pin(requests.open(head, body, buffers, peer)).await?;
    *terms = Some(Box::new(answer_terms));
    Ok(body)
}

impl EncryptedRequests {
    pub(crate) fn new(signer: Arc<ReceiptSigner>) -> Self {
        Self { signer, rates: PeerRates::default() }
    }

    fn limits(&self) -> &GatewayLimits {
        &self.signer.context().limits
    }

    /// Answers a request for the key, in the form that EHBP's clients read. Nothing vouches for it
    /// here: a client takes the key from the keyset that evidence covers, or compares it.
    pub(crate) fn answer_keys(
        &self,
        method: &Method,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(RequestRefusal::Method("GET, HEAD".into()));
        }
        let signing = self.signer.current().map_err(|_| ReceiptFault::Unavailable)?;
        let keys = signing.body_keys.as_ref().and_then(|keys| keys.find_key(BodyKem::X25519));
        let key = keys.ok_or(ReceiptFault::Unavailable)?;
        let config = Bytes::from(encode_key_config(key.public_key()));
        let mut response = answer::json_response(StatusCode::OK, config);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(KEYS_TYPE));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    /// Reads the first frame, finds the key that opens it, and remembers the request.
    async fn open(
        &self,
        head: &mut request::Parts,
        body: ClientBody,
        buffers: &BodyBuffers,
        peer: Peer,
    ) -> Result<(ClientBody, AnswerTerms), RequestRefusal> {
        if head.version == Version::HTTP_10 {
            return Err(RequestRefusal::StreamOverHttp10);
        }
        let method = head.method.clone();
        let EncryptedHead { encapsulated, end } = EncryptedHead::take(head)?;
        let per_minute = self.limits().encrypted_bodies.per_minute_per_peer;
        if !self.rates.take(peer, per_minute, Instant::now()) {
            return Err(EncryptedBodyFault::TooMany.into());
        }
        let mut source = FrameSource::new(body, end, buffers.open_share(peer), self.limits());
        let deadline = self.limits().buffered_body;
        let first = tokio::time::timeout(deadline, source.next_frame()).await;
        let first = first.map_err(|_| ChoiceError::BodyLate { deadline })??;
        source.reader.set_frame_bytes_max(LATER_FRAME_BYTES_MAX);
        let (opener, text) =
            self.open_first_frame(&encapsulated, end, first, source.share.begin_next()).await?;
        let terms = AnswerTerms::new(&opener.exchange_secret()?, end, method)?;
        let text = Bytes::from_owner(CountedText { text, _share: source.take_share() });
        let body = DecryptedBody { source, opener, first: Some(text), is_ended: false };
        Ok((ClientBody::Encrypted(body.boxed_unsync()), terms))
    }

    /// Opens the first frame with the key for which it is. EHBP names no key, so that those in use
    /// are tried, the newest first.
    async fn open_first_frame(
        &self,
        encapsulated: &EncapsulatedKey,
        end: BodyEnd,
        frame: SealedFrame,
        mut copy_share: BudgetShare,
    ) -> Result<(RequestOpener, Vec<u8>), RequestRefusal> {
        let ring = self.signer.list_body_keys();
        // Each try works on a copy.
        copy_share.grow_to(frame.ciphertext.len())?;
        for keys in &ring {
            let Some(key) = keys.find_key(encapsulated.kem()) else { continue };
            let mut opener = key.open_request(encapsulated, end)?;
            let copy = frame.clone();
            let work = move || {
                let text = opener.open_frame(copy);
                (opener, text)
            };
            let (opener, text) = match frame.ciphertext.len() <= OPEN_AT_ONCE_BYTES {
                true => work(),
                false => run_blocking(work).await,
            };
            let Ok(text) = text else { continue };
            return match keys.remember(encapsulated) {
                RequestNovelty::New => Ok((opener, text)),
                RequestNovelty::Replayed => Err(EncryptedBodyFault::Replayed.into()),
                RequestNovelty::Full => Err(EncryptedBodyFault::UnknownKey.into()),
            };
        }
        Err(EncryptedBodyFault::UnknownKey.into())
    }
}

/// A decrypted frame, which counts against the bounds of memory until its last clone is dropped.
struct CountedText {
    text: Vec<u8>,
    _share: BudgetShare,
}

impl AsRef<[u8]> for CountedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// The frames of a body as they arrive.
struct FrameSource {
    body: LimitedBody<ClientBody>,
    reader: FrameReader,
    /// Bytes that were received and not yet read.
    received: Bytes,
    share: BudgetShare,
}

impl FrameSource {
    fn new(body: ClientBody, end: BodyEnd, share: BudgetShare, limits: &GatewayLimits) -> Self {
        let bytes = limits.request_body_bytes.saturating_mul(EXPANSION_MAX);
        let body = LimitedBody::new(body, bytes, limits.request_body_pace, TrailerRule::Drop);
        // The frame and the body that is read whole count against the same bound.
        let first = limits.buffered_bytes_per_peer.min(limits.buffered_bytes) / 2;
        let reader = FrameReader::new(end, first);
        Self { body, reader, received: Bytes::new(), share }
    }

    async fn next_frame(&mut self) -> Result<SealedFrame, RequestRefusal> {
        let frame = std::future::poll_fn(|cx| self.poll_frame(cx)).await;
        let frame = frame.map_err(|error| RequestRefusal::from_broken_body(&*error))?;
        frame.ok_or_else(|| EncryptedBodyFault::Truncated.into())
    }

    /// The next frame; `None` at the end of a body that is complete, as far as that can be told.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<SealedFrame>, BodyError>> {
        loop {
            let mut bytes = &self.received[..];
            self.share.grow_to(self.reader.capacity_after(bytes.len()))?;
            let found = self.reader.read(&mut bytes)?;
            let taken = self.received.len() - bytes.len();
            self.received.advance(taken);
            if found.is_some() {
                return Poll::Ready(Ok(found));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(frame) => self.received = frame?.into_data().unwrap_or_default(),
                None => {
                    self.reader.finish()?;
                    return Poll::Ready(Ok(None));
                }
            }
        }
    }

    /// The share of what was read, in place of which a new one begins.
    fn take_share(&mut self) -> BudgetShare {
        let next = self.share.begin_next();
        std::mem::replace(&mut self.share, next)
    }
}

type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a request, decrypted as it is read.
struct DecryptedBody {
    source: FrameSource,
    opener: RequestOpener,
    /// The text of the first frame, until it is read.
    first: Option<Bytes>,
    /// Whether the body was read to its end, or found faulty.
    is_ended: bool,
}

impl DecryptedBody {
    fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        if let Some(first) = self.first.take_if(|first| !first.is_empty()) {
            return Poll::Ready(Ok(Some(first)));
        }
        loop {
            let Some(frame) = ready!(self.source.poll_frame(cx))? else {
                return Poll::Ready(Ok(None));
            };
            let text = self.opener.open_frame(frame)?;
            if !text.is_empty() {
                let text = CountedText { text, _share: self.source.take_share() };
                return Poll::Ready(Ok(Some(Bytes::from_owner(text))));
            }
        }
    }
}

impl Body for DecryptedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        let text = ready!(self.poll_text(cx));
        self.is_ended = !matches!(text, Ok(Some(_)));
        Poll::Ready(text.map(|text| text.map(Frame::data)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
