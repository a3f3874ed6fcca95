//! Exported authenticators (RFC 9261): requests and answers as TLS handshake messages, without keys.
//!
//! The messages are encoded and parsed here. The end of the connection computes and checks signature
//! and MAC over their bytes.

use alloc::{format, string::String, vec::Vec};

use crate::{
    binder::{CONTEXT_BYTES, Role},
    cmw::{CMW_BYTES_MAX, CmwError},
    evidence_wrapper::EvidenceWrapperError,
};

/// The TLS extension `cmw_attestation` of draft-fossati-seat-expat-03. No code point is assigned: this
/// one is ours, from the range for private use. (Cocos uses 0xff00 with another content.)
pub const CMW_ATTESTATION: u16 = 0xffca;

/// The TLS extension `signature_algorithms` (RFC 8446 section 4.2.3).
const SIGNATURE_ALGORITHMS: u16 = 13;

/// The signature schemes of TLS 1.3 that an authenticator may use: ECDSA with P-256 and P-384, and
/// Ed25519.
pub const SIGNATURE_SCHEMES: [u16; 3] = [0x0403, 0x0503, 0x0807];

/// The longest request in bytes. Ours take 55.
pub const REQUEST_BYTES_MAX: usize = 512;

/// The longest authenticator in bytes, with its certificate and its wrapper.
pub const AUTHENTICATOR_BYTES_MAX: usize = 64 * 1024;

/// The largest number of certificates in an authenticator.
const CERTIFICATES_MAX: usize = 4;

/// The largest number of extensions of a request, or of one certificate.
const EXTENSIONS_MAX: usize = 16;

/// The largest number of signature schemes in a request.
const SCHEMES_MAX: usize = 32;

const CERTIFICATE: u8 = 11;
const CERTIFICATE_REQUEST: u8 = 13;
const CERTIFICATE_VERIFY: u8 = 15;
const CLIENT_CERTIFICATE_REQUEST: u8 = 17;
const FINISHED: u8 = 20;

/// A request for an authenticator: `ClientCertificateRequest` from a client, `CertificateRequest`
/// from a server (RFC 9261 section 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticatorRequest {
    /// The end that asks.
    pub asker: Role,
    /// The context, which the asker chooses at random and uses once.
    pub context: [u8; CONTEXT_BYTES],
    /// The signature schemes that the asker verifies.
    pub schemes: Vec<u16>,
    /// Whether the asker understands [`CMW_ATTESTATION`].
    pub takes_cmw: bool,
}

impl AuthenticatorRequest {
    /// A request for evidence, with all of [`SIGNATURE_SCHEMES`].
    pub fn new(asker: Role, context: [u8; CONTEXT_BYTES]) -> Self {
        Self { asker, context, schemes: SIGNATURE_SCHEMES.to_vec(), takes_cmw: true }
    }

    /// The whole handshake message, with its header.
    pub fn encode(&self) -> Vec<u8> {
        let mut list = Vec::new();
        let schemes: Vec<u8> =
            self.schemes.iter().flat_map(|scheme| scheme.to_be_bytes()).collect();
        let schemes = with_length::<2>(&schemes);
        list.extend(SIGNATURE_ALGORITHMS.to_be_bytes());
        list.extend(with_length::<2>(&schemes));
        if self.takes_cmw {
            list.extend(CMW_ATTESTATION.to_be_bytes());
            list.extend(with_length::<2>(&[]));
        }
        let body = [with_length::<1>(&self.context), with_length::<2>(&list)].concat();
        encode_message(request_kind(self.asker), &body)
    }

