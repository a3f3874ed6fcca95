//! The checks of a client on a signed statement before it stores it.

use std::ops::RangeInclusive;

use confide_disclosure::{FormatError, MessageError, NotarisedSession, NotaryStatement};
use confide_evidence::UnixSeconds;

use crate::{
    frames::{Frame, FrameError, FrameReader},
    head::{AnswerHead, HeadError},
    limits::RESPONSE_BYTES_CEILING,
    refusal::Refusal,
    request::FetchRequest,
    signed::{KeyEvidence, SignedStatement, SignedStatementError},
    transcript::Transcript,
};

/// The reason for which a client refuses an answer or its statement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatementCheckError {
    /// The notary refused the request or failed.
    #[error("the notary sent no statement: {} ({})", .0.message, .0.code)]
    Refused(Refusal),
    /// The answer's frames cannot be read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The head of the answer cannot be read.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// Seed, statement or signature cannot be read.
    #[error(transparent)]
    Signed(#[from] SignedStatementError),
    /// The answer is longer than any notary may relay.
    #[error("answer is too long: wanted at most {wanted} bytes")]
    TooLong {
        /// The limit.
        wanted: usize,
    },
    /// The statement cannot be read.
    #[error("statement is not readable: {0}")]
    Statement(#[from] FormatError),
    /// The signature, the bytes or the fields do not match the statement.
    #[error(transparent)]
    Differs(#[from] confide_disclosure::SessionCheckError),
    /// The statement differs from what was sent and received.
    #[error("statement's {part} differs from what was sent and received")]
    Mismatch {
        /// The part that differs.
        part: &'static str,
    },
    /// The key was not valid at the statement's time.
    #[error(
        "statement's time {} is outside the key's validity, {} to {}",
        UnixSeconds(*got), UnixSeconds(*not_before), UnixSeconds(*not_after)
    )]
    Time {
        /// The statement's time, Unix seconds.
        got: u64,
        /// The first second of the key's validity, from the claims.
        not_before: u64,
        /// The last second of the key's validity, from the claims.
        not_after: u64,
    },
    /// The bytes that were received cannot be read as a message.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// Reads a notary's answer as it arrives.
#[derive(Default)]
pub struct AnswerReader {
    frames: FrameReader,
    head: Vec<u8>,
    body: Vec<u8>,
    signed: Option<SignedStatement>,
}

/// A complete answer and its signed statement, not yet checked.
pub struct ReceivedAnswer {
    /// The head, as the transcript has it.
    pub head: Vec<u8>,
    /// The body, decoded.
    pub body: Vec<u8>,
    /// The seed, the statement and its signature.
    pub signed: SignedStatement,
}

impl AnswerReader {
    /// Appends a piece of the notary's answer, and returns the new bytes of the body.
    ///
    /// # Errors
    /// [`StatementCheckError`] if the answer is malformed, or the notary reports a failure.
    pub fn push(&mut self, piece: &[u8]) -> Result<&[u8], StatementCheckError> {
        let before = self.body.len();
        for frame in self.frames.push(piece)? {
            match frame {
                Frame::Head(head) => self.head = head,
                Frame::Body(more) => {
                    if self.body.len() + more.len() > RESPONSE_BYTES_CEILING {
                        return Err(StatementCheckError::TooLong {
                            wanted: RESPONSE_BYTES_CEILING,
                        });
                    }
                    self.body.extend_from_slice(&more);
                }
                Frame::Signed(signed) => self.signed = Some(SignedStatement::decode(&signed)?),
                Frame::Refused(refusal) => return Err(StatementCheckError::Refused(refusal)),
            }
        }
        Ok(&self.body[before..])
    }

    /// Ends the notary's answer, and returns it complete.
    ///
    /// # Errors
    /// [`StatementCheckError`] if the answer is not complete.
    pub fn finish(self) -> Result<ReceivedAnswer, StatementCheckError> {
        self.frames.finish()?;
        let signed = self.signed.ok_or(FrameError::Truncated)?;
        Ok(ReceivedAnswer { head: self.head, body: self.body, signed })
    }
}

impl ReceivedAnswer {
    /// Checks signature, key, host, time and every commitment against what was sent and received,
    /// and returns the session that the client stores. `key` is the verified key, whose claims are
    /// valid within `validity`, in Unix seconds.
    ///
    /// # Errors
    /// [`StatementCheckError`] for the first mismatch.
    pub fn check(
        self,
        request: &FetchRequest,
        key: KeyEvidence,
        validity: &RangeInclusive<u64>,
    ) -> Result<NotarisedSession, StatementCheckError> {
        let statement = NotaryStatement::decode(&self.signed.statement)?;
        let other = |part| Err(StatementCheckError::Mismatch { part });
        if statement.key != key.key {
            return other("key");
        }
        let target = request.target();
        if (statement.host.as_str(), statement.port) != (target.host(), target.port()) {
            return other("host or port");
        }
        let got = statement.time;
        if !validity.contains(&got) {
            let (not_before, not_after) = (*validity.start(), *validity.end());
            return Err(StatementCheckError::Time { got, not_before, not_after });
        }
        if statement.http != AnswerHead::parse(&self.head)?.http {
            return other("HTTP version");
        }
        let transcript = Transcript::new(request, &self.head, &self.body)?;
        let session = transcript.as_session_transcript();
        let (mut fields, request_view) = session.request.parse_fields()?;
        let (of_response, response_view) = session.response.parse_fields()?;
        fields.extend(of_response);
        if (statement.request_view, statement.response_view) != (request_view, response_view) {
            return other("view of a body");
        }
        let notarised = NotarisedSession {
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

#[cfg(test)]
mod tests {
    use confide_disclosure::{
        HttpVersion, NotaryEvidence, NotaryKey, Seed, SessionFacts, TlsSession, notarise,
    };

    use super::*;

    const HEAD: &[u8] = b"HTTP/1.1 200\r\ncontent-type: application/json\r\n\r\n";
    const VALIDITY: RangeInclusive<u64> = 1_000..=2_000;

    fn key() -> NotaryKey {
        NotaryKey::from_secret(&[5; 32]).unwrap()
    }

    fn key_evidence() -> KeyEvidence {
        KeyEvidence { key: key().public(), evidence: NotaryEvidence::default() }
    }

    fn request(url: &str) -> FetchRequest {
        FetchRequest::new("GET", url, Vec::new(), Vec::new(), key().spki_hash()).unwrap()
    }

    fn facts() -> SessionFacts {
        SessionFacts {
            host: "h".into(),
            port: 443,
            certificate_chain_hash: [1; 32],
            tls: TlsSession::from_numbers(0x0304, 0x11ec, 0x1302).unwrap(),
            time: 1_500,
            http: HttpVersion::V11,
        }
    }

    /// Makes what a notary with this key signs of an answer with this body.
    fn signed_answer(key: &NotaryKey, facts: SessionFacts, body: &[u8]) -> ReceivedAnswer {
        let transcript = Transcript::new(&request("https://h/"), HEAD, body).unwrap();
        let seed = Seed::from_bytes([9; 32]);
        let evidence = NotaryEvidence::default();
        let made =
            notarise(key, seed, facts, transcript.as_session_transcript(), evidence).unwrap();
        let signed = SignedStatement {
            seed: made.seed.clone(),
            statement: made.statement.encode(),
            signature: made.signature,
        };
        ReceivedAnswer { head: HEAD.to_vec(), body: body.to_vec(), signed }
    }

    fn honest() -> ReceivedAnswer {
        signed_answer(&key(), facts(), br#"{"a":1}"#)
    }

    #[test]
    fn a_statement_about_what_was_sent_and_received_is_kept() {
        let kept = honest().check(&request("https://h/"), key_evidence(), &VALIDITY).unwrap();
        assert_eq!(kept.received, [HEAD, br#"{"a":1}"#].concat());
    }

    #[test]
    fn a_statement_about_anything_else_is_not() {
        let check = |received: ReceivedAnswer| {
            received.check(&request("https://h/"), key_evidence(), &VALIDITY).unwrap_err()
        };
        let differs = |error| matches!(error, StatementCheckError::Differs(_));
        let edited = ReceivedAnswer { body: br#"{"a":2}"#.to_vec(), ..honest() };
        assert!(differs(check(edited)));
        let shorter = ReceivedAnswer { body: Vec::new(), ..honest() };
        assert!(matches!(check(shorter), StatementCheckError::Mismatch { part: "view of a body" }));
        let head = b"HTTP/1.1 201\r\ncontent-type: application/json\r\n\r\n".to_vec();
        assert!(differs(check(ReceivedAnswer { head, ..honest() })));
        let mut other_seed = honest();
        other_seed.signed.seed = Seed::from_bytes([8; 32]);
        assert!(differs(check(other_seed)));
        let mut other_signature = honest();
        other_signature.signed.signature[7] ^= 1;
        assert!(differs(check(other_signature)));
        let other_key = NotaryKey::from_secret(&[6; 32]).unwrap();
        let forged = signed_answer(&other_key, facts(), br#"{"a":1}"#);
        assert!(matches!(check(forged), StatementCheckError::Mismatch { part: "key" }));
        let spoken = SessionFacts { http: HttpVersion::V2, ..facts() };
        let spoken = signed_answer(&key(), spoken, br#"{"a":1}"#);
        assert!(matches!(check(spoken), StatementCheckError::Mismatch { part: "HTTP version" }));
        for time in [999, 2_001] {
            let late = signed_answer(&key(), SessionFacts { time, ..facts() }, br#"{"a":1}"#);
            assert!(matches!(check(late), StatementCheckError::Time { got, .. } if got == time));
        }
        for url in ["https://g/", "https://h:8443/"] {
            let error = honest().check(&request(url), key_evidence(), &VALIDITY).unwrap_err();
            assert!(
                matches!(error, StatementCheckError::Mismatch { part: "host or port" }),
                "{url}"
            );
        }
        let path = honest().check(&request("https://h/other"), key_evidence(), &VALIDITY);
        assert!(differs(path.unwrap_err()));
    }

    #[test]
    fn an_answer_longer_than_any_is_given_up() {
        let mut reader = AnswerReader::default();
        reader.push(&Frame::Head(HEAD.to_vec()).encode()).unwrap();
        let piece = Frame::Body(vec![0; crate::limits::FRAME_BYTES_MAX]).encode();
        let pushed = (0..=RESPONSE_BYTES_CEILING / crate::limits::FRAME_BYTES_MAX)
            .try_for_each(|_| reader.push(&piece).map(drop));
        assert!(matches!(pushed, Err(StatementCheckError::TooLong { .. })));
        assert!(matches!(AnswerReader::default().finish(), Err(StatementCheckError::Frame(_))));
    }
}
