//! One exchange as the bytes and messages that are committed to (`docs/notary.md`, "The
//! transcript"): made by the notary and by the holder alike.

use confide_disclosure::{Message, Session, StartLine};

use crate::{
    head::{AnswerHead, HeadError},
    request::FetchRequest,
};

pub(crate) struct Transcript {
    pub(crate) sent: Vec<u8>,
    pub(crate) received: Vec<u8>,
    request: Message,
    response: Message,
}

impl Transcript {
    /// `head` is what the notary wrote of the answer's head, `body` has its codings undone.
    pub(crate) fn new(request: &FetchRequest, head: &[u8], body: &[u8]) -> Result<Self, HeadError> {
        let parsed = AnswerHead::parse(head)?;
        let fields = request.sent_fields().into_iter();
        let start = StartLine::Request {
            method: request.method().to_string(),
            target: request.target().path().into(),
        };
        Ok(Self {
            sent: request.transcript(),
            received: [head, body].concat(),
            request: Message {
                start,
                headers: fields.map(|(name, value)| (name.to_owned(), value.into())).collect(),
                body: request.body().to_vec(),
            },
            response: Message {
                start: StartLine::Response { status: parsed.status },
                headers: parsed.fields,
                body: body.to_vec(),
            },
        })
    }

    pub(crate) fn session(&self) -> Session<'_> {
        let Self { sent, received, request, response } = self;
        Session { sent, received, request, response }
    }
}
