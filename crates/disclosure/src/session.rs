//! A session, which the notary commits to and the holder stores.

use confide_transcript::{
    CommittedDirection, Direction, FormatError, Reader, Seed, TRANSCRIPT_BYTES_MAX,
    TranscriptError, Writer,
};
use zeroize::{Zeroize, Zeroizing};

use crate::{
    evidence::NotaryEvidence,
    field::{Field, VALUE_BYTES_MAX},
    fields::{CommittedFields, FIELDS_MAX, TooManyFields, check_value, read_path_and_kind},
    message::{HttpMessage, MessageError},
    signature::{NotaryKey, Signature, SignatureError},
    statement::{HttpVersion, NotaryStatement, STATEMENT_BYTES_MAX},
    tls::TlsSession,
};

/// The first bytes of every holder's file.
pub const HOLDER_MAGIC: &[u8] = b"confide notarised v1\n";

const FORMAT: &str = "a notarised session, version 1";

/// The greatest length of a holder's file: 128 MiB.
pub const HOLDER_BYTES_MAX: usize = 128 << 20;

/// The facts that the notary observed about a session in addition to its bytes.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// The host, in the form of [`NotaryStatement::host`].
    pub host: String,
    /// The TCP port of the server.
    pub port: u16,
    /// The hash of the certificate chain, as [`crate::certificate_chain_hash`] computes it.
    pub certificate_chain_hash: [u8; 32],
    /// The version, key exchange and cipher suite of the session.
    pub tls: TlsSession,
    /// The Unix time in seconds on the notary's clock.
    pub time: u64,
    /// The HTTP version of the session.
    pub http: HttpVersion,
}

/// A session's transcript (`docs/notary.md`, "The transcript") and its parsed messages.
#[derive(Clone, Copy, Debug)]
pub struct SessionTranscript<'a> {
    /// The request as text.
    pub sent: &'a [u8],
    /// The response as text, its body decoded.
    pub received: &'a [u8],
    /// The request, parsed.
    pub request: &'a HttpMessage,
    /// The response, parsed, without its content and transfer codings.
    pub response: &'a HttpMessage,
}

