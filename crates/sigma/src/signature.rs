//! Proofs that the prover knows a signature over a message, as files (docs/sigma-proofs.md).
//!
//! Key and message are public; the signature stays hidden. If the signature may be shown, show it
//! instead: it is shorter, and checked in microseconds.

use std::fmt;

use crate::{
    challenge::check_context,
    ecdsa::{self, EcdsaStatement},
    error::SigmaError,
    hash::HashFunction,
    key::{KeyKind, PublicKey},
    padding,
    random::{self, Entropy, SecretStream},
    rsa::{self, RsaStatement},
};

/// The scheme with which the message was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureScheme {
    /// RSASSA-PKCS1-v1_5.
    Pkcs1,
    /// RSASSA-PSS, with MGF1 and the same hash. The salt is part of the statement and public.
    Pss {
        /// The salt of this signature.
        salt: Vec<u8>,
    },
    /// ECDSA.
    Ecdsa,
}

impl SignatureScheme {
    /// The name of the scheme, for display.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pkcs1 => "RSASSA-PKCS1-v1_5",
            Self::Pss { .. } => "RSASSA-PSS",
            Self::Ecdsa => "ECDSA",
        }
    }
}

/// A proof that its maker knew a signature, with the key's id, the digest and the context.
#[derive(Clone, PartialEq, Eq)]
pub struct SignatureProof {
    pub(crate) scheme: SignatureScheme,
    pub(crate) hash: HashFunction,
    pub(crate) key_id: [u8; 32],
    pub(crate) digest: Vec<u8>,
    pub(crate) context: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl SignatureProof {
    /// Proves knowledge of an RSASSA-PKCS1-v1_5 signature (RFC 8017) over a digest.
    ///
    /// # Errors
    ///
    /// [`SigmaError::SignatureInvalid`] if the signature is not valid, [`SigmaError::Unsupported`]
    /// for a key that is not RSA.
    pub fn prove_pkcs1(
        key: &PublicKey,
        hash: HashFunction,
        digest: &[u8],
        signature: &[u8],
        context: &[u8],
    ) -> Result<Self, SigmaError> {
        Self::prove(key, SignatureScheme::Pkcs1, hash, digest, signature, context)
    }

    /// Proves knowledge of an RSASSA-PSS signature, and makes its salt public.
    ///
    /// # Errors
    ///
    /// Those of [`prove_pkcs1`](Self::prove_pkcs1).
    pub fn prove_pss(
        key: &PublicKey,
        hash: HashFunction,
        digest: &[u8],
        signature: &[u8],
        context: &[u8],
    ) -> Result<Self, SigmaError> {
        let salt = pss_salt(key, hash, signature)?;
        Self::prove(key, SignatureScheme::Pss { salt }, hash, digest, signature, context)
    }

    /// Proves knowledge of an ECDSA signature, which is in DER or r ‖ s.
    ///
    /// # Errors
    ///
    /// Those of [`prove_pkcs1`](Self::prove_pkcs1), for keys on P-256 and P-384.
    pub fn prove_ecdsa(
        key: &PublicKey,
        hash: HashFunction,
        digest: &[u8],
        signature: &[u8],
        context: &[u8],
    ) -> Result<Self, SigmaError> {
        Self::prove(key, SignatureScheme::Ecdsa, hash, digest, signature, context)
    }

    /// Checks that the maker knew a signature under this key over this digest, and made the proof
    /// for this context. The hash function is taken from the proof.
    ///
    /// # Errors
    ///
    /// [`SigmaError::OtherKey`], [`SigmaError::OtherMessage`] and [`SigmaError::OtherContext`] if
    /// the proof names another one, [`SigmaError::Refused`] if it is not valid,
    /// [`SigmaError::Malformed`] if its body has another form.
    pub fn verify_digest(
        &self,
        key: &PublicKey,
        digest: &[u8],
        context: &[u8],
    ) -> Result<(), SigmaError> {
        if self.key_id != key.id() {
            return Err(SigmaError::OtherKey);
        }
        if self.digest != digest {
            return Err(SigmaError::OtherMessage);
        }
        if self.context != context {
            return Err(SigmaError::OtherContext);
        }
        match &key.kind {
            KeyKind::Rsa(key) => key.verify(&self.rsa_statement(key)?, &self.body),
            KeyKind::P256(key) => ecdsa::verify(key, &self.ecdsa_statement()?, &self.body),
            KeyKind::P384(key) => ecdsa::verify(key, &self.ecdsa_statement()?, &self.body),
        }
    }

    /// Checks a proof like [`verify_digest`](Self::verify_digest), for the digest of a message.
    ///
    /// # Errors
    ///
    /// Those of [`verify_digest`](Self::verify_digest).
    pub fn verify(
        &self,
        key: &PublicKey,
        message: &[u8],
        context: &[u8],
    ) -> Result<(), SigmaError> {
        self.verify_digest(key, &self.hash.digest(message), context)
    }

    /// The signature scheme that the proof names.
    pub fn scheme(&self) -> &SignatureScheme {
        &self.scheme
    }

    /// The hash function that the proof names.
    pub fn hash(&self) -> HashFunction {
        self.hash
    }

    /// The signed digest that the proof names.
    pub fn digest(&self) -> &[u8] {
        &self.digest
    }

    /// The context that the proof names.
    pub fn context(&self) -> &[u8] {
        &self.context
    }

    fn prove(
        key: &PublicKey,
        scheme: SignatureScheme,
        hash: HashFunction,
        digest: &[u8],
        signature: &[u8],
        context: &[u8],
    ) -> Result<Self, SigmaError> {
        let claim = Self::new(key, scheme, hash, digest, context)?;
        claim.with_proof(&random::draw_entropy()?, key, signature)
    }

    pub(crate) fn new(
        key: &PublicKey,
        scheme: SignatureScheme,
        hash: HashFunction,
        digest: &[u8],
        context: &[u8],
    ) -> Result<Self, SigmaError> {
        check_context(context)?;
        padding::check_digest(hash, digest)?;
        let (key_id, digest, context) = (key.id(), digest.to_vec(), context.to_vec());
        Ok(Self { scheme, hash, key_id, digest, context, body: Vec::new() })
    }

    /// Encodes the claim for the file and for the hash.
    pub(crate) fn encode_claim(&self) -> Vec<u8> {
        let scheme = match &self.scheme {
            SignatureScheme::Pkcs1 => 1,
            SignatureScheme::Pss { .. } => 2,
            SignatureScheme::Ecdsa => 3,
        };
        let mut out = vec![scheme, self.hash.code()];
        out.extend(self.key_id);
        out.extend(&self.digest);
        if let SignatureScheme::Pss { salt } = &self.scheme {
            out.extend((salt.len() as u16).to_be_bytes());
            out.extend(salt);
        }
        out
    }

    pub(crate) fn with_proof(
        mut self,
        entropy: &Entropy,
        key: &PublicKey,
        signature: &[u8],
    ) -> Result<Self, SigmaError> {
        let claim = self.encode_claim();
        let mut stream =
            SecretStream::new(entropy, &[b"signature", &claim, &self.context, signature]);
        let stream = &mut stream;
        self.body = match &key.kind {
            KeyKind::Rsa(key) => key.prove(&self.rsa_statement(key)?, signature, stream)?,
            KeyKind::P256(key) => ecdsa::prove(key, &self.ecdsa_statement()?, signature, stream)?,
            KeyKind::P384(key) => ecdsa::prove(key, &self.ecdsa_statement()?, signature, stream)?,
        };
        Ok(self)
    }

    fn rsa_statement(&self, key: &rsa::RsaKey) -> Result<RsaStatement<'_>, SigmaError> {
        let em = match &self.scheme {
            SignatureScheme::Pkcs1 => padding::encode_pkcs1(self.hash, &self.digest, key.length()),
            SignatureScheme::Pss { salt } => {
                padding::encode_pss(self.hash, &self.digest, salt, key.bits(), key.length())
            }
            SignatureScheme::Ecdsa => Err(wrong_key_error("an RSA key", &self.scheme)),
        };
        Ok(RsaStatement { claim: self.encode_claim(), em: em?, context: &self.context })
    }

