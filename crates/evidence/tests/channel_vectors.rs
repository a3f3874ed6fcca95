//! The vectors of `vectors/channel`, which other programs wrote from `docs/channel.md` and
//! `docs/channel-3.md`.

use std::{fmt::Debug, fs, path::Path};

use confide_evidence::{
    ReportData,
    batch::{BatchPath, BatchTree, Leaf},
    binder::{
        Role, key_gpu_nonce, key_report_data, renewed_exporter, session_gpu_nonce,
        session_report_data,
    },
    claims::Claims,
    cmw::parse_cmw,
    session_message::{SessionEvidence, SessionMessage},
    session_message_3::{AuthenticatedEvidence, SessionMessage3},
    tagged_evidence::{TaggedCollateral, TaggedEvidence},
    weights_claim::{MeasuredWeights, WeightsClaim, WeightsSource},
};
use serde_json::Value;
use sha2::{Digest, Sha256, Sha512};

#[test]
fn claims_read_and_encode_as_the_vectors_say() {
    for case in cases("claims.json") {
        let bytes = bytes(&case["bytes"]);
        let read = Claims::decode(&bytes);
        if !refused_as_wanted(&case, &read) {
            let claims = claims(&case["claims"]);
            assert_eq!(read, Ok(claims.clone()), "{}", case["name"]);
            assert_eq!(claims.encode(), bytes, "{}", case["name"]);
        }
    }
}

#[test]
fn tagged_evidence_reads_and_encodes_as_the_vectors_say() {
    for case in cases("tagged_evidence.json") {
        let content = bytes(&case["bytes"]);
        if case.get("collateral").is_some() {
            let collateral = bytes(&case["collateral"]);
            let wanted = TaggedCollateral { collateral: &collateral };
            assert_eq!(TaggedCollateral::decode(&content), Ok(wanted));
            assert_eq!(wanted.encode(), content);
            continue;
        }
        let read = TaggedEvidence::decode(&content);
        if !refused_as_wanted(&case, &read) {
            let (quote, claims) = (bytes(&case["quote"]), bytes(&case["claims"]));
            let wanted = TaggedEvidence { quote: &quote, claims: &claims };
            assert_eq!(read, Ok(wanted), "{}", case["name"]);
            assert_eq!(wanted.encode(), content, "{}", case["name"]);
        }
    }
}

#[test]
fn binders_are_what_the_vectors_say() {
    for case in cases("binder.json") {
        let claims = bytes(&case["claims"]);
        let bound = match case["role"].as_str() {
            None => key_report_data(&claims),
            Some(role) => {
                let role = if role == "server" { Role::Server } else { Role::Client };
                let (spki_hash, exporter) = (digest(&case["spki_hash"]), digest(&case["exporter"]));
                session_report_data(role, &spki_hash, &exporter, &claims)
            }
        };
        assert_eq!(bound.0.to_vec(), bytes(&case["report_data"]), "{}", case["name"]);
    }
}

#[test]
fn gpu_nonces_are_what_the_vectors_say() {
    for case in cases("gpu_nonce.json") {
        let role = if case["role"] == "server" { Role::Server } else { Role::Client };
        let spki_hash = digest(&case["spki_hash"]);
        let nonce = match case["exporter"].as_str() {
            None => key_gpu_nonce(role, &spki_hash),
            Some(_) => session_gpu_nonce(role, &spki_hash, &digest(&case["exporter"])),
        };
        assert_eq!(nonce, digest(&case["nonce"]), "{}", case["name"]);
    }
}

#[test]
fn renewed_exporters_are_what_the_vectors_say() {
    for case in cases("renewal.json") {
        let exporter = renewed_exporter(&digest(&case["secret"]), &digest(&case["context"]));
        assert_eq!(exporter, digest(&case["exporter"]), "{}", case["name"]);
    }
}

#[test]
fn session_messages_read_and_encode_as_the_vectors_say() {
    for case in cases("session_message.json") {
        let content = bytes(&case["bytes"]);
        let read = SessionMessage::decode(&content);
        if refused_as_wanted(&case, &read) {
            continue;
        }
        let message = read.expect("the message is readable");
        assert_eq!(message.encode(), content, "{}", case["name"]);
        let context = optional(&case["context"]);
        let (kind, got_context, evidence) = match message {
            SessionMessage::Request { context } => ("request", context, None),
            SessionMessage::Reply { context, evidence } => ("reply", context, evidence),
            SessionMessage::Evidence(evidence) => ("evidence", None, Some(evidence)),
            SessionMessage::Accepted => ("accepted", None, None),
            SessionMessage::Refused(refusal) => {
                assert_eq!(case["code"].as_u64(), Some(refusal.code()));
                ("refused", None, None)
            }
        };
        assert_eq!(case["kind"].as_str(), Some(kind));
        assert_eq!(got_context.map(Vec::from), context);
        assert_evidence(&case["evidence"], evidence);
    }
}

