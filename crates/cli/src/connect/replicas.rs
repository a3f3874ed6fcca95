//! The replicas that `confide connect` is given: their addresses, their states, and why none is used.

use std::collections::HashSet;

use confide_client::{Blame, ClientError, Endpoint, REPLICAS_MAX, ReplicaFailure, ReplicaStatus};
use serde_json::{Value, json};

use crate::{error::CliError, process, refusal::STATUS_REFUSED};

/// Parses the addresses, of which each is given once.
pub(super) fn parse_urls(urls: &[String], example: &str) -> Result<Vec<Endpoint>, CliError> {
    if urls.len() > REPLICAS_MAX {
        let got = urls.len();
        return Err(CliError::new(format!("wanted at most {REPLICAS_MAX} addresses, got {got}")));
    }
    let mut known = HashSet::new();
    let mut endpoints = Vec::new();
    for url in urls {
        let endpoint = Endpoint::parse(url)
            .map_err(|error| CliError::new(error).with_hint(format!("for instance {example}")))?;
        if !known.insert(endpoint.clone()) {
            return Err(CliError::new(format!("{url} is given twice")));
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

/// The addresses, in words.
pub(super) fn join_urls(urls: &[String]) -> String {
    urls.join(", ")
}

/// The failure of all replicas: that of one as it is, and otherwise each with its address. One that
/// was judged and refused comes first, since it weighs more than one that is away. Several behind one
/// address that fail in the same way are one.
pub(super) fn explain_failures(
    mut failures: Vec<(String, ClientError)>,
    explain: impl Fn(&str, &ClientError) -> CliError,
) -> CliError {
    failures.sort_by_key(|(_, error)| error.blame() != Blame::Evidence);
    let mut explained: Vec<CliError> = Vec::new();
    for (url, error) in &failures {
        let next = explain(url, error);
        if !explained.iter().any(|known| known.message() == next.message()) {
            explained.push(next);
        }
    }
    let is_refused = failures.first().is_some_and(|(_, error)| error.blame() == Blame::Evidence);
    let count = explained.len();
    let mut explained = explained.into_iter();
    let Some(first) = explained.next() else {
        return CliError::new("no address was given");
    };
    if count == 1 {
        return first;
    }
    let mut text = format!("none of {count} replicas is used:\n{}", first.message());
    for other in explained {
        text += "\n";
        text += other.message();
    }
    let status = if is_refused { STATUS_REFUSED } else { first.status() };
    CliError::new(text).with_optional_hint(first.hint_text()).with_status(status)
}

/// The replica that the verification document describes: the first admitted one, or else the first
/// one that was admitted earlier.
pub(super) fn find_described<T>(
    replicas: &[ReplicaStatus],
    verified: impl Fn(&ReplicaStatus) -> Option<T>,
) -> Option<(&ReplicaStatus, T)> {
    let admitted = replicas.iter().filter(|replica| replica.is_admitted);
    let others = replicas.iter().filter(|replica| !replica.is_admitted);
    admitted.chain(others).find_map(|replica| Some((replica, verified(replica)?)))
}

/// The verification document: what was verified of one replica and its state now, and the same of each.
/// `describe` gives what was verified of a replica last.
pub(super) fn describe_verification(
    replicas: &[ReplicaStatus],
    describe: impl Fn(&ReplicaStatus) -> Option<Value>,
) -> Value {
    let Some((described, verified)) = find_described(replicas, &describe) else {
        return Value::Null;
    };
    let state = describe_state(described);
    let all = describe_replicas(replicas, describe);
    process::merge_objects(verified, json!({ "state": state, "replicas": all }))
}

fn describe_replicas(
    replicas: &[ReplicaStatus],
    describe: impl Fn(&ReplicaStatus) -> Option<Value>,
) -> Value {
    let describe = |replica: &ReplicaStatus| {
        let failure = replica.failure.as_ref();
        json!({
            "endpoint": replica.url,
            "key_id": replica.key_id,
            "state": describe_state(replica),
            "check": failure.and_then(|failure| failure.check.as_deref()),
            "reason": failure.map(|failure| &failure.reason),
            "retry_in_s": replica.retry_in.map(|wait| wait.as_secs_f64().ceil()),
            "running": replica.running,
            "verification": describe(replica).unwrap_or_default(),
        })
    };
    replicas.iter().map(describe).collect()
}

fn describe_state(replica: &ReplicaStatus) -> &'static str {
    match &replica.failure {
        _ if replica.is_admitted => "admitted",
        Some(ReplicaFailure { is_refused: true, .. }) => "refused",
        Some(_) => "unreachable",
        // It was not tried yet, or its new key is.
        None => "not judged",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(url: &str, is_admitted: bool, failure: Option<bool>) -> ReplicaStatus {
        let failure = failure.map(|is_refused| {
            let check = is_refused.then(|| "root".to_owned());
            ReplicaFailure { is_refused, check, reason: "a reason".into() }
        });
        ReplicaStatus {
            url: url.into(),
            is_admitted,
            failure,
            retry_in: None,
            running: 0,
            appraisal: None,
            key_id: None,
            key_verification: Some(json!({ "endpoint": url })),
        }
    }

    #[test]
    fn the_document_says_that_the_replica_which_it_describes_is_no_longer_admitted() {
        let describe = |replicas: &[ReplicaStatus]| {
            let verified = |replica: &ReplicaStatus| replica.key_verification.clone();
            let document = describe_verification(replicas, verified);
            (document["endpoint"].clone(), document["state"].clone())
        };
        let away = || replica("a", false, Some(false));
        for (replicas, endpoint, state) in [
            (vec![away(), replica("b", true, None)], "b", "admitted"),
            (vec![away(), replica("b", false, Some(true))], "a", "unreachable"),
            (vec![replica("b", false, Some(true)), away()], "b", "refused"),
            (vec![replica("b", false, None)], "b", "not judged"),
        ] {
            assert_eq!(describe(&replicas), (endpoint.into(), state.into()));
        }
        let never = ReplicaStatus { key_verification: None, ..away() };
        assert!(describe(&[never]).0.is_null());
    }

    #[test]
    fn replicas_behind_one_address_that_fail_in_the_same_way_are_told_once() {
        let fail = |url: &str, reason: &str| {
            (url.to_owned(), ClientError::ReportUnavailable { reason: reason.into() })
        };
        let explain = |failures| {
            let text = |url: &str, error: &ClientError| CliError::new(format!("{url}: {error}"));
            explain_failures(failures, text).message().to_owned()
        };
        let once = explain(vec![fail("a", "busy"), fail("a", "busy")]);
        assert_eq!(once, "a: no report of the gateway: busy");
        let both = explain(vec![fail("a", "busy"), fail("b", "busy"), fail("a", "busy")]);
        assert!(both.starts_with("none of 2 replicas is used:\na: "), "{both}");
        assert!(both.contains("\nb: "), "{both}");
    }
}
