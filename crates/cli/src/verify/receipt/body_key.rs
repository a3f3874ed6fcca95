//! The judgement of a report for the key that it has for encrypted bodies: quote, keyset and
//! configuration, before anything is sent.

use confide_client::JudgedKey;
use confide_encrypted_body::{BodyKem, BodyPublicKey};
use confide_evidence::weights_claim::WeightsClaim;
use confide_receipt::{AttestationReport, BodyKeyEntry, Nonce};
use confide_verification::{
    ReceiptInput, ReceiptRefusal, ReceiptRules, check_keyset, is_evidence_simulated,
    judge_report_evidence,
};
use confide_verifier::{Appraised, AwsLc, BindingLevel, DangerousScope, Expect, Policy, Scope};
use serde_json::Value;

/// The reason why a report gives no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyKeyRefusal {
    #[error("report: {0}")]
    Report(ReceiptRefusal),
    #[error("the keyset lives for {got} s, wanted at most {wanted}")]
    KeysetLife { wanted: u64, got: u64 },
    #[error("the keyset has no key for encrypted bodies: wanted a gateway with --encrypted-bodies")]
    NoKey,
    #[error("the key is for the configuration {got}, wanted {wanted}")]
    Configuration { wanted: String, got: String },
    #[error("the key is for models with the weights {got}, wanted {wanted}")]
    Weights { wanted: String, got: String },
    #[error(
        "the policy demands session binding, but a key for bodies is bound to no session: whoever steals \
         it can read until the keyset ends"
    )]
    Session,
    #[error(
        "only the platform is known, not its program or its configuration: pin both in the policy, or say \
         dangerous_scope = \"platform\""
    )]
    PlatformOnly,
}

/// A key, and the evidence that vouches for it.
pub(crate) struct AcceptedBodyKey {
    pub(crate) key: JudgedKey,
    pub(crate) evidence: Appraised,
    /// Whether the evidence is simulated, so that it protects nothing.
    pub(crate) is_simulated: bool,
    pub(crate) scope: Scope,
    pub(crate) config_digest: [u8; 32],
    /// The weights of the models that may answer, by the gateway's own measurement.
    pub(crate) weights: Option<WeightsClaim>,
}

/// Judges a report that was requested with this nonce, at a time in Unix seconds. `collateral` takes
/// the place of the report's.
pub(crate) fn judge_body_key(
    report: &[u8],
    nonce: &Nonce,
    policy: &Policy,
    collateral: Option<&[u8]>,
    at: u64,
) -> Result<AcceptedBodyKey, BodyKeyRefusal> {
    if policy.binding == Some(BindingLevel::Session) {
        return Err(BodyKeyRefusal::Session);
    }
    let refuse = BodyKeyRefusal::Report;
    let report = AttestationReport::parse(report, Some(nonce));
    let report = report.map_err(|error| refuse(ReceiptRefusal::Report(error)))?;
    let collateral = collateral.map(<[u8]>::to_vec);
    let files = ReceiptInput { collateral, ..ReceiptInput::default() };
    let (policy_of_evidence, nonce) = (policy.clone(), Some(*nonce));
    let rules = ReceiptRules { policy: policy_of_evidence, nonce, at, skips_configuration: false };
    let evidence = judge_report_evidence(&report, &files, &rules, &AwsLc).map_err(refuse)?;
    let not_after = check_keyset(report.keyset(), &rules).map_err(refuse)?;
    let (wanted, got) = (policy.key_validity_s_max, not_after.saturating_sub(at));
    if got > wanted {
        return Err(BodyKeyRefusal::KeysetLife { wanted, got });
    }
    let (key, entry) = choose_key(report.keyset().body_keys())?;
    let BodyKeyEntry { config_digest, weights, .. } = entry;
    let is_pinned = check_configuration(&config_digest, policy)?;
    check_weights(weights.as_ref(), policy)?;
    let scope = if is_pinned { evidence.scope() } else { Scope::Platform };
    if scope == Scope::Platform && policy.dangerous_scope != Some(DangerousScope::Platform) {
        return Err(BodyKeyRefusal::PlatformOnly);
    }
    let key = JudgedKey { key, not_after, verification: Value::Null };
    let is_simulated = is_evidence_simulated(&evidence, &report, &files);
    Ok(AcceptedBodyKey { key, evidence, is_simulated, scope, config_digest, weights })
}

/// Chooses the hybrid key if there is one.
fn choose_key(
    entries: impl Iterator<Item = BodyKeyEntry>,
) -> Result<(BodyPublicKey, BodyKeyEntry), BodyKeyRefusal> {
    let entries: Vec<_> = entries.collect();
    let find = |kem: BodyKem| {
        let entry = entries.iter().find(|entry| entry.algorithm == kem.algorithm())?;
        let key = BodyPublicKey::from_bytes(kem, &entry.public_key).ok()?;
        Some((key, entry.clone()))
    };
    BodyKem::ALL.into_iter().find_map(find).ok_or(BodyKeyRefusal::NoKey)
}

/// Compares the configuration with those that the policy pins; `false` where it pins none.
fn check_configuration(digest: &[u8; 32], policy: &Policy) -> Result<bool, BodyKeyRefusal> {
    match &policy.config_digest {
        None | Some(Expect::DangerousAny) => Ok(false),
        Some(wanted) if wanted.accepts(digest) => Ok(true),
        Some(wanted) => Err(BodyKeyRefusal::Configuration {
            wanted: wanted.to_string(),
            got: hex::encode(digest),
        }),
    }
}

/// Compares the weights of all models that may answer with those that the policy demands.
fn check_weights(claim: Option<&WeightsClaim>, policy: &Policy) -> Result<(), BodyKeyRefusal> {
    match &policy.weights {
        Some(wanted) if !policy.accepts_weights(claim) => Err(BodyKeyRefusal::Weights {
            wanted: wanted.to_string(),
            got: WeightsClaim::describe(claim),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "body_key_tests.rs"]
mod tests;
