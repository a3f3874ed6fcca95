//! A GPU attached to a CPU: the CPU's claims hold the hash of the GPU's evidence.

use confide_evidence::claims::Claims;
use rustls_pki_types::UnixTime;

use super::{GpuAppraisal, result::GpuAppraised};
use crate::{
    checks::{Checks, StepNames},
    crypto::Crypto,
    evidence::Evidence,
    policy::Policy,
    reason::Reason,
};

/// Appraises the GPU that came with a CPU's evidence, as the check `step` of that.
///
/// `claims` are those that the CPU's report data covers, `None` if it covers none.
pub(crate) fn judge_attached(
    evidence: &Evidence<'_>,
    claims: Option<&Claims>,
    policy: &Policy,
    now: UnixTime,
    crypto: &dyn Crypto,
    checks: &mut Checks,
    step: impl StepNames,
) -> Result<Option<GpuAppraised>, Reason> {
    let promised = claims.and_then(|claims| claims.gpu_evidence_hash);
    let Some(gpu) = &evidence.gpu else {
        if policy.gpu.required || promised.is_some() {
            return checks.run(step, || Err(Reason::GpuMissing));
        }
        checks.skip(step, "no evidence of a GPU was presented");
        return Ok(None);
    };
    checks.run(step, || {
        let got = crypto.sha256(&[gpu.evidence]);
        if promised != Some(got) {
            return Err(Reason::Value {
                field: "hash of the GPU's evidence in the CPU's claims",
                wanted: hex::encode(got),
                got: promised.map_or("none".into(), hex::encode),
            });
        }
        let appraised = GpuAppraisal::from_container(gpu.evidence, gpu.nonce)?
            .appraise(policy, now, crypto)
            .map_err(|rejection| rejection.reason().clone())?;
        Ok((Some(appraised), "the claims hold its hash, it holds the nonce".into()))
    })
}
