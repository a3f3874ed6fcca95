//! From AMD's root to a chip key: two signatures, and a third for the root's revocation list.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use confide_evidence::{
    certificate::SignedParts,
    crl::CrlDates,
    escape_untrusted,
    snp::{AmdCertificate, AmdKey, Product},
};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{BorrowedCertRevocationList, CertRevocationList, EndEntityCert};

use super::{endorsements::Endorsements, steps::SnpStep};
use crate::{
    chain::{has_role_name, webpki_error},
    crl::CrlVersion,
    crypto::{Crypto, P384Key},
    reason::Reason,
    result::PartialResult,
    roots::{Anchor, Root, Roots},
    validity::{Validity, ValidityWindow},
};

/// A chip key that was verified down from a trusted root. Owns all it needs.
#[derive(Debug)]
pub(super) struct ChipKey {
    pub(super) root: Root,
    pub(super) product: Product,
    /// The chip (VCEK), filled up with zeros; `None` for a loaded key (VLEK).
    pub(super) chip_id: Option<[u8; 64]>,
    /// The provider that loaded the key.
    pub(super) csp_id: Option<String>,
    /// The security versions that the key is for, as a report writes them.
    pub(super) tcb: [u8; 8],
    pub(super) key: Key,
    pub(super) life: Validity,
    pub(super) windows: Vec<ValidityWindow<SnpStep>>,
    pub(super) crl: Option<CrlVersion>,
}

/// A chip key, kept parsed where the cryptography can.
#[derive(Debug)]
pub(super) enum Key {
    Read(alloc::boxed::Box<dyn P384Key>),
    Raw([u8; 97]),
}

impl Key {
    pub(super) fn has_signed(
        &self,
        message: &[u8],
        signature: &[u8; 96],
        crypto: &dyn Crypto,
    ) -> bool {
        match self {
            Key::Read(key) => key.verify(message, signature),
            Key::Raw(key) => crypto.verify_p384(key, message, signature),
        }
    }
}

const CHAIN: &str = "AMD certificate chain";
const ARK: &str = "ARK certificate";
const VCEK: ChainLabels = ChainLabels {
    intermediate: "ASK certificate",
    intermediate_name: "SEV-",
    key: "VCEK certificate",
    key_name: "SEV-VCEK",
};
const VLEK: ChainLabels = ChainLabels {
    intermediate: "ASVK certificate",
    intermediate_name: "SEV-VLEK-",
    key: "VLEK certificate",
    key_name: "SEV-VLEK",
};

/// The names of the certificates of one kind of chip key.
#[derive(Clone, Copy)]
struct ChainLabels {
    intermediate: &'static str,
    intermediate_name: &'static str,
    key: &'static str,
    key_name: &'static str,
}

/// Verifies the chain and, where a revocation list came, that nothing in it is revoked.
pub(super) fn verify_chain(
    endorsements: &Endorsements,
    found: &mut PartialResult,
    roots: &Roots,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<ChipKey, Reason> {
    let (root, ark_der, intermediate_der) = found.checks.run(SnpStep::Root, || {
        let [intermediate, ark] = endorsements.chain.as_slice() else {
            let got = format!("{} certificates", endorsements.chain.len());
            let wanted = "ASK or ASVK, and ARK";
            return Err(Reason::ChainShape { chain: CHAIN, wanted, got });
        };
        let sha256 = crypto.sha256(&[ark]);
        let kind = roots.require(Anchor::Amd, &sha256)?;
        Ok(((Root { kind, sha256 }, ark, intermediate), kind.detail(&sha256)))
    })?;
    found.root = Some(root);
    let checks = &mut found.checks;
    let links = checks.run(SnpStep::Chain, || {
        let links = AmdChain::read(&endorsements.parts.endorsement_key, intermediate_der, ark_der)?;
        links.check_usage(now)?;
        links.verify_signatures(crypto)?;
        Ok((links, "ARK, intermediate and chip key".into()))
    })?;
    let mut windows: Vec<_> = links
        .certificates()
        .map(|(subject, it)| ValidityWindow {
            step: SnpStep::Chain,
            subject,
            life: validity_of(it),
        })
        .into();
    let mut crl = None;
    match &endorsements.parts.crl {
        None => checks.skip(SnpStep::Revocation, "there is no revocation list"),
        Some(der) => {
            let (seen, life) = checks.run(SnpStep::Revocation, || {
                Ok((links.check_not_revoked(der, now, crypto)?, "".into()))
            })?;
            windows.push(ValidityWindow { step: SnpStep::Revocation, subject: CRL, life });
            crl = Some(seen);
        }
    }
    links.into_chip_key(crypto, root, windows, crl)
}

const CRL: &str = "AMD revocation list";

fn validity_of(certificate: &AmdCertificate<'_>) -> Validity {
    Validity::new(certificate.not_before, certificate.not_after)
}

/// The three certificates of a chain, read.
struct AmdChain<'a> {
    names: ChainLabels,
    product: Product,
    ark: ChainCertificate<'a>,
    intermediate: ChainCertificate<'a>,
    key: ChainCertificate<'a>,
}

