//! Opens encapsulated requests, whose content is decrypted as it arrives.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use confide_encrypted_body::{
    ChunkReader, EncapsulatedKey, EncryptedBodyError, MessageHead, MessageKind, MessageLimits,
    MessagePart, MessageReader, OhttpAnswerSecret, OhttpForm, OhttpRequestHead, OhttpRequestOpener,
    RecipientKey, SealedFrame,
};
use confide_http::Peer;
use http::{Request, Version, header, request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::{
    body::LimitedBody,
    body_keys::BodyKeyPair,
    buffer::BodyBuffers,
    choice_error::ChoiceError,
    client_body::ClientBody,
    encrypted_body_fault::EncryptedBodyFault,
    encrypted_request::{EncryptedRequests, SealedHead},
    ohttp_head::read_inner_head,
    refusal::RequestRefusal,
    request_head::BODILESS,
    sealed_source::{BodyError, LATER_FRAME_BYTES_MAX, SealedSource, count_text, limit_encrypted},
};

/// A request whose first chunk was opened.
pub(crate) struct OpenedRequest {
    /// The request inside, or the refusal of it, which is encapsulated too.
    pub(crate) inner: Result<Request<ClientBody>, RequestRefusal>,
    pub(crate) secret: OhttpAnswerSecret,
}

/// The head of an encapsulated request, and the form of what follows.
struct EncapsulatedHead {
    head: OhttpRequestHead,
    form: OhttpForm,
}

impl SealedHead for EncapsulatedHead {
    type Opener = OhttpRequestOpener;

    const UNKNOWN_KEY: EncryptedBodyFault = EncryptedBodyFault::UnknownOhttpKey;

    fn encapsulated_key(&self) -> &EncapsulatedKey {
        self.head.encapsulated_key()
    }

    fn find_key<'a>(&self, keys: &'a BodyKeyPair) -> Option<&'a RecipientKey> {
        let key = keys.find_key(self.head.encapsulated_key().kem());
        key.filter(|key| key.public_key().ohttp_key_id() == self.head.key_id)
    }

    fn begin(&self, key: &RecipientKey) -> Result<OhttpRequestOpener, EncryptedBodyError> {
        key.open_ohttp_request(&self.head, self.form)
    }

    fn open(
        opener: &mut OhttpRequestOpener,
        chunk: SealedFrame,
    ) -> Result<Vec<u8>, EncryptedBodyError> {
        opener.open_chunk(chunk)
    }
}

/// Opens an encapsulated request up to the head of the one inside, and remembers it. The head of
/// the outer request has been checked.
///
/// The API key is inside, so a stranger can have the gateway decrypt: the requests of each network
/// are counted before, and what is read is bounded.
pub(crate) async fn open_message(
    requests: &EncryptedRequests,
    outer: &request::Parts,
    body: ClientBody,
    buffers: &BodyBuffers,
    peer: Peer,
) -> Result<OpenedRequest, RequestRefusal> {
    if outer.version == Version::HTTP_10 {
        return Err(RequestRefusal::StreamOverHttp10);
    }
    let mut types = outer.headers.get_all(header::CONTENT_TYPE).iter();
    let form = match (types.next(), types.next()) {
        (Some(value), None) => OhttpForm::from_request_type(value.as_bytes()),
        _ => None,
    };
    let form = form.ok_or(EncryptedBodyFault::OhttpType)?;
    requests.admit(peer)?;
    let limits = requests.limits();
    let body = limit_encrypted(body, limits);
    let deadline = limits.buffered_body;
    let opened = open_first_chunk(requests, form, body, buffers, peer);
    let opened = tokio::time::timeout(deadline, opened).await;
    let (mut body, secret) = opened.map_err(|_| ChoiceError::BodyLate { deadline })??;
    let inner = async {
        let head = body.read_head().await?;
        let head = read_inner_head(head, outer.headers.get(header::HOST))?;
        // Whether such a request has a body shows only at its end.
        let is_empty = BODILESS.contains(&head.method) && body.has_no_content().await?;
        let body = match is_empty {
            true => ClientBody::Empty,
            false => ClientBody::Encrypted(body.boxed_unsync()),
        };
        Ok::<_, RequestRefusal>(Request::from_parts(head, body))
    };
    let inner = tokio::time::timeout(deadline, inner).await;
    let inner = inner.unwrap_or(Err(ChoiceError::BodyLate { deadline }.into()));
    Ok(OpenedRequest { inner, secret })
}

