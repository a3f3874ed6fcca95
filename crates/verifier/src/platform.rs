//! From the PCK chain to Intel's verdict on the platform, and the policy's on that.

use alloc::{format, string::ToString, vec::Vec};

use confide_evidence::{
    ReportData,
    certificate::Certificate,
    pck::PckExtension,
    pem,
    quote::{Body, Quote, Tee},
    tcb_info::{IsvLevel, TcbStatus},
};
use rustls_pki_types::CertificateDer;

use crate::{
    appraisal::{Appraisal, Platform, VerifySignatures},
    chain::{self, CertificateRole},
    checks::{Checks, Step},
    crl::check_revocation_list,
    crypto::Crypto,
    detail::Detail,
    endorsements::VerifiedEndorsements,
    policy::Policy,
    reason::Reason,
    tcb::{self, TcbStanding},
    validity::Validity,
};

/// Verifies every signature each time: the PCK chain (three signatures: leaf, its CA, the CA's
/// revocation list), the quoting enclave, the quote.
pub(crate) struct FullVerification<'a>(pub(crate) &'a VerifiedEndorsements<'a>);

impl VerifySignatures for FullVerification<'_> {
    fn verify_pck(
        &mut self,
        checks: &mut Checks,
        appraisal: &Appraisal<'_>,
    ) -> Result<Platform, Reason> {
        let endorsements = self.0;
        checks.run(Step::PckChain, || {
            let list = pem::decode_chain(QUOTE_CHAIN, appraisal.quote.pck_chain)?;
            let [leaf_der, ca_der, root_der] = split_chain(&list)?;
            let repeated = endorsements.pck_chain();
            check_same_chain(&list, endorsements.root_der, endorsements.pck_ca(), repeated)?;
            let leaf = chain::read_certificate(CertificateRole::Pck, leaf_der, appraisal.now)?;
            let ca = chain::read_certificate(CertificateRole::PckCa, ca_der, appraisal.now)?;
            let anchor_der = CertificateDer::from(root_der);
            let anchor = chain::read_anchor(&anchor_der)?;
            let crl = &endorsements.pck_crl;
            chain::verify_chain(
                CertificateRole::Pck,
                leaf_der,
                &[ca_der],
                &anchor,
                crl,
                appraisal.now,
                appraisal.crypto,
            )?;
            endorsements.root_crl.check_not_revoked(CertificateRole::PckCa.subject(), &ca)?;
            let platform = Platform {
                pck: sgx_extension(&leaf)?,
                public_key: *leaf.public_key,
                life: endorsements
                    .life
                    .and(Validity::new(leaf.not_before, leaf.not_after))
                    .and(Validity::new(ca.not_before, ca.not_after)),
            };
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
            let quote = &appraisal.quote;
            verify_enclave(quote, appraisal.crypto, |report, signature| {
                appraisal.crypto.verify_p256(&platform.public_key, report, signature)
            })?;
            Ok(((), QE_REPORT_PASSED))
        })
    }

    fn verify_quote(
        &mut self,
        checks: &mut Checks,
        appraisal: &Appraisal<'_>,
    ) -> Result<(), Reason> {
        let mut key = [4; 65];
        key[1..].copy_from_slice(appraisal.quote.attestation_key);
        let is_signed =
            appraisal.crypto.verify_p256(&key, appraisal.quote.signed, appraisal.quote.signature);
        checks.require(Step::QuoteSignature, is_signed, QUOTE_SIGNATURE_PASSED, || {
            Reason::Signature { subject: "quote" }
        })
    }
}

pub(crate) const QUOTE_CHAIN: &str = "PCK chain of the quote";
pub(crate) const PCK_CHAIN_PASSED: Detail =
    Detail::text("leaf, CA, root; neither leaf nor CA revoked");
pub(crate) const QE_REPORT_PASSED: Detail =
    Detail::text("signed by the PCK; binds the attestation key");
pub(crate) const QUOTE_SIGNATURE_PASSED: Detail = Detail::text("signed by the attestation key");

/// Splits a chain into leaf, CA and root.
pub(crate) fn split_chain(list: &[Vec<u8>]) -> Result<[&[u8]; 3], Reason> {
    match list {
        [leaf, ca, root] => Ok([leaf, ca, root]),
        other => Err(Reason::ChainShape {
            chain: QUOTE_CHAIN,
            wanted: "leaf, CA and root",
            got: format!("{} certificates", other.len()),
        }),
    }
}

