//! The verdict in words and as JSON.

use std::fmt::Write as _;

use confide_disclosure::{Fact, FieldKind, ProvenClaim, Security, ShownField, TlsSession};
use confide_evidence::UnixSeconds;
use serde_json::{Value, json};

use super::judged::{Accepted, Rejected};

/// What stands beside every time of a statement.
const WHOSE_CLOCK: &str = "the notary's clock, set by its operator";

/// What says that a field is of the answer that its reader means: the same host answers other
/// requests, and refuses some, with documents that look alike.
const HEAD: [&str; 3] = ["request.method", "request.target", "response.status"];

pub(super) fn accepted_text(accepted: &Accepted) -> String {
    let mut text = String::new();
    let simulated = match accepted.is_simulated() {
        true => "; SIMULATED evidence, it protects nothing",
        false => "",
    };
    let _ = writeln!(text, "{:<11}yes{simulated}", "accepted");
    write_session(&mut text, accepted);
    if let Some(other) = &accepted.other {
        let _ = writeln!(text, "{:<11}another session that this file brings", "other");
        write_session(&mut text, other);
    }
    let mut row = |name: &str, what: String| {
        let _ = writeln!(text, "{name:<11}{what}");
    };
    row("hidden", "everything else, from whoever has this file only".into());
    for who in trust(accepted) {
        row("you trust", who);
    }
    text
}

/// What is known of one session.
fn write_session(text: &mut String, accepted: &Accepted) {
    let statement = accepted.verified.statement();
    let mut row = |name: &str, what: String| {
        let _ = writeln!(text, "{name:<11}{what}");
    };
    let tls = &statement.tls;
    row("host", format!("{}:{}, {}", statement.host, statement.port, tls.version().as_str()));
    row("cipher", format!("{}, {}", tls.suite().as_str(), key_exchange_words(tls)));
    row(
        "time",
        format!(
            "{} Unix seconds, {}, {WHOSE_CLOCK}; {} s ago",
            statement.time,
            UnixSeconds(statement.time).utc(),
            accepted.age_s
        ),
    );
    row(
        "request",
        format!(
            "at most {} bytes; body: {}",
            statement.request.bucket_bytes(),
            statement.request_view.as_str()
        ),
    );
    row(
        "response",
        format!(
            "at most {} bytes; body: {}",
            statement.response.bucket_bytes(),
            statement.response_view.as_str()
        ),
    );
    // In the file they stand in the order of their leaves, which says nothing.
    let mut fields: Vec<&ShownField> = accepted.verified.fields().iter().collect();
    fields.sort_by(|one, other| one.path.cmp(&other.path));
    for field in fields {
        row("shown", format!("{} = {}", name_words(&field.path), value_words(field)));
    }
    for (direction, piece) in accepted.verified.bytes() {
        let (start, end) = (piece.start, piece.start + piece.bytes.len() as u64);
        let bytes = String::from_utf8_lossy(&piece.bytes);
        row(
            "shown",
            format!("{}.bytes:{start}-{end} = \"{}\"", direction.as_str(), printable(&bytes)),
        );
    }
    for (direction, length) in accepted.verified.lengths() {
        row("shown", format!("{}.length = {length}", direction.as_str()));
    }
    for claim in accepted.verified.claims() {
        let (path, what) = claim_words(claim);
        row("proven", format!("{} {what} ({})", name_words(&path), proof_words(&claim.security)));
    }
}

/// Who recorded the session learns nothing of it later, or may: the signatures are another matter.
fn key_exchange_words(tls: &TlsSession) -> String {
    let group = tls.group();
    let not = if group.is_post_quantum() { "" } else { "not " };
    format!("key exchange by {} ({not}post-quantum; signatures are not)", group.as_str())
}

