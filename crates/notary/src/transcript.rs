//! The transcript of an exchange: the bytes and messages under commitment (`docs/notary.md`, "The
//! transcript"), which notary and client each build for themselves.

use confide_disclosure::{HttpMessage, SessionTranscript, StartLine};

use crate::{
    head::{AnswerHead, HeadError},
    request::FetchRequest,
};

pub(crate) struct Transcript {
    pub(crate) sent: Vec<u8>,
    pub(crate) received: Vec<u8>,
    request: HttpMessage,
    response: HttpMessage,
}

impl Transcript {
    /// `head` is the answer's head as the notary encodes it, `body` is decoded.
    pub(crate) fn new(request: &FetchRequest, head: &[u8], body: &[u8]) -> Result<Self, HeadError> {
        let parsed = AnswerHead::parse(head)?;
        let fields = request.sent_fields().into_iter();
        let start = StartLine::Request {
            method: request.method().to_string(),
            target: request.target().path().into(),
        };
        Ok(Self {
            sent: request.transcript_bytes(),
            received: [head, body].concat(),
            request: HttpMessage {
                start,
                headers: fields.map(|(name, value)| (name.to_owned(), value.into())).collect(),
                body: request.body().to_vec(),
            },
            response: HttpMessage {
                start: StartLine::Response { status: parsed.status },
                headers: parsed.fields,
                body: body.to_vec(),
            },
        })
    }

    pub(crate) fn as_session_transcript(&self) -> SessionTranscript<'_> {
        let Self { sent, received, request, response } = self;
        SessionTranscript { sent, received, request, response }
    }
}
