//! From the PCK chain to Intel's verdict on the platform, and the policy's on that.

use alloc::{format, string::ToString, vec::Vec};

use confide_evidence::{
    ReportData, UnixSeconds,
    certificate::Certificate,
    pck::PckExtension,
    pem,
    quote::{Body, Quote, Tee},
    tcb_info::{IsvLevel, TcbStatus},
};
use rustls_pki_types::CertificateDer;

use crate::{
    appraise::{Appraisal, Signatures},
    chain::{self, Role},
    checks::{Checks, Step, Steps},
    crypto::Crypto,
    detail::Detail,
    endorsements::{Life, VerifiedEndorsements},
    policy::{CrlMinimum, Policy},
    reason::{ISSUE_DATE, Reason},
    result::CrlSeen,
    tcb::{self, Verdict},
};

/// What the verified PCK certificate says.
pub(crate) struct Platform {
    pub(crate) pck: PckExtension,
    pub(crate) life: Life,
    pub(crate) public_key: [u8; 65],
}

/// The whole way, each time: PCK chain (three signatures: leaf, its CA, the CA's revocation list),
/// quoting enclave, quote.
pub(crate) struct FullVerification<'a>(pub(crate) &'a VerifiedEndorsements<'a>);

impl Signatures for FullVerification<'_> {
    fn pck(&mut self, checks: &mut Checks, case: &Appraisal<'_>) -> Result<Platform, Reason> {
        let endorsements = self.0;
        checks.run(Step::PckChain, || {
            let list = pem::decode_chain(QUOTE_CHAIN, case.quote.pck_chain)?;
            let [leaf_der, ca_der, root_der] = three(&list)?;
            let repeated = endorsements.pck_chain();
            same_chain(&list, endorsements.root_der, endorsements.pck_ca(), repeated)?;
            let leaf = chain::read(Role::Pck, leaf_der, case.now)?;
            let ca = chain::read(Role::PckCa, ca_der, case.now)?;
            let anchor_der = CertificateDer::from(root_der);
            let anchor = chain::anchor(&anchor_der)?;
            let crl = &endorsements.pck_crl;
            chain::verify(Role::Pck, leaf_der, &[ca_der], &anchor, crl, case.now, case.crypto)?;
            endorsements.root_crl.lacks(Role::PckCa.subject(), &ca)?;
            let platform = Platform {
                pck: sgx_extension(&leaf)?,
                public_key: *leaf.public_key,
                life: endorsements
                    .life
                    .and(leaf.not_before, leaf.not_after)
                    .and(ca.not_before, ca.not_after),
            };
            Ok((platform, PCK_CHAIN_PASSED))
        })
    }

    fn enclave(
        &mut self,
        checks: &mut Checks,
        case: &Appraisal<'_>,
        platform: &Platform,
    ) -> Result<(), Reason> {
        checks.run(Step::QeReport, || {
            let quote = &case.quote;
            enclave_signed(quote, case.crypto, |report, signature| {
                case.crypto.verify_p256(&platform.public_key, report, signature)
            })?;
            Ok(((), QE_REPORT_PASSED))
        })
    }

    fn quote(&mut self, checks: &mut Checks, case: &Appraisal<'_>) -> Result<(), Reason> {
        checks.run(Step::QuoteSignature, || {
            let mut key = [4; 65];
            key[1..].copy_from_slice(case.quote.attestation_key);
            match case.crypto.verify_p256(&key, case.quote.signed, case.quote.signature) {
                true => Ok(((), QUOTE_SIGNATURE_PASSED)),
                false => Err(Reason::Signature { subject: "quote" }),
            }
        })
    }
}

pub(crate) const QUOTE_CHAIN: &str = "PCK chain of the quote";
pub(crate) const PCK_CHAIN_PASSED: Detail =
    Detail::text("leaf, CA, root; neither leaf nor CA revoked");
pub(crate) const QE_REPORT_PASSED: Detail =
    Detail::text("signed by the PCK; binds the attestation key");
pub(crate) const QUOTE_SIGNATURE_PASSED: Detail = Detail::text("signed by the attestation key");

