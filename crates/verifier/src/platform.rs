//! From the PCK chain to Intel's verdict on the platform, and the policy's on that.

use alloc::{format, string::ToString};

use confide_evidence::{
    ReportData,
    pck::PckExtension,
    pem,
    quote::{Body, Quote, Tee},
    tcb_info::{IsvLevel, TcbStatus},
};
use rustls_pki_types::CertificateDer;

use crate::{
    CrlMinimum, CrlSeen, Detail, Policy, Reason,
    appraise::Case,
    chain::{self, Crl, Role},
    checks::{Checks, Step},
    endorsements::Life,
    tcb::{self, Verdict},
};

/// What the verified PCK certificate says.
pub(crate) struct Platform {
    pub(crate) pck: PckExtension,
    pub(crate) life: Life,
    public_key: [u8; 65],
}

impl Case<'_> {
    /// The root's list against its minimum; its signature is verified with the endorsements.
    pub(crate) fn root_crl(&self, checks: &mut Checks) -> Result<(), Reason> {
        revocation_list(checks, Step::RootCrl, &self.endorsements.root_crl, self.policy.root_crl)
    }

    /// The PCK CA's list against its minimum; its signature is verified with the PCK chain.
    pub(crate) fn pck_crl(&self, checks: &mut Checks) -> Result<(), Reason> {
        revocation_list(checks, Step::PckCrl, &self.endorsements.pck_crl, self.policy.pck_crl)
    }

    /// PCK chain: three signatures (leaf, its CA, the CA's revocation list).
    pub(crate) fn pck(&self, checks: &mut Checks) -> Result<Platform, Reason> {
        let endorsements = self.endorsements;
        let platform = checks.run(Step::PckChain, || {
            const CHAIN: &str = "PCK chain of the quote";
            let list = pem::decode_chain(CHAIN, self.quote.pck_chain)?;
            let [leaf_der, ca_der, root_der] = list.as_slice() else {
                return Err(Reason::ChainShape {
                    chain: CHAIN,
                    wanted: "leaf, CA and root",
                    got: format!("{} certificates", list.len()),
                });
            };
            if root_der != endorsements.root_der {
                return Err(differs("root of the quote", "the trusted root"));
            }
            if endorsements.pck_ca() != Some(ca_der) {
                return Err(differs("PCK CA of the quote", "the issuer of the PCK CRL"));
            }
            if endorsements.pck_chain().is_some_and(|repeated| repeated != list) {
                return Err(differs("PCK chain of the collateral", CHAIN));
            }
            let leaf = chain::read(Role::Pck, leaf_der, self.now)?;
            let ca = chain::read(Role::PckCa, ca_der, self.now)?;
            let anchor_der = CertificateDer::from(root_der.as_slice());
            let anchor = chain::anchor(&anchor_der)?;
            let (now, crypto) = (self.now, self.crypto);
            let crl = &endorsements.pck_crl;
            chain::verify(Role::Pck, leaf_der, &[ca_der], &anchor, crl, now, crypto)?;
            endorsements.root_crl.lacks(Role::PckCa.subject(), &ca)?;
            let Some(extension) = leaf.sgx_extension else {
                let subject = Role::Pck.subject();
                return Err(Reason::CertificateUse { subject, wanted: "Intel's SGX extension" });
            };
            let platform = Platform {
                pck: PckExtension::parse(extension)?,
                public_key: *leaf.public_key,
                life: endorsements
                    .life
                    .and(leaf.not_before, leaf.not_after)
                    .and(ca.not_before, ca.not_after),
            };
            Ok((platform, "leaf, CA, root; neither leaf nor CA revoked".into()))
        })?;
        checks.run(Step::Platform, || {
            let info = endorsements.tcb_info();
            same_tee("TCB info", self.quote.tee(), info.tee)?;
            same_bytes("FMSPC", &info.fmspc, &platform.pck.fmspc)?;
            same_bytes("PCE-ID", &info.pce_id, &platform.pck.pce_id)?;
            let [a, b, c, d, e, g] = info.fmspc;
            let number = u64::from_be_bytes([0, 0, a, b, c, d, e, g]);
            Ok(((), Detail::numbers([number], |[fmspc, ..], f| write!(f, "FMSPC {fmspc:012x}"))))
        })?;
        Ok(platform)
    }

    /// Two signatures: QE report by the PCK, quote by the attestation key.
    pub(crate) fn quoting_enclave_signed(
        &self,
        checks: &mut Checks,
        platform: &Platform,
    ) -> Result<(), Reason> {
        let Quote { qe_report, qe_report_signature, qe_auth_data, attestation_key, .. } =
            self.quote;
        checks.run(Step::QeReport, || {
            let key = &platform.public_key;
            if !self.crypto.verify_p256(key, qe_report.bytes(), qe_report_signature) {
                return Err(Reason::Signature { subject: "QE report" });
            }
            let bound = self.crypto.sha256(&[attestation_key, qe_auth_data]);
            if *qe_report.report_data() != ReportData::from_digest(bound).0 {
                return Err(Reason::AttestationKey);
            }
            Ok(((), "signed by the PCK; binds the attestation key".into()))
        })?;
        checks.run(Step::QuoteSignature, || {
            let mut key = [4; 65];
            key[1..].copy_from_slice(attestation_key);
            match self.crypto.verify_p256(&key, self.quote.signed, self.quote.signature) {
                true => Ok(((), "signed by the attestation key".into())),
                false => Err(Reason::Signature { subject: "quote" }),
            }
        })
    }

    pub(crate) fn tcb(&self, checks: &mut Checks, platform: &Platform) -> Result<Verdict, Reason> {
        let info = self.endorsements.tcb_info();
        let qe_level = checks.run(Step::QeEnclave, || {
            let identity = self.endorsements.qe_identity();
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

fn revocation_list(
    checks: &mut Checks,
    step: Step,
    crl: &Crl<'_>,
    minimum: CrlMinimum,
) -> Result<(), Reason> {
    checks.run(step, || {
        newer(crl, minimum)?;
        let CrlSeen { number, issued } = crl.into();
        let detail = Detail::numbers([number, issued], |[number, issued, ..], f| {
            write!(f, "number {number}, issued {issued}")
        });
        Ok(((), detail))
    })
}

fn newer(crl: &Crl<'_>, minimum: CrlMinimum) -> Result<(), Reason> {
    let CrlSeen { number, issued } = crl.into();
    let subject = crl.subject;
    if number < minimum.number_min {
        let wanted = minimum.number_min;
        return Err(Reason::RolledBack { subject, field: "number", wanted, got: number });
    }
    if issued < minimum.issued_min {
        let wanted = minimum.issued_min;
        return Err(Reason::RolledBack { subject, field: "issue date", wanted, got: issued });
    }
    Ok(())
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
