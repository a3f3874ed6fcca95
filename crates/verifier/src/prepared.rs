//! Endorsements of which everything that does not depend on a quote has been verified.

use alloc::{collections::BTreeSet, vec::Vec};

use confide_evidence::collateral::Collateral;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::BorrowedCertRevocationList;

use crate::{
    chain::{self, CertificateRole},
    checks::{Checks, Step},
    crl::CrlVersion,
    crypto::Crypto,
    endorsements::{Endorsements, VerifiedEndorsements},
    generation::EndorsementsId,
    policy::Policy,
    reason::Reason,
    result::{PartialResult, Rejection},
    roots::{Anchor, Root, Roots},
    validity::{Validity, ValidityWindow},
};

/// The endorsements of one platform family, verified down from a trusted root: six signatures
/// that need not be verified again while they hold.
///
/// A value: it owns all it needs, knows no clock, and is shared by any number of threads. The two
/// or three signatures that depend on the quote are left to [`PreparedEndorsements::appraise`].
#[derive(Debug)]
pub struct PreparedEndorsements {
    pub(crate) generation: EndorsementsId,
    pub(crate) root: Root,
    pub(crate) root_der: Vec<u8>,
    pub(crate) ca_der: Vec<u8>,
    pub(crate) ca_life: Validity,
    pub(crate) ca_anchor: TrustAnchor<'static>,
    /// CA and root as PEM, as the collateral has them and as quotes repeat them after the leaf.
    pub(crate) ca_and_root_pem: Vec<u8>,
    /// Serial numbers that the PCK CA has revoked.
    pub(crate) revoked: BTreeSet<Vec<u8>>,
    pub(crate) endorsements: Endorsements,
    /// Issuer (the content of its Name) and age of the root's and the PCK CA's revocation list.
    pub(crate) root_crl: (Vec<u8>, CrlVersion),
    pub(crate) pck_crl: (Vec<u8>, CrlVersion),
    pub(crate) life: Validity,
    windows: Vec<ValidityWindow<Step>>,
    /// The list of checks as it stands before a quote comes.
    pub(crate) checks: Checks,
}

impl Endorsements {
    /// Verifies all that does not depend on a quote: root, both revocation lists, TCB signer, TCB
    /// info, QE identity, PCK CA.
    ///
    /// A fault of the endorsements is found here and not when a quote comes; the rejection then
    /// has not looked at any quote (`quote_format` is not evaluated).
    ///
    /// # Errors
    /// [`Rejection`] with the first check of the endorsements that failed.
    pub fn prepare(
        self,
        roots: &Roots,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<PreparedEndorsements, Rejection> {
        let mut found = PartialResult::new(Checks::new::<Step>());
        let held = self.verify(&mut found.checks, roots, now, crypto).and_then(|verified| {
            found.root = Some(verified.root);
            let ca = found.checks.run(Step::PckChain, || {
                Ok((VerifiedCa::verify(&verified, &self.collateral, now, crypto)?, "".into()))
            })?;
            found.checks.skip(Step::PckChain, "not reached");
            let VerifiedEndorsements { root, root_der, life, ref windows, .. } = verified;
            let [root_crl, pck_crl] = [&verified.root_crl, &verified.pck_crl]
                .map(|list| (list.dates.issuer.to_vec(), CrlVersion::from(list)));
            Ok((ca, root, root_der.to_vec(), life, windows.clone(), root_crl, pck_crl))
        });
        match held {
            Ok((ca, root, root_der, life, windows, root_crl, pck_crl)) => {
                Ok(PreparedEndorsements {
                    generation: EndorsementsId::derive(&self.collateral, &root, crypto),
                    root,
                    root_der,
                    ca_der: ca.der,
                    ca_life: ca.life,
                    ca_anchor: ca.anchor,
                    ca_and_root_pem: self.collateral.pck_crl_issuer_chain.trim().into(),
                    revoked: ca.revoked,
                    endorsements: self,
                    root_crl,
                    pck_crl,
                    life,
                    windows,
                    checks: found.checks,
                })
            }
            Err(reason) => Err(found.reject(reason)),
        }
    }
}

impl PreparedEndorsements {
    /// The identifier of these endorsements.
    pub fn endorsements_id(&self) -> EndorsementsId {
        self.generation
    }

    /// The root that they were verified under.
    pub fn root(&self) -> Root {
        self.root
    }

    /// The DER of that root.
    pub fn root_der(&self) -> &[u8] {
        &self.root_der
    }

    /// Unix seconds from which and until which all of them hold, both included.
    pub fn validity(&self) -> (u64, u64) {
        let life = self.life.and(self.ca_life);
        (life.from, life.until)
    }

    /// The root's and the PCK CA's revocation list, each with its issuer (the content of the Name).
    pub fn revocation_lists(&self) -> [(&[u8], CrlVersion); 2] {
        [&self.root_crl, &self.pck_crl].map(|(issuer, seen)| (issuer.as_slice(), *seen))
    }

    /// Checks that the policy trusts the root, and that every document holds now.
    pub(crate) fn check_still_valid(
        &self,
        checks: &mut Checks,
        policy: &Policy,
        now: UnixTime,
    ) -> Result<(), Reason> {
        let trusted = policy.roots.require(Anchor::Intel, &self.root.sha256);
        trusted.map_err(|reason| checks.fail(Step::Root, reason))?;
        if self.life.holds(now) {
            return Ok(());
        }
        ValidityWindow::check_all(&self.windows, checks, now)
    }
}

/// The PCK CA, verified once.
struct VerifiedCa {
    der: Vec<u8>,
    life: Validity,
    anchor: TrustAnchor<'static>,
    revoked: BTreeSet<Vec<u8>>,
}

impl VerifiedCa {
    fn verify(
        verified: &VerifiedEndorsements<'_>,
        collateral: &Collateral,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<Self, Reason> {
        let der = verified.pck_ca().unwrap_or_default();
        let ca = chain::read_certificate(CertificateRole::PckCa, der, now)?;
        let list = (&verified.pck_crl, collateral.pck_crl.as_slice());
        chain::verify_ca(der, &ca, verified.root_der, list, crypto)?;
        verified.root_crl.check_not_revoked(CertificateRole::PckCa.subject(), &ca)?;
        let revoked = BorrowedCertRevocationList::from_der(&collateral.pck_crl)
            .and_then(|list| list.into_iter().map(|it| Ok(it?.serial_number.to_vec())).collect())
            .map_err(|error| chain::webpki_error("PCK CRL", error))?;
        let life = Validity::new(ca.not_before, ca.not_after);
        let anchor = chain::read_anchor(&CertificateDer::from(der))?.to_owned();
        Ok(Self { der: der.to_vec(), life, anchor, revoked })
    }
}
