//! The statement that a notary signs about a session, and its encoding.

use confide_transcript::{DEPTH_MAX, DirectionCommitment, FormatError, Reader, Writer};
use sha2::{Digest, Sha256};

use crate::tls::TlsSession;

/// The first bytes of every encoded statement, including a zero byte.
const MAGIC: &[u8] = b"confide/notary-statement/v2\0";

const FORMAT: &str = "a notary's statement, version 2";

/// The greatest length of a host name (RFC 1035 section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// The length of a public key in bytes: 0x04 ‖ x ‖ y.
pub const PUBLIC_KEY_BYTES: usize = 65;

/// The greatest length of an encoded statement in bytes.
pub const STATEMENT_BYTES_MAX: usize = 1024;

/// The statement that a notary signs about one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotaryStatement {
    /// The requested host, whose certificate the notary verified: in lower case, an address without
    /// brackets.
    pub host: String,
    /// The TCP port of the server.
    pub port: u16,
    /// The hash of the certificate chain as the server sent it ([`certificate_chain_hash`]).
    pub certificate_chain_hash: [u8; 32],
    /// The version, key exchange and cipher suite of the session.
    pub tls: TlsSession,
    /// The Unix time in seconds on the notary's clock, which its operator sets.
    pub time: u64,
    /// The HTTP version of the session.
    pub http: HttpVersion,
    /// The view of the request's body.
    pub request_view: BodyView,
    /// The view of the response's body.
    pub response_view: BodyView,
    /// The commitment to the request as text (`docs/notary.md`, "The transcript").
    pub request: DirectionCommitment,
    /// The commitment to the response as text, with its body decoded.
    pub response: DirectionCommitment,
    /// The commitment to the fields of both directions.
    pub fields: FieldsRoot,
    /// The notary's key, which its evidence binds: 0x04 ‖ x ‖ y.
    pub key: [u8; PUBLIC_KEY_BYTES],
}

/// SHA-256 over the certificates in the order of the server's message, each after its length (four
/// bytes, big-endian).
pub fn certificate_chain_hash<'a>(chain: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for certificate in chain {
        hash.update((certificate.len() as u32).to_be_bytes());
        hash.update(certificate);
    }
    hash.finalize().into()
}

/// The HTTP versions that a notary supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1
    V11 = 1,
    /// HTTP/2
    V2 = 2,
}

impl HttpVersion {
    /// `HTTP/1.1` or `HTTP/2`.
    pub fn as_str(self) -> &'static str {
        match self {
            HttpVersion::V11 => "HTTP/1.1",
            HttpVersion::V2 => "HTTP/2",
        }
    }

    fn read(byte: u8) -> Result<Self, FormatError> {
        match byte {
            1 => Ok(HttpVersion::V11),
            2 => Ok(HttpVersion::V2),
            got => Err(FormatError::Value { subject: "HTTP version", got: got.into() }),
        }
    }
}

/// The source of the fields of a body, or the reason why it has none. The numbers are part of the
/// format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyView {
    /// There is no body, or one that is neither JSON nor a stream of events: no fields.
    None = 0,
    /// The body is one JSON text.
    Json = 1,
    /// A stream of events that ended with `[DONE]`, assembled.
    Events = 2,
    /// A stream of events that ended without `[DONE]`, assembled from the events that arrived.
    EventsUnfinished = 3,
    /// The content type is JSON, but the body is not valid JSON.
    NotJson = 16,
    /// An object has two members of the same name.
    DuplicateMember = 17,
    /// The depth, the size, the number of fields, or the length of a path or of a number is beyond
    /// its limit.
    BeyondLimits = 18,
    /// The events are not those of a chat or completion.
    UnknownEvents = 19,
}

