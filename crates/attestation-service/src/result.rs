//! The content of a result: the claims of EAT (RFC 9711) and EAR (draft-ietf-rats-ear).
//!
//! The values of the trustworthiness vector are those of AR4SI (draft-ietf-rats-ar4si section 2.3).
//! The vector contains only the categories that were evaluated.

use confide_appraiser::SharedAppraisal;
use confide_verifier::{Check, Outcome, RootKind, Scope};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::appraisal_request::AppraisalRequest;

/// `eat_profile` of the results.
pub(crate) const PROFILE: &str = "tag:confide,2026:attestation-result#1";

/// AR4SI's tiers, as values of the vector.
const AFFIRMING: i64 = 2;
/// "only recognised executables during the boot process".
const EXECUTABLES_AT_BOOT: i64 = 3;
const WARNING: i64 = 32;
const CONTRAINDICATED: i64 = 96;
/// "A Verifier does not recognize an Attester's hardware or firmware, but it should be recognized".
const UNRECOGNISED_HARDWARE: i64 = 97;

/// The claims that do not depend on the evidence.
pub(crate) struct CommonClaims<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) audience: &'a str,
    pub(crate) issued_at: u64,
    pub(crate) lifetime_s: u64,
    pub(crate) policy_sha256: [u8; 32],
}

/// The claims of an accepted request.
pub(crate) fn accepted_claims(
    common: &CommonClaims<'_>,
    request: &AppraisalRequest,
    appraised: &SharedAppraisal,
) -> Value {
    let mut verdict = appraised.verdict().to_json();
    let trust = RootTrust::from_appraisal(appraised);
    if trust == RootTrust::Simulated {
        verdict["reason"] = SIMULATED.into();
    }
    let status = match (trust, appraised.verdict().scope()) {
        (RootTrust::Simulated, _) => "contraindicated",
        (RootTrust::Unknown, _) => "warning",
        // Without its workload, a platform does not show which program runs on it.
        (RootTrust::Vouched, Scope::Platform) => "warning",
        (RootTrust::Vouched, Scope::Workload) => "affirming",
    };
    let vector = trustworthiness_vector(appraised, trust);
    let mut claims = result_claims(common, request, status, Some(vector), &verdict);
    let module = &mut claims["submods"]["cpu"];
    module["confide.simulated"] = appraised.is_simulated().into();
    module["confide.operator-root"] = appraised.is_operator_root().into();
    // A result expires no later than the claims and the endorsements that it is based on.
    let end = common.issued_at.saturating_add(common.lifetime_s).min(appraised.not_after());
    claims["exp"] = end.into();
    claims
}

/// The reason for which simulated evidence is refused, whatever the policy accepts.
pub(crate) const SIMULATED: &str =
    "evidence is simulated: software made it, and it protects nothing";

/// The trust in the root under which evidence was accepted.
#[derive(Clone, Copy, PartialEq)]
enum RootTrust {
    /// A vendor's root, or a root that the policy lists as the operator's own.
    Vouched,
    /// Another root that the policy trusts, whose hardware is unknown to the service.
    Unknown,
    /// A root that is marked as simulated.
    Simulated,
}

impl RootTrust {
    fn from_appraisal(appraised: &SharedAppraisal) -> Self {
        let gpu = appraised.verdict().gpu().map(|gpu| gpu.root().kind);
        match appraised.verdict().root().kind {
            _ if appraised.is_simulated() => Self::Simulated,
            _ if gpu == Some(RootKind::Custom) && !appraised.is_operator_root() => Self::Unknown,
            RootKind::Production => Self::Vouched,
            RootKind::Custom if appraised.is_operator_root() => Self::Vouched,
            RootKind::Custom => Self::Unknown,
        }
    }
}

/// The claims of a request whose evidence was appraised and rejected.
pub(crate) fn rejected_claims(
    common: &CommonClaims<'_>,
    request: &AppraisalRequest,
    verdict: &Value,
) -> Value {
    result_claims(common, request, "contraindicated", None, verdict)
}

fn result_claims(
    common: &CommonClaims<'_>,
    request: &AppraisalRequest,
    status: &str,
    vector: Option<Value>,
    verdict: &Value,
) -> Value {
    let mut module = json!({
        "ear.status": status,
        "ear.appraisal-policy-id": format!("confide:policy:{}", request.policy_id),
        "confide.policy-sha256": hex::encode(common.policy_sha256),
        "confide.evidence-sha256": hex::encode(Sha256::digest(&request.evidence)),
        "confide.scope": verdict["scope"],
        "confide.root": verdict["root"],
        "confide.tcb-status": verdict["tcb_status"],
        "confide.advisories": verdict["advisories"],
        "confide.claims": verdict["claims"],
        "confide.checks": outcomes_by_check(&verdict["checks"]),
        "confide.reason": verdict["reason"],
    });
    if let Some(vector) = vector {
        module["ear.trustworthiness-vector"] = vector;
    }
    if let Some(gpu) = &request.gpu {
        module["confide.gpu-evidence-sha256"] = hex::encode(Sha256::digest(&gpu.evidence)).into();
    }
    if let Some(gpu) = verdict.get("gpu") {
        module["confide.gpu"] = gpu.clone();
    }
    json!({
        "eat_profile": PROFILE,
        "eat_nonce": request.nonce,
        "iss": common.issuer,
        "aud": common.audience,
        "iat": common.issued_at,
        "nbf": common.issued_at,
        "exp": common.issued_at.saturating_add(common.lifetime_s),
        "ear.verifier-id": {
            "developer": "https://crates.io/crates/confide",
            "build": concat!("confide ", env!("CARGO_PKG_VERSION")),
        },
        "submods": { "cpu": module },
    })
}

/// Each check with its outcome but without its details, which `confide verify --json` has.
fn outcomes_by_check(checks: &Value) -> Value {
    let mut outcomes = Map::new();
    for check in checks.as_array().into_iter().flatten() {
        if let Some(name) = check["name"].as_str() {
            outcomes.insert(name.into(), check["outcome"].clone());
        }
    }
    outcomes.into()
}

fn trustworthiness_vector(appraised: &SharedAppraisal, trust: RootTrust) -> Value {
    if trust == RootTrust::Simulated {
        // Other categories are meaningless for simulated hardware.
        return json!({ "hardware": UNRECOGNISED_HARDWARE });
    }
    let appraised = appraised.verdict();
    let passed = |name: &str| {
        let mut checks = appraised.checks().iter();
        checks
            .any(|Check { name: found, outcome, .. }| *found == name && *outcome == Outcome::Passed)
    };
    let mut vector = Map::new();
    let genuine = trust == RootTrust::Vouched;
    // AMD has no TCB status: the policy's minimum takes its place, if there is one.
    let current = match appraised.tcb_status() {
        Some(status) => status.as_str() == "UpToDate" && appraised.advisories().is_empty(),
        None => passed("tcb_minimum"),
    };
    vector.insert("hardware".into(), if current && genuine { AFFIRMING } else { WARNING }.into());
    let opaque = if appraised.is_debug() { CONTRAINDICATED } else { AFFIRMING };
    vector.insert("runtime-opaque".into(), opaque.into());
    if appraised.scope() == Scope::Workload {
        vector.insert("executables".into(), EXECUTABLES_AT_BOOT.into());
    }
    if passed("config_digest") {
        vector.insert("configuration".into(), AFFIRMING.into());
    }
    if passed("chip") || passed("chip_id") {
        vector.insert("instance-identity".into(), AFFIRMING.into());
    }
    vector.into()
}
