//! A whole session: the notary commits to it, and the holder keeps it.

use zeroize::{Zeroize, Zeroizing};

use crate::{
    codec::{FormatError, Reader, Writer},
    evidence::NotaryEvidence,
    field::{Field, VALUE_BYTES_MAX},
    fields::{CommittedFields, FIELDS_MAX, TooManyFields, check_value, read_name},
    message::{Message, MessageError},
    seed::Seed,
    signature::{NotaryKey, Signature, SignatureError},
    statement::{HttpVersion, NotaryStatement, STATEMENT_BYTES_MAX},
    tls::TlsSession,
    transcript::{CommittedDirection, Direction, TRANSCRIPT_BYTES_MAX, TranscriptError},
};

/// The first bytes of every holder's file.
pub const HOLDER_MAGIC: &[u8] = b"confide notarised v1\n";

const FORMAT: &str = "a notarised session, version 1";

/// The greatest length of a holder's file: 128 MiB.
pub const HOLDER_BYTES_MAX: usize = 128 << 20;

/// Facts of a session that the notary observed apart from its bytes.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// The host, as [`NotaryStatement::host`] names it.
    pub host: String,
    /// The TCP port of the server.
    pub port: u16,
    /// The hash of the certificate chain, as [`crate::certificate_chain_hash`] computes it.
    pub certificate_chain_hash: [u8; 32],
    /// The version, key exchange and cipher suite of the session.
    pub tls: TlsSession,
    /// Unix seconds by the notary's clock.
    pub time: u64,
    /// HTTP version of the session.
    pub http: HttpVersion,
}

/// A session's transcript (`docs/notary.md`, "The transcript"), and the messages that were parsed
/// from it.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// The request as text.
    pub sent: &'a [u8],
    /// The response as text, its body decoded.
    pub received: &'a [u8],
    /// The request, parsed.
    pub request: &'a Message,
    /// The response, parsed, without its content and transfer codings.
    pub response: &'a Message,
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
    /// A statement cannot have this host name.
    #[error(transparent)]
    Statement(#[from] FormatError),
    /// The key did not sign the statement.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

/// A session as its holder keeps it: everything, with the seed that opens every part of it.
pub struct NotarisedSession {
    /// The statement that the notary signed.
    pub statement: NotaryStatement,
    /// The notary's signature over the statement.
    pub signature: Signature,
    /// Evidence over the notary's key.
    pub evidence: NotaryEvidence,
    /// The seed from which every salt and blinding derives.
    pub seed: Seed,
    /// The request as text.
    pub sent: Vec<u8>,
    /// The response as text, its body decoded.
    pub received: Vec<u8>,
    /// The fields of both messages, in the order in which they were committed to.
    pub fields: Vec<Field>,
}

/// Commits to a session under a fresh seed and signs the statement.
///
/// # Errors
///
/// [`NotariseError::Transcript`] if a direction is longer than [`TRANSCRIPT_BYTES_MAX`];
/// [`NotariseError::Message`] if a message has too many header fields or a name that is not a short
/// token; [`NotariseError::Fields`] if both messages together have more than [`FIELDS_MAX`] fields;
/// [`NotariseError::Statement`] if the host name has a character or length that no statement has;
/// [`NotariseError::Signature`] if the key fails to sign.
pub fn notarise(
    key: &NotaryKey,
    seed: Seed,
    facts: SessionFacts,
    session: Session<'_>,
    evidence: NotaryEvidence,
) -> Result<NotarisedSession, NotariseError> {
    let request = CommittedDirection::new(&seed, Direction::Request, session.sent)?.commitment();
    let response =
        CommittedDirection::new(&seed, Direction::Response, session.received)?.commitment();
    let (mut fields, request_view) = session.request.fields()?;
    let (of_response, response_view) = session.response.fields()?;
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

/// The reason why a holder's file is not what its notary signed.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// The signature is not over the statement.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// Bytes, fields or seed differ from those that were committed to.
    #[error("{what} of the session are not those that the notary signed")]
    Differs {
        /// The part that differs: `request bytes`, `response bytes` or `fields`.
        what: &'static str,
    },
}

impl NotarisedSession {
    /// Checks that bytes, fields and seed are what the notary signed. A holder calls this before it
    /// relies on a notary's answer.
    ///
    /// # Errors
    ///
    /// [`HolderError::Signature`] if the signature is not over the statement;
    /// [`HolderError::Differs`] if bytes, fields or seed are not those that it commits to.
    pub fn check(&self) -> Result<(), HolderError> {
        self.statement.verify(&self.signature)?;
        let differs = |what| HolderError::Differs { what };
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

    /// Encodes the holder's file. It holds every secret of the session: give it mode 0600 and show
    /// it to nobody.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut writer = Writer::new(HOLDER_MAGIC);
        writer.long(&self.statement.encode()).raw(&self.signature);
        self.evidence.write(&mut writer);
        writer.raw(self.seed.secret()).long(&self.sent).long(&self.received);
        writer.u32(self.fields.len() as u32);
        for Field { path, kind, value } in &self.fields {
            writer.u8(*kind as u8).short(path.as_bytes()).long(value);
        }
        Zeroizing::new(writer.finish())
    }

    /// Reads exactly what [`NotarisedSession::encode`] writes.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the bytes are not exactly one file of this version within its limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, HOLDER_MAGIC, FORMAT)?;
        let statement = reader.long(STATEMENT_BYTES_MAX, "statement")?;
        let mut notarised = Self {
            statement: NotaryStatement::decode(statement)?,
            signature: reader.array("signature")?,
            evidence: NotaryEvidence::read(&mut reader)?,
            seed: Seed::from_bytes(reader.array("seed")?),
            sent: reader.long(TRANSCRIPT_BYTES_MAX, "request bytes")?.to_vec(),
            received: reader.long(TRANSCRIPT_BYTES_MAX, "response bytes")?.to_vec(),
            fields: Vec::new(),
        };
        for _ in 0..reader.count(FIELDS_MAX, "fields")? {
            let (path, kind) = read_name(&mut reader)?;
            let value = reader.long(VALUE_BYTES_MAX, "value of a field")?.to_vec();
            check_value(kind, &value)?;
            notarised.fields.push(Field { path, kind, value });
        }
        reader.end(FORMAT)?;
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
