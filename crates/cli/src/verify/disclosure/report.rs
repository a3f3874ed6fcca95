//! The report on a disclosure, in words and as JSON.

use std::fmt::Display;

use confide_disclosure::{FieldKind, ProofSecurity, ProvenClaim, ShownField, TlsSession};
use confide_evidence::UnixSeconds;
use serde_json::{Value, json};

use super::{
    judgement::{AcceptedDisclosure, RejectedDisclosure},
    words::{describe_claim, format_name, shown_bytes_name},
};
use crate::{
    answer::CommandReport,
    error::CliError,
    printable::to_printable,
    process::merge_objects,
    time::NOTARY_CLOCK,
    verify::inputs::{NOT_JUDGED, REJECTED},
};

/// The fields that identify the answer: the same host answers other requests, and refuses some,
/// with documents that look similar.
const HEAD: [&str; 3] = ["request.method", "request.target", "response.status"];

/// The answer about a disclosure that was accepted.
pub(super) fn describe_acceptance(accepted: &AcceptedDisclosure) -> CommandReport {
    let is_simulated = accepted.is_simulated();
    let label = if is_simulated { "; SIMULATED evidence, it protects nothing" } else { "" };
    let mut text = format_row("accepted", format_args!("yes{label}"));
    write_session(&mut text, accepted);
    if let Some(other) = &accepted.other {
        text += &format_row("other", "another session that is part of this file");
        write_session(&mut text, other);
    }
    text += &format_row("hidden", HIDDEN);
    let trust = list_trusted_parties(accepted);
    text.extend(trust.iter().map(|party| format_row("you trust", party)));
    let session = |accepted: &AcceptedDisclosure| {
        json!({
            "statement": statement_json(accepted),
            "shown": shown_fields_json(accepted),
            "proven": accepted.verified.claims().iter().map(proven_claim_json).collect::<Value>(),
            "notary": accepted.statement.notary.to_json(),
        })
    };
    let more = json!({
        "outcome": "accepted",
        "reason": null,
        "simulated": is_simulated,
        "other": accepted.other.as_deref().map(session),
        "hidden": HIDDEN,
        "trust": trust,
    });
    CommandReport::new(text, merge_objects(session(accepted), more))
}

/// The description of what a disclosure hides.
const HIDDEN: &str = "everything else, from anyone who has only this file";

fn format_row(name: &str, value: impl Display) -> String {
    format!("{name:<11}{value}\n")
}

/// Writes what is known of one session.
fn write_session(text: &mut String, accepted: &AcceptedDisclosure) {
    let statement = accepted.verified.statement();
    let mut row = |name: &str, value: String| *text += &format_row(name, value);
    let tls = &statement.tls;
    row("host", format!("{}:{}, {}", statement.host, statement.port, tls.version().as_str()));
    row("cipher", format!("{}, {}", tls.suite().as_str(), describe_key_exchange(tls)));
    row(
        "time",
        format!(
            "{} Unix seconds, {}, {NOTARY_CLOCK}; {} s ago",
            statement.time,
            UnixSeconds(statement.time).utc(),
            accepted.statement.age_s
        ),
    );
    for (name, part, view) in [
        ("request", &statement.request, &statement.request_view),
        ("response", &statement.response, &statement.response_view),
    ] {
        row(name, format!("at most {} bytes; body: {}", part.bucket_bytes(), view.as_str()));
    }
    // The file has them in the order of their leaves, which is meaningless.
    let mut fields: Vec<&ShownField> = accepted.verified.fields().iter().collect();
    fields.sort_by(|one, other| one.path.cmp(&other.path));
    for field in fields {
        row("shown", format!("{} = {}", format_name(&field.path), describe_value(field)));
    }
    for (direction, piece) in accepted.verified.bytes() {
        let text = to_printable(&String::from_utf8_lossy(&piece.bytes));
        row("shown", format!("{} = \"{text}\"", shown_bytes_name(*direction, piece)));
    }
    for (direction, length) in accepted.verified.lengths() {
        row("shown", format!("{}.length = {length}", direction.as_str()));
    }
    for claim in accepted.verified.claims() {
        let (path, predicate) = describe_claim(claim);
        row(
            "proven",
            format!("{} {predicate} ({})", format_name(&path), describe_proof(&claim.security)),
        );
    }
}

