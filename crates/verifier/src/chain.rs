//! Certificate chains: rustls-webpki verifies signatures, validity, path length and revocation;
//! what it leaves to its caller is here.

use alloc::{format, string::ToString, vec::Vec};

use confide_evidence::{
    certificate::{Certificate, SignedParts},
    crl::CrlDates,
    escape_untrusted,
};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::{
    BorrowedCertRevocationList, CertRevocationList, EndEntityCert, Error, ExpirationPolicy,
    KeyUsage, RevocationCheckDepth, RevocationOptions, RevocationOptionsBuilder,
    UnknownStatusPolicy, anchor_from_trusted_cert,
};

use crate::{crypto::Crypto, reason::Reason, validity::Validity};

/// The role of a certificate, which determines its name and key usage.
#[derive(Clone, Copy)]
pub(crate) enum CertificateRole {
    Root,
    PckCa,
    Pck,
    TcbSigner,
}

impl CertificateRole {
    pub(crate) fn subject(self) -> &'static str {
        match self {
            CertificateRole::Root => "root certificate",
            CertificateRole::PckCa => "PCK CA certificate",
            CertificateRole::Pck => "PCK certificate",
            CertificateRole::TcbSigner => "TCB signing certificate",
        }
    }

    /// Common names of Intel's certificates. A test root may write words of its own before them.
    fn common_names(self) -> &'static [&'static str] {
        match self {
            CertificateRole::Root => &["Intel SGX Root CA"],
            CertificateRole::PckCa => &["Intel SGX PCK Platform CA", "Intel SGX PCK Processor CA"],
            CertificateRole::Pck => &["Intel SGX PCK Certificate"],
            CertificateRole::TcbSigner => &["Intel SGX TCB Signing"],
        }
    }

    fn is_ca(self) -> bool {
        matches!(self, CertificateRole::Root | CertificateRole::PckCa)
    }
}

/// Reads a certificate and checks that it may play its role at `now`.
pub(crate) fn read_certificate(
    role: CertificateRole,
    der: &[u8],
    now: UnixTime,
) -> Result<Certificate<'_>, Reason> {
    let subject = role.subject();
    let certificate = Certificate::parse(subject, der)?;
    let named = role.common_names().iter().any(|name| has_role_name(certificate.common_name, name));
    if !named {
        return Err(Reason::CertificateName {
            subject,
            wanted: role.common_names()[0],
            got: escape_untrusted(certificate.common_name),
        });
    }
    if certificate.has_other_critical_extension {
        let wanted = "no critical extension but key usage and basic constraints";
        return Err(Reason::CertificateUse { subject, wanted });
    }
    // Intel's certificates have neither, and their restrictions are not enforced here.
    if certificate.is_narrowed {
        let wanted = "no extended key usage and no name constraints";
        return Err(Reason::CertificateUse { subject, wanted });
    }
    let Some(usage) = certificate.key_usage else {
        return Err(Reason::CertificateUse { subject, wanted: "a key usage" });
    };
    if certificate.is_ca != role.is_ca() {
        let wanted = if role.is_ca() { "a CA" } else { "no CA" };
        return Err(Reason::CertificateUse { subject, wanted });
    }
    if role.is_ca() && !(usage.key_cert_sign && usage.crl_sign) {
        let wanted = "key usage to sign certificates and revocation lists";
        return Err(Reason::CertificateUse { subject, wanted });
    }
    let signs_data_only = usage.digital_signature && !usage.key_cert_sign && !usage.crl_sign;
    if !role.is_ca() && !signs_data_only {
        let wanted = "key usage to sign data and nothing else";
        return Err(Reason::CertificateUse { subject, wanted });
    }
    Validity::new(certificate.not_before, certificate.not_after).check(subject, now)?;
    Ok(certificate)
}

/// A revocation list with its dates, its signature not yet verified.
pub(crate) struct Crl<'a> {
    pub(crate) subject: &'static str,
    pub(crate) dates: CrlDates<'a>,
    /// The last second before nextUpdate, at which webpki takes a list for expired.
    pub(crate) until: u64,
    list: CertRevocationList<'a>,
}

