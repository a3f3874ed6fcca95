//! A key, its certificate, its claims and, with key binding, the evidence over them.

use std::{fmt, sync::Arc, time::Duration};

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair},
};
use confide_evidence::{
    Attest,
    binder::key_report_data,
    claims::Claims,
    tagged_evidence::{TaggedCollateral, TaggedEvidence},
    weights_claim::WeightsClaim,
};
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls::{
    SignatureAlgorithm, SignatureScheme,
    pki_types::{CertificateDer, SubjectPublicKeyInfoDer},
    sign::{CertifiedKey, Signer, SigningKey},
};
use time::OffsetDateTime;

use crate::{certificate::sha256, error::ChannelError, options::Binding, own_evidence};

/// The exclusive upper bound of a certificate's length: peers refuse handshake messages of 64 KiB
/// or more.
pub const CERTIFICATE_BYTES_MAX: usize = 60_000;

/// The lifetime of a certificate without evidence. Clients pin it, so it is not renewed while the
/// server runs.
pub(crate) const PLAIN_VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The seconds by which a key's validity begins in the past, for verifiers whose clock is behind.
/// They are part of the span that a policy caps, and at most a quarter of it.
const CLOCK_SKEW_S: u64 = 60;

/// The options from which an identity is made.
#[derive(Clone)]
pub(crate) struct IdentityOptions {
    pub(crate) attester: Option<Arc<dyn Attest>>,
    pub(crate) binding: Binding,
    pub(crate) config_digest: [u8; 32],
    pub(crate) guarantee: String,
    pub(crate) names: Vec<String>,
    pub(crate) validity: Duration,
    pub(crate) weights: Option<WeightsClaim>,
}

/// A key with its certificate and claims. A renewal replaces all of them, so a key never outlives
/// its claims.
pub(crate) struct Identity {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) claims: Vec<u8>,
    pub(crate) not_after: u64,
    pub(crate) not_before: u64,
    pub(crate) spki_hash: [u8; 32],
    /// SHA-256 of the collateral in the certificate; `None` if it has none.
    pub(crate) collateral_hash: Option<[u8; 32]>,
}

/// The TLS key that a server presents, until it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyIdentity {
    /// SHA-256 of its DER `SubjectPublicKeyInfo`.
    pub spki_sha256: [u8; 32],
    /// Unix seconds after which it is not used.
    pub not_after: u64,
}

impl Identity {
    /// Makes a key and, with key binding, obtains a quote. Blocks while the attester works.
    pub(crate) fn generate(options: &IdentityOptions, now: u64) -> Result<Self, ChannelError> {
        let key = TlsKey::generate()?;
        let spki_hash = sha256(&key.spki);
        let span = options.validity.as_secs();
        let not_before = now.saturating_sub(CLOCK_SKEW_S.min(span / 4));
        let not_after = not_before.saturating_add(span);
        let claims = Claims {
            config_digest: options.config_digest,
            gpu_evidence_hash: None,
            guarantee: options.guarantee.clone(),
            nonce: None,
            not_after,
            not_before,
            pubkey_hash: spki_hash,
            weights: options.weights.clone(),
        };
        let attester = match options.binding {
            Binding::None => None,
            _ => {
                claims.check().map_err(ChannelError::OwnClaims)?;
                options.attester.as_deref()
            }
        };
        let claims = claims.encode();
        let mut params = certificate_parameters(&options.names, not_before, not_after)?;
        let mut collateral_hash = None;
        if options.binding == Binding::Key {
            let attester = attester.ok_or(ChannelError::NoAttester { binding: "key" })?;
            let quote = own_evidence::obtain_quote(attester, &key_report_data(&claims))?;
            // Read after the quote, because some devices return the endorsements with it (SNP's
            // host table).
            let collateral = own_evidence::obtain_collateral(attester)?;
            params.custom_extensions = evidence_extensions(&quote, &claims, collateral.as_deref());
            collateral_hash = collateral.as_deref().map(sha256);
        } else if let Some(attester) = attester {
            // With session binding the collateral is sent later; one that no client would read is
            // refused now.
            own_evidence::obtain_collateral(attester)?;
        }
        let certificate = params.self_signed(&key).map_err(identity_error)?.der().clone();
        if certificate.len() >= CERTIFICATE_BYTES_MAX {
            let (wanted, got) = (CERTIFICATE_BYTES_MAX, certificate.len());
            return Err(ChannelError::CertificateSize { wanted, got });
        }
        let certified = Arc::new(CertifiedKey::new(vec![certificate], Arc::new(key)));
        Ok(Self { certified, claims, not_after, not_before, spki_hash, collateral_hash })
    }

