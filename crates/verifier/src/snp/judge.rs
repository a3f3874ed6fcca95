//! The appraisal of one report under a chip key that has been verified.

use alloc::{
    boxed::Box,
    format,
    string::{String, ToString},
};

use confide_evidence::{
    quote::Tee,
    snp::{Product, Report, SigningKey, Tcb},
};
use rustls_pki_types::UnixTime;

use super::{
    chain::ChipKey,
    policy::{SnpWorkload, TcbMinimum},
    steps::SnpStep,
};
use crate::{
    binding::Binding,
    checks::Checks,
    crl::check_revocation_list,
    crypto::Crypto,
    detail::Detail,
    evidence::Evidence,
    expect::Expect,
    gpu::attached::judge_attached,
    measurements::{Comparison, FieldComparison},
    policy::Policy,
    reason::Reason,
    result::{
        AcceptedParts, AmdClaims, EndorsementClaims, GuestMeasurements, Measurements,
        PlatformClaims,
    },
    scope::ScopeConditions,
};

pub(super) struct Appraisal<'a> {
    pub(super) evidence: &'a Evidence<'a>,
    pub(super) report: Report<'a>,
    pub(super) key: &'a ChipKey,
    pub(super) policy: &'a Policy,
    pub(super) now: UnixTime,
    pub(super) crypto: &'a dyn Crypto,
}