/// Checks that the quote's chain is the one that the endorsements are about.
pub(crate) fn check_same_chain(
    list: &[Vec<u8>],
    root: &[u8],
    ca: Option<&[u8]>,
    repeated: Option<&[Vec<u8>]>,
) -> Result<(), Reason> {
    let [_, list_ca, list_root] = split_chain(list)?;
    if list_root != root {
        return Err(mismatch_error("root of the quote", "the trusted root"));
    }
    if ca != Some(list_ca) {
        return Err(mismatch_error("PCK CA of the quote", "the issuer of the PCK CRL"));
    }
    if repeated.is_some_and(|repeated| repeated != list) {
        return Err(mismatch_error("PCK chain of the collateral", QUOTE_CHAIN));
    }
    Ok(())
}

pub(crate) fn sgx_extension(leaf: &Certificate<'_>) -> Result<PckExtension, Reason> {
    let Some(extension) = leaf.sgx_extension else {
        let subject = CertificateRole::Pck.subject();
        return Err(Reason::CertificateUse { subject, wanted: "Intel's SGX extension" });
    };
    Ok(PckExtension::parse(extension)?)
}

/// Verifies one signature and one hash: QE report by the PCK, attestation key in the report.
pub(crate) fn verify_enclave(
    quote: &Quote<'_>,
    crypto: &dyn Crypto,
    verify: impl FnOnce(&[u8; 384], &[u8; 64]) -> bool,
) -> Result<(), Reason> {
    let Quote { qe_report, qe_report_signature, qe_auth_data, attestation_key, .. } = *quote;
    if !verify(qe_report.bytes(), qe_report_signature) {
        return Err(Reason::Signature { subject: "QE report" });
    }
    let bound = crypto.sha256(&[attestation_key, qe_auth_data]);
    if *qe_report.report_data() != ReportData::from_digest(bound).0 {
        return Err(Reason::AttestationKey);
    }
    Ok(())
}