/// Whether a recorded session stays secret from a quantum computer; its signatures are a separate matter.
fn describe_key_exchange(tls: &TlsSession) -> String {
    let group = tls.group();
    let not = if group.is_post_quantum() { "" } else { "not " };
    format!("key exchange by {} ({not}post-quantum; signatures are not)", group.as_str())
}

fn statement_json(accepted: &AcceptedDisclosure) -> Value {
    let statement = accepted.verified.statement();
    json!({
        "digest": hex::encode(statement.digest()),
        "host": statement.host,
        "port": statement.port,
        "tls": statement.tls.version().as_str(),
        "key_exchange": statement.tls.group().as_str(),
        "key_exchange_is_post_quantum": statement.tls.group().is_post_quantum(),
        "cipher_suite": statement.tls.suite().as_str(),
        "http": statement.http.as_str(),
        "certificate_chain_hash": hex::encode(statement.certificate_chain_hash),
        "time": statement.time,
        "time_is": NOTARY_CLOCK,
        "age_s": accepted.statement.age_s,
        "request_bytes_max": statement.request.bucket_bytes(),
        "response_bytes_max": statement.response.bucket_bytes(),
        "request_body": statement.request_view.as_str(),
        "response_body": statement.response_view.as_str(),
        "fields_max": 1u64 << statement.fields.depth,
    })
}

/// The answer about a disclosure that was rejected, or could not be judged.
pub(super) fn describe_rejection(rejected: &RejectedDisclosure) -> CommandReport {
    let (verdict, outcome, status) = if rejected.is_unreadable() {
        ("not judged", "error", NOT_JUDGED)
    } else {
        ("no", "rejected", REJECTED)
    };
    let reason = rejected.to_string();
    let mut text =
        format_row("accepted", verdict) + &format_row(rejected.code(), to_printable(&reason));
    text.extend(rejected.hint().map(|hint| format!("hint: {hint}\n")));
    let notary = match rejected {
        RejectedDisclosure::Evidence(rejection) => rejection.to_json(),
        _ => Value::Null,
    };
    CommandReport {
        text,
        json: failure_json(outcome, Some(rejected.code()), &reason, notary),
        status,
    }
}

/// The answer for programs where an input could not be read; people get the error itself.
pub(super) fn describe_unreadable(error: &CliError) -> CommandReport {
    let json = failure_json("error", None, error.message(), Value::Null);
    CommandReport { text: String::new(), json, status: NOT_JUDGED }
}

fn failure_json(outcome: &str, refused: Option<&str>, reason: &str, notary: Value) -> Value {
    json!({
        "outcome": outcome, "refused": refused, "reason": reason, "notary": notary,
        "statement": null, "shown": [], "proven": [], "other": null, "trust": [],
    })
}

/// The parties that a third party trusts when it relies on the disclosure.
fn list_trusted_parties(accepted: &AcceptedDisclosure) -> Vec<String> {
    let mut trust = list_session_trusted_parties(accepted);
    if let Some(other) = &accepted.other {
        let others =
            list_session_trusted_parties(other).into_iter().filter(|party| !trust.contains(party));
        let others: Vec<_> =
            others.map(|party| format!("for the other session, {party}")).collect();
        trust.extend(others);
    }
    trust
}

