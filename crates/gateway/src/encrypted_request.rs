//! Requests whose bodies are encrypted to a key of the keyset, for proxies in front that terminate
//! TLS (EHBP). A body is decrypted as it arrives, and from there on the request is one like any other.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use confide_encrypted_body::{
    BodyEnd, BodyKem, ENCAPSULATED_KEY_FIELD, EncapsulatedKey, EncryptedBodyError, FrameReader,
    KEY_ID_FIELD, KEYS_PATH, KEYS_TYPE, OHTTP_GATEWAY_PATH, RecipientKey, RequestOpener,
    SealedFrame, encode_key_config, encode_ohttp_keys,
};
use confide_http::Peer;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Version, header, request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::{
    answer::{self, AnswerBody},
    body_keys::{BodyKeyPair, RequestNovelty},
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
    sealed_source::{BodyError, LATER_FRAME_BYTES_MAX, SealedSource, count_text, limit_encrypted},
};

pub(crate) const KEY_FIELD: HeaderName = HeaderName::from_static(ENCAPSULATED_KEY_FIELD);
/// The field that names the key for those in between; the first frame shows for which it really is.
pub(crate) const KEY_ID: HeaderName = HeaderName::from_static(KEY_ID_FIELD);

/// The number of bytes of a first frame that is decrypted at once and not on another thread.
const OPEN_AT_ONCE_BYTES: usize = 256 * 1024;
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
        for name in [KEY_FIELD, KEY_ID, BODY_END_FIELD].iter().chain(&encoded).chain(&conditions) {
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

    pub(crate) fn limits(&self) -> &GatewayLimits {
        &self.signer.context().limits
    }

    /// The path of the keys for one of the two forms of encryption, if this is one.
    pub(crate) fn find_keys_path(&self, path: &str) -> Option<&'static str> {
        [KEYS_PATH, OHTTP_GATEWAY_PATH].into_iter().find(|known| *known == path)
    }

    /// Answers a request for the keys, in the form that EHBP's clients read, or that of OHTTP. Nothing
    /// vouches for them here: a client takes the key from the keyset that evidence covers, or compares
    /// it.
    pub(crate) fn answer_keys(
        &self,
        path: &str,
        method: &Method,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(RequestRefusal::Method("GET, HEAD".into()));
        }
        let keys = self.find_current_keys()?;
        let body = match path {
            OHTTP_GATEWAY_PATH => encode_ohttp_keys(keys.list_public_keys()),
            _ => {
                let key = keys.find_key(BodyKem::X25519).ok_or(ReceiptFault::Unavailable)?;
                encode_key_config(key.public_key())
            }
        };
        let mut response = answer::json_response(StatusCode::OK, body.into());
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
        let encrypted = EncryptedHead::take(head)?;
        self.admit(peer)?;
        let limits = self.limits();
        // The frame and the body that is read whole count against the same bound.
        let first = limits.buffered_bytes_per_peer.min(limits.buffered_bytes) / 2;
        let (body, reader) =
            (limit_encrypted(body, limits), FrameReader::new(encrypted.end, first));
        let share = buffers.open_share(peer);
        let mut source = SealedSource::new(body, Bytes::new(), reader, share);
        let deadline = limits.buffered_body;
        let first = tokio::time::timeout(deadline, source.next_frame()).await;
        let first = first.map_err(|_| ChoiceError::BodyLate { deadline })??;
        source.reader.set_frame_bytes_max(LATER_FRAME_BYTES_MAX);
        let copy_share = source.share.begin_next();
        let (opener, text) = self.open_first_frame(&encrypted, first, copy_share).await?;
        let terms = AnswerTerms::new(&opener.exchange_secret()?, encrypted.end, method)?;
        let text = count_text(text, source.take_share());
        let body = DecryptedBody { source, opener, first: Some(text), is_ended: false };
        Ok((ClientBody::Encrypted(body.boxed_unsync()), terms))
    }

    /// Whether the client's network may send another encrypted request now.
    pub(crate) fn admit(&self, peer: Peer) -> Result<(), EncryptedBodyFault> {
        let per_minute = self.limits().encrypted_bodies.per_minute_per_peer;
        match self.rates.take(peer, per_minute, Instant::now()) {
            true => Ok(()),
            false => Err(EncryptedBodyFault::TooMany),
        }
    }

    /// The keys that the current keyset lists, the preferred one first.
    pub(crate) fn find_current_keys(&self) -> Result<Arc<BodyKeyPair>, ReceiptFault> {
        let signing = self.signer.current().map_err(|_| ReceiptFault::Unavailable)?;
        signing.body_keys.clone().ok_or(ReceiptFault::Unavailable)
    }

    /// Opens the first frame with the key for which it is, of those in use the newest first, and
    /// remembers the request.
    pub(crate) async fn open_first_frame<H: SealedHead>(
        &self,
        head: &H,
        frame: SealedFrame,
        mut copy_share: BudgetShare,
    ) -> Result<(H::Opener, Vec<u8>), RequestRefusal> {
        let ring = self.signer.list_body_keys();
        // Each try works on a copy.
        copy_share.grow_to(frame.ciphertext.len())?;
        for keys in &ring {
            let Some(key) = head.find_key(keys) else { continue };
            let mut opener = head.begin(key)?;
            let copy = frame.clone();
            let work = move || {
                let text = H::open(&mut opener, copy);
                (opener, text)
            };
            let (opener, text) = match frame.ciphertext.len() <= OPEN_AT_ONCE_BYTES {
                true => work(),
                false => run_blocking(work).await,
            };
            let Ok(text) = text else { continue };
            return match keys.remember(head.encapsulated_key()) {
                RequestNovelty::New => Ok((opener, text)),
                RequestNovelty::Replayed => Err(EncryptedBodyFault::Replayed.into()),
                RequestNovelty::Full => Err(H::UNKNOWN_KEY.into()),
            };
        }
        Err(H::UNKNOWN_KEY.into())
    }
}