impl Appraisal<'_> {
    /// Compares the root's list with its minimum; its signature is verified with the endorsements.
    pub(crate) fn check_root_crl(&self, checks: &mut Checks) -> Result<(), Reason> {
        let (seen, minimum) = (self.endorsed.root_crl, self.policy.root_crl);
        check_revocation_list(checks, Step::RootCrl, "root CRL", seen, minimum)
    }

    /// Compares the PCK CA's list with its minimum; its signature is verified with the PCK chain.
    pub(crate) fn check_pck_crl(&self, checks: &mut Checks) -> Result<(), Reason> {
        let (seen, minimum) = (self.endorsed.pck_crl, self.policy.pck_crl);
        check_revocation_list(checks, Step::PckCrl, "PCK CRL", seen, minimum)
    }

    /// Checks that the endorsements are for this platform.
    pub(crate) fn check_endorsed(
        &self,
        checks: &mut Checks,
        platform: &Platform,
    ) -> Result<(), Reason> {
        checks.run(Step::Platform, || {
            let info = self.endorsed.tcb_info;
            check_same_tee("TCB info", self.quote.tee(), info.tee)?;
            check_same_bytes("FMSPC", &info.fmspc, &platform.pck.fmspc)?;
            check_same_bytes("PCE-ID", &info.pce_id, &platform.pck.pce_id)?;
            let [a, b, c, d, e, g] = info.fmspc;
            let number = u64::from_be_bytes([0, 0, a, b, c, d, e, g]);
            Ok(((), Detail::numbers([number], |[fmspc, ..], f| write!(f, "FMSPC {fmspc:012x}"))))
        })
    }

    pub(crate) fn judge_tcb(
        &self,
        checks: &mut Checks,
        platform: &Platform,
    ) -> Result<TcbStanding, Reason> {
        let info = self.endorsed.tcb_info;
        let qe_level = checks.run(Step::QeEnclave, || {
            let identity = self.endorsed.qe_identity;
            check_same_tee("QE identity", self.quote.tee(), identity.tee)?;
            let level = tcb::qe_level(identity, self.quote.qe_report)?;
            Ok((level, level.tcb_status.as_str().into()))
        })?;
        let module_level = match self.quote.body {
            Body::Sgx(_) => {
                checks.skip(Step::TdxModule, "SGX has no TDX module");
                None
            }
            Body::Tdx(report) => checks.run(Step::TdxModule, || {
                let level = tcb::module_level(info, report)?;
                let status = level.map_or("signed by Intel", |level| level.tcb_status.as_str());
                Ok((level, status.into()))
            })?,
        };
        checks.run(Step::TcbLevel, || {
            let verdict_on = |svn: Option<&[u8; 16]>, module: Option<&IsvLevel>| {
                let level = tcb::platform_level(info, &platform.pck, svn)?;
                let parts = module.into_iter().chain([qe_level]);
                Ok::<_, Reason>(
                    parts.fold(TcbStanding::of_platform(level), TcbStanding::include_part),
                )
            };
            let (launch_svn, running_svn) = match self.quote.body {
                Body::Sgx(_) => (None, None),
                Body::Tdx(report) => (Some(report.tee_tcb_svn()), report.tee_tcb_svn_2()),
            };
            let mut verdict = verdict_on(launch_svn, module_level)?;
            if let Some(svn) = running_svn {
                let module = tcb::running_module_level(info, svn)?;
                verdict = verdict.include_running(&verdict_on(Some(svn), module)?);
            }
            let detail = verdict.status.as_str();
            Ok((verdict, detail.into()))
        })
    }

    /// Whether a status would be accepted but for its age, and is not too old for the policy.
    ///
    /// The date is that of the level that the platform has, as in Intel's quote appraisal library.
    fn is_in_grace(&self, verdict: &TcbStanding) -> bool {
        use TcbStatus::{OutOfDate, OutOfDateConfigurationNeeded};
        if !matches!(verdict.status, OutOfDate | OutOfDateConfigurationNeeded) {
            return false;
        }
        let fresh = verdict.status_without_age();
        let (grace, now) = (self.policy.tcb_grace_s, self.now.as_secs());
        let until = verdict.stale_since.map(|since| since.saturating_add(grace));
        grace > 0 && self.policy.tcb_status.accepts(&fresh) && until.is_some_and(|end| now <= end)
    }

    pub(crate) fn check_tcb_policy(
        &self,
        checks: &mut Checks,
        verdict: &TcbStanding,
    ) -> Result<(), Reason> {
        let Policy { tcb_status, advisories, tcb_evaluation_data_number_min, .. } = self.policy;
        let status = verdict.status;
        // The keys of a revoked platform are compromised: no policy can accept it.
        let accepted = status != TcbStatus::Revoked && tcb_status.accepts(&status);
        checks.run(Step::TcbStatus, || match accepted {
            true => Ok(((), status.as_str().into())),
            false if self.is_in_grace(verdict) => Ok(((), grace_detail(status))),
            false => Err(Reason::TcbStatus { wanted: tcb_status.to_string(), got: status }),
        })?;
        if !tcb_status.is_evaluated() {
            checks.skip(Step::TcbStatus, format!("{status}; the policy says dangerous-any"));
        }
        let listed = |after| Detail::list(&verdict.advisories, "none apply", after);
        match verdict.advisories.iter().find(|advisory| !advisories.accepts(advisory)) {
            _ if !advisories.is_evaluated() => {
                checks.skip(Step::Advisories, listed("; the policy says dangerous-any"));
            }
            None => checks.pass(Step::Advisories, listed("")),
            Some(got) => checks.run(Step::Advisories, || {
                Err(Reason::Advisory { wanted: advisories.to_string(), got: got.clone() })
            })?,
        }
        let (got, least) = (self.evaluation_number(), *tcb_evaluation_data_number_min);
        let detail = Detail::numbers([got.into()], |[got, ..], f| write!(f, "{got}"));
        checks.require(Step::EvaluationNumber, got >= least, detail, || Reason::Value {
            field: "TCB evaluation data number",
            wanted: format!("at least {least}"),
            got: got.to_string(),
        })
    }
}

/// The detail of one of the two out-of-date statuses that passes in the policy's grace period.
fn grace_detail(status: TcbStatus) -> Detail {
    Detail::text(match status {
        TcbStatus::OutOfDateConfigurationNeeded => {
            "OutOfDateConfigurationNeeded, within its grace period"
        }
        _ => "OutOfDate, within its grace period",
    })
}

fn check_same_tee(subject: &'static str, wanted: Tee, got: Tee) -> Result<(), Reason> {
    if wanted == got { Ok(()) } else { Err(Reason::WrongTee { subject, wanted, got }) }
}

fn check_same_bytes(field: &'static str, wanted: &[u8], got: &[u8]) -> Result<(), Reason> {
    if wanted == got {
        return Ok(());
    }
    Err(tcb::mismatch_error(field, wanted, got))
}

fn mismatch_error(subject: &'static str, other: &'static str) -> Reason {
    Reason::Differs { subject, other }
}
