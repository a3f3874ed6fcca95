//! The attested program against the policy's reference values.

use alloc::{borrow::Cow, boxed::Box, format, string::ToString, vec::Vec};

use confide_evidence::quote::{Body, EnclaveReport, Quote, TdReport};

use crate::{
    EnclaveMeasurements, Expect, Measurements, Reason, ReferenceValue, SgxWorkload, TdMeasurements,
    TdxWorkload, Workload,
};

/// What was compared, and whether that tells one program from another.
pub(crate) struct Compared {
    pub(crate) names_program: bool,
    pub(crate) detail: Cow<'static, str>,
}

/// Compares every field that the policy has for this TEE.
pub(crate) fn compare(workload: &Workload, quote: &Quote<'_>) -> Result<Compared, Reason> {
    let missing = Reason::NoReferenceValues(quote.tee());
    match quote.body {
        Body::Sgx(report) => enclave(workload.sgx.as_ref().ok_or(missing)?, report),
        Body::Tdx(report) => trust_domain(workload.tdx.as_ref().ok_or(missing)?, report),
    }
}

/// The measurements of a quote, copied.
pub(crate) fn of(quote: &Quote<'_>) -> Measurements {
    match quote.body {
        Body::Sgx(report) => Measurements::Sgx(EnclaveMeasurements {
            mrenclave: *report.mr_enclave(),
            mrsigner: *report.mr_signer(),
            isv_prod_id: report.isv_prod_id(),
            isv_svn: report.isv_svn(),
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

fn trust_domain(wanted: &TdxWorkload, report: TdReport<'_>) -> Result<Compared, Reason> {
    let [rtmr0, rtmr1, rtmr2, rtmr3] = report.rtmrs();
    let mut fields = Fields::default();
    fields.compare("mrtd", &wanted.mrtd, report.mr_td())?;
    fields.compare("rtmr0", &wanted.rtmr0, rtmr0)?;
    fields.compare("rtmr1", &wanted.rtmr1, rtmr1)?;
    fields.compare("rtmr2", &wanted.rtmr2, rtmr2)?;
    fields.compare("rtmr3", &wanted.rtmr3, rtmr3)?;
    fields.compare("mrconfigid", &wanted.mrconfigid, report.mr_config_id())?;
    fields.compare("mrowner", &wanted.mrowner, report.mr_owner())?;
    fields.compare("mrownerconfig", &wanted.mrownerconfig, report.mr_owner_config())?;
    if let Some(mrseam) = &wanted.mrseam {
        fields.compare("mrseam", mrseam, report.mr_seam())?;
    }
    // MRTD is the firmware only; kernel, command line and initial file system are in these two.
    let program = [&wanted.mrtd, &wanted.rtmr1, &wanted.rtmr2];
    Ok(fields.done(program.into_iter().all(Expect::is_evaluated)))
}

fn enclave(wanted: &SgxWorkload, report: EnclaveReport<'_>) -> Result<Compared, Reason> {
    let mut fields = Fields::default();
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
    fields.compared.push("isv_svn");
    let by_signer = wanted.mrsigner.is_evaluated() && wanted.isv_prod_id.is_evaluated();
    Ok(fields.done(wanted.mrenclave.is_evaluated() || by_signer))
}

#[derive(Default)]
struct Fields {
    compared: Vec<&'static str>,
    left: Vec<&'static str>,
}

impl Fields {
    fn compare<T: ReferenceValue + PartialEq>(
        &mut self,
        field: &'static str,
        wanted: &Expect<T>,
        got: &T,
    ) -> Result<(), Reason> {
        if !wanted.accepts(got) {
            return Err(Reason::Value { field, wanted: wanted.to_string(), got: got.to_text() });
        }
        let list = if wanted.is_evaluated() { &mut self.compared } else { &mut self.left };
        list.push(field);
        Ok(())
    }

    fn done(self, names_program: bool) -> Compared {
        let mut detail = format!("compared: {}", self.compared.join(", "));
        if !self.left.is_empty() {
            detail += &format!("; not evaluated: {}", self.left.join(", "));
        }
        Compared { names_program, detail: detail.into() }
    }
}