/// The head of a request in one of the forms of encryption: which key it is for.
pub(crate) trait SealedHead: Sync + 'static {
    /// What opens the frames after the head.
    type Opener: Send + 'static;

    /// The fault of a request for no key in use.
    const UNKNOWN_KEY: EncryptedBodyFault;

    /// The key encapsulated in the head.
    fn encapsulated_key(&self) -> &EncapsulatedKey;

    /// The key of a pair for which the request may be.
    fn find_key<'a>(&self, keys: &'a BodyKeyPair) -> Option<&'a RecipientKey>;

    /// Begins to open the request with a key.
    fn begin(&self, key: &RecipientKey) -> Result<Self::Opener, EncryptedBodyError>;

    /// Opens the next frame.
    fn open(opener: &mut Self::Opener, frame: SealedFrame) -> Result<Vec<u8>, EncryptedBodyError>;
}

/// EHBP names no key, so that all of the kind are tried.
impl SealedHead for EncryptedHead {
    type Opener = RequestOpener;

    const UNKNOWN_KEY: EncryptedBodyFault = EncryptedBodyFault::UnknownKey;

    fn encapsulated_key(&self) -> &EncapsulatedKey {
        &self.encapsulated
    }

    fn find_key<'a>(&self, keys: &'a BodyKeyPair) -> Option<&'a RecipientKey> {
        keys.find_key(self.encapsulated.kem())
    }

    fn begin(&self, key: &RecipientKey) -> Result<RequestOpener, EncryptedBodyError> {
        key.open_request(&self.encapsulated, self.end)
    }

    fn open(opener: &mut RequestOpener, frame: SealedFrame) -> Result<Vec<u8>, EncryptedBodyError> {
        opener.open_frame(frame)
    }
}

/// The body of a request, decrypted as it is read.
struct DecryptedBody {
    source: SealedSource<FrameReader>,
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
                let text = count_text(text, self.source.take_share());
                return Poll::Ready(Ok(Some(text)));
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