struct ChainCertificate<'a> {
    der: &'a [u8],
    fields: AmdCertificate<'a>,
}

impl<'a> AmdChain<'a> {
    fn read(key: &'a [u8], intermediate: &'a [u8], ark: &'a [u8]) -> Result<Self, Reason> {
        let link = |subject, der: &'a [u8]| {
            Ok::<_, Reason>(ChainCertificate { der, fields: AmdCertificate::parse(subject, der)? })
        };
        let ark = link(ARK, ark)?;
        let name = ark.fields.common_name;
        let product = Product::ALL
            .into_iter()
            .find(|product| has_role_name(name, &format!("ARK-{product}")))
            .ok_or_else(|| name_error(ARK, "ARK-Milan, ARK-Genoa or ARK-Turin", name))?;
        let key = link("chip key certificate", key)?;
        let name = key.fields.common_name;
        let names = [VCEK, VLEK]
            .into_iter()
            .find(|names| has_role_name(name, names.key_name))
            .ok_or_else(|| name_error("chip key certificate", "SEV-VCEK or SEV-VLEK", name))?;
        let intermediate = link(names.intermediate, intermediate)?;
        let name = intermediate.fields.common_name;
        let wanted = format!("{}{product}", names.intermediate_name);
        if !has_role_name(name, &wanted) {
            let (field, got) = ("name of the intermediate certificate", escape_untrusted(name));
            return Err(Reason::Value { field, wanted, got });
        }
        Ok(Self { names, product, ark, intermediate, key })
    }

    fn certificates(&self) -> [(&'static str, &AmdCertificate<'a>); 3] {
        [
            (ARK, &self.ark.fields),
            (self.names.intermediate, &self.intermediate.fields),
            (self.names.key, &self.key.fields),
        ]
    }

    /// Checks keys, usages, extensions and dates.
    fn check_usage(&self, now: UnixTime) -> Result<(), Reason> {
        for (subject, certificate) in self.certificates() {
            let is_key = subject == self.names.key;
            let usage = certificate.key_usage;
            let signs = usage.is_some_and(|usage| usage.key_cert_sign);
            let signs_lists = usage.is_some_and(|usage| usage.crl_sign);
            let rules = [
                (certificate.is_ca != is_key, if is_key { "no CA" } else { "a CA" }),
                (signs != is_key, "key usage that fits its role"),
                (subject != ARK || signs_lists, "key usage to sign revocation lists"),
                (
                    matches!(certificate.key, AmdKey::P384(_)) == is_key,
                    "RSA with 4,096 bits above a P-384 chip key",
                ),
                (
                    !certificate.has_other_critical_extension && !certificate.is_narrowed,
                    "no critical extension but key usage and basic constraints",
                ),
            ];
            if let Some((_, wanted)) = rules.into_iter().find(|(holds, _)| !holds) {
                return Err(Reason::CertificateUse { subject, wanted });
            }
            validity_of(certificate).check(subject, now)?;
        }
        let (extensions, subject) = (&self.key.fields.extensions, self.names.key);
        let line = extensions.product_name.map(product_line).unwrap_or_default();
        if line != self.product.as_str() {
            let wanted = self.product.to_string();
            let got = escape_untrusted(extensions.product_name.unwrap_or_default());
            return Err(Reason::Value { field: "product of the chip key", wanted, got });
        }
        let is_chip = self.names.key_name == VCEK.key_name;
        let owned = match is_chip {
            true => {
                let wanted = self.product.chip_id_length();
                let length = extensions.hwid.map(<[u8]>::len);
                length == Some(wanted) && extensions.csp_id.is_none()
            }
            false => extensions.hwid.is_none() && extensions.csp_id.is_some(),
        };
        match (owned, extensions.tcb(self.product)) {
            (false, _) => {
                let wanted = "the chip (VCEK) or the provider (VLEK), and not the other";
                Err(Reason::CertificateUse { subject, wanted })
            }
            (_, None) => {
                let wanted = "the security versions of its product";
                Err(Reason::CertificateUse { subject, wanted })
            }
            _ => Ok(()),
        }
    }

    /// Verifies that the names chain, and the two signatures.
    fn verify_signatures(&self, crypto: &dyn Crypto) -> Result<(), Reason> {
        let (ark, intermediate, key) = (&self.ark, &self.intermediate, &self.key);
        for (issuer, issued, subject) in
            [(ark, intermediate, self.names.intermediate), (intermediate, key, self.names.key)]
        {
            if issued.fields.issuer != issuer.fields.subject {
                return Err(Reason::Differs { subject, other: "a certificate of its issuer" });
            }
            // Parsing checks that the inner algorithm is the outer one.
            let der = CertificateDer::from(issued.der);
            EndEntityCert::try_from(&der).map_err(|error| webpki_error(subject, error))?;
            verify_signed_by(issuer.der, subject, issued.der, crypto)?;
        }
        Ok(())
    }

    /// Checks that the root's revocation list holds and names no certificate of the chain.
    ///
    /// A root revokes what it issued, the intermediate. Chip keys are looked up too: they all have
    /// serial number zero, which no other certificate has.
    fn check_not_revoked(
        &self,
        der: &[u8],
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<(CrlVersion, Validity), Reason> {
        let dates = CrlDates::parse_amd(CRL, der)?;
        if dates.issuer != self.ark.fields.subject {
            return Err(Reason::Differs { subject: CRL, other: "a list of this root" });
        }
        let life = Validity::new(dates.this_update, dates.next_update.saturating_sub(1));
        life.check(CRL, now)?;
        let list: CertRevocationList<'_> = BorrowedCertRevocationList::from_der(der)
            .map_err(|error| webpki_error(CRL, error))?
            .into();
        verify_signed_by(self.ark.der, CRL, der, crypto)?;
        for (subject, certificate) in self.certificates() {
            match list.find_serial(certificate.serial) {
                Ok(None) => {}
                Ok(Some(_)) => return Err(Reason::CertificateRevoked { subject }),
                Err(error) => return Err(webpki_error(CRL, error)),
            }
        }
        let seen = CrlVersion { number: dates.number, issued: dates.this_update };
        Ok((seen, life))
    }

    fn into_chip_key(
        self,
        crypto: &dyn Crypto,
        root: Root,
        windows: Vec<ValidityWindow<SnpStep>>,
        crl: Option<CrlVersion>,
    ) -> Result<ChipKey, Reason> {
        let wanted = "a P-384 key and the security versions of its product";
        let unfit = || Reason::CertificateUse { subject: self.names.key, wanted };
        let AmdKey::P384(point) = self.key.fields.key else { return Err(unfit()) };
        let extensions = &self.key.fields.extensions;
        Ok(ChipKey {
            root,
            product: self.product,
            chip_id: extensions.hwid.map(|hwid| {
                let mut chip_id = [0; 64];
                chip_id[..hwid.len()].copy_from_slice(hwid);
                chip_id
            }),
            csp_id: extensions.csp_id.map(escape_untrusted),
            tcb: extensions.tcb(self.product).ok_or_else(unfit)?,
            key: crypto.prepare_p384(point).map_or(Key::Raw(*point), Key::Read),
            life: windows.iter().fold(Validity::EVER, |life, window| life.and(window.life)),
            windows,
            crl,
        })
    }
}

