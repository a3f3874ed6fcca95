//! Exported authenticators (RFC 9261): signed and checked with the values that a session exports.
//!
//! rustls has none, but all that they need: the exporter, the negotiated suite, and a signing key.

use confide_evidence::{
    authenticator::{
        Authenticator, AuthenticatorAnswer, AuthenticatorError, AuthenticatorRequest,
        SIGNATURE_SCHEMES, encode_certificate, encode_certificate_verify, encode_finished,
        signed_content,
    },
    binder::{Role, SuiteHash},
};
use der::asn1::ObjectIdentifier;
use hmac::{Hmac, KeyInit, Mac};
use rustls::{
    SignatureScheme,
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{AlgorithmIdentifier, CertificateDer, alg_id},
    sign::{CertifiedKey, Signer},
};
use sha2::{Digest, Sha256, Sha384};
use zeroize::Zeroizing;

use crate::{
    certificate::{PeerCertificate, PublicKey},
    error::ChannelError,
};

/// The exporter's labels for the handshake context and the MAC key of authenticators of one end
/// (RFC 9261 section 5.1).
pub(crate) fn exporter_labels(sender: Role) -> (&'static [u8], &'static [u8]) {
    match sender {
        Role::Client => (
            b"EXPORTER-client authenticator handshake context",
            b"EXPORTER-client authenticator finished key",
        ),
        Role::Server => (
            b"EXPORTER-server authenticator handshake context",
            b"EXPORTER-server authenticator finished key",
        ),
    }
}

/// An end's certificates, and its key with the scheme that it signs an authenticator with.
pub(crate) struct AuthenticatorSigner<'a> {
    chain: &'a [CertificateDer<'static>],
    signer: Box<dyn Signer>,
}

impl<'a> AuthenticatorSigner<'a> {
    /// Chooses a scheme of this key that the sender of `asked` verifies.
    ///
    /// # Errors
    /// [`AuthenticatorError::NoCommonScheme`] if it verifies none.
    pub(crate) fn choose(
        asked: &AuthenticatorRequest,
        certified: &'a CertifiedKey,
    ) -> Result<Self, AuthenticatorError> {
        let is_known = |scheme: &&u16| SIGNATURE_SCHEMES.contains(*scheme);
        let schemes: Vec<SignatureScheme> =
            asked.schemes.iter().filter(is_known).map(|scheme| (*scheme).into()).collect();
        let signer = certified.key.choose_scheme(&schemes);
        let signer = signer.ok_or(AuthenticatorError::NoCommonScheme)?;
        Ok(Self { chain: &certified.cert, signer })
    }
}

/// The exported values of a session with which the authenticators of one end are made and checked.
pub(crate) struct AuthenticatorKeys {
    /// The hash of the session's cipher suite.
    pub(crate) hash: SuiteHash,
    /// The handshake context.
    pub(crate) context: Zeroizing<Vec<u8>>,
    /// The key of the MAC in `Finished`.
    pub(crate) finished: Zeroizing<Vec<u8>>,
}

impl AuthenticatorKeys {
    /// Makes an authenticator with `cmw` as its evidence. `request` is the whole message `asked`.
    ///
    /// # Errors
    /// [`ChannelError::Tls`] if signing fails, [`ChannelError::Authenticator`] if the wrapper is too
    /// long.
    pub(crate) fn make(
        &self,
        asked: &AuthenticatorRequest,
        request: &[u8],
        signer: &AuthenticatorSigner<'_>,
        cmw: &[u8],
    ) -> Result<Vec<u8>, ChannelError> {
        let AuthenticatorSigner { chain, signer } = signer;
        let chain: Vec<&[u8]> = chain.iter().map(AsRef::as_ref).collect();
        let certificate = encode_certificate(&asked.context, &chain, cmw)?;
        let content = signed_content(&self.hash_transcript(&[request, &certificate]));
        let signature = signer.sign(&content).map_err(ChannelError::Tls)?;
        let verify = encode_certificate_verify(signer.scheme().into(), &signature);
        let transcript = self.hash_transcript(&[request, &certificate, &verify]);
        let mac = match self.hash {
            SuiteHash::Sha256 => {
                self.begin_mac::<Hmac<Sha256>>(&transcript)?.finalize().into_bytes().to_vec()
            }
            SuiteHash::Sha384 => {
                self.begin_mac::<Hmac<Sha384>>(&transcript)?.finalize().into_bytes().to_vec()
            }
        };
        Ok([certificate, verify, encode_finished(&mac)].concat())
    }

