//! Appraisal under prepared endorsements: signatures whose verdicts are remembered are not verified again.

use alloc::{sync::Arc, vec::Vec};

use confide_evidence::{pem, quote::Quote};
use rustls_pki_types::UnixTime;

use crate::{
    appraisal::{Appraisal, EndorsedValues, Platform, VerifySignatures},
    appraise::read_quote,
    chain::{self, CertificateRole},
    checks::{Checks, Step},
    crypto::Crypto,
    evidence::Evidence,
    memory::{
        AttestationKey, Certification, KnownEnclave, KnownPck, NewVerdicts, RecallPlatform, Tags,
        VerdictTag, is_fresh,
    },
    platform::{
        PCK_CHAIN_PASSED, QE_REPORT_PASSED, QUOTE_CHAIN, QUOTE_SIGNATURE_PASSED, check_same_chain,
        sgx_extension, split_chain, verify_enclave,
    },
    policy::Policy,
    prepared::PreparedEndorsements,
    reason::Reason,
    result::{AcceptedParts, Appraised, PartialResult, Rejection},
    validity::Validity,
};

/// One appraisal under prepared endorsements, asking a memory and noting what it lacked.
pub(crate) struct RecalledVerification<'p> {
    prepared: &'p PreparedEndorsements,
    memory: &'p dyn RecallPlatform,
    tags: Option<Tags>,
    pck: Option<Arc<KnownPck>>,
    /// The quoting enclave as the memory had it.
    enclave: Option<Arc<KnownEnclave>>,
    /// The attestation key verified in this appraisal; it is learnt once all else has passed.
    attestation_key: Option<AttestationKey>,
    /// The new verdicts, which count only once the evidence was accepted.
    learned: NewVerdicts,
}

impl<'p> RecalledVerification<'p> {
    pub(crate) fn new(prepared: &'p PreparedEndorsements, memory: &'p dyn RecallPlatform) -> Self {
        Self {
            prepared,
            memory,
            tags: None,
            pck: None,
            enclave: None,
            attestation_key: None,
            learned: NewVerdicts::default(),
        }
    }
}

impl VerifySignatures for RecalledVerification<'_> {
    fn verify_pck(
        &mut self,
        checks: &mut Checks,
        appraisal: &Appraisal<'_>,
    ) -> Result<Platform, Reason> {
        checks.run(Step::PckChain, || {
            let certification = self.prepared.certification(&appraisal.quote);
            self.recall(appraisal, certification);
            let known = match self.pck.clone() {
                Some(known) => {
                    self.prepared.check_known_pck(&known, appraisal)?;
                    known
                }
                None => {
                    let tag = self.tags.map(|tags| tags.pck);
                    let known =
                        Arc::new(self.prepared.verify_pck(appraisal, certification, tag)?);
                    self.learned.pck = tag.map(|_| known.clone());
                    known
                }
            };
            let ca = self.prepared.ca_life;
            let platform = Platform {
                pck: known.pck,
                public_key: known.public_key,
                life: self.prepared.life.and(known.life).and(ca),
            };
            self.pck = Some(known);
            Ok((platform, PCK_CHAIN_PASSED))
        })
    }

    fn verify_enclave(
        &mut self,
        checks: &mut Checks,
        appraisal: &Appraisal<'_>,
        platform: &Platform,
    ) -> Result<(), Reason> {
        checks.run(Step::QeReport, || {
            if self.enclave.is_none() {
                verify_enclave(&appraisal.quote, appraisal.crypto, |report, signature| {
                    appraisal.crypto.verify_p256(&platform.public_key, report, signature)
                })?;
                self.attestation_key =
                    Some(AttestationKey::new(&appraisal.quote, appraisal.crypto));
            }
            Ok(((), QE_REPORT_PASSED))
        })
    }

    fn verify_quote(
        &mut self,
        checks: &mut Checks,
        appraisal: &Appraisal<'_>,
    ) -> Result<(), Reason> {
        checks.run(Step::QuoteSignature, || {
            let known = self.enclave.as_ref().map(|known| &known.attestation_key);
            let key = known.or(self.attestation_key.as_ref());
            if !key.is_some_and(|key| key.has_signed(&appraisal.quote, appraisal.crypto)) {
                return Err(Reason::Signature { subject: "quote" });
            }
            if let (Some(attestation_key), Some(tags), Some(pck)) =
                (self.attestation_key.take(), self.tags, &self.pck)
            {
                self.learned.enclave = Some(Arc::new(KnownEnclave {
                    tag: tags.enclave,
                    learnt_at: appraisal.now.as_secs(),
                    pck: pck.clone(),
                    attestation_key,
                }));
            }
            Ok(((), QUOTE_SIGNATURE_PASSED))
        })
    }
}

impl RecalledVerification<'_> {
    /// Asks the memory, and believes it only where the tag is that of these bytes under this
    /// generation and the verdict is not too old for the policy.
    fn recall(&mut self, appraisal: &Appraisal<'_>, certification: Certification<'_>) {
        let Some(secret) = self.memory.tag_key() else { return };
        let generation = &self.prepared.generation;
        let tags = Tags::derive(secret, generation, certification, &appraisal.quote);
        self.tags = Some(tags);
        let is_usable = |tag: VerdictTag, wanted: VerdictTag, learnt_at: u64| {
            tag == wanted && is_fresh(learnt_at, appraisal.policy.cache_lifetime_s, appraisal.now)
        };
        let pck_is_usable = |known: &Arc<KnownPck>| is_usable(known.tag, tags.pck, known.learnt_at);
        self.enclave = self.memory.enclave(tags.enclave).filter(|known| {
            is_usable(known.tag, tags.enclave, known.learnt_at) && pck_is_usable(&known.pck)
        });
        self.pck = match &self.enclave {
            Some(known) => Some(known.pck.clone()),
            None => self.memory.pck(tags.pck).filter(pck_is_usable),
        };
    }
}

