//! The one way to a yes.

use alloc::{format, string::String, string::ToString, vec::Vec};

use confide_evidence::{
    ReportData,
    claims::Claims,
    pck::PckExtension,
    pem,
    quote::{Body, Quote, Tee},
    tcb_info::TcbStatus,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::{
    Appraised, CrlMinimum, CrlSeen, Crypto, Endorsements, PlatformClaims, Policy, Reason,
    Rejection, Root, Scope, VerifiedEndorsements,
    chain::{self, Crl, Role},
    checks::{Checks, Step},
    endorsements::Life,
    expect::Expect,
    identity, measurements,
    result::Accepted,
    tcb::{self, Verdict},
};

/// What a peer presented.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The quote, unparsed.
    pub quote: &'a [u8],
    /// The CBOR claims of the attested end, where there are any.
    pub claims: Option<&'a [u8]>,
    /// What the report data has to be. With claims and without this, it has to be their SHA-256
    /// and 32 zero bytes (key binding).
    pub report_data: Option<ReportData>,
}

/// Decides whether a quote is believed, under one policy and at one time.
///
/// Reads nothing but its arguments. The first check that fails ends it.
pub fn appraise(
    evidence: &Evidence<'_>,
    endorsements: &Endorsements,
    policy: &Policy,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<Appraised, Rejection> {
    let mut found = Found::new(Checks::new());
    let outcome = read_quote(&mut found, evidence).and_then(|quote| {
        let verified = endorsements.verify_into(&mut found.checks, &policy.roots, now, crypto)?;
        found.root = Some(verified.root);
        Case { evidence, quote, endorsements: &verified, policy, now, crypto }.judge(&mut found)
    });
    found.close(outcome)
}

impl VerifiedEndorsements<'_> {
    /// Decides as [`appraise`] does, with endorsements that are verified already.
    pub fn appraise(
        &self,
        evidence: &Evidence<'_>,
        policy: &Policy,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<Appraised, Rejection> {
        let mut found = Found::new(self.checks.clone().unwrap_or_else(Checks::new));
        let outcome = read_quote(&mut found, evidence).and_then(|quote| {
            found.checks.run(Step::Root, || {
                let Root { sha256, .. } = self.root;
                let Some(kind) = policy.roots.find(&sha256) else {
                    let got = hex::encode(sha256);
                    return Err(Reason::UntrustedRoot { wanted: format!("{}", policy.roots), got });
                };
                chain::inside("verified endorsements", self.life.from, self.life.until, now)?;
                Ok(((), format!("{} sha256:{}", kind.as_str(), hex::encode(sha256)).into()))
            })?;
            found.root = Some(self.root);
            Case { evidence, quote, endorsements: self, policy, now, crypto }.judge(&mut found)
        });
        found.close(outcome)
    }
}

/// What is known so far; all that a rejection may tell.
struct Found {
    checks: Checks,
    root: Option<Root>,
    tcb_status: Option<TcbStatus>,
    advisories: Vec<String>,
}

impl Found {
    fn new(checks: Checks) -> Self {
        Self { checks, root: None, tcb_status: None, advisories: Vec::new() }
    }

    fn close(self, outcome: Result<Judged, Reason>) -> Result<Appraised, Rejection> {
        let Self { checks, root, tcb_status, advisories } = self;
        match (outcome, root, tcb_status) {
            (Ok(judged), Some(root), Some(tcb_status)) => Ok(Appraised(Accepted {
                scope: judged.scope,
                root,
                tcb_status,
                advisories,
                platform: judged.platform,
                claims: judged.claims,
                checks: checks.into_vec(),
            })),
            (outcome, root, tcb_status) => Err(Rejection {
                // `judge` returns Ok only after both are known.
                reason: outcome.err().unwrap_or(Reason::NoTcbLevel { subject: "the platform" }),
                root,
                tcb_status,
                advisories,
                checks: checks.into_vec(),
            }),
        }
    }
}

struct Judged {
    scope: Scope,
    platform: PlatformClaims,
    claims: Option<Claims>,
}

/// One quote before its judge.
struct Case<'a> {
    evidence: &'a Evidence<'a>,
    quote: Quote<'a>,
    endorsements: &'a VerifiedEndorsements<'a>,
    policy: &'a Policy,
    now: UnixTime,
    crypto: &'a dyn Crypto,
}