    /// Checks an authenticator that answers `asked`, whose whole message is `request`, and returns
    /// its wrapper. The MAC is checked before the signature, and both before the content is read.
    /// `spki` is the key that signed the TLS handshake: the authenticator has to be of the same.
    /// `algorithms` check the signature.
    ///
    /// # Errors
    /// [`AuthenticatorError`] names the first check that failed.
    pub(crate) fn verify<'a>(
        &self,
        asked: &AuthenticatorRequest,
        request: &[u8],
        authenticator: &'a [u8],
        spki: &[u8],
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<&'a [u8], AuthenticatorError> {
        let authenticator = match AuthenticatorAnswer::decode(authenticator)? {
            AuthenticatorAnswer::Authenticator(authenticator) => authenticator,
            AuthenticatorAnswer::Declined { mac } => {
                let certificate = encode_certificate(&asked.context, &[], &[])?;
                self.check_mac(&[request, &certificate], mac)?;
                return Err(AuthenticatorError::Declined);
            }
        };
        let Authenticator { certificate, certificate_verify, .. } = authenticator;
        if authenticator.context != asked.context {
            return Err(AuthenticatorError::Context);
        }
        self.check_mac(&[request, certificate, certificate_verify], authenticator.mac)?;
        self.check_signature(asked, request, &authenticator, spki, algorithms)?;
        authenticator.find_cmw(asked)
    }

    fn check_signature(
        &self,
        asked: &AuthenticatorRequest,
        request: &[u8],
        authenticator: &Authenticator<'_>,
        spki: &[u8],
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), AuthenticatorError> {
        let scheme = authenticator.scheme;
        let leaf = authenticator.entries.first().ok_or(AuthenticatorError::NoCertificate)?;
        let leaf = PeerCertificate::parse(leaf.certificate)
            .map_err(|_| AuthenticatorError::Certificate)?;
        let wrong_scheme = AuthenticatorError::Scheme { scheme };
        if !asked.schemes.contains(&scheme) {
            return Err(wrong_scheme);
        }
        let wanted = match scheme {
            0x0403 => KeyAlgorithm::P256,
            0x0503 => KeyAlgorithm::P384,
            0x0807 => KeyAlgorithm::Ed25519,
            _ => return Err(wrong_scheme),
        };
        let key = leaf.public_key();
        if KeyAlgorithm::from_public_key(&key)? != Some(wanted) {
            return Err(wrong_scheme);
        }
        let transcript = self.hash_transcript(&[request, authenticator.certificate]);
        let content = signed_content(&transcript);
        let known = algorithms.mapping.iter().find(|(known, _)| u16::from(*known) == scheme);
        let algorithm = known.and_then(|(_, algorithms)| {
            algorithms.iter().find(|it| it.public_key_alg_id() == wanted.identifier())
        });
        let algorithm = algorithm.ok_or(wrong_scheme)?;
        algorithm
            .verify_signature(key.bytes, &content, authenticator.signature)
            .map_err(|_| AuthenticatorError::Signature)?;
        match leaf.spki() {
            Ok(own) if *own == *spki => Ok(()),
            _ => Err(AuthenticatorError::Key),
        }
    }

    /// Compares the MAC in constant time.
    fn check_mac(&self, parts: &[&[u8]], mac: &[u8]) -> Result<(), AuthenticatorError> {
        let transcript = self.hash_transcript(parts);
        match self.hash {
            SuiteHash::Sha256 => self.begin_mac::<Hmac<Sha256>>(&transcript)?.verify_slice(mac),
            SuiteHash::Sha384 => self.begin_mac::<Hmac<Sha384>>(&transcript)?.verify_slice(mac),
        }
        .map_err(|_| AuthenticatorError::Mac)
    }

    /// A MAC with the session's key, which has taken in the hash of a transcript.
    fn begin_mac<M: Mac + KeyInit>(&self, transcript: &[u8]) -> Result<M, AuthenticatorError> {
        // HMAC takes keys of any length.
        let mac = <M as KeyInit>::new_from_slice(&self.finished);
        Ok(mac.map_err(|_| AuthenticatorError::Mac)?.chain_update(transcript))
    }

    /// The hash of the handshake context and messages.
    fn hash_transcript(&self, messages: &[&[u8]]) -> Vec<u8> {
        fn hash<D: Digest>(context: &[u8], messages: &[&[u8]]) -> Vec<u8> {
            let begun = D::new_with_prefix(context);
            messages.iter().fold(begun, |hash, part| hash.chain_update(part)).finalize().to_vec()
        }
        match self.hash {
            SuiteHash::Sha256 => hash::<Sha256>(&self.context, messages),
            SuiteHash::Sha384 => hash::<Sha384>(&self.context, messages),
        }
    }
}

