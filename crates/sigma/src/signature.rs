//! Proofs that their maker holds a signature over a message, as files (docs/sigma-proofs.md).
//!
//! Key and message are public; the signature stays hidden. Where the signature may be shown, it is
//! the better proof: shorter, and checked in microseconds.

use std::fmt;

use crate::{
    challenge::check_context,
    ecdsa::{self, Statement as Ec},
    error::SigmaError,
    hash::Hash,
    key::{Kind, PublicKey},
    padding,
    random::{self, Entropy, Stream},
    rsa::{self, Statement as Rsa},
};

/// The scheme that the message was signed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5.
    Pkcs1,
    /// RSASSA-PSS, MGF1 over the same hash. The salt is part of the statement and public.
    Pss {
        /// The salt of this signature.
        salt: Vec<u8>,
    },
    /// ECDSA.
    Ecdsa,
}

impl Scheme {
    /// The name of the scheme, for display.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pkcs1 => "RSASSA-PKCS1-v1_5",
            Self::Pss { .. } => "RSASSA-PSS",
            Self::Ecdsa => "ECDSA",
        }
    }
}

/// A proof that its maker knew a signature; it names the key, the digest and the context.
#[derive(Clone, PartialEq, Eq)]
pub struct SignatureProof {
    pub(crate) scheme: Scheme,
    pub(crate) hash: Hash,
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
    /// [`SigmaError::SignatureInvalid`] if the signature is wrong, [`SigmaError::Unsupported`]
    /// for a key that is not RSA.
    pub fn pkcs1(
        key: &PublicKey,
        hash: Hash,
        digest: &[u8],
        signature: &[u8],
        context: &[u8],
    ) -> Result<Self, SigmaError> {
        Self::prove(key, Scheme::Pkcs1, hash, digest, signature, context)
    }

    /// Proves knowledge of an RSASSA-PSS signature; its salt, read out of it, becomes public.
    ///
    /// # Errors
    ///
    /// As [`pkcs1`](Self::pkcs1).
    pub fn pss(
        key: &PublicKey,
        hash: Hash,
        digest: &[u8],
        signature: &[u8],
        context: &[u8],
    ) -> Result<Self, SigmaError> {
        let salt = pss_salt(key, hash, signature)?;
        Self::prove(key, Scheme::Pss { salt }, hash, digest, signature, context)
    }

    /// Proves knowledge of an ECDSA signature, DER or as r and s one after the other.
    ///
    /// # Errors
    ///
    /// As [`pkcs1`](Self::pkcs1), for keys on P-256 and P-384.
    pub fn ecdsa(
        key: &PublicKey,
        hash: Hash,
        digest: &[u8],
        signature: &[u8],
        context: &[u8],
    ) -> Result<Self, SigmaError> {
        Self::prove(key, Scheme::Ecdsa, hash, digest, signature, context)
    }

    /// Checks that the maker knew a signature under this key over this digest, and made the proof
    /// for this context. The hash is the one that the proof names.
    ///
    /// # Errors
    ///
    /// [`SigmaError::OtherKey`], [`SigmaError::OtherMessage`] and [`SigmaError::OtherContext`]
    /// where the proof names another, [`SigmaError::Refused`] if it shows nothing,
    /// [`SigmaError::Malformed`] if it has another form.
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
            Kind::Rsa(key) => key.verify(&self.rsa_statement(key)?, &self.body),
            Kind::P256(key) => ecdsa::verify(key, &self.ecdsa_statement()?, &self.body),
            Kind::P384(key) => ecdsa::verify(key, &self.ecdsa_statement()?, &self.body),
        }
    }

    /// Checks a proof as [`verify_digest`](Self::verify_digest) does, for the digest of a message.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn verify(
        &self,
        key: &PublicKey,
        message: &[u8],
        context: &[u8],
    ) -> Result<(), SigmaError> {
        self.verify_digest(key, &self.hash.digest(message), context)
    }

    /// The scheme that the message was signed by, as the proof claims.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// The hash that the message was signed under, as the proof claims.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// The digest that was signed, as the proof claims.
    pub fn digest(&self) -> &[u8] {
        &self.digest
    }

    /// The context that the proof was made for, as it claims.
    pub fn context(&self) -> &[u8] {
        &self.context
    }

    fn prove(
        key: &PublicKey,
        scheme: Scheme,
        hash: Hash,
        digest: &[u8],
        signature: &[u8],
        context: &[u8],
    ) -> Result<Self, SigmaError> {
        let claim = Self::new(key, scheme, hash, digest, context)?;
        claim.with_proof(&random::entropy()?, key, signature)
    }

    pub(crate) fn new(
        key: &PublicKey,
        scheme: Scheme,
        hash: Hash,
        digest: &[u8],
        context: &[u8],
    ) -> Result<Self, SigmaError> {
        check_context(context)?;
        padding::check_digest(hash, digest)?;
        let (key_id, digest, context) = (key.id(), digest.to_vec(), context.to_vec());
        Ok(Self { scheme, hash, key_id, digest, context, body: Vec::new() })
    }

    /// The bytes of the claim, as they are written and hashed.
    pub(crate) fn claim(&self) -> Vec<u8> {
        let scheme = match &self.scheme {
            Scheme::Pkcs1 => 1,
            Scheme::Pss { .. } => 2,
            Scheme::Ecdsa => 3,
        };
        let mut out = vec![scheme, self.hash.code()];
        out.extend(self.key_id);
        out.extend(&self.digest);
        if let Scheme::Pss { salt } = &self.scheme {
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
        let claim = self.claim();
        let mut stream = Stream::new(entropy, &[b"signature", &claim, &self.context, signature]);
        let stream = &mut stream;
        self.body = match &key.kind {
            Kind::Rsa(key) => key.prove(&self.rsa_statement(key)?, signature, stream)?,
            Kind::P256(key) => ecdsa::prove(key, &self.ecdsa_statement()?, signature, stream)?,
            Kind::P384(key) => ecdsa::prove(key, &self.ecdsa_statement()?, signature, stream)?,
        };
        Ok(self)
    }

    fn rsa_statement(&self, key: &rsa::RsaKey) -> Result<Rsa<'_>, SigmaError> {
        let em = match &self.scheme {
            Scheme::Pkcs1 => padding::pkcs1(self.hash, &self.digest, key.length()),
            Scheme::Pss { salt } => {
                padding::pss(self.hash, &self.digest, salt, key.bits(), key.length())
            }
            Scheme::Ecdsa => Err(wrong_key("an RSA key", &self.scheme)),
        };
        Ok(Rsa { claim: self.claim(), em: em?, context: &self.context })
    }

    fn ecdsa_statement(&self) -> Result<Ec<'_>, SigmaError> {
        match &self.scheme {
            Scheme::Ecdsa => {
                Ok(Ec { claim: self.claim(), digest: &self.digest, context: &self.context })
            }
            other => Err(wrong_key("an elliptic-curve key", other)),
        }
    }
}

/// Reads the salt of an RSASSA-PSS signature.
pub(crate) fn pss_salt(
    key: &PublicKey,
    hash: Hash,
    signature: &[u8],
) -> Result<Vec<u8>, SigmaError> {
    let Kind::Rsa(key) = &key.kind else {
        return Err(wrong_key("an elliptic-curve key", &Scheme::Pss { salt: Vec::new() }));
    };
    let em = key.recover(signature).ok_or(SigmaError::SignatureInvalid)?;
    padding::pss_salt(hash, &em, key.bits()).ok_or(SigmaError::SignatureInvalid)
}

fn wrong_key(key: &str, scheme: &Scheme) -> SigmaError {
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
