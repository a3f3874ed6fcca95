//! Revocation answers (OCSP): which certificates are known not to be revoked.

use alloc::{format, vec::Vec};

use confide_evidence::gpu::{
    CertificateId, CertificateStatus, DeviceCertificate, HashAlgorithm, OcspResponse,
    SingleResponse,
};
use rustls_pki_types::UnixTime;

use super::{
    chain::VerifiedChain,
    judge::{GpuStep, Judge},
    manifests::Manifests,
};
use crate::{checks::Checks, reason::Reason, validity::Validity};

/// How long an answer without nextUpdate counts, in seconds: one day.
const ANSWER_AGE_MAX_S: u64 = 24 * 60 * 60;
/// The name of a revocation answer in rejections.
const SUBJECT: &str = "revocation answer";

impl Judge<'_> {
    /// Looks up in the answers every certificate for whose position `asked` returns `true`; the root is never looked
    /// up.
    ///
    /// `Ok(true)`: each is known not to be revoked.
    pub(super) fn check_revocation(
        &self,
        checks: &mut Checks,
        step: GpuStep,
        chains: &[&VerifiedChain<'_>],
        asked: impl Fn(usize) -> bool,
    ) -> Result<bool, Reason> {
        if self.answers.is_empty() {
            checks.skip(step, "no revocation answer was given");
            return Ok(false);
        }
        let (mut known, mut wanted) = (0, 0);
        let looked_up = self.count_good(chains, asked, &mut known, &mut wanted);
        match looked_up {
            Ok(()) if known < wanted => {
                checks.skip(step, format!("answers for {known} of {wanted} certificates"));
                Ok(false)
            }
            outcome => checks.run(step, || {
                outcome.map(|()| (true, format!("{known} certificates are not revoked").into()))
            }),
        }
    }

    /// Looks up the certificates of the manifests' chains in the answers.
    pub(super) fn check_manifest_revocation(
        &self,
        checks: &mut Checks,
        manifests: &Manifests,
    ) -> Result<bool, Reason> {
        if manifests.is_empty() {
            checks.skip(GpuStep::ManifestRevocation, "no reference manifest was given");
            // Whether manifests are required is a check of its own.
            return Ok(true);
        }
        let chains = manifests.chains(self)?;
        let chains: Vec<_> = chains.iter().collect();
        self.check_revocation(checks, GpuStep::ManifestRevocation, &chains, |_| true)
    }

    fn count_good(
        &self,
        chains: &[&VerifiedChain<'_>],
        asked: impl Fn(usize) -> bool,
        known: &mut usize,
        wanted: &mut usize,
    ) -> Result<(), Reason> {
        for chain in chains {
            let pairs = chain.certificates.windows(2).enumerate();
            for (at, pair) in pairs.filter(|(at, _)| asked(*at)) {
                *wanted += 1;
                if self.is_good(chain, at, pair)? {
                    *known += 1;
                }
            }
        }
        Ok(())
    }

    /// Whether an answer that holds says so of `pair[0]`, which is `chain[at]` and which `pair[1]`
    /// issued. Every answer is heard: one revocation counts next to any number that hold, and one
    /// that has ended is made good by another.
    fn is_good(
        &self,
        chain: &VerifiedChain<'_>,
        at: usize,
        pair: &[DeviceCertificate<'_>],
    ) -> Result<bool, Reason> {
        let (mut is_good, mut ended) = (false, None);
        for bytes in self.answers {
            let answer = OcspResponse::parse(bytes)?;
            let mut said = answer
                .statuses
                .iter()
                .filter(|single| self.matches_certificate(&single.certificate, &pair[0], &pair[1]))
                .peekable();
            if said.peek().is_some() {
                self.verify_answer(&answer, chain, at)?;
            }
            for said in said {
                check_not_revoked(said)?;
                match check_current(said, self.now) {
                    Ok(()) => is_good = true,
                    Err(reason) => ended = Some(reason),
                }
            }
        }
        match ended {
            Some(reason) if !is_good => Err(reason),
            _ => Ok(is_good),
        }
    }

    fn matches_certificate(
        &self,
        id: &CertificateId<'_>,
        certificate: &DeviceCertificate<'_>,
        issuer: &DeviceCertificate<'_>,
    ) -> bool {
        let issuer_name = issuer.subject_der();
        let is_hash_of = |bytes: &[u8], hash: &[u8]| match id.algorithm {
            HashAlgorithm::Sha256 => self.crypto.sha256(&[bytes]) == hash,
            HashAlgorithm::Sha384 => self.crypto.sha384(&[bytes]) == hash,
            // No request from here uses SHA-1, so an answer that does is ignored.
            HashAlgorithm::Sha1 => false,
        };
        id.serial == certificate.serial
            && is_hash_of(&issuer_name, id.issuer_name)
            && is_hash_of(issuer.public_key, id.issuer_key)
    }

    /// Verifies that the issuer of `chain[at]`, or a responder that a CA above it named, signed the answer.
    fn verify_answer(
        &self,
        answer: &OcspResponse<'_>,
        chain: &VerifiedChain<'_>,
        at: usize,
    ) -> Result<(), Reason> {
        let key = match answer.certificates.first() {
            None => chain.certificates[at + 1].public_key,
            Some(der) => {
                let subject = "revocation responder";
                let responder = DeviceCertificate::parse(subject, der)?;
                if responder.is_ca || !responder.signs_ocsp {
                    let wanted = "extended key usage to sign revocation answers, and no CA";
                    return Err(Reason::CertificateUse { subject, wanted });
                }
                Validity::new(responder.not_before, responder.not_after)
                    .check(subject, self.now)?;
                chain.verify_responder(der, at, self.now, self.crypto)?;
                responder.public_key
            }
        };
        let algorithm = self.crypto.p384_certificate_algorithm();
        let verified = algorithm.verify_signature(key, answer.signed, answer.signature);
        verified.map_err(|_| Reason::Signature { subject: SUBJECT })
    }
}

fn check_current(said: &SingleResponse<'_>, now: UnixTime) -> Result<(), Reason> {
    let last = said.next_update.unwrap_or(said.this_update.saturating_add(ANSWER_AGE_MAX_S));
    Validity::new(said.this_update, last).check(SUBJECT, now)
}

/// Refuses a revoked certificate even where the answer has expired: an expired answer does not undo a revocation.
fn check_not_revoked(said: &SingleResponse<'_>) -> Result<(), Reason> {
    match said.status {
        CertificateStatus::Good => Ok(()),
        CertificateStatus::Revoked => {
            Err(Reason::CertificateRevoked { subject: "certificate of the GPU or its manifest" })
        }
        CertificateStatus::Unknown => Err(Reason::Value {
            field: "revocation status",
            wanted: "good".into(),
            got: "unknown".into(),
        }),
    }
}