fn list_session_trusted_parties(accepted: &AcceptedDisclosure) -> Vec<String> {
    let root = accepted.statement.notary.root();
    let vendor = format!(
        "the maker of the notary's TEE (root {} {}), and that the TEE is not broken",
        root.kind.as_str(),
        hex::encode(root.sha256)
    );
    let program = "the notary's measured program: it saw the plaintext and parsed the fields";
    let configuration = if accepted.statement.is_configuration_known {
        "the notary's configuration that the policy names: the roots by which it judged the host"
    } else {
        "the notary's operator for the roots by which it judged the host: the notary's configuration \
         was NOT compared, so the host may be anyone"
    };
    let mut trust = vec![
        vendor,
        program.into(),
        configuration.into(),
        "the notary's operator for the time".into(),
        "the host's certificate authority, and the host for what it said".into(),
        "SHA-256, ECDSA on P-256 and, for proofs, discrete logarithms: not post-quantum".into(),
    ];
    let is_hidden = |part: &&str| !accepted.verified.fields().iter().any(|it| it.path == *part);
    let hidden: Vec<&str> = HEAD.into_iter().filter(is_hidden).collect();
    if !hidden.is_empty() {
        trust.push(format!(
            "the maker of this file for the request and the kind of the answer: {} not shown",
            hidden.join(", ")
        ));
    }
    if accepted.statement.any_host {
        trust.push("that this host is the one you meant: the policy names no host".into());
    }
    trust
}

fn shown_fields_json(accepted: &AcceptedDisclosure) -> Value {
    let fields = accepted.verified.fields().iter().map(|field| {
        json!({ "name": field.path, "kind": field.kind.as_str(), "value": value_json(field) })
    });
    let bytes = accepted.verified.bytes().iter().map(|(direction, piece)| {
        let name = shown_bytes_name(*direction, piece);
        json!({ "name": name, "kind": "bytes", "value": hex::encode(&piece.bytes) })
    });
    let lengths = accepted.verified.lengths().iter().map(|(direction, length)| {
        json!({
            "name": format!("{}.length", direction.as_str()), "kind": "length", "value": length,
        })
    });
    fields.chain(bytes).chain(lengths).collect()
}

/// The value of a field. Numbers stay text, since a reader's floats would round them.
fn value_json(field: &ShownField) -> Value {
    match field.kind {
        FieldKind::Null => Value::Null,
        FieldKind::Bool => (field.value == b"true").into(),
        FieldKind::Octets => hex::encode(&field.value).into(),
        FieldKind::Object => parse_member_names(&field.value).into(),
        _ => String::from_utf8_lossy(&field.value).into(),
    }
}

fn describe_value(field: &ShownField) -> String {
    let text = String::from_utf8_lossy(&field.value);
    match field.kind {
        FieldKind::Null => "null".into(),
        FieldKind::Bool | FieldKind::Number => to_printable(&text),
        FieldKind::String => format!("\"{}\"", to_printable(&text)),
        FieldKind::Array => format!("an array of {}", to_printable(&text)),
        FieldKind::Object => {
            let quoted = |name: &String| format!("\"{}\"", to_printable(name));
            let names: Vec<String> = parse_member_names(&field.value).iter().map(quoted).collect();
            format!("an object with the members [{}] and no others", names.join(", "))
        }
        FieldKind::Octets => format!("octets {}", hex::encode(&field.value)),
    }
}

/// The member names of an object's value, each after its length.
fn parse_member_names(mut value: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while let Some((length, rest)) = value.split_first_chunk() {
        let length = (u32::from_be_bytes(*length) as usize).min(rest.len());
        names.push(String::from_utf8_lossy(&rest[..length]).into());
        value = &rest[length..];
    }
    names
}

fn describe_proof(security: &ProofSecurity) -> String {
    let ProofSecurity { back_end, proven_bits, conjectured_bits, zero_knowledge, .. } = security;
    let hides = if *zero_knowledge { "yes" } else { "no" };
    let proven = proven_bits.map_or("none".into(), |bits| format!("{bits} bits"));
    format!(
        "{back_end}; zero-knowledge: {hides}; {proven} proven, about {conjectured_bits} bits \
         conjectured"
    )
}

fn proven_claim_json(claim: &ProvenClaim) -> Value {
    let (name, predicate) = describe_claim(claim);
    let ProofSecurity { back_end, proven_bits, conjectured_bits, basis, zero_knowledge } =
        claim.security;
    json!({
        "name": name,
        "predicate": predicate,
        "proof": {
            "back_end": back_end,
            "program_digest": null,
            "zero_knowledge": zero_knowledge,
            "proven_bits": proven_bits,
            "conjectured_bits": conjectured_bits,
            "basis": basis,
            "hides": "the value, from everyone who has this file",
        },
    })
}
