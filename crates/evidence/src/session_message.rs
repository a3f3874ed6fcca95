//! Messages of session binding, exchanged after the TLS handshake and before application bytes.
//!
//! Each is a CBOR array whose first member names its kind, in deterministic encoding. Framing and
//! order are those of `docs/channel.md`; the TLS client sends the request.

use alloc::vec::Vec;

use minicbor::{Decoder, data::Type};

use crate::{
    batch::BATCH_PATH_BYTES_MAX,
    binder::CONTEXT_BYTES,
    cbor::Writer,
    claims::CLAIMS_BYTES_MAX,
    gpu::GPU_EVIDENCE_BYTES_MAX,
    tagged_evidence::{COLLATERAL_BYTES_MAX, QUOTE_BYTES_MAX},
};

/// A message of the session-binding exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionMessage<'a> {
    /// Client to server: the context over which the server is to attest, if it is to.
    Request {
        /// The context that the client chose as verifier.
        context: Option<[u8; CONTEXT_BYTES]>,
    },
    /// Server to client: its evidence if asked, and the context over which the client is to attest.
    Reply {
        /// The context that the server chose as verifier.
        context: Option<[u8; CONTEXT_BYTES]>,
        /// The server's evidence.
        evidence: Option<SessionEvidence<'a>>,
    },
    /// Client to server: its evidence.
    Evidence(SessionEvidence<'a>),
    /// Server to client: the client's evidence was accepted.
    Accepted,
    /// In either direction, in place of the next message: the exchange ends here.
    Refused(Refusal),
}

/// A quote over this session, the claims it covers, and what the sender has besides.
///
/// Without a batch path and GPU evidence it is written as version 1 of the exchange has it: an
/// array of three. With either it is an array of five, which only version 2 knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionEvidence<'a> {
    /// The quote, unparsed.
    pub quote: &'a [u8],
    /// Encoded [`crate::claims::Claims`], unparsed.
    pub claims: &'a [u8],
    /// The JSON of the collateral, unparsed.
    pub collateral: Option<&'a [u8]>,
    /// The encoded [`crate::batch::BatchPath`] from this session's binder to what the quote
    /// signs, where the quote is shared; unparsed.
    pub batch: Option<&'a [u8]>,
    /// Evidence of the sender's GPU, unparsed.
    pub gpu: Option<&'a [u8]>,
}

impl SessionEvidence<'_> {
    /// Whether it holds what version 1 of the exchange does not know.
    pub fn needs_version_2(&self) -> bool {
        self.batch.is_some() || self.gpu.is_some()
    }
}

/// The reason why an end stops the exchange. The peer chose it: good for a report, not for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A message could not be read or came out of order.
    Malformed,
    /// The context does not have the length of [`CONTEXT_BYTES`].
    ContextLength,
    /// Evidence was asked of an end that has no attester.
    NoAttester,
    /// The attester failed.
    EvidenceUnavailable,
    /// Evidence that was asked for did not come, or was rejected.
    EvidenceRejected,
}

impl Refusal {
    const ALL: [Refusal; 5] = [
        Refusal::Malformed,
        Refusal::ContextLength,
        Refusal::NoAttester,
        Refusal::EvidenceUnavailable,
        Refusal::EvidenceRejected,
    ];

    /// The number that stands for the refusal on the wire.
    pub fn code(self) -> u64 {
        match self {
            Refusal::Malformed => 1,
            Refusal::ContextLength => 2,
            Refusal::NoAttester => 3,
            Refusal::EvidenceUnavailable => 4,
            Refusal::EvidenceRejected => 5,
        }
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Refusal::Malformed => "a message could not be read",
            Refusal::ContextLength => "the context has a wrong length",
            Refusal::NoAttester => "it has no attester",
            Refusal::EvidenceUnavailable => "its attester failed",
            Refusal::EvidenceRejected => "it did not accept the evidence",
        })
    }
}

pub(crate) const REFUSED: u64 = 0;
pub(crate) const REQUEST: u64 = 1;
pub(crate) const REPLY: u64 = 2;
pub(crate) const EVIDENCE: u64 = 3;
pub(crate) const ACCEPTED: u64 = 4;