/// Leaf, CA and root.
pub(crate) fn three(list: &[Vec<u8>]) -> Result<[&[u8]; 3], Reason> {
    match list {
        [leaf, ca, root] => Ok([leaf, ca, root]),
        other => Err(Reason::ChainShape {
            chain: QUOTE_CHAIN,
            wanted: "leaf, CA and root",
            got: format!("{} certificates", other.len()),
        }),
    }
}

/// That the quote's chain is the one that the endorsements are about.
pub(crate) fn same_chain(
    list: &[Vec<u8>],
    root: &[u8],
    ca: Option<&[u8]>,
    repeated: Option<&[Vec<u8>]>,
) -> Result<(), Reason> {
    let [_, list_ca, list_root] = three(list)?;
    if list_root != root {
        return Err(differs("root of the quote", "the trusted root"));
    }
    if ca != Some(list_ca) {
        return Err(differs("PCK CA of the quote", "the issuer of the PCK CRL"));
    }
    if repeated.is_some_and(|repeated| repeated != list) {
        return Err(differs("PCK chain of the collateral", QUOTE_CHAIN));
    }
    Ok(())
}

pub(crate) fn sgx_extension(leaf: &Certificate<'_>) -> Result<PckExtension, Reason> {
    let Some(extension) = leaf.sgx_extension else {
        let subject = Role::Pck.subject();
        return Err(Reason::CertificateUse { subject, wanted: "Intel's SGX extension" });
    };
    Ok(PckExtension::parse(extension)?)
}

/// One signature and one hash: QE report by the PCK, attestation key in the report.
pub(crate) fn enclave_signed(
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
    /// The root's list against its minimum; its signature is verified with the endorsements.
    pub(crate) fn root_crl(&self, checks: &mut Checks) -> Result<(), Reason> {
        let (seen, minimum) = (self.grounds.root_crl, self.policy.root_crl);
        revocation_list(checks, Step::RootCrl, "root CRL", seen, minimum)
    }

    /// The PCK CA's list against its minimum; its signature is verified with the PCK chain.
    pub(crate) fn pck_crl(&self, checks: &mut Checks) -> Result<(), Reason> {
        let (seen, minimum) = (self.grounds.pck_crl, self.policy.pck_crl);
        revocation_list(checks, Step::PckCrl, "PCK CRL", seen, minimum)
    }

    /// That the endorsements speak of this platform.
    pub(crate) fn is_endorsed(
        &self,
        checks: &mut Checks,
        platform: &Platform,
    ) -> Result<(), Reason> {
        checks.run(Step::Platform, || {
            let info = self.grounds.tcb_info;
            same_tee("TCB info", self.quote.tee(), info.tee)?;
            same_bytes("FMSPC", &info.fmspc, &platform.pck.fmspc)?;
            same_bytes("PCE-ID", &info.pce_id, &platform.pck.pce_id)?;
            let [a, b, c, d, e, g] = info.fmspc;
            let number = u64::from_be_bytes([0, 0, a, b, c, d, e, g]);
            Ok(((), Detail::numbers([number], |[fmspc, ..], f| write!(f, "FMSPC {fmspc:012x}"))))
        })
    }

    pub(crate) fn tcb(&self, checks: &mut Checks, platform: &Platform) -> Result<Verdict, Reason> {
        let info = self.grounds.tcb_info;
        let qe_level = checks.run(Step::QeEnclave, || {
            let identity = self.grounds.qe_identity;
            same_tee("QE identity", self.quote.tee(), identity.tee)?;
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
                Ok::<_, Reason>(parts.fold(Verdict::of_platform(level), Verdict::with))
            };
            let (launch_svn, running_svn) = match self.quote.body {
                Body::Sgx(_) => (None, None),
                Body::Tdx(report) => (Some(report.tee_tcb_svn()), report.tee_tcb_svn_2()),
            };
            let mut verdict = verdict_on(launch_svn, module_level)?;
            if let Some(svn) = running_svn {
                let module = tcb::running_module_level(info, svn)?;
                verdict = verdict.running_now(&verdict_on(Some(svn), module)?);
            }
            let detail = verdict.status.as_str();
            Ok((verdict, detail.into()))
        })
    }

    /// Whether a status would be accepted but for its age, and is not too old for the policy.
    ///
    /// The date is that of the level that the platform has, as in Intel's quote appraisal library.
    fn is_in_grace(&self, verdict: &Verdict) -> bool {
        use TcbStatus::{OutOfDate, OutOfDateConfigurationNeeded};
        if !matches!(verdict.status, OutOfDate | OutOfDateConfigurationNeeded) {
            return false;
        }
        let fresh = verdict.but_for_age();
        let (grace, now) = (self.policy.tcb_grace_s, self.now.as_secs());
        let until = verdict.stale_since.map(|since| since.saturating_add(grace));
        grace > 0 && self.policy.tcb_status.accepts(&fresh) && until.is_some_and(|end| now <= end)
    }

    pub(crate) fn policy_on_tcb(
        &self,
        checks: &mut Checks,
        verdict: &Verdict,
    ) -> Result<(), Reason> {
        let Policy { tcb_status, advisories, tcb_evaluation_data_number_min, .. } = self.policy;
        let status = verdict.status;
        // A revoked platform's keys are in other hands: no policy makes that good.
        let accepted = status != TcbStatus::Revoked && tcb_status.accepts(&status);
        checks.run(Step::TcbStatus, || match accepted {
            true => Ok(((), status.as_str().into())),
            false if self.is_in_grace(verdict) => Ok(((), grace_detail(status))),
            false => Err(Reason::TcbStatus { wanted: tcb_status.to_string(), got: status }),
        })?;
        if !tcb_status.is_evaluated() {
            checks.skip(Step::TcbStatus, format!("{status}; the policy says dangerous-any"));
        }
        let listed = |after| Detail::listed(&verdict.advisories, "none apply", after);
        match verdict.advisories.iter().find(|advisory| !advisories.accepts(advisory)) {
            _ if !advisories.is_evaluated() => {
                checks.skip(Step::Advisories, listed("; the policy says dangerous-any"));
            }
            None => checks.run(Step::Advisories, || Ok(((), listed(""))))?,
            Some(got) => checks.run(Step::Advisories, || {
                Err(Reason::Advisory { wanted: advisories.to_string(), got: got.clone() })
            })?,
        }
        checks.run(Step::EvaluationNumber, || {
            let got = self.evaluation_number();
            if got < *tcb_evaluation_data_number_min {
                return Err(Reason::Value {
                    field: "TCB evaluation data number",
                    wanted: format!("at least {tcb_evaluation_data_number_min}"),
                    got: got.to_string(),
                });
            }
            Ok(((), Detail::numbers([got.into()], |[got, ..], f| write!(f, "{got}"))))
        })
    }
}