async fn open_first_chunk(
    requests: &EncryptedRequests,
    form: OhttpForm,
    mut body: LimitedBody<ClientBody>,
    buffers: &BodyBuffers,
    peer: Peer,
) -> Result<(MessageBody, OhttpAnswerSecret), RequestRefusal> {
    let (head, received) = read_encapsulated_head(&mut body).await?;
    let encapsulated = EncapsulatedHead { head, form };
    let reader = ChunkReader::new(form, LATER_FRAME_BYTES_MAX);
    let mut source = SealedSource::new(body, received, reader, buffers.open_share(peer));
    let first = source.next_frame().await?;
    let (is_final, copy_share) = (first.is_final, source.share.begin_next());
    let (opener, text) = requests.open_first_frame(&encapsulated, first, copy_share).await?;
    let secret = opener.answer_secret()?;
    let limits = requests.limits();
    let limits = MessageLimits { head_bytes: limits.head_bytes, fields: limits.head_fields };
    let mut message = MessageReader::new(MessageKind::Request, limits);
    message.push(&text);
    let body = MessageBody { source, opener, message, is_final, first: None, is_ended: false };
    Ok((body, secret))
}

/// Reads the head at the front of a body, and what came with it.
async fn read_encapsulated_head(
    body: &mut LimitedBody<ClientBody>,
) -> Result<(OhttpRequestHead, Bytes), RequestRefusal> {
    let mut received = BytesMut::new();
    loop {
        if let Some((head, length)) = OhttpRequestHead::parse(&received)? {
            received.advance(length);
            return Ok((head, received.freeze()));
        }
        let Some(frame) = body.frame().await else {
            return Err(EncryptedBodyFault::Truncated.into());
        };
        let frame = frame.map_err(|fault| RequestRefusal::from_body_fault(&fault))?;
        received.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
}

/// The content of a request in binary form, decrypted as it is read.
struct MessageBody {
    source: SealedSource<ChunkReader>,
    opener: OhttpRequestOpener,
    message: MessageReader,
    /// Whether the final chunk was opened.
    is_final: bool,
    /// Content that was read ahead.
    first: Option<Bytes>,
    /// Whether the content was read to its end, or found faulty.
    is_ended: bool,
}

impl MessageBody {
    /// Reads up to the end of the head.
    async fn read_head(&mut self) -> Result<MessageHead, RequestRefusal> {
        let head = std::future::poll_fn(|cx| self.poll_head(cx)).await;
        head.map_err(|error| RequestRefusal::from_broken_body(&*error))
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<MessageHead, BodyError>> {
        loop {
            if let Some(MessagePart::Head(head)) = self.message.next_part()? {
                return Poll::Ready(Ok(head));
            }
            if self.is_final {
                self.is_ended = true;
                let head = self.message.finish()?;
                return Poll::Ready(head.ok_or(EncryptedBodyError::MessageCut.into()));
            }
            ready!(self.poll_chunk(cx))?;
        }
    }

    /// Reads ahead, to the end or to the first content.
    async fn has_no_content(&mut self) -> Result<bool, RequestRefusal> {
        let text = std::future::poll_fn(|cx| self.poll_text(cx)).await;
        self.first = text.map_err(|error| RequestRefusal::from_broken_body(&*error))?;
        Ok(self.first.is_none())
    }

    /// Opens the next chunk.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let chunk = ready!(self.source.poll_frame(cx))?;
        let chunk = chunk.ok_or(EncryptedBodyError::FinalFrameMissing)?;
        self.is_final = chunk.is_final;
        self.message.push(&self.opener.open_chunk(chunk)?);
        Poll::Ready(Ok(()))
    }

    fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Ok(Some(first)));
        }
        while !self.is_ended {
            // A sender may divide the content of a chunk into any number of pieces.
            let mut text = Vec::new();
            while let Some(MessagePart::Content(piece)) = self.message.next_part()? {
                text.extend(piece);
            }
            if !text.is_empty() {
                let text = count_text(text, self.source.take_share());
                return Poll::Ready(Ok(Some(text)));
            }
            if self.is_final {
                self.is_ended = true;
                self.message.finish()?;
            } else {
                ready!(self.poll_chunk(cx))?;
            }
        }
        Poll::Ready(Ok(None))
    }
}

impl Body for MessageBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let text = ready!(self.poll_text(cx));
        self.is_ended |= text.is_err();
        Poll::Ready(text.map(|text| text.map(Frame::data)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended && self.first.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