/// Members of evidence in version 1: quote, claims, collateral.
const EVIDENCE_MEMBERS_1: u64 = 3;

/// Members of evidence in version 2: the same, then batch path and GPU evidence, of which at least one is present.
const EVIDENCE_MEMBERS_2: u64 = 5;

impl<'a> SessionMessage<'a> {
    /// The one encoding, without the frame's length.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        match self {
            Self::Request { context } => {
                writer.array(2).uint(REQUEST);
                write_context(&mut writer, context);
            }
            Self::Reply { context, evidence } => {
                writer.array(3).uint(REPLY);
                write_context(&mut writer, context);
                match evidence {
                    Some(evidence) => write_evidence(&mut writer, evidence),
                    None => writer.null(),
                };
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
    /// [`SessionMessageError::Malformed`] if the bytes are not CBOR of the wanted types,
    /// [`SessionMessageError::Kind`] and [`SessionMessageError::Members`] for an unknown or
    /// misshapen message, [`SessionMessageError::NotCanonical`] for any other encoding, and the
    /// variant of a part whose length is out of bounds.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, SessionMessageError> {
        let mut decoder = Decoder::new(bytes);
        let message = match read_kind(&mut decoder)? {
            REQUEST => Self::Request { context: read_context(&mut decoder)? },
            REPLY => Self::Reply {
                context: read_context(&mut decoder)?,
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

/// Why bytes are not a message of the exchange.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionMessageError {
    /// The bytes are no CBOR of the wanted types.
    #[error("session message is not readable CBOR at byte {position}, wanted {wanted}")]
    Malformed {
        /// The byte offset at which reading stopped.
        position: usize,
        /// The item that should stand there.
        wanted: &'static str,
    },
    /// The kind is unknown.
    #[error("session message is of kind {got}, wanted 0 to 4")]
    Kind {
        /// The kind that came.
        got: u64,
    },
    /// A known kind has another number of members.
    #[error("session message of kind {kind} has {got} members, wanted {wanted}")]
    Members {
        /// The kind.
        kind: u64,
        /// The number of members of this kind.
        wanted: u64,
        /// The number of members that came.
        got: u64,
    },
    /// The context has another length than [`CONTEXT_BYTES`].
    #[error("context is {got} bytes, wanted {wanted}")]
    ContextLength {
        /// [`CONTEXT_BYTES`].
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// A part of the evidence is empty, which is what a failed device gives.
    #[error("{member} is empty")]
    Empty {
        /// The name of the part.
        member: &'static str,
    },
    /// A part of the evidence is longer than its limit.
    #[error("{member} is {got} bytes, wanted at most {wanted}")]
    TooLong {
        /// The name of the part.
        member: &'static str,
        /// The limit in bytes.
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// The refusal code is unknown.
    #[error("refusal code is {got}, wanted 1 to 5")]
    RefusalCode {
        /// The code that came.
        got: u64,
    },
    /// The same content in other bytes than the deterministic ones, or bytes after it.
    #[error("session message is not in deterministic encoding")]
    NotCanonical,
}

fn write_context(writer: &mut Writer, context: &Option<[u8; CONTEXT_BYTES]>) {
    match context {
        Some(context) => writer.bytes(context),
        None => writer.null(),
    };
}

fn write_evidence<'w>(writer: &'w mut Writer, evidence: &SessionEvidence<'_>) -> &'w mut Writer {
    let members = if evidence.needs_version_2() { EVIDENCE_MEMBERS_2 } else { EVIDENCE_MEMBERS_1 };
    writer.array(members).bytes(evidence.quote).bytes(evidence.claims);
    write_optional(writer, evidence.collateral);
    if members == EVIDENCE_MEMBERS_2 {
        write_optional(writer, evidence.batch);
        write_optional(writer, evidence.gpu);
    }
    writer
}

pub(crate) fn write_optional(writer: &mut Writer, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => writer.bytes(bytes),
        None => writer.null(),
    };
}

fn read_context(
    decoder: &mut Decoder<'_>,
) -> Result<Option<[u8; CONTEXT_BYTES]>, SessionMessageError> {
    optional(decoder, |decoder| {
        let bytes = decoder.bytes().map_err(|_| malformed_error(decoder, "a context"))?;
        let (wanted, got) = (CONTEXT_BYTES, bytes.len());
        bytes.try_into().map_err(|_| SessionMessageError::ContextLength { wanted, got })
    })
}

fn read_evidence<'b>(
    decoder: &mut Decoder<'b>,
) -> Result<SessionEvidence<'b>, SessionMessageError> {
    let members = decoder.array().ok().flatten();
    let Some(members @ (EVIDENCE_MEMBERS_1 | EVIDENCE_MEMBERS_2)) = members else {
        return Err(malformed_error(decoder, "evidence, an array of three or five"));
    };
    let mut evidence = SessionEvidence {
        quote: member(decoder, "quote", QUOTE_BYTES_MAX)?,
        claims: member(decoder, "claims", CLAIMS_BYTES_MAX)?,
        collateral: optional(decoder, |d| member(d, "collateral", COLLATERAL_BYTES_MAX))?,
        ..SessionEvidence::default()
    };
    if members == EVIDENCE_MEMBERS_2 {
        evidence.batch = optional(decoder, |d| member(d, "batch path", BATCH_PATH_BYTES_MAX))?;
        evidence.gpu = optional(decoder, |d| member(d, "GPU evidence", GPU_EVIDENCE_BYTES_MAX))?;
    }
    Ok(evidence)
}

/// Opens a message of any version, checks the number of its members, and returns its kind.
pub(crate) fn read_kind(decoder: &mut Decoder<'_>) -> Result<u64, SessionMessageError> {
    let members = decoder.array().ok().flatten().ok_or(malformed_error(decoder, "an array"))?;
    let kind = decoder.u64().map_err(|_| malformed_error(decoder, "a kind"))?;
    let wanted = match kind {
        ACCEPTED => 1,
        REQUEST | EVIDENCE | REFUSED => 2,
        REPLY => 3,
        got => return Err(SessionMessageError::Kind { got }),
    };
    match members == wanted {
        true => Ok(kind),
        false => Err(SessionMessageError::Members { kind, wanted, got: members }),
    }
}

/// Checks that what was read is the one encoding of the message.
pub(crate) fn check_canonical(encoded: &[u8], read: &[u8]) -> Result<(), SessionMessageError> {
    match encoded == read {
        true => Ok(()),
        false => Err(SessionMessageError::NotCanonical),
    }
}

pub(crate) fn read_refusal(decoder: &mut Decoder<'_>) -> Result<Refusal, SessionMessageError> {
    let got = decoder.u64().map_err(|_| malformed_error(decoder, "a refusal code"))?;
    let refusal = Refusal::ALL.into_iter().find(|refusal| refusal.code() == got);
    refusal.ok_or(SessionMessageError::RefusalCode { got })
}

pub(crate) fn member<'b>(
    decoder: &mut Decoder<'b>,
    member: &'static str,
    wanted: usize,
) -> Result<&'b [u8], SessionMessageError> {
    let bytes = decoder.bytes().map_err(|_| malformed_error(decoder, member))?;
    match bytes.len() {
        0 => Err(SessionMessageError::Empty { member }),
        got if got > wanted => Err(SessionMessageError::TooLong { member, wanted, got }),
        _ => Ok(bytes),
    }
}