impl<'a> Crl<'a> {
    /// Reads a list and checks that it holds at `now`, its issue date included.
    pub(crate) fn read(
        subject: &'static str,
        der: &'a [u8],
        now: UnixTime,
    ) -> Result<Self, Reason> {
        let dates = CrlDates::parse(subject, der)?;
        let until = dates.next_update.saturating_sub(1);
        Validity::new(dates.this_update, until).check(subject, now)?;
        let list =
            BorrowedCertRevocationList::from_der(der).map_err(|e| webpki_error(subject, e))?;
        Ok(Self { subject, dates, until, list: list.into() })
    }

    /// Checks that a certificate of this list's issuer is not on it. The list must have been verified.
    pub(crate) fn check_not_revoked(
        &self,
        subject: &'static str,
        certificate: &Certificate<'_>,
    ) -> Result<(), Reason> {
        if certificate.issuer != self.dates.issuer {
            return Err(Reason::Differs {
                subject: self.subject,
                other: "the certificate's issuer",
            });
        }
        match self.list.find_serial(certificate.serial) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(Reason::CertificateRevoked { subject }),
            Err(error) => Err(webpki_error(self.subject, error)),
        }
    }
}

/// Verifies a CA that the root issued, and that CA's revocation list: one signature each.
///
/// [`verify_chain`] does the same for each leaf; this is for a CA that is kept. The caller has read both certificates
/// with [`read_certificate`], which checks names, usages, dates and that nothing narrows them, and the list with
/// [`Crl::read`]. What is left of a chain verifier's work is that the inner and outer algorithms agree (webpki checks
/// this when it reads them), that the names chain, and the signatures. No CA is below this one, so that no path
/// length can be exceeded.
pub(crate) fn verify_ca(
    der: &[u8],
    fields: &Certificate<'_>,
    root: &[u8],
    list: (&Crl<'_>, &[u8]),
    crypto: &dyn Crypto,
) -> Result<(), Reason> {
    let chain = CertificateRole::Pck.subject();
    let (list, list_der) = list;
    let (ca, root) = (CertificateDer::from(der), CertificateDer::from(root));
    let ca = EndEntityCert::try_from(&ca).map_err(|error| webpki_error(chain, error))?;
    let root = EndEntityCert::try_from(&root).map_err(|error| webpki_error(chain, error))?;
    if ca.issuer() != root.subject() {
        return Err(webpki_error(chain, Error::UnknownIssuer));
    }
    if list.dates.issuer != fields.subject {
        return Err(webpki_error(chain, Error::UnknownRevocationStatus));
    }
    let parts = SignedParts::from_der(CertificateRole::PckCa.subject(), der)?;
    verify_signed_parts(&root, parts, crypto).map_err(|error| webpki_error(chain, error))?;
    let parts = SignedParts::from_der(list.subject, list_der)?;
    verify_signed_parts(&ca, parts, crypto).map_err(|error| match error {
        Error::InvalidSignatureForPublicKey => {
            webpki_error(chain, Error::InvalidCrlSignatureForPublicKey)
        }
        other => webpki_error(chain, other),
    })
}

fn verify_signed_parts(
    issuer: &EndEntityCert<'_>,
    parts: SignedParts<'_>,
    crypto: &dyn Crypto,
) -> Result<(), Error> {
    let algorithm = crypto.certificate_algorithm();
    if parts.algorithm != algorithm.signature_alg_id().as_ref() {
        return Err(Error::InvalidSignatureForPublicKey);
    }
    issuer.verify_signature(algorithm, parts.signed, parts.signature)
}

/// Verifies a leaf under a CA that is held as an anchor: one signature. Whether it is revoked is
/// for the caller to look up.
pub(crate) fn verify_leaf(
    leaf: &[u8],
    ca: &TrustAnchor<'_>,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<(), Reason> {
    let path =
        ChainPath { chain: CertificateRole::Pck.subject(), leaf, intermediates: &[], anchor: ca };
    path.verify_using_all(crypto.certificate_algorithm(), any_purpose(), None, now)
}

/// Reads the root as a trust anchor.
pub(crate) fn read_anchor<'a>(root: &'a CertificateDer<'a>) -> Result<TrustAnchor<'a>, Reason> {
    anchor_from_trusted_cert(root).map_err(|error| webpki_error("root certificate", error))
}

/// Verifies leaf, intermediates, and the revocation list of the leaf's issuer: one signature each.
pub(crate) fn verify_chain(
    role: CertificateRole,
    leaf: &[u8],
    intermediates: &[&[u8]],
    anchor: &TrustAnchor<'_>,
    crl: &Crl<'_>,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<(), Reason> {
    let chain = role.subject();
    let lists = [&crl.list];
    let Ok(revocation) = RevocationOptionsBuilder::new(&lists) else {
        return Err(Reason::Chain { chain, reason: "no revocation list".to_string() });
    };
    // Only the leaf is looked up here: webpki would verify a list's signature again for every
    // certificate. The PCK CA is looked up in the root's list, which the TCB signer's chain has
    // verified.
    let revocation = revocation
        .with_depth(RevocationCheckDepth::EndEntity)
        .with_status_policy(UnknownStatusPolicy::Deny)
        .with_expiration_policy(ExpirationPolicy::Enforce)
        .build();
    let path = ChainPath { chain, leaf, intermediates, anchor };
    path.verify_using_all(crypto.certificate_algorithm(), any_purpose(), Some(revocation), now)
}

/// The certificates of one path, from a leaf to its trust anchor.
pub(crate) struct ChainPath<'a> {
    /// The name of the path in a rejection.
    pub(crate) chain: &'static str,
    pub(crate) leaf: &'a [u8],
    pub(crate) intermediates: &'a [&'a [u8]],
    pub(crate) anchor: &'a TrustAnchor<'a>,
}