    /// Reads a whole handshake message from `asker`. Extensions other than the two of this profile
    /// are ignored, as RFC 9261 section 5.2.1 demands.
    ///
    /// # Errors
    /// [`AuthenticatorError`] names the first rule that the bytes break.
    pub fn decode(asker: Role, bytes: &[u8]) -> Result<Self, AuthenticatorError> {
        check_total("authenticator request", bytes, REQUEST_BYTES_MAX)?;
        let mut reader = Reader::new(bytes);
        let body = reader.message("authenticator request", request_kind(asker))?;
        reader.finish()?;
        let mut body = Reader::new(body);
        let context = body.vector::<1>("request context")?;
        let (wanted, got) = (CONTEXT_BYTES, context.len());
        let context =
            context.try_into().map_err(|_| AuthenticatorError::ContextLength { wanted, got })?;
        let extensions = read_extensions(&mut body)?;
        body.finish()?;
        let find = |wanted| extensions.iter().find(|(kind, _)| *kind == wanted);
        let (_, schemes) = find(SIGNATURE_ALGORITHMS).ok_or(AuthenticatorError::NoSchemes)?;
        let mut schemes_reader = Reader::new(schemes);
        let schemes = schemes_reader.vector::<2>("signature schemes")?;
        schemes_reader.finish()?;
        if schemes.is_empty() || schemes.len() % 2 != 0 || schemes.len() > 2 * SCHEMES_MAX {
            return Err(AuthenticatorError::NoSchemes);
        }
        let schemes =
            schemes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        let takes_cmw = match find(CMW_ATTESTATION) {
            None => false,
            Some((_, [])) => true,
            Some((_, data)) => {
                let (subject, got) = ("cmw_attestation of a request", data.len());
                return Err(AuthenticatorError::Length { subject, wanted: 0, got });
            }
        };
        Ok(Self { asker, context, schemes, takes_cmw })
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticatorAnswer<'a> {
    /// Certificate, proof of its key and MAC.
    Authenticator(Authenticator<'a>),
    /// The empty authenticator: an authenticated refusal (RFC 9261 section 6).
    Declined {
        /// The MAC of the `Finished` message.
        mac: &'a [u8],
    },
}

/// An authenticator: `Certificate`, `CertificateVerify` and `Finished`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticator<'a> {
    /// The whole message `Certificate`, with its header.
    pub certificate: &'a [u8],
    /// The whole message `CertificateVerify`, with its header.
    pub certificate_verify: &'a [u8],
    /// The context of the request.
    pub context: &'a [u8],
    /// The chain, the sender's own certificate first.
    pub entries: Vec<CertificateEntry<'a>>,
    /// The MAC of the `Finished` message.
    pub mac: &'a [u8],
    /// The signature scheme.
    pub scheme: u16,
    /// The signature.
    pub signature: &'a [u8],
}

/// A certificate with its extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateEntry<'a> {
    /// The certificate in DER, unparsed.
    pub certificate: &'a [u8],
    /// Type and content of each extension; no type occurs twice.
    pub extensions: Vec<(u16, &'a [u8])>,
}

impl<'a> AuthenticatorAnswer<'a> {
    /// Reads the whole of `bytes`.
    ///
    /// # Errors
    /// [`AuthenticatorError`] names the first rule that the bytes break.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, AuthenticatorError> {
        check_total("authenticator", bytes, AUTHENTICATOR_BYTES_MAX)?;
        let mut reader = Reader::new(bytes);
        if bytes.first() == Some(&FINISHED) {
            let mac = reader.message("Finished", FINISHED)?;
            reader.finish()?;
            return Ok(Self::Declined { mac });
        }
        let body = reader.message("Certificate", CERTIFICATE)?;
        let (certificate, rest) = bytes.split_at(reader.position);
        let (context, entries) = read_certificate(body)?;
        let body = reader.message("CertificateVerify", CERTIFICATE_VERIFY)?;
        let certificate_verify = &rest[..reader.position - certificate.len()];
        let mut verify = Reader::new(body);
        let scheme = verify.u16("signature scheme")?;
        let signature = verify.vector::<2>("signature")?;
        verify.finish()?;
        let mac = reader.message("Finished", FINISHED)?;
        reader.finish()?;
        Ok(Self::Authenticator(Authenticator {
            certificate,
            certificate_verify,
            context,
            entries,
            mac,
            scheme,
            signature,
        }))
    }
}

