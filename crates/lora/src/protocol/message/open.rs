//! Messages that open a session or join one.

use super::codes::{PROTECTS, SCHEMES, code, word};
use crate::{
    protocol::{
        error::ProtocolError,
        fields::{Fields, put_short},
        scheme::Scheme,
        version::{MAGIC, VERSION},
    },
    terms::Protect,
};

/// Opens a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The version that the key holder speaks.
    pub version: u16,
    /// The adapter's name at the host.
    pub adapter: &'a str,
    /// The scheme by which products are computed.
    pub scheme: Scheme,
    /// The name of the parameter set.
    pub parameters: &'a str,
    /// The matrices that must stay at the host; `None` accepts the host's choice.
    pub protect: Option<Protect>,
    /// The client's id: random, new with each key. The host's shares are bound to it.
    pub client: [u8; 32],
    /// The credential that identifies this client to a host that keeps a list of clients; else
    /// empty.
    pub credential: &'a [u8],
    /// The public key in the encoding of `confide-rlwe`.
    pub public_key: &'a [u8],
}

impl<'a> Hello<'a> {
    /// The greatest length of a credential, in bytes.
    const CREDENTIAL_MAX: usize = 64;

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        put_short(out, self.adapter.as_bytes());
        out.push(code(&SCHEMES, &self.scheme, 1));
        put_short(out, self.parameters.as_bytes());
        out.push(self.protect.map_or(0, |protect| code(&PROTECTS, &protect, 1)));
        out.extend_from_slice(&self.client);
        put_short(out, self.credential);
        out.extend_from_slice(self.public_key);
    }

    /// Reads the message. A message of another version is read up to its version only.
    ///
    /// # Errors
    /// If a field is not as it must be; a foreign version is a refusal that names the host's.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("hello", payload);
        let version = opening(&mut fields)?;
        let adapter = fields.name("adapter")?;
        let scheme = word(&mut fields, "scheme", &SCHEMES, 1)?;
        let parameters = fields.name("parameters")?;
        let protect = match fields.u8("protect")? {
            0 => None,
            1 => Some(Protect::A),
            2 => Some(Protect::Ba),
            _ => return Err(fields.field_error("protect", "0, 1 or 2")),
        };
        let client = fields.array("client")?;
        let credential = fields.short_bytes("credential")?;
        if credential.len() > Self::CREDENTIAL_MAX {
            return Err(fields.field_error("credential", "at most 64 bytes"));
        }
        let public_key = fields.take_rest();
        Ok(Self { version, adapter, scheme, parameters, protect, client, credential, public_key })
    }
}

/// Joins a session that a hello opened: with a further connection, or after one broke.
#[derive(Clone, PartialEq, Eq)]
pub struct Attach {
    /// The client id of the hello.
    pub client: [u8; 32],
    /// The host's epoch, as the welcome gave it.
    pub epoch: [u8; 16],
    /// The token of the welcome, which proves that the session is the sender's.
    pub token: [u8; 32],
}

impl Attach {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.client);
        out.extend_from_slice(&self.epoch);
        out.extend_from_slice(&self.token);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// As [`Hello::decode`].
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("attach", payload);
        opening(&mut fields)?;
        let (client, epoch) = (fields.array("client")?, fields.array("epoch")?);
        let attach = Self { client, epoch, token: fields.array("token")? };
        fields.end()?;
        Ok(attach)
    }
}

// The token lets its bearer use up the session's masks.
impl std::fmt::Debug for Attach {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Attach").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Answers an [`Attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The number of connections that the session has now.
    pub connections: u16,
}

impl Attached {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.connections.to_le_bytes());
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If a field is not as it must be.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new("attached", payload);
        let attached = Self { connections: fields.u16("connections")? };
        fields.end()?;
        Ok(attached)
    }
}

fn opening(fields: &mut Fields<'_>) -> Result<u16, ProtocolError> {
    if fields.array("magic")? != MAGIC {
        return Err(fields.field_error("magic", "CFDBLIND"));
    }
    match fields.u16("version")? {
        VERSION => Ok(VERSION),
        _ => Err(crate::protocol::refusal::Refusal::Version { host: VERSION }.into()),
    }
}
