//! Reads the key and the evidence from a peer's certificate, and nothing else.
//!
//! One parser serves both the handshake's signature check and the binding, so that the two cannot
//! see different keys in the same bytes.

use confide_evidence::tagged_evidence::{TaggedCollateral, TaggedEvidence};
use der::{Any, Decode, Encode, asn1::ObjectIdentifier};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use sha2::{Digest, Sha256};
use x509_cert::{Certificate, ext::Extension};

use crate::error::ChannelError;

/// TCG DICE tagged evidence.
pub(crate) const EVIDENCE_OID: &str = "2.23.133.5.4.9";
/// TCG DICE endorsement manifest.
pub(crate) const COLLATERAL_OID: &str = "2.23.133.5.4.2";

pub(crate) struct PeerCertificate(Certificate);

/// The public key of a certificate, in its parts.
pub(crate) struct PublicKey<'a> {
    pub(crate) algorithm: ObjectIdentifier,
    /// The parameters of the algorithm, unparsed: for an elliptic curve, its identifier.
    pub(crate) parameters: Option<&'a Any>,
    pub(crate) bytes: &'a [u8],
}

impl PeerCertificate {
    pub(crate) fn parse(der: &[u8]) -> Result<Self, ChannelError> {
        Certificate::from_der(der).map(Self).map_err(certificate_error)
    }

    pub(crate) fn spki(&self) -> Result<SubjectPublicKeyInfoDer<'static>, ChannelError> {
        let spki = self.0.tbs_certificate().subject_public_key_info().to_der();
        spki.map(SubjectPublicKeyInfoDer::from).map_err(certificate_error)
    }

    pub(crate) fn spki_hash(&self) -> Result<[u8; 32], ChannelError> {
        Ok(sha256(&self.spki()?))
    }

    pub(crate) fn public_key(&self) -> PublicKey<'_> {
        let spki = self.0.tbs_certificate().subject_public_key_info();
        PublicKey {
            algorithm: spki.algorithm.oid,
            parameters: spki.algorithm.parameters.as_ref(),
            bytes: spki.subject_public_key.raw_bytes(),
        }
    }

    /// Parses the evidence extension, which must be present exactly once.
    pub(crate) fn parse_evidence(&self) -> Result<TaggedEvidence<'_>, ChannelError> {
        let found = self.find_extension(EVIDENCE_OID)?;
        let wanted = ChannelError::Extension { oid: EVIDENCE_OID, wanted: "1", got: 0 };
        Ok(TaggedEvidence::decode(found.ok_or(wanted)?.extn_value.as_bytes())?)
    }

    pub(crate) fn parse_collateral(&self) -> Result<Option<&[u8]>, ChannelError> {
        match self.find_extension(COLLATERAL_OID)? {
            Some(found) => {
                Ok(Some(TaggedCollateral::decode(found.extn_value.as_bytes())?.collateral))
            }
            None => Ok(None),
        }
    }

    /// Finds the extension with this OID. A second one is an error, because another reader might
    /// choose it.
    fn find_extension(&self, oid: &'static str) -> Result<Option<&Extension>, ChannelError> {
        let wanted = ObjectIdentifier::new(oid).map_err(certificate_error)?;
        let extensions = self.0.tbs_certificate().extensions().into_iter().flatten();
        let mut found = extensions.filter(|extension| extension.extn_id == wanted);
        let first = found.next();
        match found.count() {
            0 => Ok(first),
            more => Err(ChannelError::Extension { oid, wanted: "at most 1", got: more + 1 }),
        }
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn certificate_error(error: impl std::fmt::Display) -> ChannelError {
    ChannelError::Certificate { reason: error.to_string() }
}