impl<'a> Authenticator<'a> {
    /// The wrapper in the first certificate's extension. It has to stand there and nowhere else, and
    /// the request has to have announced it.
    ///
    /// # Errors
    /// [`AuthenticatorError::Unsolicited`], [`AuthenticatorError::Misplaced`],
    /// [`AuthenticatorError::NoCmw`] and [`AuthenticatorError::Length`].
    pub fn find_cmw(&self, request: &AuthenticatorRequest) -> Result<&'a [u8], AuthenticatorError> {
        let mut found = None;
        for (position, entry) in self.entries.iter().enumerate() {
            for (kind, data) in &entry.extensions {
                if *kind != CMW_ATTESTATION || !request.takes_cmw {
                    return Err(AuthenticatorError::Unsolicited { kind: *kind });
                }
                if position > 0 {
                    return Err(AuthenticatorError::Misplaced { position });
                }
                found = Some(*data);
            }
        }
        let mut reader = Reader::new(found.ok_or(AuthenticatorError::NoCmw)?);
        let cmw = reader.vector::<2>("cmw_attestation")?;
        reader.finish()?;
        match cmw.len() {
            1..=CMW_BYTES_MAX => Ok(cmw),
            got => {
                let (subject, wanted) = ("CMW", CMW_BYTES_MAX);
                Err(AuthenticatorError::Length { subject, wanted, got })
            }
        }
    }
}

/// The message `Certificate` of a chain, with a wrapper in the first certificate's extension. Without
/// certificates it is the message over which an empty authenticator's MAC is computed.
///
/// # Errors
/// [`AuthenticatorError::Length`] if the wrapper is empty or too long.
pub fn encode_certificate(
    context: &[u8; CONTEXT_BYTES],
    chain: &[&[u8]],
    cmw: &[u8],
) -> Result<Vec<u8>, AuthenticatorError> {
    let (subject, wanted) = ("CMW", CMW_BYTES_MAX);
    if !chain.is_empty() && !(1..=wanted).contains(&cmw.len()) {
        return Err(AuthenticatorError::Length { subject, wanted, got: cmw.len() });
    }
    let mut list = Vec::new();
    for (position, certificate) in chain.iter().enumerate() {
        let mut extensions = Vec::new();
        if position == 0 {
            extensions.extend(CMW_ATTESTATION.to_be_bytes());
            extensions.extend(with_length::<2>(&with_length::<2>(cmw)));
        }
        // The list of extensions has to fit its own length, which is one header shorter.
        let (subject, wanted, got) = ("extensions", usize::from(u16::MAX), extensions.len());
        if got > wanted {
            return Err(AuthenticatorError::Length { subject, wanted, got });
        }
        list.extend(with_length::<3>(certificate));
        list.extend(with_length::<2>(&extensions));
    }
    let body = [with_length::<1>(context), with_length::<3>(&list)].concat();
    Ok(encode_message(CERTIFICATE, &body))
}

/// The message `CertificateVerify`.
pub fn encode_certificate_verify(scheme: u16, signature: &[u8]) -> Vec<u8> {
    let body = [&scheme.to_be_bytes()[..], &with_length::<2>(signature)].concat();
    encode_message(CERTIFICATE_VERIFY, &body)
}

/// The message `Finished`.
pub fn encode_finished(mac: &[u8]) -> Vec<u8> {
    encode_message(FINISHED, mac)
}

/// What the signature of an authenticator is made over (RFC 9261 section 5.2.2): 64 spaces, a text, a
/// zero byte, and the hash of handshake context, request and `Certificate`.
pub fn signed_content(transcript_hash: &[u8]) -> Vec<u8> {
    [&[0x20; 64], &b"Exported Authenticator\0"[..], transcript_hash].concat()
}