    /// An identity of a foreign key and certificate, which has no claims.
    pub(crate) fn from_certified_key(certified: CertifiedKey) -> Self {
        Self {
            certified: Arc::new(certified),
            claims: Vec::new(),
            not_after: u64::MAX,
            not_before: 0,
            spki_hash: [0; 32],
            collateral_hash: None,
        }
    }

    /// The key and its expiry.
    pub(crate) fn key_identity(&self) -> KeyIdentity {
        KeyIdentity { spki_sha256: self.spki_hash, not_after: self.not_after }
    }

    /// The DER SubjectPublicKeyInfo of the key.
    ///
    /// # Errors
    /// [`ChannelError::Identity`] for a foreign key that does not give it.
    pub(crate) fn spki(&self) -> Result<SubjectPublicKeyInfoDer<'_>, ChannelError> {
        let error = || identity_error("the key does not give its SubjectPublicKeyInfo");
        self.certified.key.public_key().ok_or_else(error)
    }

    pub(crate) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.certified.cert.first()
    }
}

fn certificate_parameters(
    names: &[String],
    not_before: u64,
    not_after: u64,
) -> Result<CertificateParams, ChannelError> {
    let mut params = CertificateParams::new(names).map_err(identity_error)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "confide");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = to_date_time(not_before)?;
    params.not_after = to_date_time(not_after)?;
    Ok(params)
}

fn to_date_time(unix: u64) -> Result<OffsetDateTime, ChannelError> {
    let seconds = i64::try_from(unix).map_err(identity_error)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(identity_error)
}

fn evidence_extensions(
    quote: &[u8],
    claims: &[u8],
    collateral: Option<&[u8]>,
) -> Vec<CustomExtension> {
    // Not critical: TLS libraries refuse certificates with critical extensions they do not know.
    let evidence = TaggedEvidence { quote, claims }.encode();
    let mut extensions = vec![CustomExtension::from_oid_content(&[2, 23, 133, 5, 4, 9], evidence)];
    if let Some(collateral) = collateral {
        let content = TaggedCollateral { collateral }.encode();
        extensions.push(CustomExtension::from_oid_content(&[2, 23, 133, 5, 4, 2], content));
    }
    extensions
}

/// A P-256 key that stays inside aws-lc, which overwrites it when it is freed: it is never
/// serialised, so there is no other copy to zeroise.
struct TlsKey {
    pair: Arc<EcdsaKeyPair>,
    spki: Vec<u8>,
}

impl TlsKey {
    fn generate() -> Result<Self, ChannelError> {
        let pair =
            EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(identity_error)?;
        let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(identity_error)?;
        let spki = spki.as_ref().to_vec();
        Ok(Self { pair: Arc::new(pair), spki })
    }
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKey").finish_non_exhaustive()
    }
}

impl PublicKeyData for TlsKey {
    fn der_bytes(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for TlsKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        signature.map(|s| s.as_ref().to_vec()).map_err(|_| rcgen::Error::RingUnspecified)
    }
}

impl SigningKey for TlsKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let known = offered.contains(&SignatureScheme::ECDSA_NISTP256_SHA256);
        known.then(|| Box::new(TlsSigner(self.pair.clone())) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(self.spki.as_slice()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

struct TlsSigner(Arc<EcdsaKeyPair>);

impl fmt::Debug for TlsSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSigner").finish_non_exhaustive()
    }
}

impl Signer for TlsSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let signature = self.0.sign(&SystemRandom::new(), message);
        let failed = |_| rustls::Error::General("signing failed".into());
        signature.map(|signature| signature.as_ref().to_vec()).map_err(failed)
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_NISTP256_SHA256
    }
}

fn identity_error(error: impl fmt::Display) -> ChannelError {
    ChannelError::Identity { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A foreign key that does not give its public half.
    #[derive(Debug)]
    struct MuteKey;

    impl SigningKey for MuteKey {
        fn choose_scheme(&self, _offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
            None
        }

        fn algorithm(&self) -> SignatureAlgorithm {
            SignatureAlgorithm::ECDSA
        }
    }

    #[test]
    fn a_key_without_a_public_half_is_an_error() {
        let certified = CertifiedKey::new(Vec::new(), Arc::new(MuteKey));
        let error = Identity::from_certified_key(certified).spki().map(drop).unwrap_err();
        assert!(matches!(error, ChannelError::Identity { .. }));
    }
}
