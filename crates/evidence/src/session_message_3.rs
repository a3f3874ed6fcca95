//! Messages of `confide-session/3`: those of [`crate::session_message`], with exported authenticators
//! (RFC 9261) in the place of contexts and evidence.
//!
//! This is the frame layer alone: requests and authenticators are byte strings here, so that another
//! carrier can bring the same ones.

use alloc::vec::Vec;

use minicbor::Decoder;

use crate::{
    authenticator::{AUTHENTICATOR_BYTES_MAX, REQUEST_BYTES_MAX},
    cbor::Writer,
    gpu::GPU_EVIDENCE_BYTES_MAX,
    session_message::{
        ACCEPTED, EVIDENCE, REFUSED, REPLY, REQUEST, Refusal, SessionMessageError, check_canonical,
        malformed_error, member, optional, read_kind, read_refusal, write_optional,
    },
    tagged_evidence::COLLATERAL_BYTES_MAX,
};

/// A message of version 3 of the session exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionMessage3<'a> {
    /// Client to server: the request for the server's authenticator, if it is to attest.
    Request {
        /// A `ClientCertificateRequest`, unparsed.
        request: Option<&'a [u8]>,
    },
    /// Server to client: its evidence if asked, and the request for the client's authenticator.
    Reply {
        /// A `CertificateRequest`, unparsed.
        request: Option<&'a [u8]>,
        /// The server's evidence.
        evidence: Option<AuthenticatedEvidence<'a>>,
    },
    /// Client to server: its evidence.
    Evidence(AuthenticatedEvidence<'a>),
    /// Server to client: the client's evidence was accepted.
    Accepted,
    /// In either direction, in place of the next message: the exchange ends here.
    Refused(Refusal),
}

/// An authenticator with its evidence, and what is too long for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthenticatedEvidence<'a> {
    /// The authenticator, unparsed.
    pub authenticator: &'a [u8],
    /// The JSON of the collateral, whose hash the authenticator holds.
    pub collateral: Option<&'a [u8]>,
    /// Evidence of the sender's GPU, whose hash the authenticator holds.
    pub gpu: Option<&'a [u8]>,
}

impl<'a> SessionMessage3<'a> {
    /// The one encoding, without the frame's length.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        match self {
            Self::Request { request } => {
                writer.array(2).uint(REQUEST);
                write_optional(&mut writer, *request);
            }
            Self::Reply { request, evidence } => {
                writer.array(3).uint(REPLY);
                write_optional(&mut writer, *request);
                match evidence {
                    Some(evidence) => write_evidence(&mut writer, evidence),
                    None => {
                        writer.null();
                    }
                }
            }
            Self::Evidence(evidence) => {
                writer.array(2).uint(EVIDENCE);
                write_evidence(&mut writer, evidence);
            }
            Self::Accepted => {
                writer.array(1).uint(ACCEPTED);
            }
            Self::Refused(refusal) => {
                writer.array(2).uint(REFUSED).uint(refusal.code());
            }
        }
        writer.finish()
    }

    /// Reads a frame's content; only the deterministic encoding is accepted.
    ///
    /// # Errors
    /// Those of [`crate::session_message::SessionMessage::decode`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self, SessionMessageError> {
        let mut decoder = Decoder::new(bytes);
        let read_request =
            |decoder: &mut Decoder<'a>| member(decoder, "request", REQUEST_BYTES_MAX);
        let message = match read_kind(&mut decoder)? {
            REQUEST => Self::Request { request: optional(&mut decoder, read_request)? },
            REPLY => Self::Reply {
                request: optional(&mut decoder, read_request)?,
                evidence: optional(&mut decoder, read_evidence)?,
            },
            EVIDENCE => Self::Evidence(read_evidence(&mut decoder)?),
            ACCEPTED => Self::Accepted,
            _ => Self::Refused(read_refusal(&mut decoder)?),
        };
        check_canonical(&message.encode(), bytes)?;
        Ok(message)
    }
}

fn write_evidence(writer: &mut Writer, evidence: &AuthenticatedEvidence<'_>) {
    writer.array(3).bytes(evidence.authenticator);
    write_optional(writer, evidence.collateral);
    write_optional(writer, evidence.gpu);
}

fn read_evidence<'b>(
    decoder: &mut Decoder<'b>,
) -> Result<AuthenticatedEvidence<'b>, SessionMessageError> {
    if decoder.array().ok().flatten() != Some(3) {
        return Err(malformed_error(decoder, "evidence, an array of three"));
    }
    Ok(AuthenticatedEvidence {
        authenticator: member(decoder, "authenticator", AUTHENTICATOR_BYTES_MAX)?,
        collateral: optional(decoder, |d| member(d, "collateral", COLLATERAL_BYTES_MAX))?,
        gpu: optional(decoder, |d| member(d, "GPU evidence", GPU_EVIDENCE_BYTES_MAX))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn messages() -> Vec<SessionMessage3<'static>> {
        let bare = AuthenticatedEvidence { authenticator: b"authenticator", ..Default::default() };
        let full = AuthenticatedEvidence { collateral: Some(b"{}"), gpu: Some(b"gpu"), ..bare };
        vec![
            SessionMessage3::Request { request: Some(b"request") },
            SessionMessage3::Request { request: None },
            SessionMessage3::Reply { request: None, evidence: Some(bare) },
            SessionMessage3::Reply { request: Some(b"request"), evidence: Some(full) },
            SessionMessage3::Evidence(full),
            SessionMessage3::Accepted,
            SessionMessage3::Refused(Refusal::NoAttester),
        ]
    }

    #[test]
    fn every_message_comes_back_as_it_was() {
        for message in messages() {
            assert_eq!(SessionMessage3::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn every_truncation_and_every_trailing_byte_is_rejected() {
        for message in messages() {
            let mut bytes = message.encode();
            for length in 0..bytes.len() {
                assert!(SessionMessage3::decode(&bytes[..length]).is_err());
            }
            bytes.push(0);
            assert_eq!(SessionMessage3::decode(&bytes), Err(SessionMessageError::NotCanonical));
        }
    }

    #[test]
    fn empty_and_oversized_parts_are_rejected() {
        let empty = SessionMessage3::Evidence(AuthenticatedEvidence::default()).encode();
        let wanted = SessionMessageError::Empty { member: "authenticator" };
        assert_eq!(SessionMessage3::decode(&empty), Err(wanted));
        let long = vec![0; REQUEST_BYTES_MAX + 1];
        let long = SessionMessage3::Request { request: Some(&long) }.encode();
        let got = SessionMessage3::decode(&long);
        assert!(matches!(got, Err(SessionMessageError::TooLong { member: "request", .. })));
    }
}