/// The object identifiers of key algorithms and curves (RFC 5480, RFC 8410).
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const CURVE_P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const CURVE_P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const KEY_ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// The key algorithms of [`SIGNATURE_SCHEMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyAlgorithm {
    P256,
    P384,
    Ed25519,
}

impl KeyAlgorithm {
    /// The algorithm of a key; `None` for any other than these three.
    ///
    /// # Errors
    /// [`AuthenticatorError::Certificate`] if an elliptic curve is not named as RFC 5480 has it.
    fn from_public_key(key: &PublicKey<'_>) -> Result<Option<Self>, AuthenticatorError> {
        if key.algorithm == EC_PUBLIC_KEY {
            let curve = key.parameters.ok_or(AuthenticatorError::Certificate)?;
            let curve: ObjectIdentifier =
                curve.decode_as().map_err(|_| AuthenticatorError::Certificate)?;
            return Ok(match curve {
                curve if curve == CURVE_P256 => Some(Self::P256),
                curve if curve == CURVE_P384 => Some(Self::P384),
                _ => None,
            });
        }
        let is_ed25519 = key.algorithm == KEY_ED25519 && key.parameters.is_none();
        Ok(is_ed25519.then_some(Self::Ed25519))
    }

    fn identifier(self) -> AlgorithmIdentifier {
        match self {
            Self::P256 => alg_id::ECDSA_P256,
            Self::P384 => alg_id::ECDSA_P384,
            Self::Ed25519 => alg_id::ED25519,
        }
    }
}

#[cfg(test)]
mod tests {
    use der::Any;

    use super::*;

    #[test]
    fn a_key_on_an_elliptic_curve_names_its_curve() {
        let find = |algorithm, parameters: Option<&Any>| {
            KeyAlgorithm::from_public_key(&PublicKey { algorithm, parameters, bytes: &[] })
        };
        let name = |curve: ObjectIdentifier| Any::encode_from(&curve).unwrap();
        assert_eq!(find(EC_PUBLIC_KEY, Some(&name(CURVE_P256))), Ok(Some(KeyAlgorithm::P256)));
        assert_eq!(find(EC_PUBLIC_KEY, Some(&name(CURVE_P384))), Ok(Some(KeyAlgorithm::P384)));
        assert_eq!(find(EC_PUBLIC_KEY, Some(&name(KEY_ED25519))), Ok(None));
        assert_eq!(find(KEY_ED25519, None), Ok(Some(KeyAlgorithm::Ed25519)));
        assert_eq!(find(KEY_ED25519, Some(&Any::null())), Ok(None));
        let unreadable = Err(AuthenticatorError::Certificate);
        assert_eq!(find(EC_PUBLIC_KEY, Some(&Any::null())), unreadable);
        assert_eq!(find(EC_PUBLIC_KEY, None), unreadable);
    }
}