impl Appraisal<'_> {
    pub(super) fn judge(&self, checks: &mut Checks) -> Result<AcceptedParts, Reason> {
        self.check_revocation(checks)?;
        self.check_product(checks)?;
        self.check_signing_key(checks)?;
        self.check_chip_id(checks)?;
        self.check_tcb_version(checks)?;
        self.check_signature(checks)?;
        self.check_tcb_minimum(checks)?;
        self.check_debug(checks)?;
        self.check_guest_policy(checks)?;
        self.check_vmpl(checks)?;
        self.policy.admit_binding(checks, SnpStep::Binding, self.evidence)?;
        let Self { evidence, policy, now, crypto, .. } = *self;
        let report_data = self.report.report_data();
        let binding = Binding { evidence, report_data, policy, now, crypto };
        binding.check_report_data::<SnpStep>(checks)?;
        let names_program = self.check_measurements(checks)?;
        let claims = binding.check_claims::<SnpStep>(checks)?;
        let covered = claims.as_ref();
        let gpu = judge_attached(evidence, covered, policy, now, crypto, checks, SnpStep::Gpu)?;
        let conditions = ScopeConditions {
            names_program,
            bound: checks.has_passed(SnpStep::ReportData),
            configured: claims.is_none() || checks.has_passed(SnpStep::ConfigDigest),
            closed: checks.has_passed(SnpStep::Debug),
        };
        let platform = self.platform_claims();
        Ok(AcceptedParts { conditions, platform, claims, gpu })
    }

    /// Compares the list with its minimum; its signature and entries are verified with the chain. A policy can accept
    /// evidence without a list, and can never ignore a list that came.
    fn check_revocation(&self, checks: &mut Checks) -> Result<(), Reason> {
        let Some(seen) = self.key.crl else {
            if self.policy.dangerous_skip_revocation {
                let why = "there is no list, and the policy says dangerous_skip_revocation";
                checks.skip(SnpStep::Revocation, why);
                return Ok(());
            }
            return checks.run(SnpStep::Revocation, || Err(Reason::NoRevocationList));
        };
        let minimum = self.policy.snp.crl;
        check_revocation_list(checks, SnpStep::Revocation, "AMD revocation list", seen, minimum)
    }

    fn check_product(&self, checks: &mut Checks) -> Result<(), Reason> {
        let wanted = self.key.product;
        let Some(cpuid) = self.report.cpuid() else {
            checks.skip(SnpStep::Product, "a report of version 2 does not name its processor");
            return Ok(());
        };
        let is_wanted = Product::from_cpuid(cpuid.family, cpuid.model) == Some(wanted);
        checks.require(SnpStep::Product, is_wanted, wanted.as_str(), || Reason::Value {
            field: "product",
            wanted: wanted.to_string(),
            got: format!("family {:#04x}, model {:#04x}", cpuid.family, cpuid.model),
        })
    }

    fn check_signing_key(&self, checks: &mut Checks) -> Result<(), Reason> {
        let wanted = match self.key.chip_id {
            Some(_) => SigningKey::Vcek,
            None => SigningKey::Vlek,
        };
        let got = self.report.signing_key();
        checks.run(SnpStep::SigningKey, || {
            let refused = |wanted: &str, got: String| {
                Err(Reason::Value { field: "signing key", wanted: wanted.into(), got })
            };
            match got {
                _ if got != wanted => refused(&format!("{wanted}"), format!("{got}")),
                SigningKey::Vcek if self.report.masks_chip_key() => {
                    refused("a chip key that is not masked", "MASK_CHIP_KEY".into())
                }
                SigningKey::Vcek => Ok(((), "VCEK".into())),
                _ => Ok(((), "VLEK".into())),
            }
        })
    }

    /// Checks that the chip in the report is the certificate's, and one that the policy accepts.
    fn check_chip_id(&self, checks: &mut Checks) -> Result<(), Reason> {
        let got = self.report.chip_id();
        let masked = *got == [0; 64];
        let listed = self.policy.snp.chip_ids.as_ref().filter(|chips| chips.is_evaluated());
        let wanted = match self.key.chip_id {
            Some(wanted) if masked && self.policy.snp.accept_masked_chip_id => Some(wanted),
            Some(wanted) if wanted == *got => Some(wanted),
            Some(wanted) => {
                return checks.run(SnpStep::ChipId, || Err(chip_error(hex::encode(wanted), got)));
            }
            None => None,
        };
        let Some(chips) = listed else {
            match (wanted, masked) {
                (None, _) => checks.skip(SnpStep::ChipId, "a loaded key is bound to no chip"),
                (_, true) => checks.skip(SnpStep::ChipId, "masked, and the policy accepts that"),
                (_, false) => checks.pass(SnpStep::ChipId, "that of the certificate"),
            }
            return Ok(());
        };
        // An unmasked chip identifier in the signed report counts as much as one in the certificate.
        checks.run(SnpStep::ChipId, || match wanted.or((!masked).then_some(*got)) {
            Some(chip) if chips.accepts(&chip) => Ok(((), "one that the policy lists".into())),
            chip => Err(chip_error(chips.to_string(), &chip.unwrap_or([0; 64]))),
        })
    }

    fn check_tcb_version(&self, checks: &mut Checks) -> Result<(), Reason> {
        let (wanted, got) = (&self.key.tcb, self.report.reported_tcb());
        checks.require(SnpStep::TcbVersion, wanted == got, "that of the certificate", || {
            let [wanted, got] = [wanted, got].map(|tcb| self.key.product.tcb(tcb).to_string());
            Reason::Value { field: "reported TCB", wanted, got }
        })
    }

    fn check_signature(&self, checks: &mut Checks) -> Result<(), Reason> {
        let is_signed = self.report.signature().is_some_and(|signature| {
            self.key.key.has_signed(self.report.signed_bytes(), &signature, self.crypto)
        });
        checks.require(SnpStep::ReportSignature, is_signed, "signed by the chip key", || {
            Reason::Signature { subject: "SNP report" }
        })
    }

    fn check_tcb_minimum(&self, checks: &mut Checks) -> Result<(), Reason> {
        let wanted = match &self.policy.snp.tcb_min {
            Some(TcbMinimum::AtLeast(wanted)) => wanted,
            Some(TcbMinimum::DangerousAny) => {
                checks.skip(SnpStep::TcbMinimum, "the policy says dangerous-any");
                return Ok(());
            }
            None => {
                return checks.run(SnpStep::TcbMinimum, || Err(Reason::NoTcbMinimum));
            }
        };
        checks.run(SnpStep::TcbMinimum, || {
            for (field, bytes) in [
                ("reported TCB", self.report.reported_tcb()),
                ("committed TCB", self.report.committed_tcb()),
                ("launch TCB", self.report.launch_tcb()),
            ] {
                let got = self.key.product.tcb(bytes);
                if !is_at_least(&got, wanted) {
                    let (wanted, got) = (format!("at least {wanted}"), got.to_string());
                    return Err(Reason::Value { field, wanted, got });
                }
            }
            Ok(((), "reported, committed and at launch".into()))
        })
    }

    fn check_debug(&self, checks: &mut Checks) -> Result<(), Reason> {
        let is_allowed = self.report.policy().allows_debug();
        if is_allowed && self.policy.dangerous_accept_debug {
            checks.skip(SnpStep::Debug, "allowed, and the policy accepts that");
            return Ok(());
        }
        checks.require(SnpStep::Debug, !is_allowed, "not allowed", || Reason::Debug(Tee::Snp))
    }

    fn check_guest_policy(&self, checks: &mut Checks) -> Result<(), Reason> {
        let got = self.report.policy();
        let workload = self.workload();
        let migrates = workload.is_some_and(|workload| workload.migrate_ma);
        let threads = workload.is_none_or(|workload| workload.smt);
        let rules = [
            (got.is_well_formed(), "bit 17 set, and none from 26 on"),
            (migrates || !got.allows_migration_agent(), "no migration agent"),
            (threads || !got.allows_smt(), "no simultaneous multithreading"),
        ];
        checks.run(SnpStep::GuestPolicy, || match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, wanted)) => Err(Reason::GuestPolicy { wanted, got: got.0 }),
            None => Ok(((), Detail::numbers([got.0], |[it, ..], f| write!(f, "{it:#x}")))),
        })
    }

    /// Checks the privilege level. A report that the host asked for has the level 0xffffffff: no guest made it.
    fn check_vmpl(&self, checks: &mut Checks) -> Result<(), Reason> {
        const LOWEST: u32 = 3;
        let most = self.workload().map_or(LOWEST, |workload| workload.vmpl_max.min(LOWEST));
        let got = self.report.vmpl();
        let detail = Detail::numbers([got.into()], |[it, ..], f| write!(f, "{it}"));
        checks.require(SnpStep::Vmpl, got <= most, detail, || Reason::Value {
            field: "VMPL",
            wanted: format!("at most {most}"),
            got: format!("{got:#x}"),
        })
    }

    fn check_measurements(&self, checks: &mut Checks) -> Result<bool, Reason> {
        let Some(workload) = &self.policy.workload else {
            checks.skip(SnpStep::Measurements, "the policy names no workload");
            return Ok(false);
        };
        checks.run(SnpStep::Measurements, || {
            let wanted = workload.snp.as_ref().ok_or(Reason::NoReferenceValues(Tee::Snp))?;
            let compared = compare(wanted, &self.report)?;
            Ok((compared.names_program, compared.detail))
        })
    }

    fn workload(&self) -> Option<&SnpWorkload> {
        self.policy.workload.as_ref().and_then(|workload| workload.snp.as_ref())
    }

    fn platform_claims(&self) -> PlatformClaims {
        let (report, key) = (&self.report, self.key);
        let masked = *report.chip_id() == [0; 64];
        PlatformClaims {
            tee: Tee::Snp,
            report_data: report.report_data(),
            debug: report.policy().allows_debug(),
            measurements: Measurements::Snp(Box::new(read_measurements(report))),
            endorsed: EndorsementClaims::Amd(Box::new(AmdClaims {
                product: key.product,
                chip_key: key.chip_id.is_some(),
                chip_id: key.chip_id.or((!masked).then_some(*report.chip_id())),
                csp_id: key.csp_id.clone(),
                reported_tcb: key.product.tcb(report.reported_tcb()),
                committed_tcb: key.product.tcb(report.committed_tcb()),
                platform_info: report.platform_info().0,
                vmpl: report.vmpl(),
                crl: key.crl,
            })),
            valid_from: key.life.from,
            valid_until: key.life.until,
        }
    }
}

