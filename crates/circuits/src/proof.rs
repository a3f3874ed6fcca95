//! The encoding of a proof: a header, which can be parsed alone, and a body of fixed length.

use crate::{error::CircuitError, kind::Circuit};

/// The first bytes of every proof of this crate.
const MAGIC: &[u8; 24] = b"confide circuit proof v1";

/// The length of a header in bytes: magic, circuit, security, key, length of the body.
pub const HEADER_BYTES: usize = MAGIC.len() + 2 + 3 + 32 + 4;

/// The back end that makes and checks the bodies of proofs. Its version is pinned in Cargo.toml.
pub const BACK_END: &str = "spartan2 0.9.0 over T256";

/// The greatest length of a proof, in bytes. Those of the largest circuit have about 92,000.
pub const PROOF_BYTES_MOST: usize = 128 * 1024;

/// The strength of a proof, and whether it hides its witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitSecurity {
    /// The number of bits under the assumptions that discrete logarithms of the curve T256 are hard
    /// and that the hash is a random oracle. Without them nothing is proven.
    pub conjectured_bits: u16,
    /// Whether the proof reveals nothing but its statement.
    pub zero_knowledge: bool,
}

impl std::fmt::Display for CircuitSecurity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hides = if self.zero_knowledge { "zero-knowledge" } else { "not zero-knowledge" };
        write!(f, "{} conjectured bits, {hides}", self.conjectured_bits)
    }
}

/// The header of a proof. A checker derives the expected header and compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofHeader {
    /// The circuit of the proof.
    pub circuit: Circuit,
    /// The security that the proof claims.
    pub security: CircuitSecurity,
    /// The digest of the verifier's key.
    pub key: [u8; 32],
}

impl ProofHeader {
    /// Encodes the proof: the header and then the body.
    pub fn encode_proof(&self, body: &[u8]) -> Vec<u8> {
        let mut proof = Vec::with_capacity(HEADER_BYTES + body.len());
        proof.extend_from_slice(MAGIC);
        proof.extend_from_slice(&self.circuit.code());
        proof.extend_from_slice(&self.security.conjectured_bits.to_be_bytes());
        proof.push(self.security.zero_knowledge.into());
        proof.extend_from_slice(&self.key);
        proof.extend_from_slice(&(body.len() as u32).to_be_bytes());
        proof.extend_from_slice(body);
        proof
    }

    /// Parses the header of a proof, and returns it with the body.
    ///
    /// # Errors
    ///
    /// [`CircuitError::Magic`] if the bytes are not a proof of this crate;
    /// [`CircuitError::UnknownField`] if a field has an unknown value;
    /// [`CircuitError::ProofLength`] or [`CircuitError::Length`] if the bytes are too few or too
    /// many.
    pub fn parse(proof: &[u8]) -> Result<(Self, &[u8]), CircuitError> {
        if proof.len() > PROOF_BYTES_MOST {
            let (subject, least, most) = ("proof", HEADER_BYTES, PROOF_BYTES_MOST);
            return Err(CircuitError::Length { subject, least, most, got: proof.len() });
        }
        let rest = proof.strip_prefix(MAGIC).ok_or(CircuitError::Magic)?;
        let (fields, body) = rest
            .split_first_chunk::<{ HEADER_BYTES - MAGIC.len() }>()
            .ok_or(CircuitError::ProofLength { wanted: HEADER_BYTES, got: proof.len() })?;
        let [kind, size, bits_high, bits_low, hides, key @ .., l0, l1, l2, l3] = fields;
        let zero_knowledge = match hides {
            0 => false,
            1 => true,
            got => {
                return Err(CircuitError::UnknownField {
                    field: "zero-knowledge",
                    got: (*got).into(),
                });
            }
        };
        let length = u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize;
        if length != body.len() {
            return Err(CircuitError::ProofLength { wanted: length, got: body.len() });
        }
        let circuit = Circuit::from_code([*kind, *size])?;
        let conjectured_bits = u16::from_be_bytes([*bits_high, *bits_low]);
        let mut digest = [0; 32];
        digest.copy_from_slice(key);
        let security = CircuitSecurity { conjectured_bits, zero_knowledge };
        Ok((Self { circuit, security, key: digest }, body))
    }
}