pub(crate) fn optional<'b, T>(
    decoder: &mut Decoder<'b>,
    read: impl FnOnce(&mut Decoder<'b>) -> Result<T, SessionMessageError>,
) -> Result<Option<T>, SessionMessageError> {
    if matches!(decoder.datatype(), Ok(Type::Null)) {
        decoder.null().map_err(|_| malformed_error(decoder, "null"))?;
        return Ok(None);
    }
    read(decoder).map(Some)
}

pub(crate) fn malformed_error(decoder: &Decoder<'_>, wanted: &'static str) -> SessionMessageError {
    SessionMessageError::Malformed { position: decoder.position(), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn messages() -> Vec<SessionMessage<'static>> {
        let bare = SessionEvidence { quote: b"quote", claims: b"claims", ..Default::default() };
        let evidence = SessionEvidence { collateral: Some(b"{}"), ..bare };
        let shared = SessionEvidence { batch: Some(b"path"), ..evidence };
        let with_gpu = SessionEvidence { gpu: Some(b"gpu"), ..bare };
        vec![
            SessionMessage::Request { context: Some([3; 32]) },
            SessionMessage::Request { context: None },
            SessionMessage::Reply { context: None, evidence: Some(evidence) },
            SessionMessage::Reply { context: Some([4; 32]), evidence: None },
            SessionMessage::Evidence(bare),
            SessionMessage::Evidence(shared),
            SessionMessage::Evidence(with_gpu),
            SessionMessage::Evidence(SessionEvidence { batch: Some(b"path"), ..with_gpu }),
            SessionMessage::Accepted,
            SessionMessage::Refused(Refusal::NoAttester),
        ]
    }

    #[test]
    fn every_message_comes_back_as_it_was() {
        for message in messages() {
            assert_eq!(SessionMessage::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn every_truncation_and_every_trailing_byte_is_rejected() {
        for message in messages() {
            let mut bytes = message.encode();
            for len in 0..bytes.len() {
                assert!(SessionMessage::decode(&bytes[..len]).is_err());
            }
            bytes.push(0);
            assert_eq!(SessionMessage::decode(&bytes), Err(SessionMessageError::NotCanonical));
        }
    }

    #[test]
    fn a_context_of_another_length_is_named() {
        for len in [0, 16, 31, 33] {
            let mut writer = Writer::new();
            writer.array(2).uint(REQUEST).bytes(&vec![0; len]);
            let wanted = SessionMessageError::ContextLength { wanted: 32, got: len };
            assert_eq!(SessionMessage::decode(&writer.finish()), Err(wanted));
        }
    }

    #[test]
    fn unknown_kinds_members_and_codes_are_named() {
        let decode = |write: &dyn Fn(&mut Writer) -> &mut Writer| {
            let mut writer = Writer::new();
            write(&mut writer);
            SessionMessage::decode(&writer.finish()).err()
        };
        let kind = decode(&|w| w.array(1).uint(9));
        assert_eq!(kind, Some(SessionMessageError::Kind { got: 9 }));
        let members = decode(&|w| w.array(2).uint(ACCEPTED));
        let wanted = SessionMessageError::Members { kind: ACCEPTED, wanted: 1, got: 2 };
        assert_eq!(members, Some(wanted));
        let code = decode(&|w| w.array(2).uint(REFUSED).uint(6));
        assert_eq!(code, Some(SessionMessageError::RefusalCode { got: 6 }));
    }

    #[test]
    fn empty_and_oversized_parts_are_rejected() {
        let empty = SessionEvidence { quote: b"", claims: b"c", ..Default::default() };
        let bytes = SessionMessage::Evidence(empty).encode();
        let wanted = SessionMessageError::Empty { member: "quote" };
        assert_eq!(SessionMessage::decode(&bytes), Err(wanted));
        let long = vec![0; CLAIMS_BYTES_MAX + 1];
        let long = SessionEvidence { quote: b"q", claims: &long, ..Default::default() };
        let bytes = SessionMessage::Evidence(long).encode();
        let result = SessionMessage::decode(&bytes);
        assert!(matches!(result, Err(SessionMessageError::TooLong { member: "claims", .. })));
    }

    #[test]
    fn evidence_of_five_without_path_and_gpu_is_not_deterministic() {
        let mut writer = Writer::new();
        writer.array(2).uint(EVIDENCE).array(5).bytes(b"q").bytes(b"c").null().null().null();
        let bytes = writer.finish();
        assert_eq!(SessionMessage::decode(&bytes), Err(SessionMessageError::NotCanonical));
    }
}
