//! The endorsements of one platform: read, then verified down from the root.

use alloc::{format, vec, vec::Vec};

use confide_evidence::{
    ParseError, certificate::Certificate, collateral::Collateral, pem, qe_identity::QeIdentity,
    tcb_info::TcbInfo,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::{
    appraisal::EndorsedValues,
    chain::{self, CertificateRole, Crl},
    checks::{Checks, Step},
    crl::CrlVersion,
    crypto::Crypto,
    detail::Detail,
    reason::Reason,
    roots::{Anchor, Root, Roots},
    validity::{Validity, ValidityWindow},
};

/// Endorsements as they came: read as a whole, believed in nothing.
///
/// [`crate::appraise`] verifies them each time, [`Endorsements::prepare`] once.
#[derive(Clone, Debug)]
pub struct Endorsements {
    pub(crate) collateral: Collateral,
    pub(crate) tcb_info: TcbInfo,
    pub(crate) qe_identity: QeIdentity,
    pub(crate) tcb_chain: Vec<Vec<u8>>,
    /// `None` if it is the same text as that of TCB info.
    pub(crate) qe_chain: Option<Vec<Vec<u8>>>,
    pub(crate) pck_crl_chain: Vec<Vec<u8>>,
    pub(crate) pck_chain: Option<Vec<Vec<u8>>>,
}

impl Endorsements {
    /// Reads `QuoteCollateralV3` JSON.
    ///
    /// # Errors
    /// [`ParseError`] of the collateral or of the first document in it that cannot be read.
    pub fn parse(collateral_json: &[u8]) -> Result<Self, ParseError> {
        Self::from_collateral(Collateral::parse(collateral_json)?)
    }

    /// Reads the documents of a collateral that came without JSON around it.
    ///
    /// # Errors
    /// [`ParseError`] of the first document that cannot be read.
    pub fn from_collateral(collateral: Collateral) -> Result<Self, ParseError> {
        let decode = |subject, text: &str| pem::decode_chain(subject, text.as_bytes());
        let same = collateral.qe_identity_issuer_chain == collateral.tcb_info_issuer_chain;
        Ok(Self {
            tcb_info: TcbInfo::parse(&collateral.tcb_info)?,
            qe_identity: QeIdentity::parse(&collateral.qe_identity)?,
            tcb_chain: decode("tcb_info_issuer_chain", &collateral.tcb_info_issuer_chain)?,
            qe_chain: match same {
                true => None,
                false => {
                    Some(decode("qe_identity_issuer_chain", &collateral.qe_identity_issuer_chain)?)
                }
            },
            pck_crl_chain: decode("pck_crl_issuer_chain", &collateral.pck_crl_issuer_chain)?,
            pck_chain: match &collateral.pck_certificate_chain {
                None => None,
                Some(chain) => Some(decode("pck_certificate_chain", chain)?),
            },
            collateral,
        })
    }

    /// The DER of the root that they come with, trusted or not: the last certificate under which
    /// TCB info was signed.
    pub fn root_der(&self) -> Option<&[u8]> {
        self.tcb_chain.last().map(Vec::as_slice)
    }

    /// Verifies what does not depend on a quote: root, root CRL, TCB signer, TCB info, QE identity.
    pub(crate) fn verify(
        &self,
        checks: &mut Checks,
        roots: &Roots,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<VerifiedEndorsements<'_>, Reason> {
        let TrustedRoot { root, der: root_der, certificate: root_certificate } =
            checks.run(Step::Root, || self.find_root(roots, now, crypto))?;
        let root_crl = checks.run(Step::RootCrl, || {
            let crl = Crl::read("root CRL", &self.collateral.root_ca_crl, now)?;
            Ok((crl, "".into()))
        })?;
        // The check passes only once the list's signature is verified, with the certificate that is looked up in it.
        checks.skip(Step::RootCrl, SIGNATURE_NOT_REACHED);
        let anchor_der = CertificateDer::from(root_der);
        let issuer = Issuer { anchor: &anchor_der, root_crl: &root_crl, now, crypto };
        let signer = checks.run(Step::TcbSigner, || {
            let signer = issuer.verify_tcb_signer("TCB info issuer chain", &self.tcb_chain)?;
            root_crl.check_not_revoked(CertificateRole::Root.subject(), &root_certificate)?;
            Ok((signer, "issued by the root, not revoked".into()))
        })?;
        checks.run(Step::TcbInfo, || {
            let Collateral { tcb_info, tcb_info_signature, .. } = &self.collateral;
            verify_document("TCB info", &signer, tcb_info, tcb_info_signature, crypto)?;
            let info = &self.tcb_info;
            Validity::new(info.issue_date, info.next_update).check("TCB info", now)?;
            Ok(((), evaluation_detail(info.tcb_evaluation_data_number)))
        })?;
        let qe_signer = checks.run(Step::QeIdentity, || {
            // Intel signs both documents with one certificate; it is verified once.
            let qe_signer = match &self.qe_chain {
                Some(chain) if *chain != self.tcb_chain => {
                    issuer.verify_tcb_signer("QE identity issuer chain", chain)?
                }
                _ => signer.clone(),
            };
            let Collateral { qe_identity, qe_identity_signature, .. } = &self.collateral;
            verify_document("QE identity", &qe_signer, qe_identity, qe_identity_signature, crypto)?;
            let identity = &self.qe_identity;
            Validity::new(identity.issue_date, identity.next_update).check("QE identity", now)?;
            Ok((qe_signer, evaluation_detail(identity.tcb_evaluation_data_number)))
        })?;
        let pck_crl = checks.run(Step::PckCrl, || {
            let (_, crl_root) = certificate_and_root("PCK CRL issuer chain", &self.pck_crl_chain)?;
            check_same_root("root of the PCK CRL issuer chain", crl_root, root_der)?;
            let crl = Crl::read("PCK CRL", &self.collateral.pck_crl, now)?;
            Ok((crl, "".into()))
        })?;
        checks.skip(Step::PckCrl, SIGNATURE_NOT_REACHED);
        let windows = self.validities(&root_certificate, &signer, &qe_signer, &root_crl, &pck_crl);
        let life = windows.iter().fold(Validity::EVER, |life, window| life.and(window.life));
        Ok(VerifiedEndorsements {
            endorsements: self,
            root,
            root_der,
            root_crl,
            pck_crl,
            life,
            windows,
        })
    }

    fn validities(
        &self,
        root: &Certificate<'_>,
        signer: &Certificate<'_>,
        qe_signer: &Certificate<'_>,
        root_crl: &Crl<'_>,
        pck_crl: &Crl<'_>,
    ) -> Vec<ValidityWindow<Step>> {
        let certificate = |step, role: CertificateRole, it: &Certificate<'_>| ValidityWindow {
            step,
            subject: role.subject(),
            life: Validity::new(it.not_before, it.not_after),
        };
        let list = |step, it: &Crl<'_>| ValidityWindow {
            step,
            subject: it.subject,
            life: Validity::new(it.dates.this_update, it.until),
        };
        let (info, identity) = (&self.tcb_info, &self.qe_identity);
        vec![
            certificate(Step::Root, CertificateRole::Root, root),
            list(Step::RootCrl, root_crl),
            certificate(Step::TcbSigner, CertificateRole::TcbSigner, signer),
            ValidityWindow {
                step: Step::TcbInfo,
                subject: "TCB info",
                life: Validity::new(info.issue_date, info.next_update),
            },
            certificate(Step::QeIdentity, CertificateRole::TcbSigner, qe_signer),
            ValidityWindow {
                step: Step::QeIdentity,
                subject: "QE identity",
                life: Validity::new(identity.issue_date, identity.next_update),
            },
            list(Step::PckCrl, pck_crl),
        ]
    }

    /// The root is the last certificate of the TCB info chain, when its hash is trusted.
    fn find_root(
        &self,
        roots: &Roots,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<(TrustedRoot<'_>, Detail), Reason> {
        let (_, der) = certificate_and_root("TCB info issuer chain", &self.tcb_chain)?;
        let sha256 = crypto.sha256(&[der]);
        let kind = roots.require(Anchor::Intel, &sha256)?;
        let certificate = chain::read_certificate(CertificateRole::Root, der, now)?;
        Ok((TrustedRoot { root: Root { kind, sha256 }, der, certificate }, kind.detail(&sha256)))
    }
}

