//! Both verifiers on one subject.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use confide_verifier::{
    Appraised, AwsLc, Endorsements, Evidence, Expect, LastPlatform, NewVerdicts, NoMemory, Outcome,
    Policy, Reason, RecallPlatform, Rejection, Roots, TagKey, UnixTime, appraise,
};
use dcap_qvl::verify::QuoteVerifier;

use crate::{seeds::Subject, strict};

#[derive(Debug)]
pub(crate) enum Verdict {
    BothAccept,
    BothReject,
    /// Refused by our verifier alone, for the strict check of this name.
    Strict(&'static str),
    /// The two verifiers look at different things.
    Incomparable(&'static str),
    /// The two verifiers differ in a way that must not occur.
    Fault(String),
}

/// Status and advisories, in the order of the alphabet.
type Accepted = (String, Vec<String>);

/// A refusal of a verifier: the check's name and the reason.
pub(crate) struct Refused {
    pub(crate) check: &'static str,
    pub(crate) reason: Reason,
}

/// `original` is what `subject` was before it was mutated: the memory knows its platform.
pub(crate) fn judge(subject: &Subject, original: &Subject) -> Verdict {
    let theirs = catch_unwind(AssertUnwindSafe(|| theirs(subject)))
        .unwrap_or_else(|_| Err("it panicked".into()));
    let ours = match catch_unwind(AssertUnwindSafe(|| ours(subject, original))) {
        Ok(Ok(ours)) => ours,
        Ok(Err(disagreement)) => return Verdict::Fault(disagreement),
        Err(_) => return Verdict::Fault("ours panicked".into()),
    };
    if let (Ok(_), Ok(_)) | (Ok(_), Err(_)) | (Err(_), Ok(_)) = (&ours, &theirs) {
        let same = matches!((&ours, &theirs), (Ok(ours), Ok(theirs)) if ours == theirs);
        if let Some(name) = strict::incomparable(subject).filter(|_| !same) {
            return Verdict::Incomparable(name);
        }
    }
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) if ours == theirs => Verdict::BothAccept,
        (Ok(ours), Ok(theirs)) => {
            Verdict::Fault(format!("both accept, ours as {ours:?}, theirs as {theirs:?}"))
        }
        (Ok(ours), Err(theirs)) => {
            Verdict::Fault(format!("accepted by us as {ours:?}, rejected by it: {theirs}"))
        }
        (Err(_), Err(_)) => Verdict::BothReject,
        (Err(ours), Ok(theirs)) => match strict::name(&ours) {
            Some(name) => Verdict::Strict(name),
            None => Verdict::Fault(format!(
                "unnamed {}: {:?}; accepted by it as {theirs:?}",
                ours.check, ours.reason
            )),
        },
    }
}

fn theirs(subject: &Subject) -> Result<Accepted, String> {
    let verifier = QuoteVerifier::new(subject.root.clone());
    let report = verifier
        .verify(&subject.quote, &subject.collateral, subject.now)
        .map_err(|error| format!("{error:#}"))?;
    let mut advisories = report.advisory_ids;
    advisories.sort();
    advisories.dedup();
    Ok((report.status, advisories))
}

/// The verdict of our verifier, in all of its ways; the outer error is their disagreement.
fn ours(subject: &Subject, original: &Subject) -> Result<Result<Accepted, Refused>, String> {
    let json = serde_json::to_vec(&subject.collateral).map_err(|error| error.to_string())?;
    let endorsements = match Endorsements::parse(&json) {
        Ok(endorsements) => endorsements,
        Err(error) => {
            return Ok(Err(Refused { check: "endorsements", reason: Reason::Malformed(error) }));
        }
    };
    let policy = policy(&subject.root);
    let evidence = Evidence { quote: &subject.quote, ..Evidence::default() };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(subject.now));
    let reference = appraise(&evidence, &endorsements, &policy, now, &AwsLc);
    match endorsements.prepare(&policy.roots, now, &AwsLc) {
        Err(early) if reference.is_ok() => {
            return Err(format!("prepare refuses what the reference accepts: {}", early.reason()));
        }
        Err(_) => {}
        Ok(prepared) => {
            let before = Evidence { quote: &original.quote, ..Evidence::default() };
            let empty = memory(&NewVerdicts::default());
            let learned = prepared.appraise(&before, &policy, now, &AwsLc, &empty);
            let learned = learned.map(|(_, learned)| learned).unwrap_or_default();
            let memories: [(&str, Box<dyn RecallPlatform>); 3] = [
                ("nothing kept", Box::new(NoMemory)),
                ("nothing known", Box::new(empty)),
                ("platform known", Box::new(memory(&learned))),
            ];
            for (name, memory) in memories {
                let way = prepared.appraise(&evidence, &policy, now, &AwsLc, &*memory);
                let way = way.map(|(appraised, _)| appraised);
                if to_text(&way) != to_text(&reference) {
                    let (way, reference) = (to_text(&way), to_text(&reference));
                    return Err(format!("{name} says {way}, the reference {reference}"));
                }
            }
        }
    }
    Ok(reference.map(|yes| accepted_result(&yes)).map_err(|rejection| refused_result(&rejection)))
}

fn to_text(verdict: &Result<Appraised, Rejection>) -> String {
    match verdict {
        Ok(appraised) => appraised.to_json().to_string(),
        Err(rejection) => rejection.to_json().to_string(),
    }
}

fn memory(learned: &NewVerdicts) -> LastPlatform {
    let secret = TagKey::new(*b"only in the test");
    LastPlatform { secret, pck: learned.pck.clone(), enclave: learned.enclave.clone() }
}

fn accepted_result(yes: &Appraised) -> Accepted {
    let mut advisories = yes.advisories().to_vec();
    advisories.sort();
    advisories.dedup();
    let status = yes.tcb_status().expect("a quote has a TCB status");
    (status.as_str().to_owned(), advisories)
}

fn refused_result(rejection: &Rejection) -> Refused {
    let failed = rejection.checks().iter().find(|check| check.outcome == Outcome::Failed);
    Refused { check: failed.map_or("", |check| check.name), reason: rejection.reason().clone() }
}

/// A policy as lenient as dcap-qvl's `verify`: any status but `Revoked`, any advisory, no debug.
fn policy(root: &[u8]) -> Policy {
    Policy {
        roots: Roots::from_der(root),
        tcb_status: Expect::DangerousAny,
        advisories: Expect::DangerousAny,
        ..Policy::default()
    }
}