impl BodyView {
    /// A description of the view.
    pub fn as_str(self) -> &'static str {
        match self {
            BodyView::None => "no fields: no JSON body",
            BodyView::Json => "JSON",
            BodyView::Events => "assembled from a finished stream of events",
            BodyView::EventsUnfinished => "assembled from a stream of events that was not finished",
            BodyView::NotJson => "no fields: the body is not valid JSON",
            BodyView::DuplicateMember => "no fields: the JSON names a member twice",
            BodyView::BeyondLimits => "no fields: the JSON is beyond the limits",
            BodyView::UnknownEvents => "no fields: the events are of an unknown kind",
        }
    }

    fn read(byte: u8) -> Result<Self, FormatError> {
        use BodyView::*;
        [
            None,
            Json,
            Events,
            EventsUnfinished,
            NotJson,
            DuplicateMember,
            BeyondLimits,
            UnknownEvents,
        ]
        .into_iter()
        .find(|view| *view as u8 == byte)
        .ok_or(FormatError::Value { subject: "view of a body", got: byte.into() })
    }
}

/// The root of the tree of the fields of both directions, padded to a power of two leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldsRoot {
    /// The depth: the tree has 2^depth leaves, which is all that a statement reveals of the number
    /// of fields.
    pub depth: u8,
    /// The root of the tree.
    pub root: [u8; 32],
}

/// The least depth of the tree of fields, so that small documents look alike.
pub(crate) const FIELDS_DEPTH_MIN: u8 = 6;

impl NotaryStatement {
    /// Encodes the statement in the form that is signed.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::starting_with(MAGIC);
        writer.u16_prefixed(self.host.as_bytes()).u16(self.port).raw(&self.certificate_chain_hash);
        self.tls.write(&mut writer);
        writer.u64(self.time);
        writer.u8(self.http as u8).u8(self.request_view as u8).u8(self.response_view as u8);
        self.request.write(&mut writer);
        self.response.write(&mut writer);
        writer.u8(self.fields.depth).raw(&self.fields.root).raw(&self.key);
        writer.finish()
    }

    /// Decodes the bytes of [`NotaryStatement::encode`].
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the bytes are not exactly one statement of this version: another magic,
    /// truncated, a value outside its list, a host with other characters, or bytes after the end.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, MAGIC, FORMAT)?;
        let statement = Self {
            host: reader.text(HOST_BYTES_MAX, "host")?.into(),
            port: reader.u16("port")?,
            certificate_chain_hash: reader.array("certificate chain hash")?,
            tls: TlsSession::read(&mut reader)?,
            time: reader.u64("time")?,
            http: HttpVersion::read(reader.u8("HTTP version")?)?,
            request_view: BodyView::read(reader.u8("view of a body")?)?,
            response_view: BodyView::read(reader.u8("view of a body")?)?,
            request: DirectionCommitment::read(&mut reader)?,
            response: DirectionCommitment::read(&mut reader)?,
            fields: FieldsRoot::read(&mut reader)?,
            key: reader.array("the notary's key")?,
        };
        reader.expect_end(FORMAT)?;
        statement.check()?;
        Ok(statement)
    }

    /// Checks that [`NotaryStatement::decode`] accepts the host, before a notary signs.
    ///
    /// # Errors
    ///
    /// [`FormatError::Text`] if the host is empty, longer than 253 bytes, or has a character other
    /// than lower-case letters, digits and `-._:`.
    pub fn check(&self) -> Result<(), FormatError> {
        let inside = (1..=HOST_BYTES_MAX).contains(&self.host.len());
        let known = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._:".contains(&byte)
        };
        match inside && self.host.bytes().all(known) {
            true => Ok(()),
            false => Err(FormatError::Text { subject: "host" }),
        }
    }

    /// SHA-256 of the encoding.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.encode()).into()
    }
}

