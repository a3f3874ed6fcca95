//! The encodings of the signed statement, which ends an answer, and of the signing key's evidence.

use confide_disclosure::{
    CLAIMS_BYTES_MAX, ENDORSEMENTS_BYTES_MAX, NotaryEvidence, PUBLIC_KEY_BYTES, QUOTE_BYTES_MAX,
    SEED_BYTES, SIGNATURE_BYTES, STATEMENT_BYTES_MAX, Seed, Signature, encode_spki,
};
use sha2::{Digest, Sha256};

/// A statement, its signature, and the secret seed that opens its commitments.
#[derive(Clone, Debug)]
pub struct SignedStatement {
    /// The seed from which every salt of the transcript derives.
    pub seed: Seed,
    /// The encoded [`confide_disclosure::NotaryStatement`].
    pub statement: Vec<u8>,
    /// The signature of the notary's key over `statement`.
    pub signature: Signature,
}

/// The public key that signs, and the evidence that binds it: the answer to `GET /v1/key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvidence {
    /// The public key as 0x04 ‖ x ‖ y.
    pub key: [u8; PUBLIC_KEY_BYTES],
    /// The quote, the claims and the endorsements.
    pub evidence: NotaryEvidence,
}

/// The longest encoding of a [`KeyEvidence`], in bytes.
pub const KEY_EVIDENCE_BYTES_MAX: usize =
    PUBLIC_KEY_BYTES + 3 * 4 + QUOTE_BYTES_MAX + CLAIMS_BYTES_MAX + ENDORSEMENTS_BYTES_MAX;

/// The reason for which bytes are not a signed statement or a key's evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject} is not readable: wanted {wanted}")]
pub struct SignedStatementError {
    /// The object that was read.
    pub subject: &'static str,
    /// The encoding that was expected.
    pub wanted: &'static str,
}

impl SignedStatement {
    /// Encodes the seed, the signature and the statement, in this order.
    pub fn encode(&self) -> Vec<u8> {
        [&self.seed.secret()[..], &self.signature, &self.statement].concat()
    }

    /// Decodes the bytes of [`SignedStatement::encode`], except for the statement itself.
    ///
    /// # Errors
    /// [`SignedStatementError`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, SignedStatementError> {
        let wrong = SignedStatementError {
            subject: "signed statement",
            wanted: "a seed, a signature and 1 to 1024 bytes of statement",
        };
        let (seed, rest) = bytes.split_first_chunk::<SEED_BYTES>().ok_or(wrong)?;
        let (signature, statement) = rest.split_first_chunk::<SIGNATURE_BYTES>().ok_or(wrong)?;
        match (1..=STATEMENT_BYTES_MAX).contains(&statement.len()) {
            false => Err(wrong),
            true => Ok(Self {
                seed: Seed::from_bytes(*seed),
                statement: statement.to_vec(),
                signature: *signature,
            }),
        }
    }
}

impl KeyEvidence {
    /// Encodes the key, then quote, claims and endorsements, each after its length as big-endian
    /// u32.
    pub fn encode(&self) -> Vec<u8> {
        let NotaryEvidence { quote, claims, endorsements } = &self.evidence;
        let mut bytes = self.key.to_vec();
        for part in [quote, claims, endorsements] {
            bytes.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }

    /// SHA-256 of the key's SubjectPublicKeyInfo: `pubkey-hash` of the claims.
    pub fn spki_hash(&self) -> [u8; 32] {
        Sha256::digest(encode_spki(&self.key)).into()
    }

    /// Decodes the bytes of [`KeyEvidence::encode`].
    ///
    /// # Errors
    /// [`SignedStatementError`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, SignedStatementError> {
        let wrong = SignedStatementError {
            subject: "evidence over the signing key",
            wanted: "a key, a quote, claims and endorsements",
        };
        let (key, mut rest) = bytes.split_first_chunk().ok_or(wrong)?;
        let mut part = |limit: usize| {
            let (length, content) = rest.split_first_chunk().ok_or(wrong)?;
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            let fits = length <= limit;
            let (content, after) =
                content.split_at_checked(length).filter(|_| fits).ok_or(wrong)?;
            rest = after;
            Ok(content.to_vec())
        };
        let evidence = NotaryEvidence {
            quote: part(QUOTE_BYTES_MAX)?,
            claims: part(CLAIMS_BYTES_MAX)?,
            endorsements: part(ENDORSEMENTS_BYTES_MAX)?,
        };
        if rest.is_empty() { Ok(Self { key: *key, evidence }) } else { Err(wrong) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_over_a_key_comes_back_and_nothing_else_is_read() {
        let evidence =
            NotaryEvidence { quote: vec![1; 300], claims: vec![2; 30], endorsements: Vec::new() };
        let bound = KeyEvidence { key: [4; PUBLIC_KEY_BYTES], evidence };
        let bytes = bound.encode();
        assert_eq!(KeyEvidence::decode(&bytes), Ok(bound));
        for length in 0..bytes.len() {
            assert!(KeyEvidence::decode(&bytes[..length]).is_err(), "{length}");
        }
        assert!(KeyEvidence::decode(&[&bytes[..], b"x"].concat()).is_err());
        let mut long = bytes.clone();
        long[PUBLIC_KEY_BYTES..PUBLIC_KEY_BYTES + 4].fill(0xff);
        assert!(KeyEvidence::decode(&long).is_err());
    }

    #[test]
    fn a_signed_statement_comes_back_and_shows_no_seed() {
        let signed = SignedStatement {
            seed: Seed::from_bytes([0xab; 32]),
            statement: vec![1, 2, 3],
            signature: [5; 64],
        };
        let read = SignedStatement::decode(&signed.encode()).unwrap();
        assert_eq!(read.seed.secret(), signed.seed.secret());
        assert_eq!((&read.statement, read.signature), (&signed.statement, signed.signature));
        assert!(!format!("{signed:?}").contains("171"));
        assert!(
            SignedStatement::decode(&[0; 96]).is_err() && SignedStatement::decode(&[0; 97]).is_ok()
        );
        assert!(SignedStatement::decode(&[0; 97 + STATEMENT_BYTES_MAX]).is_err());
    }
}
