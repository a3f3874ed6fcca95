//! Certificate chains of GPUs and of reference manifests: P-384 throughout.

use alloc::{format, string::String, vec::Vec};

use confide_evidence::{escape_untrusted, gpu::DeviceCertificate};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{KeyUsage, anchor_from_trusted_cert};

use crate::{
    chain::{ChainPath, webpki_error},
    crypto::Crypto,
    reason::Reason,
    roots::{Anchor, Root, Roots},
    validity::Validity,
};

/// An extended key usage that nobody assigns: these certificates have none, and one that had would
/// have to name this (it is TCG DICE's identifier of firmware).
const NO_EXTENDED_KEY_USAGE: &[u8] = &[0x67, 0x81, 5, 5, 4, 1];
/// 1.3.6.1.5.5.7.3.9
const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];

/// The role of a chain, which determines its shape and its trust anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChainRole {
    /// Attestation key, device, two intermediates, root.
    Device,
    /// Signer of a manifest, two intermediates, root.
    Manifest,
}

impl ChainRole {
    pub(super) fn subject(self) -> &'static str {
        match self {
            ChainRole::Device => "GPU certificate chain",
            ChainRole::Manifest => "certificate chain of a reference manifest",
        }
    }

    fn length(self) -> usize {
        match self {
            ChainRole::Device => 5,
            ChainRole::Manifest => 4,
        }
    }

    fn shape(self) -> &'static str {
        match self {
            ChainRole::Device => "attestation key, device, two intermediates, root",
            ChainRole::Manifest => "signer, two intermediates, root",
        }
    }

    fn anchor(self) -> Anchor {
        match self {
            ChainRole::Device => Anchor::NvidiaDevice,
            ChainRole::Manifest => Anchor::NvidiaRim,
        }
    }
}

/// A chain whose signatures were verified.
pub(super) struct VerifiedChain<'a> {
    ders: &'a [Vec<u8>],
    /// Leaf first, root last; never empty.
    pub(super) certificates: Vec<DeviceCertificate<'a>>,
    /// Unix seconds at which the first certificate ends.
    pub(super) until: u64,
}

impl<'a> VerifiedChain<'a> {
    pub(super) fn leaf(&self) -> &DeviceCertificate<'a> {
        &self.certificates[0]
    }

    /// Verifies that a certificate for signing OCSP responses was issued by a CA above position `below`.
    pub(super) fn verify_responder(
        &self,
        responder: &[u8],
        below: usize,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<(), Reason> {
        let usage = KeyUsage::required(OCSP_SIGNING);
        verify_path(
            "revocation responder",
            responder,
            &self.ders[below + 1..],
            usage,
            false,
            now,
            crypto,
        )
    }
}

/// Returns the root that a chain comes with, if the policy trusts it for this role.
pub(super) fn find_root(role: ChainRole, ders: &[Vec<u8>], roots: &Roots) -> Result<Root, Reason> {
    let last = ders.last().filter(|_| ders.len() == role.length());
    let last = last.ok_or_else(|| Reason::ChainShape {
        chain: role.subject(),
        wanted: role.shape(),
        got: format!("{} certificates", ders.len()),
    })?;
    let sha256 = Roots::fingerprint_of(last);
    Ok(Root { kind: roots.require(role.anchor(), &sha256)?, sha256 })
}

/// Verifies a chain whose root is trusted: shape, roles, dates, signatures.
pub(super) fn verify_chain<'a>(
    role: ChainRole,
    ders: &'a [Vec<u8>],
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<VerifiedChain<'a>, Reason> {
    let subject = role.subject();
    let certificates: Vec<_> =
        ders.iter().map(|der| DeviceCertificate::parse(subject, der)).collect::<Result<_, _>>()?;
    for (at, certificate) in certificates.iter().enumerate() {
        check_usage(subject, certificate, at > 0)?;
        Validity::new(certificate.not_before, certificate.not_after).check(subject, now)?;
    }
    if role == ChainRole::Device && certificates[0].fwid.is_none() {
        let wanted = "a firmware identifier in the attestation key's certificate";
        return Err(Reason::CertificateUse { subject, wanted });
    }
    // A chain in another order may still hold a path; it is not the one that is named above.
    let in_order = certificates.windows(2).all(|pair| pair[0].issuer == pair[1].subject);
    if !in_order {
        let (wanted, got) = (role.shape(), common_names(&certificates));
        return Err(Reason::ChainShape { chain: subject, wanted, got });
    }
    let usage = KeyUsage::required_if_present(NO_EXTENDED_KEY_USAGE);
    verify_path(subject, &ders[0], &ders[1..], usage, true, now, crypto)?;
    let until = certificates.iter().map(|certificate| certificate.not_after).min().unwrap_or(0);
    Ok(VerifiedChain { ders, certificates, until })
}

/// Checks CA flag, key usage and critical extensions, as NVIDIA's certificates have them.
fn check_usage(
    subject: &'static str,
    certificate: &DeviceCertificate<'_>,
    is_ca: bool,
) -> Result<(), Reason> {
    let usage = certificate.key_usage;
    let signs_certificates = usage.is_some_and(|usage| usage.key_cert_sign);
    let signs_data = usage.is_some_and(|usage| usage.digital_signature && !usage.crl_sign);
    let rules = [
        (!certificate.has_other_critical_extension, "no critical extension but the usual"),
        (certificate.is_ca == is_ca, "CAs above the first certificate, and only there"),
        (signs_certificates == is_ca, "key usage to sign certificates for CAs, and only for them"),
        (is_ca || signs_data, "key usage to sign data and nothing else"),
    ];
    match rules.into_iter().find(|(holds, _)| !holds) {
        Some((_, wanted)) => Err(Reason::CertificateUse { subject, wanted }),
        None => Ok(()),
    }
}

/// Verifies the signatures from `leaf` to the last of `above`, its trusted root; `whole` says whether all of them have
/// to be on the path.
fn verify_path(
    chain: &'static str,
    leaf: &[u8],
    above: &[Vec<u8>],
    usage: KeyUsage,
    whole: bool,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<(), Reason> {
    let Some((root, intermediates)) = above.split_last() else {
        return Err(Reason::Chain { chain, reason: "no issuer".into() });
    };
    let root = CertificateDer::from(&root[..]);
    let anchor = &anchor_from_trusted_cert(&root).map_err(|error| webpki_error(chain, error))?;
    let intermediates: Vec<&[u8]> = intermediates.iter().map(Vec::as_slice).collect();
    let path = ChainPath { chain, leaf, intermediates: &intermediates, anchor };
    let algorithm = crypto.p384_certificate_algorithm();
    match whole {
        true => path.verify_using_all(algorithm, usage, None, now),
        false => path.verify(algorithm, usage, None, now).map(|_| ()),
    }
}

fn common_names(certificates: &[DeviceCertificate<'_>]) -> String {
    let names: Vec<_> = certificates.iter().map(|c| escape_untrusted(c.common_name)).collect();
    names.join(", ")
}
