//! One body for both paths: the slow reference from bytes, and prepared endorsements with nothing,
//! the PCK certificate, and all of the platform known. Verdict and JSON must be the same.
#![allow(dead_code, reason = "each test file uses its part")]

use confide_verifier::{
    Appraised, Crypto, Endorsements, Evidence, Expect, LastPlatform, NewVerdicts, NoMemory,
    Outcome, Policy, PreparedEndorsements, RecallPlatform, Rejection, TagKey, UnixTime,
};
use serde_json::Value;

/// As [`confide_verifier::appraise`], and every other way with it.
pub(crate) fn appraise(
    evidence: &Evidence<'_>,
    endorsements: &Endorsements,
    policy: &Policy,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<Appraised, Rejection> {
    let reference = confide_verifier::appraise(evidence, endorsements, policy, now, crypto);
    match endorsements.clone().prepare(&policy.roots, now, crypto) {
        Err(early) => found_early(&reference, &early),
        Ok(prepared) => {
            let known = Ways::learn_from(prepared, evidence.quote, now, crypto);
            known.agree_with(&reference, evidence, policy, now, crypto);
        }
    }
    reference
}

/// Prepared endorsements with every state of memory that there is for one platform.
pub(crate) struct Ways {
    pub(crate) prepared: PreparedEndorsements,
    memories: Vec<(&'static str, Box<dyn RecallPlatform>)>,
}

impl Ways {
    /// What `quote` teaches, where it is genuine at all, whatever a policy says of it.
    pub(crate) fn learn_from(
        prepared: PreparedEndorsements,
        quote: &[u8],
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Self {
        let evidence = Evidence { quote, ..Evidence::default() };
        let policy = lenient(&prepared);
        let empty = memory(None);
        let yes = prepared.appraise(&evidence, &policy, now, crypto, &empty);
        let learned = yes.map(|(_, learned)| learned).unwrap_or_default();
        let pck_only = NewVerdicts { pck: learned.pck.clone(), enclave: None };
        Self {
            prepared,
            memories: vec![
                ("nothing kept", Box::new(NoMemory)),
                ("nothing known", Box::new(empty)),
                ("PCK known", Box::new(memory(Some(&pck_only)))),
                ("all known", Box::new(memory(Some(&learned)))),
            ],
        }
    }

    /// Demands the reference's verdict and JSON of every way.
    pub(crate) fn agree_with(
        &self,
        reference: &Result<Appraised, Rejection>,
        evidence: &Evidence<'_>,
        policy: &Policy,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) {
        for (name, memory) in &self.memories {
            let it = self.prepared.appraise(evidence, policy, now, crypto, &**memory);
            let it = it.map(|(appraised, _)| appraised);
            assert_eq!(verdict_json(&it), verdict_json(reference), "{name}");
        }
    }
}

/// The memory of one process, with something in it or not.
pub(crate) fn memory(learned: Option<&NewVerdicts>) -> LastPlatform {
    let secret = TagKey::new(*b"only in the test");
    let learned = learned.cloned().unwrap_or_default();
    LastPlatform { secret, pck: learned.pck, enclave: learned.enclave }
}

pub(crate) fn verdict_json(verdict: &Result<Appraised, Rejection>) -> Value {
    match verdict {
        Ok(appraised) => appraised.to_json(),
        Err(rejection) => rejection.to_json(),
    }
}

/// The one named difference: a fault of the endorsements is found before any quote is looked at.
///
/// Where the reference failed for the same reason, everything but `quote_format` is the same;
/// otherwise it had found another fault first, in the quote or in its chain.
fn found_early(reference: &Result<Appraised, Rejection>, early: &Rejection) {
    let late = reference.as_ref().expect_err("endorsements that cannot be prepared were accepted");
    if late.reason() == early.reason() {
        let mut early = early.to_json();
        let quote_format = &mut early["checks"][0];
        assert_eq!(quote_format["outcome"], "not_evaluated");
        *quote_format = late.to_json()["checks"][0].clone();
        let root_crl = late.to_json()["checks"][2].clone();
        if root_crl["outcome"] == "passed" {
            // Only an appraisal compares the list with the policy's minimum.
            early["checks"][2] = root_crl;
        }
        assert_eq!(early, late.to_json());
        return;
    }
    let failed = late.checks().iter().find(|check| check.outcome == Outcome::Failed);
    let failed = failed.expect("a rejection names a check").name;
    assert!(
        ["quote_format", "pck_chain", "root_crl"].contains(&failed),
        "{}: early {}, late {}",
        failed,
        early.reason(),
        late.reason()
    );
}

/// Accepts all that a policy can: what is left is whether the evidence is genuine.
fn lenient(prepared: &PreparedEndorsements) -> Policy {
    Policy {
        roots: confide_verifier::Roots::from_der(prepared.root_der()),
        tcb_status: Expect::DangerousAny,
        advisories: Expect::DangerousAny,
        dangerous_accept_debug: true,
        ..Policy::default()
    }
}
