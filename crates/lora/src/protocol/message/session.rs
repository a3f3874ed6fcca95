//! Messages with which a host answers a hello.

use super::codes::{encode_enum, take_enum};
use crate::protocol::{error::ProtocolError, fields::FieldReader, version::VERSION};
use crate::terms::ProtectedMatrices;

/// Answers a [`super::Hello`]: the properties of the new session.
#[derive(Clone, PartialEq)]
pub struct Welcome {
    /// The version of the session.
    pub version: u16,
    /// The epoch, drawn at random for each process of the host. Masks of another epoch are useless.
    pub epoch: [u8; 16],
    /// The token that an [`super::Attach`] must contain.
    pub token: [u8; 32],
    /// Whether evidence that the host presented or accepted is simulated.
    pub simulated: bool,
    /// Whether the key holder's attestation was accepted, so that its answers are not budgeted.
    pub trusted: bool,
    /// Whether the key holder can learn the adapter from the answers that its budget allows.
    pub can_be_learned: bool,
    /// The matrices that stay at the host.
    pub protect: ProtectedMatrices,
    /// The number of [`GroupTerms`] frames that follow.
    pub groups: u16,
}

/// The terms and the budget of one input of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupTerms<'a> {
    /// The number of answers that the client may have; `None` if there is no budget.
    pub budget: Option<u64>,
    /// The number of answers that are left of the budget.
    pub budget_left: Option<u64>,
    /// The terms, as [`crate::protocol::encode_terms`] writes them.
    pub terms: &'a [u8],
}

impl Welcome {
    /// The greatest number of inputs of an adapter: five inputs of two hundred layers fit.
    pub const INPUTS_MAX: u16 = 1024;

    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.epoch);
        out.extend_from_slice(&self.token);
        let flags = [self.simulated, self.trusted, self.can_be_learned];
        out.push(flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag)));
        out.push(encode_enum(&ProtectedMatrices::ALL, &self.protect, 1));
        out.extend_from_slice(&self.groups.to_le_bytes());
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("welcome", payload);
        let version = fields.take_u16("version")?;
        if version != VERSION {
            return Err(fields.field_error("version", "the version of the hello"));
        }
        let (epoch, token) = (fields.take_array("epoch")?, fields.take_array("token")?);
        let flags = fields.take_u8("flags")?;
        if flags > 0b111 {
            return Err(fields.field_error("flags", "three bits"));
        }
        let [simulated, trusted, can_be_learned] = [1, 2, 4].map(|bit| flags & bit != 0);
        let protect = take_enum(&mut fields, "protect", &ProtectedMatrices::ALL, 1)?;
        let groups = fields.take_u16("groups")?;
        if !(1..=Self::INPUTS_MAX).contains(&groups) {
            return Err(fields.field_error("groups", "1 to 1024"));
        }
        fields.expect_end()?;
        Ok(Self { version, epoch, token, simulated, trusted, can_be_learned, protect, groups })
    }
}

// The token is not printed, because its holder can use up the session's masks.
impl std::fmt::Debug for Welcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Welcome")
            .field("epoch", &self.epoch)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

impl<'a> GroupTerms<'a> {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.budget.unwrap_or(u64::MAX).to_le_bytes());
        out.extend_from_slice(&self.budget_left.unwrap_or(u64::MAX).to_le_bytes());
        out.extend_from_slice(self.terms);
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If a field is missing or has a value that is not allowed.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut fields = FieldReader::new("terms", payload);
        let some = |value| (value != u64::MAX).then_some(value);
        let (budget, left) =
            (some(fields.take_u64("budget")?), some(fields.take_u64("budget left")?));
        if budget.is_some() != left.is_some() || left > budget {
            return Err(fields.field_error("budget left", "no more than the budget"));
        }
        Ok(Self { budget, budget_left: left, terms: fields.take_rest() })
    }
}
