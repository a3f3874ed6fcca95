//! The terms of an answer to an encapsulated request.

use confide_encrypted_body::{
    ControlData, EncryptedBodyError, INCREMENTAL, INCREMENTAL_FIELD, MessageField, MessageHead,
    OhttpAnswerSealer, OhttpAnswerSecret, OhttpForm,
};
use confide_http::remove_hop_by_hop;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, response};

use crate::{buffer::BudgetShare, message_seal::MessageSeal, sealed_answer::GatewayBody};

const INCREMENTAL_NAME: HeaderName = HeaderName::from_static(INCREMENTAL_FIELD);

/// What the answer to an encapsulated request depends on.
pub(crate) struct MessageTerms {
    nonce: Vec<u8>,
    sealer: OhttpAnswerSealer,
    form: OhttpForm,
    is_head: bool,
    share: BudgetShare,
}

impl MessageTerms {
    /// The terms of an answer to an inner request with this method. `share` is for what is held.
    ///
    /// # Errors
    /// [`EncryptedBodyError::Encryption`] if the system has no randomness.
    pub(crate) fn new(
        secret: &OhttpAnswerSecret,
        method: &Method,
        share: BudgetShare,
    ) -> Result<Self, EncryptedBodyError> {
        let (nonce, sealer) = secret.seal_answer()?;
        let is_head = method == Method::HEAD;
        Ok(Self { nonce, sealer, form: secret.form(), is_head, share })
    }

    /// Encapsulates an answer.
    pub(crate) fn seal(self, inner: Response<GatewayBody>) -> Response<GatewayBody> {
        let Self { nonce, sealer, form, is_head, share } = self;
        let (head, body) = inner.into_parts();
        // No content follows these (RFC 9110 section 6.4.1).
        let is_bodiless =
            is_head || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let seal = MessageSeal {
            nonce,
            head: Some(describe_head(head)),
            sealer,
            form,
            content: Vec::new(),
            share,
            is_bodiless,
            is_ended: false,
        };
        let mut outer = Response::new(body.with_message_seal(seal));
        let fields = outer.headers_mut();
        let kind = HeaderValue::from_static(form.answer_type());
        fields.insert(header::CONTENT_TYPE, kind);
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if form == OhttpForm::Chunked {
            fields.insert(INCREMENTAL_NAME, HeaderValue::from_static(INCREMENTAL));
        }
        outer
    }
}

/// The head of an answer in binary form, without the fields of a connection.
fn describe_head(head: response::Parts) -> MessageHead {
    let mut fields: HeaderMap = head.headers;
    remove_hop_by_hop(&mut fields);
    fields.remove(header::TRAILER);
    let describe = |(name, value): (&HeaderName, &HeaderValue)| MessageField {
        name: name.as_str().as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    };
    let control = ControlData::Answer { status: head.status.as_u16() };
    MessageHead { control, fields: fields.iter().map(describe).collect() }
}