/// The reason why a session was not notarised.
#[derive(Debug, thiserror::Error)]
pub enum NotariseError {
    /// A direction is too long.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// A message has no fields.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// Both messages together have too many fields.
    #[error(transparent)]
    Fields(#[from] TooManyFields),
    /// The host name is not valid in a statement.
    #[error(transparent)]
    Statement(#[from] FormatError),
    /// The key failed to sign the statement.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

/// A session as its holder stores it: complete, with the seed that opens every part of it.
pub struct NotarisedSession {
    /// The statement that the notary signed.
    pub statement: NotaryStatement,
    /// The notary's signature over the statement.
    pub signature: Signature,
    /// The evidence over the notary's key.
    pub evidence: NotaryEvidence,
    /// The seed from which every salt and blinding is derived.
    pub seed: Seed,
    /// The request as text.
    pub sent: Vec<u8>,
    /// The response as text, its body decoded.
    pub received: Vec<u8>,
    /// The fields of both messages, in the order of their commitment.
    pub fields: Vec<Field>,
}

/// Commits to a session under `seed`, which must be fresh, and signs the statement.
///
/// # Errors
///
/// [`NotariseError::Transcript`] if a direction is longer than [`TRANSCRIPT_BYTES_MAX`];
/// [`NotariseError::Message`] if a message has too many header fields or a name that is not a short
/// token; [`NotariseError::Fields`] if both messages together have more than [`FIELDS_MAX`] fields;
/// [`NotariseError::Statement`] if the host name is too long or has an invalid character;
/// [`NotariseError::Signature`] if the key fails to sign.
pub fn notarise(
    key: &NotaryKey,
    seed: Seed,
    facts: SessionFacts,
    session: SessionTranscript<'_>,
    evidence: NotaryEvidence,
) -> Result<NotarisedSession, NotariseError> {
    let request = CommittedDirection::new(&seed, Direction::Request, session.sent)?.commitment();
    let response =
        CommittedDirection::new(&seed, Direction::Response, session.received)?.commitment();
    let (mut fields, request_view) = session.request.parse_fields()?;
    let (of_response, response_view) = session.response.parse_fields()?;
    fields.extend(of_response);
    let SessionFacts { host, port, certificate_chain_hash, tls, time, http } = facts;
    let statement = NotaryStatement {
        host,
        port,
        certificate_chain_hash,
        tls,
        time,
        http,
        request_view,
        response_view,
        request,
        response,
        fields: CommittedFields::new(&seed, &fields)?.root(),
        key: key.public(),
    };
    statement.check()?;
    let signature = key.sign(&statement)?;
    let (sent, received) = (session.sent.to_vec(), session.received.to_vec());
    Ok(NotarisedSession { statement, signature, evidence, seed, sent, received, fields })
}

/// The reason why a session does not match its notary's signature.
#[derive(Debug, thiserror::Error)]
pub enum SessionCheckError {
    /// The signature does not match the statement.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// Bytes, fields or seed do not match the commitments in the statement.
    #[error("{what} of the session do not match the notary's statement")]
    Differs {
        /// The part that differs: `request bytes`, `response bytes` or `fields`.
        what: &'static str,
    },
}

impl NotarisedSession {
    /// Checks that bytes, fields and seed match the notary's statement. A holder calls this before
    /// it relies on a notary's answer.
    ///
    /// # Errors
    ///
    /// [`SessionCheckError::Signature`] if the signature does not match the statement;
    /// [`SessionCheckError::Differs`] if bytes, fields or seed do not match its commitments.
    pub fn check(&self) -> Result<(), SessionCheckError> {
        self.statement.verify(&self.signature)?;
        let differs = |what| SessionCheckError::Differs { what };
        for (direction, bytes, signed, what) in [
            (Direction::Request, &self.sent, &self.statement.request, "request bytes"),
            (Direction::Response, &self.received, &self.statement.response, "response bytes"),
        ] {
            let committed = CommittedDirection::new(&self.seed, direction, bytes);
            let committed = committed.map_err(|_| differs(what))?;
            if committed.commitment() != *signed {
                return Err(differs(what));
            }
        }
        let committed = CommittedFields::new(&self.seed, &self.fields);
        match committed.map_err(|_| differs("fields"))?.root() == self.statement.fields {
            true => Ok(()),
            false => Err(differs("fields")),
        }
    }

    /// Encodes the holder's file. It contains every secret of the session: store it with mode 0600
    /// and never share it.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut writer = Writer::starting_with(HOLDER_MAGIC);
        writer.u32_prefixed(&self.statement.encode()).raw(&self.signature);
        self.evidence.write(&mut writer);
        writer.raw(self.seed.secret()).u32_prefixed(&self.sent).u32_prefixed(&self.received);
        writer.u32(self.fields.len() as u32);
        for Field { path, kind, value } in &self.fields {
            writer.u8(*kind as u8).u16_prefixed(path.as_bytes()).u32_prefixed(value);
        }
        Zeroizing::new(writer.finish())
    }

    /// Decodes the bytes of [`NotarisedSession::encode`].
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the bytes are not exactly one file of this version within its limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, HOLDER_MAGIC, FORMAT)?;
        let statement = reader.u32_prefixed(STATEMENT_BYTES_MAX, "statement")?;
        let mut notarised = Self {
            statement: NotaryStatement::decode(statement)?,
            signature: reader.array("signature")?,
            evidence: NotaryEvidence::read(&mut reader)?,
            seed: Seed::from_bytes(reader.array("seed")?),
            sent: reader.u32_prefixed(TRANSCRIPT_BYTES_MAX, "request bytes")?.to_vec(),
            received: reader.u32_prefixed(TRANSCRIPT_BYTES_MAX, "response bytes")?.to_vec(),
            fields: Vec::new(),
        };
        for _ in 0..reader.limited_count(FIELDS_MAX, "fields")? {
            let (path, kind) = read_path_and_kind(&mut reader)?;
            let value = reader.u32_prefixed(VALUE_BYTES_MAX, "value of a field")?.to_vec();
            check_value(kind, &value)?;
            notarised.fields.push(Field { path, kind, value });
        }
        reader.expect_end(FORMAT)?;
        Ok(notarised)
    }
}

impl Drop for NotarisedSession {
    fn drop(&mut self) {
        self.sent.zeroize();
        self.received.zeroize();
        self.fields.iter_mut().for_each(|field| field.value.zeroize());
    }
}

impl std::fmt::Debug for NotarisedSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotarisedSession")
            .field("statement", &self.statement)
            .finish_non_exhaustive()
    }
}