impl FieldsRoot {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let depth = reader.u8("depth of the fields")?;
        if !(FIELDS_DEPTH_MIN..=DEPTH_MAX).contains(&depth) {
            let subject = "depth of the fields";
            return Err(FormatError::Value { subject, got: depth.into() });
        }
        Ok(Self { depth, root: reader.array("root of the fields")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NotaryKey, SignatureError};

    pub(crate) fn statement(key: &NotaryKey) -> NotaryStatement {
        let commitment = DirectionCommitment { depth: 10, length: [1; 32], root: [2; 32] };
        NotaryStatement {
            host: "api.example.com".into(),
            port: 443,
            certificate_chain_hash: certificate_chain_hash([&b"leaf"[..], b"issuer"]),
            tls: TlsSession::from_numbers(0x0304, 0x11ec, 0x1302).unwrap(),
            time: 1_795_341_600,
            http: HttpVersion::V11,
            request_view: BodyView::Json,
            response_view: BodyView::Events,
            request: commitment,
            response: DirectionCommitment { depth: 4, ..commitment },
            fields: FieldsRoot { depth: 6, root: [3; 32] },
            key: key.public(),
        }
    }

    #[test]
    fn a_statement_has_one_encoding_and_no_other_bytes_are_read() {
        let statement = statement(&NotaryKey::from_secret(&[5; 32]).unwrap());
        let bytes = statement.encode();
        assert!(bytes.len() <= STATEMENT_BYTES_MAX);
        assert_eq!(NotaryStatement::decode(&bytes).as_ref(), Ok(&statement));
        for length in 0..bytes.len() {
            assert!(NotaryStatement::decode(&bytes[..length]).is_err(), "{length}");
        }
        let more = [&bytes[..], b"\0"].concat();
        assert!(matches!(NotaryStatement::decode(&more), Err(FormatError::Trailing { .. })));
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x20;
            if let Ok(other) = NotaryStatement::decode(&changed) {
                assert_ne!(other, statement);
                assert_eq!(other.encode(), changed);
            }
        }
    }

    #[test]
    fn a_changed_host_time_root_or_key_is_not_what_was_signed() {
        let key = NotaryKey::from_secret(&[5; 32]).unwrap();
        let statement = statement(&key);
        let signature = key.sign(&statement).unwrap();
        assert_eq!(statement.verify(&signature), Ok(()));
        let other = NotaryKey::from_secret(&[6; 32]).unwrap();
        let changes: [fn(&mut NotaryStatement); 7] = [
            |s| s.host = "api.example.org".into(),
            |s| s.port += 1,
            |s| s.time += 1,
            |s| s.tls = TlsSession::from_numbers(0x0304, 0x001d, 0x1302).unwrap(),
            |s| s.request.root[0] ^= 1,
            |s| s.fields.root[31] ^= 1,
            |s| std::mem::swap(&mut s.request, &mut s.response),
        ];
        for change in changes {
            let mut changed = statement.clone();
            change(&mut changed);
            assert_eq!(changed.verify(&signature), Err(SignatureError::Mismatch));
        }
        let forged = NotaryStatement { key: other.public(), ..statement.clone() };
        assert_eq!(forged.verify(&signature), Err(SignatureError::Mismatch));
        assert_eq!(other.sign(&statement), Err(SignatureError::InvalidKey));
        let none = NotaryStatement { key: [4; 65], ..statement.clone() };
        assert_eq!(none.verify(&signature), Err(SignatureError::InvalidKey));
        assert_eq!(statement.verify(&[0; 64]), Err(SignatureError::NotCanonical));
    }

    #[test]
    fn a_host_in_capitals_with_a_blank_or_without_letters_is_refused() {
        let key = NotaryKey::from_secret(&[5; 32]).unwrap();
        for host in ["", "API.example.com", "a b", "a/b", "[::1]", "a\0", &"a".repeat(254)] {
            let statement = NotaryStatement { host: host.into(), ..statement(&key) };
            assert!(statement.check().is_err(), "{host}");
        }
        for host in ["localhost", "127.0.0.1", "::1", "xn--bcher-kva.example"] {
            let statement = NotaryStatement { host: host.into(), ..statement(&key) };
            assert_eq!(NotaryStatement::decode(&statement.encode()), Ok(statement));
        }
    }
}