impl PreparedEndorsements {
    /// Decides as [`crate::appraise`] does, with what is prepared here and what `known` recalls.
    ///
    /// Three signatures where nothing is known (PCK certificate, QE report, quote), two where the
    /// PCK certificate is, one where the quoting enclave is too. All else runs each time: whether
    /// the policy trusts the root, every date, revocation by serial number, security versions, QE
    /// identity, all of the policy, and the quote's own signature.
    ///
    /// [`NewVerdicts`] holds what was found again; keep it if you like. A rejection teaches nothing, so that false
    /// evidence cannot fill a memory.
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
        known: &dyn RecallPlatform,
    ) -> Result<(Appraised, NewVerdicts), Rejection> {
        let mut found = PartialResult::new(self.checks.clone());
        let mut learning = RecalledVerification::new(self, known);
        let outcome = self.judge(&mut found, &mut learning, evidence, policy, now, crypto);
        found.into_verdict(outcome).map(|appraised| (appraised, learning.learned))
    }

    fn judge(
        &self,
        found: &mut PartialResult,
        learning: &mut RecalledVerification<'_>,
        evidence: &Evidence<'_>,
        policy: &Policy,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<AcceptedParts, Reason> {
        let quote: Quote<'_> = match read_quote(found, evidence, policy) {
            Ok(quote) => quote,
            Err(reason) => return Err(found.checks.fail(Step::QuoteFormat, reason)),
        };
        self.check_still_valid(&mut found.checks, policy, now)?;
        found.root = Some(self.root);
        let endorsed = EndorsedValues {
            tcb_info: &self.endorsements.tcb_info,
            qe_identity: &self.endorsements.qe_identity,
            root_crl: self.root_crl.1,
            pck_crl: self.pck_crl.1,
        };
        Appraisal { evidence, quote, endorsed, policy, now, crypto }.judge(found, learning)
    }

    /// Returns the part of the quote's chain that is not known: the leaf alone, where CA and root follow it in the
    /// very text that is held.
    ///
    /// [`pem::decode_chain`] drops zero bytes at the end of a whole chain; one before the CA would
    /// be an error there, so such a text is not taken apart.
    fn certification<'q>(&self, quote: &Quote<'q>) -> Certification<'q> {
        let text = quote.pck_chain;
        let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        match text[..end].trim_ascii_end().strip_suffix(self.ca_and_root_pem.as_slice()) {
            Some(leaf) if leaf.last() != Some(&0) => Certification::Leaf(leaf),
            _ => Certification::Chain(text),
        }
    }

    /// Checks what can change about a known PCK certificate: the time, and (with the generation) whether it is
    /// revoked.
    fn check_known_pck(&self, known: &KnownPck, appraisal: &Appraisal<'_>) -> Result<(), Reason> {
        known.life.check(CertificateRole::Pck.subject(), appraisal.now)?;
        self.check_ca_validity(appraisal)?;
        self.check_not_revoked(&known.serial)
    }

    fn check_ca_validity(&self, appraisal: &Appraisal<'_>) -> Result<(), Reason> {
        self.ca_life.check(CertificateRole::PckCa.subject(), appraisal.now)
    }

    fn check_not_revoked(&self, serial: &[u8]) -> Result<(), Reason> {
        let subject = CertificateRole::Pck.subject();
        if self.revoked.contains(serial) {
            return Err(Reason::CertificateRevoked { subject });
        }
        Ok(())
    }

    /// Verifies the leaf under the CA that is held: one signature.
    fn verify_pck(
        &self,
        appraisal: &Appraisal<'_>,
        certification: Certification<'_>,
        tag: Option<VerdictTag>,
    ) -> Result<KnownPck, Reason> {
        let leaf_only = match certification {
            Certification::Leaf(text) => pem::decode_chain(QUOTE_CHAIN, text).ok(),
            Certification::Chain(_) => None,
        };
        let repeated = self.endorsements.pck_chain.as_deref();
        let list = match leaf_only {
            Some(list) if list.len() == 1 && repeated.is_none() => list,
            // The chain is read as a whole, so that a wrong shape gets the same reason as in the reference.
            _ => {
                let list = pem::decode_chain(QUOTE_CHAIN, appraisal.quote.pck_chain)?;
                split_chain(&list)?;
                check_same_chain(&list, &self.root_der, Some(&self.ca_der), repeated)?;
                list
            }
        };
        let leaf_der = list.first().map(Vec::as_slice).unwrap_or_default();
        let leaf = chain::read_certificate(CertificateRole::Pck, leaf_der, appraisal.now)?;
        self.check_ca_validity(appraisal)?;
        chain::verify_leaf(leaf_der, &self.ca_anchor, appraisal.now, appraisal.crypto)?;
        self.check_not_revoked(leaf.serial)?;
        Ok(KnownPck {
            tag: tag.unwrap_or(VerdictTag::UNNAMED),
            learnt_at: appraisal.now.as_secs(),
            pck: sgx_extension(&leaf)?,
            public_key: *leaf.public_key,
            serial: leaf.serial.into(),
            life: Validity::new(leaf.not_before, leaf.not_after),
        })
    }
}
