//! Endorsements of which everything that does not depend on a quote has been verified.

use alloc::{collections::BTreeSet, format, string::String, sync::Arc, vec::Vec};

use confide_evidence::{collateral::Collateral, quote::Quote};
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::BorrowedCertRevocationList;

use crate::{
    appraise::{Appraisal, EndorsedValues, Evidence, PartialResult, read_quote},
    chain::{self, Role},
    checks::{Checks, Step},
    crypto::Crypto,
    endorsements::{Endorsements, Life, VerifiedEndorsements, Window},
    known::{Learned, Recall},
    learning::Learning,
    policy::Policy,
    reason::Reason,
    result::{Appraised, CrlSeen, Refused, Rejection},
    roots::{Anchor, Root, Roots},
};

/// The endorsements of one platform family, verified down from a trusted root: seven signatures
/// that need not be verified again while they hold.
///
/// A value: it owns all it needs, knows no clock, and is shared by any number of threads. The two
/// or three signatures that depend on the quote are left to [`Prepared::appraise`].
#[derive(Debug)]
pub struct Prepared {
    pub(crate) generation: Generation,
    pub(crate) root: Root,
    pub(crate) root_der: Vec<u8>,
    pub(crate) ca_der: Vec<u8>,
    pub(crate) ca_life: Life,
    pub(crate) ca_anchor: TrustAnchor<'static>,
    /// CA and root as PEM, as the collateral has them and as quotes repeat them after the leaf.
    pub(crate) ca_and_root_pem: Vec<u8>,
    /// Serial numbers that the PCK CA has revoked.
    pub(crate) revoked: BTreeSet<Vec<u8>>,
    pub(crate) endorsements: Endorsements,
    /// Issuer (the content of its Name) and age of the root's and the PCK CA's revocation list.
    root_crl: (Vec<u8>, CrlSeen),
    pck_crl: (Vec<u8>, CrlSeen),
    pub(crate) life: Life,
    windows: Vec<Window>,
    /// The list of checks as it stands before a quote comes.
    checks: Checks,
}

/// Which endorsements these are: SHA-256 of all their bytes and of the root that they were verified
/// under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(pub [u8; 32]);

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
    ) -> Result<Prepared, Rejection> {
        let mut checks = Checks::new::<Step>();
        let mut root = None;
        let held = self.verify_into(&mut checks, roots, now, crypto).and_then(|verified| {
            root = Some(verified.root);
            let ca = checks.run(Step::PckChain, || {
                Ok((VerifiedCa::verify(&verified, &self.collateral, now, crypto)?, "".into()))
            })?;
            checks.skip(Step::PckChain, "not reached");
            let VerifiedEndorsements { root, root_der, life, ref windows, .. } = verified;
            let [root_crl, pck_crl] = [&verified.root_crl, &verified.pck_crl]
                .map(|list| (list.dates.issuer.to_vec(), CrlSeen::from(list)));
            Ok((ca, root, root_der.to_vec(), life, windows.clone(), root_crl, pck_crl))
        });
        match held {
            Ok((ca, root, root_der, life, windows, root_crl, pck_crl)) => Ok(Prepared {
                generation: Generation::of(&self.collateral, &root, crypto),
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
                checks,
            }),
            Err(reason) => {
                let (advisories, checks) = (Arc::<[String]>::default(), checks.into_vec());
                Err(Refused { reason, root, tcb_status: None, advisories, checks }.into())
            }
        }
    }
}

impl Prepared {
    /// Decides as [`crate::appraise`] does, with what is prepared here and what `known` recalls.
    ///
    /// Three signatures where nothing is known (PCK certificate, QE report, quote), two where the
    /// PCK certificate is, one where the quoting enclave is too. All else runs each time: whether
    /// the policy trusts the root, every date, revocation by serial number, security versions, QE
    /// identity, all of the policy, and the quote's own signature.
    ///
    /// `Learned` holds what was found anew; keep it if you like. A rejection teaches nothing, so
    /// that false evidence cannot fill a memory.
    ///
    /// # Errors
    /// [`Rejection`] with the first check that failed ([`Rejection::reason`]) and the outcome of
    /// each check up to it.
    pub fn appraise(
        &self,
        evidence: &Evidence<'_>,
        policy: &Policy,
        now: UnixTime,
        crypto: &dyn Crypto,
        known: &dyn Recall,
    ) -> Result<(Appraised, Learned), Rejection> {
        let mut found = PartialResult::new(self.checks.clone());
        let mut learning = Learning::new(self, known);
        let outcome = self.judge(&mut found, &mut learning, (evidence, policy, now, crypto));
        found.close(outcome).map(|appraised| (appraised, learning.learned()))
    }

