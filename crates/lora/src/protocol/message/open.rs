//! Messages that open a session or join one.

use super::codes::{SCHEMES, encode_enum, take_enum};
use crate::{
    protocol::{
        error::ProtocolError,
        fields::{FieldReader, put_length_prefixed},
        scheme::Scheme,
        version::{MAGIC, VERSION},
    },
    terms::ProtectedMatrices,
};

/// Opens a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The key holder's version of the protocol.
    pub version: u16,
    /// The adapter's name at the host.
    pub adapter: &'a str,
    /// The scheme by which products are computed.
    pub scheme: Scheme,
    /// The name of the parameter set.
    pub parameters: &'a str,
    /// The matrices that must stay at the host; `None` accepts the host's choice.
    pub protect: Option<ProtectedMatrices>,
    /// The client's id, drawn at random for each key. The host derives its masks from it.
    pub client: [u8; 32],
    /// The credential that identifies this client to a host with a list of clients; empty without
    /// one.
    pub credential: &'a [u8],
    /// The public key in the encoding of `confide-rlwe`.
    pub public_key: &'a [u8],
}

impl<'a> Hello<'a> {
    /// The greatest length of a credential, in bytes.
    pub const CREDENTIAL_MAX: usize = 64;

    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        put_length_prefixed(out, self.adapter.as_bytes());
        out.push(encode_enum(&SCHEMES, &self.scheme, 1));
        put_length_prefixed(out, self.parameters.as_bytes());
        out.push(
            self.protect.map_or(0, |protect| encode_enum(&ProtectedMatrices::ALL, &protect, 1)),
        );
        out.extend_from_slice(&self.client);
        put_length_prefixed(out, self.credential);
        out.extend_from_slice(self.public_key);
    }

    /// Decodes the message. Decoding stops at an unsupported version.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed. An unsupported version results in
    /// [`Refusal::Version`](crate::protocol::Refusal::Version).
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("hello", payload);
        let version = take_preamble(&mut fields)?;
        let adapter = fields.take_name("adapter")?;
        let scheme = take_enum(&mut fields, "scheme", &SCHEMES, 1)?;
        let parameters = fields.take_name("parameters")?;
        let protect = match fields.take_u8("protect")? {
            0 => None,
            1 => Some(ProtectedMatrices::A),
            2 => Some(ProtectedMatrices::Ba),
            _ => return Err(fields.field_error("protect", "0, 1 or 2")),
        };
        let client = fields.take_array("client")?;
        let credential = fields.take_length_prefixed("credential")?;
        if credential.len() > Self::CREDENTIAL_MAX {
            return Err(fields.field_error("credential", "at most 64 bytes"));
        }
        let public_key = fields.take_rest();
        Ok(Self { version, adapter, scheme, parameters, protect, client, credential, public_key })
    }
}

/// Joins a session that a hello opened, with a further connection or after one broke.
#[derive(Clone, PartialEq, Eq)]
pub struct Attach {
    /// The client id of the hello.
    pub client: [u8; 32],
    /// The host's epoch, from the welcome.
    pub epoch: [u8; 16],
    /// The token from the welcome, which proves that the sender owns the session.
    pub token: [u8; 32],
}

impl Attach {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.client);
        out.extend_from_slice(&self.epoch);
        out.extend_from_slice(&self.token);
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// As [`Hello::decode`].
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("attach", payload);
        take_preamble(&mut fields)?;
        let (client, epoch) = (fields.take_array("client")?, fields.take_array("epoch")?);
        let attach = Self { client, epoch, token: fields.take_array("token")? };
        fields.expect_end()?;
        Ok(attach)
    }
}

// The token is not printed, because its holder can use up the session's masks.
impl std::fmt::Debug for Attach {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Attach").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Answers an [`Attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachAnswer {
    /// The number of connections that the session has now.
    pub connections: u16,
}

impl AttachAnswer {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.connections.to_le_bytes());
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("attached", payload);
        let attached = Self { connections: fields.take_u16("connections")? };
        fields.expect_end()?;
        Ok(attached)
    }
}

fn take_preamble(fields: &mut FieldReader<'_>) -> Result<u16, ProtocolError> {
    if fields.take_array("magic")? != MAGIC {
        return Err(fields.field_error("magic", "CFDBLIND"));
    }
    match fields.take_u16("version")? {
        VERSION => Ok(VERSION),
        _ => Err(crate::protocol::refusal::Refusal::Version { host: VERSION }.into()),
    }
}