impl ChainPath<'_> {
    /// Verifies signatures, dates and `usage`, and that every intermediate is on the path.
    pub(crate) fn verify_using_all(
        &self,
        algorithm: &'static dyn SignatureVerificationAlgorithm,
        usage: KeyUsage,
        revocation: Option<RevocationOptions<'_>>,
        now: UnixTime,
    ) -> Result<(), Reason> {
        if self.verify(algorithm, usage, revocation, now)? == self.intermediates.len() {
            return Ok(());
        }
        let reason = "a certificate is not on the path".into();
        Err(Reason::Chain { chain: self.chain, reason })
    }

    /// Verifies signatures, dates and `usage`; returns the number of intermediates on the path.
    pub(crate) fn verify(
        &self,
        algorithm: &'static dyn SignatureVerificationAlgorithm,
        usage: KeyUsage,
        revocation: Option<RevocationOptions<'_>>,
        now: UnixTime,
    ) -> Result<usize, Reason> {
        let Self { chain, leaf, intermediates, anchor } = *self;
        let leaf = CertificateDer::from(leaf);
        let leaf = EndEntityCert::try_from(&leaf).map_err(|error| webpki_error(chain, error))?;
        let intermediates: Vec<_> =
            intermediates.iter().map(|der| CertificateDer::from(*der)).collect();
        let anchors = core::slice::from_ref(anchor);
        let algorithms = [algorithm];
        let path = leaf.verify_for_usage(
            &algorithms,
            anchors,
            &intermediates,
            now,
            usage,
            revocation,
            None,
        );
        match path {
            Ok(path) => Ok(path.intermediate_certificates().count()),
            Err(Error::CertRevoked) => Err(Reason::CertificateRevoked { subject: chain }),
            Err(error) => Err(webpki_error(chain, error)),
        }
    }
}

/// Intel's certificates have no extended key usage. One that had would have to name this purpose,
/// which nobody assigns (it is the identifier of Intel's SGX extension).
const NO_EXTENDED_KEY_USAGE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf8, 0x4d, 1, 13, 1];

fn any_purpose() -> KeyUsage {
    KeyUsage::required_if_present(NO_EXTENDED_KEY_USAGE)
}

pub(crate) fn webpki_error(chain: &'static str, error: webpki::Error) -> Reason {
    Reason::Chain { chain, reason: format!("{error}") }
}

pub(crate) fn has_role_name(common_name: &str, role: &str) -> bool {
    match common_name.strip_suffix(role) {
        Some(before) => before.is_empty() || before.ends_with(' '),
        None => false,
    }
}