impl Case<'_> {
    fn judge(&self, found: &mut Found) -> Result<Judged, Reason> {
        self.crl_minimums(&mut found.checks)?;
        let platform = self.pck(&mut found.checks)?;
        self.quoting_enclave_signed(&mut found.checks, &platform)?;
        let verdict = self.tcb(&mut found.checks, &platform)?;
        found.tcb_status = Some(verdict.status);
        found.advisories.clone_from(&verdict.advisories);
        self.policy_on_tcb(&mut found.checks, &verdict)?;
        identity::attributes(&mut found.checks, &self.quote, self.policy)?;
        let names_program = self.workload(&mut found.checks)?;
        let claims = self.claims(&mut found.checks)?;
        let bound = found.checks.passed(Step::ReportData);
        let configured = claims.is_none() || found.checks.passed(Step::ConfigDigest);
        let scope = match names_program && bound && configured {
            true => Scope::Workload,
            false => Scope::Platform,
        };
        Ok(Judged { scope, platform: self.platform_claims(&platform), claims })
    }

    fn crl_minimums(&self, checks: &mut Checks) -> Result<(), Reason> {
        let held = [
            (Step::RootCrl, &self.endorsements.root_crl, self.policy.root_crl),
            (Step::PckCrl, &self.endorsements.pck_crl, self.policy.pck_crl),
        ];
        for (step, crl, minimum) in held {
            checks.run(step, || {
                newer(crl, minimum)?;
                let CrlSeen { number, issued } = crl.into();
                Ok(((), format!("number {number}, issued {issued}").into()))
            })?;
        }
        Ok(())
    }

    /// PCK chain: three signatures (leaf, its CA, the CA's revocation list).
    fn pck(&self, checks: &mut Checks) -> Result<Platform, Reason> {
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
            Ok(((), format!("FMSPC {}", hex::encode(info.fmspc)).into()))
        })?;
        Ok(platform)
    }

    /// Two signatures: QE report by the PCK, quote by the attestation key.
    fn quoting_enclave_signed(
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

    fn tcb(&self, checks: &mut Checks, platform: &Platform) -> Result<Verdict, Reason> {
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
        checks.run(Step::TcbStatus, || {
            let level = tcb::platform_level(info, &platform.pck, &self.quote.body)?;
            let parts = module_level.into_iter().chain([qe_level]);
            let verdict = parts.fold(Verdict::of_platform(level), Verdict::with);
            let detail = verdict.status.as_str();
            Ok((verdict, detail.into()))
        })
    }

    fn policy_on_tcb(&self, checks: &mut Checks, verdict: &Verdict) -> Result<(), Reason> {
        let Policy { tcb_status, advisories, tcb_evaluation_data_number_min, .. } = self.policy;
        checks.run(Step::TcbStatus, || {
            // A revoked platform's keys are in other hands: no policy makes that good.
            if verdict.status == TcbStatus::Revoked || !tcb_status.accepts(&verdict.status) {
                let (wanted, got) = (tcb_status.to_string(), verdict.status);
                return Err(Reason::TcbStatus { wanted, got });
            }
            Ok(((), verdict.status.as_str().into()))
        })?;
        checks.run(Step::Advisories, || {
            match verdict.advisories.iter().find(|advisory| !advisories.accepts(advisory)) {
                Some(got) => {
                    let wanted = advisories.to_string();
                    Err(Reason::Advisory { wanted, got: got.clone() })
                }
                None if verdict.advisories.is_empty() => Ok(((), "none apply".into())),
                None => Ok(((), verdict.advisories.join(", ").into())),
            }
        })?;
        checks.run(Step::EvaluationNumber, || {
            let got = self.evaluation_number();
            if got < *tcb_evaluation_data_number_min {
                return Err(Reason::Value {
                    field: "TCB evaluation data number",
                    wanted: format!("at least {tcb_evaluation_data_number_min}"),
                    got: got.to_string(),
                });
            }
            Ok(((), got.to_string().into()))
        })
    }

    /// Report data and measurements; whether they name a program.
    fn workload(&self, checks: &mut Checks) -> Result<bool, Reason> {
        self.report_data(checks)?;
        let Some(workload) = &self.policy.workload else {
            checks.skip(Step::Measurements, "the policy names no workload");
            return Ok(false);
        };
        checks.run(Step::Measurements, || {
            let compared = measurements::compare(workload, &self.quote)?;
            Ok((compared.names_program, compared.detail))
        })
    }

    fn report_data(&self, checks: &mut Checks) -> Result<(), Reason> {
        let got = self.quote.report_data();
        let from_claims = self
            .evidence
            .claims
            .map(|claims| ReportData::from_digest(self.crypto.sha256(&[claims])));
        let expected = self.evidence.report_data.or(from_claims);
        let by_policy = self.policy.report_data.as_ref().filter(|wanted| wanted.is_evaluated());
        if expected.is_none() && by_policy.is_none() {
            checks.skip(Step::ReportData, "nothing to compare it with was given");
            return Ok(());
        }
        checks.run(Step::ReportData, || {
            let refused = |wanted: String| {
                Err(Reason::Value { field: "report data", wanted, got: got.to_string() })
            };
            match (expected, by_policy) {
                (Some(wanted), _) if wanted != got => refused(wanted.to_string()),
                (_, Some(wanted)) if !wanted.accepts(&got.0) => refused(wanted.to_string()),
                _ => Ok(((), "as wanted".into())),
            }
        })
    }

    fn claims(&self, checks: &mut Checks) -> Result<Option<Claims>, Reason> {
        let Some(bytes) = self.evidence.claims else {
            return self.no_claims(checks).map(|()| None);
        };
        let claims = checks.run(Step::Claims, || {
            let claims = Claims::decode(bytes).map_err(Reason::Claims)?;
            Ok((claims, "covered by the report data".into()))
        })?;
        match &self.policy.config_digest {
            None => checks.skip(Step::ConfigDigest, "the policy names none"),
            Some(Expect::DangerousAny) => {
                checks.skip(Step::ConfigDigest, "the policy says dangerous-any");
            }
            Some(wanted) => checks.run(Step::ConfigDigest, || {
                if !wanted.accepts(&claims.config_digest) {
                    return Err(Reason::Value {
                        field: "configuration digest",
                        wanted: wanted.to_string(),
                        got: hex::encode(claims.config_digest),
                    });
                }
                Ok(((), "as wanted".into()))
            })?,
        }
        identity::ages(checks, &claims, self.policy, self.now)?;
        Ok(Some(claims))
    }

    /// Without claims, a policy that speaks of them is not met.
    fn no_claims(&self, checks: &mut Checks) -> Result<(), Reason> {
        checks.skip(Step::Claims, "the evidence has none");
        let digest = self.policy.config_digest.as_ref();
        let demanded = [
            (Step::ConfigDigest, digest.is_some_and(Expect::is_evaluated), "config_digest"),
            (Step::EvidenceAge, self.policy.evidence_age_s_max.is_some(), "evidence_age_s_max"),
        ];
        for (step, is_demanded, field) in demanded {
            if is_demanded {
                return checks.run(step, || Err(Reason::NoClaims { field }));
            }
            checks.skip(step, "the evidence has no claims");
        }
        checks.skip(Step::KeyValidity, "the evidence has no claims");
        Ok(())
    }

    fn evaluation_number(&self) -> u32 {
        let info = self.endorsements.tcb_info().tcb_evaluation_data_number;
        info.min(self.endorsements.qe_identity().tcb_evaluation_data_number)
    }

    fn platform_claims(&self, platform: &Platform) -> PlatformClaims {
        PlatformClaims {
            tee: self.quote.tee(),
            report_data: self.quote.report_data(),
            debug: identity::is_debug(&self.quote),
            measurements: measurements::of(&self.quote),
            fmspc: platform.pck.fmspc,
            tcb_evaluation_data_number: self.evaluation_number(),
            root_crl: (&self.endorsements.root_crl).into(),
            pck_crl: (&self.endorsements.pck_crl).into(),
            valid_until: platform.life.until,
        }
    }
}

/// What the verified PCK certificate says.
struct Platform {
    pck: PckExtension,
    public_key: [u8; 65],
    life: Life,
}

fn read_quote<'a>(found: &mut Found, evidence: &Evidence<'a>) -> Result<Quote<'a>, Reason> {
    found.checks.run(Step::QuoteFormat, || {
        let quote = Quote::parse(evidence.quote)?;
        let (tee, version) = (quote.tee().as_str(), quote.header.version());
        let padding = quote.padding_length;
        Ok((quote, format!("{tee}, version {version}, {padding} bytes of padding").into()))
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