    fn ecdsa_statement(&self) -> Result<EcdsaStatement<'_>, SigmaError> {
        match &self.scheme {
            SignatureScheme::Ecdsa => Ok(EcdsaStatement {
                claim: self.encode_claim(),
                digest: &self.digest,
                context: &self.context,
            }),
            other => Err(wrong_key_error("an elliptic-curve key", other)),
        }
    }
}

/// Decodes the salt of an RSASSA-PSS signature.
pub(crate) fn pss_salt(
    key: &PublicKey,
    hash: HashFunction,
    signature: &[u8],
) -> Result<Vec<u8>, SigmaError> {
    let KeyKind::Rsa(key) = &key.kind else {
        return Err(wrong_key_error(
            "an elliptic-curve key",
            &SignatureScheme::Pss { salt: Vec::new() },
        ));
    };
    let em = key.recover_encoded_message(signature).ok_or(SigmaError::SignatureInvalid)?;
    padding::pss_salt(hash, &em, key.bits()).ok_or(SigmaError::SignatureInvalid)
}

fn wrong_key_error(key: &str, scheme: &SignatureScheme) -> SigmaError {
    SigmaError::Unsupported {
        what: "scheme for this key",
        got: format!("{} with {key}", scheme.name()),
    }
}

impl fmt::Debug for SignatureProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, hash) = (self.scheme.name(), self.hash.name());
        write!(f, "SignatureProof({scheme} with {hash}, {} bytes)", self.body.len())
    }
}

#[cfg(test)]
mod tests;