const FIELDS: [&str; 8] = [
    "measurement",
    "host_data",
    "family_id",
    "image_id",
    "id_key_digest",
    "author_key_digest",
    "guest_svn",
    "platform_info",
];

fn compare(wanted: &SnpWorkload, report: &Report<'_>) -> Result<Comparison, Reason> {
    let mut fields = FieldComparison::new(&FIELDS);
    fields.compare("measurement", &wanted.measurement, report.measurement())?;
    fields.compare("host_data", &wanted.host_data, report.host_data())?;
    fields.compare("family_id", &wanted.family_id, report.family_id())?;
    fields.compare("image_id", &wanted.image_id, report.image_id())?;
    fields.compare("id_key_digest", &wanted.id_key_digest, report.id_key_digest())?;
    fields.compare("author_key_digest", &wanted.author_key_digest, report.author_key_digest())?;
    if report.guest_svn() < wanted.guest_svn_min {
        return Err(Reason::Value {
            field: "guest_svn",
            wanted: format!("at least {}", wanted.guest_svn_min),
            got: report.guest_svn().to_string(),
        });
    }
    let (bits, got) = (wanted.platform_info, report.platform_info().0);
    if got & bits.0 != bits.0 {
        let (wanted, got) = (bits.to_string(), format!("{got:#x}"));
        return Err(Reason::Value { field: "platform_info", wanted, got });
    }
    fields.mark_compared("guest_svn");
    if bits.0 != 0 {
        fields.mark_compared("platform_info");
    }
    Ok(fields.finish(Expect::is_evaluated(&wanted.measurement)))
}

fn read_measurements(report: &Report<'_>) -> GuestMeasurements {
    GuestMeasurements {
        measurement: *report.measurement(),
        host_data: *report.host_data(),
        family_id: *report.family_id(),
        image_id: *report.image_id(),
        id_key_digest: *report.id_key_digest(),
        author_key_digest: *report.author_key_digest(),
        guest_svn: report.guest_svn(),
        guest_policy: report.policy().0,
    }
}

fn is_at_least(got: &Tcb, wanted: &Tcb) -> bool {
    got.fmc.unwrap_or(0) >= wanted.fmc.unwrap_or(0)
        && got.bootloader >= wanted.bootloader
        && got.tee >= wanted.tee
        && got.snp >= wanted.snp
        && got.microcode >= wanted.microcode
}

fn chip_error(wanted: String, got: &[u8; 64]) -> Reason {
    Reason::Value { field: "chip identifier", wanted, got: hex::encode(got) }
}