struct TrustedRoot<'e> {
    root: Root,
    der: &'e [u8],
    certificate: Certificate<'e>,
}

/// The trusted root, about to verify what it issued.
struct Issuer<'a> {
    anchor: &'a CertificateDer<'a>,
    root_crl: &'a Crl<'a>,
    now: UnixTime,
    crypto: &'a dyn Crypto,
}

impl Issuer<'_> {
    /// Verifies the chain of a TCB signer: two signatures, on the signer's certificate and on the root's revocation
    /// list.
    fn verify_tcb_signer<'e>(
        &self,
        name: &'static str,
        list: &'e [Vec<u8>],
    ) -> Result<Certificate<'e>, Reason> {
        let (der, root) = certificate_and_root(name, list)?;
        check_same_root(name, root, self.anchor)?;
        let certificate = chain::read_certificate(CertificateRole::TcbSigner, der, self.now)?;
        let anchor = chain::read_anchor(self.anchor)?;
        let (crl, now, crypto) = (self.root_crl, self.now, self.crypto);
        chain::verify_chain(CertificateRole::TcbSigner, der, &[], &anchor, crl, now, crypto)?;
        Ok(certificate)
    }
}

/// Endorsements whose own signatures have been verified down from a trusted root.
///
/// What depends on the quote (PCK chain with its CRL, and everything below) comes after.
pub(crate) struct VerifiedEndorsements<'e> {
    endorsements: &'e Endorsements,
    pub(crate) root: Root,
    pub(crate) root_der: &'e [u8],
    pub(crate) root_crl: Crl<'e>,
    pub(crate) pck_crl: Crl<'e>,
    /// The time during which all documents hold but the PCK CA and those in the quote.
    pub(crate) life: Validity,
    /// The same for each document, in the order in which they are checked.
    pub(crate) windows: Vec<ValidityWindow<Step>>,
}