#[test]
fn session_messages_of_version_3_read_and_encode_as_the_vectors_say() {
    for case in cases("session_message_3.json") {
        let content = bytes(&case["bytes"]);
        let read = SessionMessage3::decode(&content);
        if refused_as_wanted(&case, &read) {
            continue;
        }
        let message = read.expect("the message is readable");
        assert_eq!(message.encode(), content, "{}", case["name"]);
        let (kind, request, evidence) = match message {
            SessionMessage3::Request { request } => ("request", request, None),
            SessionMessage3::Reply { request, evidence } => ("reply", request, evidence),
            SessionMessage3::Evidence(evidence) => ("evidence", None, Some(evidence)),
            SessionMessage3::Accepted => ("accepted", None, None),
            SessionMessage3::Refused(refusal) => {
                assert_eq!(case["code"].as_u64(), Some(refusal.code()));
                ("refused", None, None)
            }
        };
        assert_eq!(case["kind"].as_str(), Some(kind), "{}", case["name"]);
        assert_eq!(request.map(Vec::from), optional(&case["request"]), "{}", case["name"]);
        let wanted = &case["evidence"];
        let Some(AuthenticatedEvidence { authenticator, collateral, gpu }) = evidence else {
            assert!(wanted.is_null(), "{}", case["name"]);
            continue;
        };
        assert_eq!(authenticator, bytes(&wanted["authenticator"]), "{}", case["name"]);
        assert_eq!(collateral.map(Vec::from), optional(&wanted["collateral"]), "{}", case["name"]);
        assert_eq!(gpu.map(Vec::from), optional(&wanted["gpu"]), "{}", case["name"]);
    }
}

#[test]
fn batches_are_what_the_vectors_say() {
    for case in cases("batch.json") {
        let Some(size) = case["leaves"].as_u64() else {
            let read = BatchPath::decode(&bytes(&case["bytes"]));
            assert!(refused_as_wanted(&case, &read));
            continue;
        };
        let leaf = |n| Leaf {
            binder: ReportData(Sha512::digest(format!("binder {n}")).into()),
            salt: Sha256::digest(format!("salt {n}")).into(),
        };
        let leaves: Vec<Leaf> = (0..size).map(leaf).collect();
        let tree = BatchTree::new(&leaves).expect("the size is within bounds");
        assert_eq!(tree.report_data().0.to_vec(), bytes(&case["report_data"]), "{}", case["name"]);
        for shown in case["paths"].as_array().expect("it holds paths") {
            let index = shown["index"].as_u64().expect("a number") as usize;
            let path = BatchPath::decode(&bytes(&shown["bytes"])).expect("the path is readable");
            assert_eq!(tree.path(index).as_ref(), Some(&path), "{}", case["name"]);
            assert_eq!(path.encode(), bytes(&shown["bytes"]), "{}", case["name"]);
            assert_eq!(path.root_report_data(&leaves[index].binder), tree.report_data());
        }
    }
}

#[test]
fn wrappers_read_as_the_vectors_say() {
    for case in cases("cmw.json") {
        let read = parse_cmw(&bytes(&case["bytes"]));
        if refused_as_wanted(&case, &read) {
            continue;
        }
        let encoded = read.expect("the wrapper is readable").encode();
        assert_eq!(encoded, bytes(&case["encoded"]), "{}", case["name"]);
        assert!(encoded.len() <= bytes(&case["bytes"]).len(), "{}", case["name"]);
        assert_eq!(parse_cmw(&encoded).map(|read| read.encode()), Ok(encoded), "{}", case["name"]);
    }
}

fn assert_evidence(wanted: &Value, got: Option<SessionEvidence<'_>>) {
    let Some(got) = got else {
        return assert!(wanted.is_null());
    };
    assert_eq!(got.quote, bytes(&wanted["quote"]));
    assert_eq!(got.claims, bytes(&wanted["claims"]));
    assert_eq!(got.collateral.map(Vec::from), optional(&wanted["collateral"]));
    assert_eq!(got.batch.map(Vec::from), optional(&wanted["batch"]));
    assert_eq!(got.gpu.map(Vec::from), optional(&wanted["gpu"]));
}

/// Whether the case is one of rejection; the reason is the variant's name in snake case.
fn refused_as_wanted<T: Debug, E: Debug>(case: &Value, read: &Result<T, E>) -> bool {
    let Some(wanted) = case["error"].as_str() else { return false };
    let error = read.as_ref().err().unwrap_or_else(|| panic!("{} was read", case["name"]));
    let variant = format!("{error:?}");
    let variant = variant.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let mut snake = String::new();
    for c in variant.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    assert_eq!(snake, wanted, "{}", case["name"]);
    true
}

fn cases(file: &str) -> Vec<Value> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/channel"));
    let text = fs::read_to_string(folder.join(file)).expect("the vector file is there");
    let file: Value = serde_json::from_str(&text).expect("the vector file is JSON");
    file["cases"].as_array().expect("it holds cases").clone()
}

fn claims(fields: &Value) -> Claims {
    Claims {
        config_digest: digest(&fields["config-digest"]),
        gpu_evidence_hash: optional(&fields["gpu-evidence-hash"])
            .map(|hash| hash.try_into().expect("32 bytes")),
        guarantee: fields["guarantee"].as_str().expect("a text").into(),
        nonce: optional(&fields["nonce"]),
        not_after: fields["not-after"].as_u64().expect("a number"),
        not_before: fields["not-before"].as_u64().expect("a number"),
        pubkey_hash: digest(&fields["pubkey-hash"]),
        weights: fields["weights"].as_array().and_then(|weights| {
            let source = WeightsSource::HashedAtStart;
            let measured = |value| MeasuredWeights { source, digest: digest(value) };
            let is_measured = |value: &Value| !value.is_null();
            WeightsClaim::from_servers(
                weights.iter().map(|value| is_measured(value).then(|| measured(value))),
            )
        }),
    }
}

fn digest(value: &Value) -> [u8; 32] {
    bytes(value).try_into().expect("32 bytes")
}

fn optional(value: &Value) -> Option<Vec<u8>> {
    (!value.is_null()).then(|| bytes(value))
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().expect("a hex text")).expect("hex")
}