/// Verifies one signature with AMD's algorithm, in the spelling that the document has.
fn verify_signed_by(
    issuer: &[u8],
    subject: &'static str,
    document: &[u8],
    crypto: &dyn Crypto,
) -> Result<(), Reason> {
    let parts = SignedParts::from_der(subject, document)?;
    let spelled = crypto.amd_certificate_algorithms().into_iter();
    let mut spelled = spelled.filter(|known| known.signature_alg_id().as_ref() == parts.algorithm);
    let Some(algorithm) = spelled.next() else {
        let wanted = "RSASSA-PSS with SHA-384 and 48 bytes of salt, as AMD writes it";
        return Err(Reason::CertificateUse { subject, wanted });
    };
    let der = CertificateDer::from(issuer);
    let issuer = EndEntityCert::try_from(&der).map_err(|error| webpki_error(subject, error))?;
    issuer
        .verify_signature(algorithm, parts.signed, parts.signature)
        .map_err(|_| Reason::Signature { subject })
}

/// `Milan-B0` is of the line Milan; two more products share Genoa's root.
fn product_line(product_name: &str) -> &str {
    match product_name.split('-').next().unwrap_or_default() {
        "Bergamo" | "Siena" => Product::Genoa.as_str(),
        line => line,
    }
}

fn name_error(subject: &'static str, wanted: &'static str, got: &str) -> Reason {
    Reason::CertificateName { subject, wanted, got: escape_untrusted(got) }
}