/// Which of the two out-of-date statuses it is, in the policy's time of grace.
fn grace_detail(status: TcbStatus) -> Detail {
    Detail::text(match status {
        TcbStatus::OutOfDateConfigurationNeeded => "OutOfDateConfigurationNeeded, in its grace",
        _ => "OutOfDate, in its grace",
    })
}

pub(crate) fn revocation_list(
    checks: &mut Checks,
    step: impl Steps,
    subject: &'static str,
    seen: CrlSeen,
    minimum: CrlMinimum,
) -> Result<(), Reason> {
    checks.run(step, || {
        let CrlSeen { number, issued } = seen;
        for (field, wanted, got) in
            [("number", minimum.number_min, number), (ISSUE_DATE, minimum.issued_min, issued)]
        {
            if got < wanted {
                return Err(Reason::RolledBack { subject, field, wanted, got });
            }
        }
        let detail = Detail::numbers([number, issued], |[number, issued, ..], f| {
            write!(f, "number {number}, issued {}", UnixSeconds(*issued))
        });
        Ok(((), detail))
    })
}

fn same_tee(subject: &'static str, wanted: Tee, got: Tee) -> Result<(), Reason> {
    if wanted == got { Ok(()) } else { Err(Reason::WrongTee { subject, wanted, got }) }
}

fn same_bytes(field: &'static str, wanted: &[u8], got: &[u8]) -> Result<(), Reason> {
    if wanted == got {
        return Ok(());
    }
    Err(Reason::Value { field, wanted: hex::encode(wanted), got: hex::encode(got) })
}

fn differs(subject: &'static str, other: &'static str) -> Reason {
    Reason::Differs { subject, other }
}