/// Why a request or an authenticator is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticatorError {
    /// A part ends before it should, or a length reaches beyond the part that holds it.
    #[error("{subject} is cut short, {wanted} bytes wanted, {got} left")]
    Truncated {
        /// The part.
        subject: &'static str,
        /// The bytes that should follow.
        wanted: usize,
        /// The bytes that follow.
        got: usize,
    },
    /// A part has a length out of its bounds.
    #[error("{subject} is {got} bytes, wanted {}", describe_limit(*wanted))]
    Length {
        /// The part.
        subject: &'static str,
        /// The limit in bytes.
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// There are bytes after the end of a part.
    #[error("authenticator has {got} bytes after the end of a part")]
    TrailingBytes {
        /// Their number.
        got: usize,
    },
    /// A handshake message is of another type, for instance a request from the wrong end.
    #[error("{subject} has message type {got}, wanted {wanted}")]
    MessageType {
        /// The message.
        subject: &'static str,
        /// The type of this message.
        wanted: u8,
        /// The type that came.
        got: u8,
    },
    /// The request's context has another length than [`CONTEXT_BYTES`].
    #[error("request context is {got} bytes, wanted {wanted}")]
    ContextLength {
        /// [`CONTEXT_BYTES`].
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// The request's context was used before on this connection.
    #[error("request context was already used on this connection")]
    ContextReused,
    /// The connection has had as many requests as it may have.
    #[error(
        "connection has had {wanted} requests for authenticators, the limit; open a new session"
    )]
    TooManyRequests {
        /// The limit.
        wanted: usize,
    },
    /// The request names no signature schemes.
    #[error("authenticator request names no signature schemes, or too many")]
    NoSchemes,
    /// The sender of the request verifies no signature scheme of this end's key.
    #[error("authenticator request names no signature scheme of this end's key")]
    NoCommonScheme,
    /// The request does not announce the extension in which evidence travels.
    #[error("authenticator request does not announce cmw_attestation")]
    NoCmwAsked,
    /// An extension occurs twice in one list.
    #[error("extension {kind} occurs twice")]
    DuplicateExtension {
        /// Its type.
        kind: u16,
    },
    /// A list has too many members.
    #[error("{subject} are more than {wanted}")]
    TooMany {
        /// The list.
        subject: &'static str,
        /// The limit.
        wanted: usize,
    },
    /// The authenticator has no certificate.
    #[error("authenticator has no certificate")]
    NoCertificate,
    /// The authenticator answers another request.
    #[error("authenticator answers another request: its context differs")]
    Context,
    /// The MAC is wrong: made for another session or role, or changed.
    #[error("authenticator has a wrong MAC: it is of another session or role, or was changed")]
    Mac,
    /// The peer declined to authenticate.
    #[error("peer sent an empty authenticator: it declines")]
    Declined,
    /// The signature scheme was not asked for, or does not suit the key.
    #[error(
        "authenticator is signed by scheme {scheme:#06x}, which was not asked for or does not suit its key"
    )]
    Scheme {
        /// The scheme that came.
        scheme: u16,
    },
    /// The signature is wrong.
    #[error("authenticator has a wrong signature")]
    Signature,
    /// The certificate cannot be read.
    #[error("authenticator's certificate is unreadable")]
    Certificate,
    /// The certificate's key is not the one of the connection.
    #[error("authenticator's certificate is of another key than the connection's")]
    Key,
    /// An extension was not asked for.
    #[error("authenticator has extension {kind}, which was not asked for")]
    Unsolicited {
        /// Its type.
        kind: u16,
    },
    /// The evidence stands at a certificate other than the first.
    #[error("cmw_attestation stands at certificate {position}, wanted the first")]
    Misplaced {
        /// The certificate's position, counted from 0.
        position: usize,
    },
    /// The authenticator holds no evidence.
    #[error("authenticator has no cmw_attestation")]
    NoCmw,
    /// The wrapper cannot be read.
    #[error("authenticator's CMW is unreadable")]
    Cmw(#[from] CmwError),
    /// The wrapper does not hold what evidence consists of.
    #[error("authenticator's CMW does not hold evidence")]
    Wrapper(#[from] EvidenceWrapperError),
}

fn describe_limit(wanted: usize) -> String {
    match wanted {
        0 => "none".into(),
        _ => format!("1 to {wanted}"),
    }
}

fn request_kind(asker: Role) -> u8 {
    match asker {
        Role::Client => CLIENT_CERTIFICATE_REQUEST,
        Role::Server => CERTIFICATE_REQUEST,
    }
}

fn read_certificate(body: &[u8]) -> Result<(&[u8], Vec<CertificateEntry<'_>>), AuthenticatorError> {
    let mut body = Reader::new(body);
    let context = body.vector::<1>("certificate context")?;
    let mut list = Reader::new(body.vector::<3>("certificate list")?);
    body.finish()?;
    let mut entries = Vec::new();
    while !list.is_at_end() {
        if entries.len() == CERTIFICATES_MAX {
            let (subject, wanted) = ("certificates", CERTIFICATES_MAX);
            return Err(AuthenticatorError::TooMany { subject, wanted });
        }
        let certificate = list.vector::<3>("certificate")?;
        if certificate.is_empty() {
            return Err(AuthenticatorError::NoCertificate);
        }
        entries.push(CertificateEntry { certificate, extensions: read_extensions(&mut list)? });
    }
    match entries.is_empty() {
        true => Err(AuthenticatorError::NoCertificate),
        false => Ok((context, entries)),
    }
}

fn read_extensions<'a>(
    reader: &mut Reader<'a>,
) -> Result<Vec<(u16, &'a [u8])>, AuthenticatorError> {
    let mut list = Reader::new(reader.vector::<2>("extensions")?);
    let mut extensions: Vec<(u16, &'a [u8])> = Vec::new();
    while !list.is_at_end() {
        let kind = list.u16("extension type")?;
        let data = list.vector::<2>("extension")?;
        if extensions.iter().any(|(other, _)| *other == kind) {
            return Err(AuthenticatorError::DuplicateExtension { kind });
        }
        if extensions.len() == EXTENSIONS_MAX {
            let (subject, wanted) = ("extensions", EXTENSIONS_MAX);
            return Err(AuthenticatorError::TooMany { subject, wanted });
        }
        extensions.push((kind, data));
    }
    Ok(extensions)
}

fn check_total(
    subject: &'static str,
    bytes: &[u8],
    wanted: usize,
) -> Result<(), AuthenticatorError> {
    match bytes.len() {
        got if got > wanted => Err(AuthenticatorError::Length { subject, wanted, got }),
        _ => Ok(()),
    }
}

fn encode_message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &with_length::<3>(body)].concat()
}

