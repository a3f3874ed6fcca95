//! Answers to encrypted requests, encrypted as they stream: one frame for each piece.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use confide_encrypted_body::{
    ANSWER_NONCE_FIELD, AnswerSealer, BodyEnd, END_FIELD, EncryptedBodyError, ExchangeSecret,
    FRAME_OVERHEAD_BYTES, LENGTH_BYTES,
};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};

use crate::{message_seal::MessageSeal, observation::ObservedBody, sealed_source::BodyError};

const NONCE_FIELD: HeaderName = HeaderName::from_static(ANSWER_NONCE_FIELD);
/// The field by which a request or an answer announces its final frame.
pub(crate) const BODY_END_FIELD: HeaderName = HeaderName::from_static(END_FIELD);

/// The largest number of bytes of text in one frame, so that a receiver needs no larger buffer.
const FRAME_TEXT_BYTES_MAX: usize = 64 * 1024;

/// What the answer to an encrypted request depends on.
pub(crate) struct AnswerTerms {
    nonce: HeaderValue,
    sealer: AnswerSealer,
    /// The answer has an end that its client notices if the request had one.
    end: BodyEnd,
    method: Method,
}

/// The body of an answer as it goes to the client: as it is, or encrypted.
pub(crate) struct GatewayBody {
    inner: ObservedBody,
    seal: Option<AnswerSeal>,
}

/// What encrypts the rest of an answer.
enum AnswerSeal {
    /// The body is encrypted.
    Body(Box<BodySeal>),
    /// The whole message is encapsulated.
    Message(Box<MessageSeal>),
}

/// What encrypts the rest of a body.
struct BodySeal {
    sealer: AnswerSealer,
    end: BodyEnd,
    has_frame: bool,
    is_ended: bool,
}

/// The status of an encrypted answer. One that allows no body becomes one that does: without a
/// frame, an answer could not be told from one that a proxy made.
fn status_with_body(status: StatusCode) -> StatusCode {
    match status {
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT => StatusCode::OK,
        // No condition was sent to the model server, so its answer makes no sense.
        StatusCode::NOT_MODIFIED => StatusCode::BAD_GATEWAY,
        status => status,
    }
}

impl GatewayBody {
    /// A body that is sent as it is.
    pub(crate) fn clear(inner: ObservedBody) -> Self {
        Self { inner, seal: None }
    }

    /// The body of an answer that is encapsulated whole. It has not been encrypted otherwise.
    pub(crate) fn with_message_seal(self, seal: MessageSeal) -> Self {
        Self { inner: self.inner, seal: Some(AnswerSeal::Message(Box::new(seal))) }
    }
}

/// An answer that is not encrypted. If the gateway `encrypts` others, it loses the fields by which a
/// model server could claim that it is.
pub(crate) fn pass_clear(
    mut answer: Response<ObservedBody>,
    encrypts: bool,
) -> Response<GatewayBody> {
    for name in [NONCE_FIELD, BODY_END_FIELD] {
        if encrypts {
            answer.headers_mut().remove(name);
        }
    }
    answer.map(GatewayBody::clear)
}

impl AnswerSeal {
    fn seal_piece(&mut self, text: &[u8], is_last: bool) -> Result<Bytes, BodyError> {
        match self {
            Self::Body(seal) => Ok(seal.seal_piece(text, is_last)?),
            Self::Message(seal) => seal.seal_piece(text, is_last),
        }
    }

    fn is_ended(&self) -> bool {
        match self {
            Self::Body(seal) => seal.is_ended,
            Self::Message(seal) => seal.is_ended,
        }
    }

    /// Whether the text of the answer is left out.
    fn is_bodiless(&self) -> bool {
        matches!(self, Self::Message(seal) if seal.is_bodiless)
    }
}

impl AnswerTerms {
    /// The terms of the request with this method, which was `end`ed so.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the system has no randomness.
    pub(crate) fn new(
        secret: &ExchangeSecret,
        end: BodyEnd,
        method: Method,
    ) -> Result<Self, EncryptedBodyError> {
        let (nonce, sealer) = secret.seal_answer()?;
        let nonce = HeaderValue::from_str(&nonce.to_hex());
        let nonce = nonce.map_err(|_| EncryptedBodyError::Encryption)?;
        Ok(Self { nonce, sealer, end, method })
    }

    /// Encrypts the answer, unless its request was a HEAD, whose answer has no body.
    pub(crate) fn seal(self, answer: Response<ObservedBody>) -> Response<GatewayBody> {
        let Self { nonce, sealer, end, method } = self;
        if method == Method::HEAD {
            return pass_clear(answer, true);
        }
        let seal = BodySeal { sealer, end, has_frame: false, is_ended: false };
        let seal = Some(AnswerSeal::Body(Box::new(seal)));
        let mut answer = answer.map(|inner| GatewayBody { inner, seal });
        *answer.status_mut() = status_with_body(answer.status());
        let headers = answer.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::TRAILER);
        headers.insert(NONCE_FIELD, nonce);
        match end.field_value() {
            Some(value) => headers.insert(BODY_END_FIELD, HeaderValue::from_static(value)),
            None => headers.remove(BODY_END_FIELD),
        };
        answer
    }
}

impl BodySeal {
    /// Encrypts a piece, which is the last one if `is_last`. An answer without text has one empty
    /// frame.
    fn seal_piece(&mut self, text: &[u8], is_last: bool) -> Result<Bytes, EncryptedBodyError> {
        let frames = text.len().div_ceil(FRAME_TEXT_BYTES_MAX) + 1;
        let mut body =
            Vec::with_capacity(text.len() + frames * FRAME_OVERHEAD_BYTES + LENGTH_BYTES);
        let mut pieces = text.chunks(FRAME_TEXT_BYTES_MAX).peekable();
        let has_final = is_last && self.end == BodyEnd::FinalFrame;
        while let Some(piece) = pieces.next() {
            match has_final && pieces.peek().is_none() {
                true => self.sealer.seal_final_frame(piece, &mut body)?,
                false => self.sealer.seal_frame(piece, &mut body)?,
            }
        }
        if text.is_empty() && has_final {
            self.sealer.seal_final_frame(b"", &mut body)?;
        } else if text.is_empty() && is_last && !self.has_frame {
            self.sealer.seal_frame(b"", &mut body)?;
        }
        self.has_frame |= !body.is_empty();
        self.is_ended = is_last;
        Ok(body.into())
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = <ObservedBody as Body>::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { inner, seal } = self.get_mut();
        let Some(seal) = seal else { return Pin::new(inner).poll_frame(cx) };
        while !seal.is_ended() {
            if seal.is_bodiless() {
                return Poll::Ready(Some(seal.seal_piece(b"", true).map(Frame::data)));
            }
            let mut is_last = false;
            let text = match ready!(Pin::new(&mut *inner).poll_frame(cx)) {
                // Trailers would not be encrypted; the end follows them.
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    is_last = true;
                    Bytes::new()
                }
            };
            is_last |= inner.is_end_stream();
            let sealed = seal.seal_piece(&text, is_last)?;
            if !sealed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(sealed))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.seal.as_ref().map_or_else(|| self.inner.is_end_stream(), |seal| seal.is_ended())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.seal {
            None => self.inner.size_hint(),
            Some(_) => SizeHint::default(),
        }
    }
}