impl<'e> VerifiedEndorsements<'e> {
    pub(crate) fn values(&self) -> EndorsedValues<'_> {
        EndorsedValues {
            tcb_info: &self.endorsements.tcb_info,
            qe_identity: &self.endorsements.qe_identity,
            root_crl: (&self.root_crl).into(),
            pck_crl: (&self.pck_crl).into(),
        }
    }

    /// The CA that issued the PCK CRL, DER.
    pub(crate) fn pck_ca(&self) -> Option<&'e [u8]> {
        self.endorsements.pck_crl_chain.first().map(Vec::as_slice)
    }

    /// The PCK chain that the collateral repeats, if it does.
    pub(crate) fn pck_chain(&self) -> Option<&'e [Vec<u8>]> {
        self.endorsements.pck_chain.as_deref()
    }
}

impl From<&Crl<'_>> for CrlVersion {
    fn from(crl: &Crl<'_>) -> Self {
        Self { number: crl.dates.number, issued: crl.dates.this_update }
    }
}

const SIGNATURE_NOT_REACHED: &str = "valid now; its signature was not checked";

fn evaluation_detail(number: u32) -> Detail {
    Detail::numbers([number.into()], |[number, ..], f| write!(f, "signed; evaluation {number}"))
}

/// Splits a chain of exactly two certificates into the first and the root.
fn certificate_and_root<'a>(
    chain: &'static str,
    list: &'a [Vec<u8>],
) -> Result<(&'a [u8], &'a [u8]), Reason> {
    match list {
        [certificate, root] => Ok((certificate, root)),
        other => Err(Reason::ChainShape {
            chain,
            wanted: "a certificate and the root",
            got: format!("{} certificates", other.len()),
        }),
    }
}

fn check_same_root(subject: &'static str, got: &[u8], root: &[u8]) -> Result<(), Reason> {
    if got == root { Ok(()) } else { Err(Reason::Differs { subject, other: "the trusted root" }) }
}

fn verify_document(
    subject: &'static str,
    signer: &Certificate<'_>,
    document: &str,
    signature: &[u8; 64],
    crypto: &dyn Crypto,
) -> Result<(), Reason> {
    match crypto.verify_p256(signer.public_key, document.as_bytes(), signature) {
        true => Ok(()),
        false => Err(Reason::Signature { subject }),
    }
}
