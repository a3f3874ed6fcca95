//! Comparison of the attested program with the policy's reference values.

use alloc::{boxed::Box, format, string::ToString};

use confide_evidence::quote::{Body, EnclaveReport, Quote, TdReport};

use crate::{
    detail::Detail,
    expect::{Expect, ReferenceValue},
    policy::{SgxWorkload, TdxWorkload, Workload},
    reason::Reason,
    result::{EnclaveMeasurements, Measurements, TdMeasurements},
};

/// The fields that were compared, and whether they tell one program from another.
pub(crate) struct Comparison {
    pub(crate) names_program: bool,
    pub(crate) detail: Detail,
}

/// Compares every field that the policy has for this TEE.
pub(crate) fn compare(workload: &Workload, quote: &Quote<'_>) -> Result<Comparison, Reason> {
    let missing = Reason::NoReferenceValues(quote.tee());
    match quote.body {
        Body::Sgx(report) => compare_enclave(workload.sgx.as_ref().ok_or(missing)?, report),
        Body::Tdx(report) => compare_trust_domain(workload.tdx.as_ref().ok_or(missing)?, report),
    }
}

/// Copies the measurements out of a quote.
pub(crate) fn read_measurements(quote: &Quote<'_>) -> Measurements {
    match quote.body {
        Body::Sgx(report) => Measurements::Sgx(EnclaveMeasurements {
            mrenclave: *report.mr_enclave(),
            mrsigner: *report.mr_signer(),
            isv_prod_id: report.isv_prod_id(),
            isv_svn: report.isv_svn(),
            config_id: *report.config_id(),
        }),
        Body::Tdx(report) => Measurements::Tdx(Box::new(TdMeasurements {
            mrtd: *report.mr_td(),
            rtmrs: report.rtmrs().map(|rtmr| *rtmr),
            mrseam: *report.mr_seam(),
            mrconfigid: *report.mr_config_id(),
            mrowner: *report.mr_owner(),
            mrownerconfig: *report.mr_owner_config(),
        })),
    }
}

fn compare_trust_domain(wanted: &TdxWorkload, report: TdReport<'_>) -> Result<Comparison, Reason> {
    let [rtmr0, rtmr1, rtmr2, rtmr3] = report.rtmrs();
    let mut fields = FieldComparison::new(&TD_FIELDS);
    // `mr_service_td` is compared among the attributes.
    for (name, expected, got) in [
        ("mrtd", &wanted.mrtd, report.mr_td()),
        ("rtmr0", &wanted.rtmr0, rtmr0),
        ("rtmr1", &wanted.rtmr1, rtmr1),
        ("rtmr2", &wanted.rtmr2, rtmr2),
        ("rtmr3", &wanted.rtmr3, rtmr3),
        ("mrconfigid", &wanted.mrconfigid, report.mr_config_id()),
        ("mrowner", &wanted.mrowner, report.mr_owner()),
        ("mrownerconfig", &wanted.mrownerconfig, report.mr_owner_config()),
    ] {
        fields.compare(name, expected, got)?;
    }
    if let Some(mrseam) = &wanted.mrseam {
        fields.compare("mrseam", mrseam, report.mr_seam())?;
    }
    // MRTD is the firmware only; kernel, command line and initial file system are in these two.
    let program = [&wanted.mrtd, &wanted.rtmr1, &wanted.rtmr2];
    Ok(fields.finish(program.into_iter().all(Expect::is_evaluated)))
}

fn compare_enclave(wanted: &SgxWorkload, report: EnclaveReport<'_>) -> Result<Comparison, Reason> {
    let mut fields = FieldComparison::new(&ENCLAVE_FIELDS);
    fields.compare("mrenclave", &wanted.mrenclave, report.mr_enclave())?;
    fields.compare("mrsigner", &wanted.mrsigner, report.mr_signer())?;
    fields.compare("isv_prod_id", &wanted.isv_prod_id, &report.isv_prod_id())?;
    fields.compare("config_id", &wanted.config_id, report.config_id())?;
    if report.isv_svn() < wanted.isv_svn_min {
        return Err(Reason::Value {
            field: "isv_svn",
            wanted: format!("at least {}", wanted.isv_svn_min),
            got: report.isv_svn().to_string(),
        });
    }
    fields.mark_compared("isv_svn");
    let by_signer = wanted.mrsigner.is_evaluated() && wanted.isv_prod_id.is_evaluated();
    Ok(fields.finish(wanted.mrenclave.is_evaluated() || by_signer))
}

const TD_FIELDS: [&str; 9] = [
    "mrtd",
    "rtmr0",
    "rtmr1",
    "rtmr2",
    "rtmr3",
    "mrconfigid",
    "mrowner",
    "mrownerconfig",
    "mrseam",
];
const ENCLAVE_FIELDS: [&str; 5] = ["mrenclave", "mrsigner", "isv_prod_id", "config_id", "isv_svn"];

/// The fields of a table that were compared; bit `n` stands for the name at `n`.
pub(crate) struct FieldComparison {
    names: &'static [&'static str],
    compared: u32,
    not_evaluated: u32,
}

impl FieldComparison {
    pub(crate) fn new(names: &'static [&'static str]) -> Self {
        Self { names, compared: 0, not_evaluated: 0 }
    }

    pub(crate) fn compare<T: ReferenceValue + PartialEq>(
        &mut self,
        field: &'static str,
        wanted: &Expect<T>,
        got: &T,
    ) -> Result<(), Reason> {
        if !wanted.accepts(got) {
            return Err(Reason::Value { field, wanted: wanted.to_string(), got: got.to_text() });
        }
        match wanted.is_evaluated() {
            true => self.compared |= self.bit(field),
            false => self.not_evaluated |= self.bit(field),
        }
        Ok(())
    }

    /// Notes a field that was compared in another way.
    pub(crate) fn mark_compared(&mut self, field: &'static str) {
        self.compared |= self.bit(field);
    }

    pub(crate) fn bit(&self, field: &'static str) -> u32 {
        self.names.iter().position(|name| *name == field).map_or(0, |at| 1 << at)
    }

    pub(crate) fn finish(self, names_program: bool) -> Comparison {
        let detail = Detail::fields(self.names, self.compared, self.not_evaluated);
        Comparison { names_program, detail }
    }
}
