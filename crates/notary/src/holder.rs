//! What a client checks of a signed statement before it keeps it.

use confide_disclosure::{FormatError, MessageError, Notarised, NotaryStatement};

use crate::{
    AnswerHead, FetchRequest, Frame, FrameError, FrameReader, HeadError, KeyEvidence, Refusal,
    Signed, SignedError, limits::RESPONSE_BYTES_CEILING, transcript::Transcript,
};

/// Why a statement is not kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HolderError {
    /// The notary gave none, and says why.
    #[error("notary gave no statement: {} ({})", .0.message, .0.code)]
    Refused(Refusal),
    /// Frames that are none.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The head of the answer.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// Seed, statement, signature.
    #[error(transparent)]
    Signed(#[from] SignedError),
    /// More than any notary passes on.
    #[error("answer is too long: wanted at most {wanted} bytes")]
    TooLong {
        /// The limit.
        wanted: usize,
    },
    /// The statement is no statement.
    #[error("statement is not readable: {0}")]
    Statement(#[from] FormatError),
    /// Signature, bytes or fields are not what was signed.
    #[error(transparent)]
    Differs(#[from] confide_disclosure::HolderError),
    /// It says something else than what was asked and received.
    #[error("statement names another {part} than what was sent and received")]
    Other {
        /// Which part.
        part: &'static str,
    },
    /// Its time is one at which the key was not valid.
    #[error("statement's time {got} is outside of the key's validity, {not_before} to {not_after}")]
    Time {
        /// Unix seconds, from the statement.
        got: u64,
        /// From the claims.
        not_before: u64,
        /// From the claims.
        not_after: u64,
    },
    /// What was received has no fields.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// Reads a notary's answer as it comes.
#[derive(Default)]
pub struct AnswerReader {
    frames: FrameReader,
    head: Vec<u8>,
    body: Vec<u8>,
    signed: Option<Signed>,
}

/// A whole answer with what was signed of it, not checked yet.
pub struct Received {
    /// The head, as the transcript has it.
    pub head: Vec<u8>,
    /// The body, decoded.
    pub body: Vec<u8>,
    /// Seed, statement, signature.
    pub signed: Signed,
}

impl AnswerReader {
    /// Takes a piece of the notary's answer; gives where new bytes of the body begin.
    pub fn push(&mut self, piece: &[u8]) -> Result<&[u8], HolderError> {
        let before = self.body.len();
        for frame in self.frames.push(piece)? {
            match frame {
                Frame::Head(head) => self.head = head,
                Frame::Body(more) => {
                    if self.body.len() + more.len() > RESPONSE_BYTES_CEILING {
                        return Err(HolderError::TooLong { wanted: RESPONSE_BYTES_CEILING });
                    }
                    self.body.extend_from_slice(&more);
                }
                Frame::Signed(signed) => self.signed = Some(Signed::decode(&signed)?),
                Frame::Refused(refusal) => return Err(HolderError::Refused(refusal)),
            }
        }
        Ok(&self.body[before..])
    }

    /// The end of the notary's answer.
    pub fn finish(self) -> Result<Received, HolderError> {
        self.frames.finish()?;
        let signed = self.signed.ok_or(FrameError::Ended)?;
        Ok(Received { head: self.head, body: self.body, signed })
    }
}

impl Received {
    /// Checks signature, key, host, time and every commitment against what was sent and received,
    /// and gives what the holder keeps. `key` is what was verified; its claims hold from
    /// `not_before` to `not_after`.
    pub fn check(
        self,
        request: &FetchRequest,
        key: KeyEvidence,
        (not_before, not_after): (u64, u64),
    ) -> Result<Notarised, HolderError> {
        let statement = NotaryStatement::decode(&self.signed.statement)?;
        let other = |part| Err(HolderError::Other { part });
        if statement.key != key.key {
            return other("key");
        }
        let target = request.target();
        if (statement.host.as_str(), statement.port) != (target.host(), target.port()) {
            return other("host or port");
        }
        let got = statement.time;
        if !(not_before..=not_after).contains(&got) {
            return Err(HolderError::Time { got, not_before, not_after });
        }
        if statement.http != AnswerHead::parse(&self.head)?.http {
            return other("HTTP version");
        }
        let transcript = Transcript::new(request, &self.head, &self.body)?;
        let session = transcript.session();
        let (mut fields, request_view) = session.request.fields()?;
        let (of_response, response_view) = session.response.fields()?;
        fields.extend(of_response);
        if (statement.request_view, statement.response_view) != (request_view, response_view) {
            return other("view of a body");
        }
        let notarised = Notarised {
            statement,
            signature: self.signed.signature,
            evidence: key.evidence,
            seed: self.signed.seed,
            sent: transcript.sent,
            received: transcript.received,
            fields,
        };
        notarised.check()?;
        Ok(notarised)
    }
}