/// The bytes behind their length in `N` bytes. Every caller's bytes are within it.
fn with_length<const N: usize>(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u32).to_be_bytes();
    [&length[4 - N..], bytes].concat()
}

/// A cursor over big-endian fields.
struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    fn is_at_end(&self) -> bool {
        self.position == self.bytes.len()
    }

    fn take(
        &mut self,
        subject: &'static str,
        wanted: usize,
    ) -> Result<&'a [u8], AuthenticatorError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let Some(taken) = rest.get(..wanted) else {
            return Err(AuthenticatorError::Truncated { subject, wanted, got: rest.len() });
        };
        self.position += wanted;
        Ok(taken)
    }

    fn u16(&mut self, subject: &'static str) -> Result<u16, AuthenticatorError> {
        let bytes = self.take(subject, 2)?;
        Ok(u16::from(bytes[0]) << 8 | u16::from(bytes[1]))
    }

    /// Takes bytes that stand behind their length in `N` bytes.
    fn vector<const N: usize>(
        &mut self,
        subject: &'static str,
    ) -> Result<&'a [u8], AuthenticatorError> {
        let length = self.take(subject, N)?;
        let length = length.iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
        self.take(subject, length)
    }

    /// Takes a handshake message of type `wanted`, and returns its body.
    fn message(
        &mut self,
        subject: &'static str,
        wanted: u8,
    ) -> Result<&'a [u8], AuthenticatorError> {
        match self.take(subject, 1)?[0] {
            got if got == wanted => self.vector::<3>(subject),
            got => Err(AuthenticatorError::MessageType { subject, wanted, got }),
        }
    }

    fn finish(&self) -> Result<(), AuthenticatorError> {
        match self.bytes.len() - self.position {
            0 => Ok(()),
            got => Err(AuthenticatorError::TrailingBytes { got }),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn authenticator() -> Vec<u8> {
        let certificate = encode_certificate(&[7; 32], &[b"leaf", b"issuer"], b"cmw").unwrap();
        [certificate, encode_certificate_verify(0x0403, b"signature"), encode_finished(&[9; 32])]
            .concat()
    }

    #[test]
    fn a_request_comes_back_as_it_was() {
        for asker in [Role::Client, Role::Server] {
            let request = AuthenticatorRequest::new(asker, [7; 32]);
            let bytes = request.encode();
            assert_eq!(bytes.len(), 4 + 33 + 2 + 12 + 4);
            assert_eq!(AuthenticatorRequest::decode(asker, &bytes), Ok(request));
        }
        let from_client = AuthenticatorRequest::new(Role::Client, [7; 32]).encode();
        let got = AuthenticatorRequest::decode(Role::Server, &from_client);
        let subject = "authenticator request";
        assert_eq!(got, Err(AuthenticatorError::MessageType { subject, wanted: 13, got: 17 }));
    }

    #[test]
    fn an_authenticator_comes_back_as_it_was() {
        let bytes = authenticator();
        let Ok(AuthenticatorAnswer::Authenticator(read)) = AuthenticatorAnswer::decode(&bytes)
        else {
            panic!("it is readable");
        };
        let finished = encode_finished(read.mac);
        assert_eq!([read.certificate, read.certificate_verify, &finished].concat(), bytes);
        assert_eq!((read.context, read.entries.len(), read.scheme), (&[7; 32][..], 2, 0x0403));
        let request = AuthenticatorRequest::new(Role::Client, [7; 32]);
        assert_eq!(read.find_cmw(&request), Ok(&b"cmw"[..]));
    }

    #[test]
    fn an_empty_authenticator_is_a_refusal() {
        let bytes = encode_finished(&[9; 32]);
        let wanted = AuthenticatorAnswer::Declined { mac: &[9; 32] };
        assert_eq!(AuthenticatorAnswer::decode(&bytes), Ok(wanted));
    }

    #[test]
    fn every_truncation_and_every_trailing_byte_is_refused() {
        let mut bytes = authenticator();
        for length in 0..bytes.len() {
            assert!(AuthenticatorAnswer::decode(&bytes[..length]).is_err(), "{length}");
        }
        bytes.push(0);
        let got = AuthenticatorAnswer::decode(&bytes);
        assert_eq!(got, Err(AuthenticatorError::TrailingBytes { got: 1 }));
        let mut request = AuthenticatorRequest::new(Role::Client, [7; 32]).encode();
        for length in 0..request.len() {
            assert!(AuthenticatorRequest::decode(Role::Client, &request[..length]).is_err());
        }
        request.push(0);
        assert!(AuthenticatorRequest::decode(Role::Client, &request).is_err());
    }

    #[test]
    fn a_wrapper_beyond_the_extension_is_refused_by_both_ends() {
        let long = vec![0; CMW_BYTES_MAX + 1];
        let wanted = CMW_BYTES_MAX;
        let refused = AuthenticatorError::Length { subject: "CMW", wanted, got: wanted + 1 };
        assert_eq!(encode_certificate(&[7; 32], &[b"leaf"], &long), Err(refused));
        assert!(encode_certificate(&[7; 32], &[b"leaf"], b"").is_err());
    }
}