    /// Which endorsements these are.
    pub fn generation(&self) -> Generation {
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
    pub fn valid(&self) -> (u64, u64) {
        let life = self.life.and(self.ca_life.from, self.ca_life.until);
        (life.from, life.until)
    }

    /// The root's and the PCK CA's revocation list, each with its issuer (the content of the Name).
    pub fn revocation_lists(&self) -> [(&[u8], CrlSeen); 2] {
        [&self.root_crl, &self.pck_crl].map(|(issuer, seen)| (issuer.as_slice(), *seen))
    }

    fn judge(
        &self,
        found: &mut PartialResult,
        learning: &mut Learning<'_>,
        (evidence, policy, now, crypto): (&Evidence<'_>, &Policy, UnixTime, &dyn Crypto),
    ) -> Result<crate::appraise::AcceptedParts, Reason> {
        let quote: Quote<'_> = match read_quote(found, evidence, policy) {
            Ok(quote) => quote,
            Err(reason) => return Err(found.checks.fail(Step::QuoteFormat, reason)),
        };
        self.still_holds(&mut found.checks, policy, now)?;
        found.root = Some(self.root);
        let grounds = EndorsedValues {
            tcb_info: &self.endorsements.tcb_info,
            qe_identity: &self.endorsements.qe_identity,
            root_crl: self.root_crl.1,
            pck_crl: self.pck_crl.1,
        };
        Appraisal { evidence, quote, grounds, policy, now, crypto }.judge(found, learning)
    }

    /// That the policy trusts the root, and that every document holds now.
    fn still_holds(
        &self,
        checks: &mut Checks,
        policy: &Policy,
        now: UnixTime,
    ) -> Result<(), Reason> {
        let Root { sha256, .. } = self.root;
        if policy.roots.find(Anchor::Intel, &sha256).is_none() {
            let (wanted, got) = (format!("{}", policy.roots), hex::encode(sha256));
            return Err(checks.fail(Step::Root, Reason::UntrustedRoot { wanted, got }));
        }
        if self.life.holds(now) {
            return Ok(());
        }
        for Window { step, subject, life } in &self.windows {
            if let Err(reason) = chain::inside(subject, life.from, life.until, now) {
                return Err(checks.fail(*step, reason));
            }
        }
        Ok(())
    }
}

/// The PCK CA, verified once.
struct VerifiedCa {
    der: Vec<u8>,
    life: Life,
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
        let ca = chain::read(Role::PckCa, der, now)?;
        let list = (&verified.pck_crl, collateral.pck_crl.as_slice());
        chain::verify_ca(der, &ca, verified.root_der, list, crypto)?;
        verified.root_crl.lacks(Role::PckCa.subject(), &ca)?;
        let revoked = BorrowedCertRevocationList::from_der(&collateral.pck_crl)
            .and_then(|list| list.into_iter().map(|it| Ok(it?.serial_number.to_vec())).collect())
            .map_err(|error| chain::refused("PCK CRL", error))?;
        let life = Life { from: ca.not_before, until: ca.not_after };
        let anchor = chain::anchor(&CertificateDer::from(der))?.to_owned();
        Ok(Self { der: der.to_vec(), life, anchor, revoked })
    }
}

impl Generation {
    /// Each part with its length, so that no two sets of endorsements have the same input.
    fn of(collateral: &Collateral, root: &Root, crypto: &dyn Crypto) -> Self {
        let none = String::new();
        let parts: [&[u8]; 11] = [
            &root.sha256,
            collateral.pck_crl_issuer_chain.as_bytes(),
            &collateral.root_ca_crl,
            &collateral.pck_crl,
            collateral.tcb_info_issuer_chain.as_bytes(),
            collateral.tcb_info.as_bytes(),
            &collateral.tcb_info_signature,
            collateral.qe_identity_issuer_chain.as_bytes(),
            collateral.qe_identity.as_bytes(),
            &collateral.qe_identity_signature,
            collateral.pck_certificate_chain.as_ref().unwrap_or(&none).as_bytes(),
        ];
        let lengths = parts.map(|part| (part.len() as u64).to_le_bytes());
        let input: Vec<&[u8]> =
            lengths.iter().map(<[u8; 8]>::as_slice).chain(parts.iter().copied()).collect();
        Self(crypto.sha256(&input))
    }
}