pub(super) fn accepted_json(accepted: &Accepted) -> Value {
    let other = accepted.other.as_ref().map(|other| {
        json!({
            "statement": statement_json(other),
            "shown": shown_json(other),
            "proven": other.verified.claims().iter().map(proven_json).collect::<Value>(),
            "notary": other.notary.to_json(),
        })
    });
    json!({
        "outcome": "accepted",
        "reason": null,
        "simulated": accepted.is_simulated(),
        "statement": statement_json(accepted),
        "shown": shown_json(accepted),
        "proven": accepted.verified.claims().iter().map(proven_json).collect::<Value>(),
        "other": other,
        "hidden": "everything else, from whoever has this file only",
        "trust": trust(accepted),
        "notary": accepted.notary.to_json(),
    })
}

fn statement_json(accepted: &Accepted) -> Value {
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
        "time_is": WHOSE_CLOCK,
        "age_s": accepted.age_s,
        "request_bytes_max": statement.request.bucket_bytes(),
        "response_bytes_max": statement.response.bucket_bytes(),
        "request_body": statement.request_view.as_str(),
        "response_body": statement.response_view.as_str(),
        "fields_max": 1u64 << statement.fields.depth,
    })
}

pub(super) fn rejected_text(rejected: &Rejected) -> String {
    let verdict = if rejected.is_unjudged() { "not judged" } else { "no" };
    let mut text = format!(
        "{:<11}{verdict}\n{:<11}{}\n",
        "accepted",
        rejected.name(),
        printable(&rejected.to_string())
    );
    if let Some(hint) = rejected.hint() {
        let _ = writeln!(text, "hint: {hint}");
    }
    text
}

pub(super) fn rejected_json(rejected: &Rejected) -> Value {
    let notary = match rejected {
        Rejected::Evidence(rejection) => rejection.to_json(),
        _ => Value::Null,
    };
    let outcome = if rejected.is_unjudged() { "error" } else { "rejected" };
    failed_json(outcome, Some(rejected.name()), &rejected.to_string(), notary)
}

pub(super) fn unreadable_json(reason: &str) -> Value {
    failed_json("error", None, reason, Value::Null)
}

fn failed_json(outcome: &str, refused: Option<&str>, reason: &str, notary: Value) -> Value {
    json!({
        "outcome": outcome, "refused": refused, "reason": reason, "notary": notary,
        "statement": null, "shown": [], "proven": [], "other": null, "trust": [],
    })
}

/// Whom a third party believes when it believes this.
fn trust(accepted: &Accepted) -> Vec<String> {
    let mut trust = trust_of(accepted);
    if let Some(other) = &accepted.other {
        let others = trust_of(other).into_iter().filter(|who| !trust.contains(who));
        let others: Vec<_> = others.map(|who| format!("for the other session, {who}")).collect();
        trust.extend(others);
    }
    trust
}

fn trust_of(accepted: &Accepted) -> Vec<String> {
    let root = accepted.notary.root();
    let vendor = format!(
        "the maker of the notary's TEE (root {} {}) and that the TEE holds",
        root.kind.as_str(),
        hex::encode(root.sha256)
    );
    let program = "the notary's measured program: it saw the plaintext and parsed the fields";
    let configuration = match accepted.is_configuration_known {
        true => {
            "the notary's configuration that the policy names: the roots by which it judged the host"
        }
        false => {
            "the notary's operator for the roots by which it judged the host: its configuration was \
             NOT compared, so the host may be anybody"
        }
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
            "whoever made this for what was asked and how it was answered: {} not shown",
            hidden.join(", ")
        ));
    }
    if accepted.any_host {
        trust.push("that this host is the one you meant: the policy names none".into());
    }
    trust
}

fn shown_json(accepted: &Accepted) -> Value {
    let fields = accepted.verified.fields().iter().map(|field| {
        json!({ "name": field.path, "kind": field.kind.as_str(), "value": value_json(field) })
    });
    let bytes = accepted.verified.bytes().iter().map(|(direction, piece)| {
        let (start, end) = (piece.start, piece.start + piece.bytes.len() as u64);
        json!({
            "name": format!("{}.bytes:{start}-{end}", direction.as_str()),
            "kind": "bytes",
            "value": hex::encode(&piece.bytes),
        })
    });
    let lengths = accepted.verified.lengths().iter().map(|(direction, length)| {
        json!({
            "name": format!("{}.length", direction.as_str()), "kind": "length", "value": length,
        })
    });
    fields.chain(bytes).chain(lengths).collect()
}

/// Numbers stay text: a reader's floats would round them.
fn value_json(field: &ShownField) -> Value {
    match field.kind {
        FieldKind::Null => Value::Null,
        FieldKind::Bool => (field.value == b"true").into(),
        FieldKind::Octets => hex::encode(&field.value).into(),
        FieldKind::Object => names(&field.value).into(),
        _ => String::from_utf8_lossy(&field.value).into(),
    }
}

fn value_words(field: &ShownField) -> String {
    let text = String::from_utf8_lossy(&field.value);
    match field.kind {
        FieldKind::Null => "null".into(),
        FieldKind::Bool | FieldKind::Number => printable(&text),
        FieldKind::String => format!("\"{}\"", printable(&text)),
        FieldKind::Array => format!("an array of {}", printable(&text)),
        FieldKind::Object => {
            let quoted = |name: &String| format!("\"{}\"", printable(name));
            let names: Vec<String> = names(&field.value).iter().map(quoted).collect();
            format!("an object with the members [{}] and no others", names.join(", "))
        }
        FieldKind::Octets => format!("octets {}", hex::encode(&field.value)),
    }
}

/// The member names of an object's value, each after its length.
fn names(mut value: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while let Some((length, rest)) = value.split_first_chunk() {
        let length = (u32::from_be_bytes(*length) as usize).min(rest.len());
        names.push(String::from_utf8_lossy(&rest[..length]).into());
        value = &rest[length..];
    }
    names
}

pub(super) fn claim_words(claim: &ProvenClaim) -> (String, String) {
    let contains = |text: &str| format!("\"{}\"", printable(text));
    match &claim.fact {
        Fact::Compare { path, kind, comparison } => (path.clone(), comparison.describe(*kind)),
        Fact::BytesContain { direction, text } => {
            let path = format!("{}.bytes", direction.as_str());
            (path, format!("contains {}", contains(text)))
        }
        Fact::FieldContains { path, text } => {
            (path.clone(), format!("contains {}", contains(text)))
        }
        Fact::FieldSha256 { path, sha256 } => {
            (format!("sha256({path})"), format!("== {}", hex::encode(sha256)))
        }
        Fact::Equal { path, other, in_other_session } => {
            let whose = if *in_other_session { "other." } else { "" };
            (path.clone(), format!("== {whose}{}", name_words(other)))
        }
    }
}

fn proof_words(security: &Security) -> String {
    let Security { back_end, proven_bits, conjectured_bits, zero_knowledge, .. } = security;
    let hides = if *zero_knowledge { "yes" } else { "no" };
    let proven = proven_bits.map_or("none".into(), |bits| format!("{bits} bits"));
    format!(
        "{back_end}; zero-knowledge: {hides}; {proven} proven, about {conjectured_bits} bits \
         conjectured"
    )
}

fn proven_json(claim: &ProvenClaim) -> Value {
    let (name, what) = claim_words(claim);
    let Security { back_end, proven_bits, conjectured_bits, basis, zero_knowledge } =
        claim.security;
    json!({
        "name": name,
        "predicate": what,
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

/// A name for a terminal. One that could be read as more than a name, since it holds a blank or a
/// sign of a predicate, stands in quotation marks.
pub(super) fn name_words(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\=<>".contains(&byte);
    match name.bytes().all(plain) {
        true => name.into(),
        false => format!("\"{}\"", printable(name)),
    }
}

/// Text for a terminal: whatever could move its cursor, turn its direction or is not seen is
/// escaped.
fn printable(text: &str) -> String {
    let turns = |c: char| {
        matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    let mut printable = String::new();
    for character in text.chars() {
        match character {
            '"' | '\\' => printable.extend(['\\', character]),
            c if c.is_control() || turns(c) => printable.extend(c.escape_default()),
            c => printable.push(c),
        }
    }
    printable
}
