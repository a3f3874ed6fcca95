//! Compares documents with the source: docs/versions.md, docs/threat-model.md, and the numbers of
//! cases in docs/gateway.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use confide_tests::{
    checkout, files_under,
    framing::{answer_cases, request_cases},
};

/// A row's name, the version that this program writes, and the declaration that says so.
const WRITTEN: &[(&str, &str, &str, &str)] = &[
    (
        "attested channel, session binding",
        "2",
        "crates/channel/src/options.rs",
        "const SESSION_2: &str = \"confide-session/2\";",
    ),
    (
        "session binding with exported authenticators",
        "3",
        "crates/channel/src/options.rs",
        "const SESSION_3: &str = \"confide-session/3\";",
    ),
    (
        "claims that evidence binds",
        "1",
        "crates/evidence/src/claims.rs",
        "const CLAIMS_VERSION: u64 = 1;",
    ),
    (
        "batch path of a session's evidence",
        "1",
        "crates/evidence/src/batch.rs",
        "const BATCH_VERSION: u8 = 1;",
    ),
    (
        "fresh evidence in an open session",
        "1",
        "crates/evidence/src/binder.rs",
        "const RENEWAL_DOMAIN: &[u8] = b\"confide renewal v1\\0\";",
    ),
    (
        "GPU evidence",
        "1",
        "crates/evidence/src/gpu/container.rs",
        "const FORMAT: &str = \"confide gpu evidence v1\";",
    ),
    (
        "configuration of the gateway, as it is hashed",
        "5",
        "crates/gateway/src/configuration.rs",
        "const FORM_VERSION: u32 = 5;",
    ),
    (
        "configuration of the notary, as it is hashed",
        "1",
        "crates/notary/src/policy.rs",
        "const FORM_VERSION: u32 = 1;",
    ),
    ("blind protocol", "1", "crates/lora/src/protocol/version.rs", "pub const VERSION: u16 = 1;"),
    ("ring keys and ciphertexts", "1", "crates/rlwe/src/wire.rs", "const VERSION: u8 = 1;"),
    (
        "fetch request to a notary",
        "1",
        "crates/notary/src/request_error.rs",
        "pub(crate) const VERSION: u32 = 1;",
    ),
    (
        "worker's line protocol",
        "1",
        "crates/worker/src/message.rs",
        "pub(crate) const PROTOCOL: u32 = 1;",
    ),
    (
        "`confide-prover`'s line protocol",
        "1",
        "crates/prover/src/line.rs",
        "pub const PROTOCOL: u32 = 1;",
    ),
    (
        "arm protocol of the bench",
        "1",
        "bench/harness/src/protocol.rs",
        "pub(crate) const PROTOCOL: u32 = 1;",
    ),
    (
        "attestation report and receipt",
        "1",
        "crates/receipt/src/document.rs",
        "pub const API_VERSION: &str = \"aci/1\";",
    ),
    (
        "encrypted bodies",
        "1",
        "crates/encrypted-body/src/fields.rs",
        "Self::FinalFrame => b\"ehbp request\\0confide final-frame\",",
    ),
    (
        "attestation result",
        "1",
        "crates/attestation-service/src/result.rs",
        "pub(crate) const PROFILE: &str = \"tag:confide,2026:attestation-result#1\";",
    ),
    (
        "proof of a zkVM",
        "1",
        "crates/prover/src/file.rs",
        "pub const MAGIC: &[u8] = b\"confide proof v1\\n\";",
    ),
    (
        "proof of a signature",
        "1",
        "crates/sigma/src/signature_file.rs",
        "pub const SIGNATURE_PROOF_MAGIC: &[u8] = b\"confide sigma v1\\n\";",
    ),
    (
        "circuit proof",
        "1",
        "crates/circuits/src/proof.rs",
        "const MAGIC: &[u8; 24] = b\"confide circuit proof v1\";",
    ),
    (
        "input of the DCAP guest",
        "1",
        "crates/prover/src/dcap.rs",
        "const MAGIC: &[u8; 16] = b\"confide/dcap/v1\\n\";",
    ),
    (
        "notary's statement",
        "2",
        "crates/disclosure/src/statement.rs",
        "const MAGIC: &[u8] = b\"confide/notary-statement/v2\\0\";",
    ),
    (
        "holder's file of a notarised session",
        "1",
        "crates/disclosure/src/session.rs",
        "pub const HOLDER_MAGIC: &[u8] = b\"confide notarised v1\\n\";",
    ),
    (
        "disclosure",
        "1",
        "crates/disclosure/src/disclosure.rs",
        "pub const DISCLOSURE_MAGIC: &[u8] = b\"confide disclosure v1\\n\";",
    ),
    (
        "excerpt of a receipt",
        "1",
        "crates/transcript/src/excerpt.rs",
        "pub const EXCERPT_MAGIC: &[u8] = b\"confide excerpt v1\\n\";",
    ),
    (
        "record of the bench",
        "3",
        "bench/harness/src/record.rs",
        "pub(crate) const SCHEMA: u32 = 3;",
    ),
    ("event log of the load generator", "1", "bench/load/src/log.rs", "const VERSION: u32 = 1;"),
    (
        "store of collateral",
        "01",
        "crates/collateral/src/store.rs",
        "const MAGIC: &[u8; 8] = b\"CFDSTR01\";",
    ),
    (
        "document in Tinfoil's form",
        "3",
        "crates/receipt/src/tinfoil_form.rs",
        "const FORMAT: &str = \"https://tinfoil.sh/predicate/attestation/v3\";",
    ),
    (
        "manifest of a model",
        "1",
        "crates/engine/src/text/manifest.rs",
        "if manifest.version != 1 {",
    ),
];

/// Formats without a number of their own, and those whose number is that of their migrations.
const WITHOUT_A_CONSTANT: &[&str] = &[
    "attested channel, key binding or none",
    "encapsulated requests",
    "report and signature in dstack's form",
    "index of records",
    "database of the collateral service",
    "counts of an adapter's answers",
    "usage file of the gateway",
];

#[test]
fn the_versions_in_the_document_are_those_of_the_source() {
    let mut rows = read_version_rows();
    for (name, version, file, declaration) in WRITTEN {
        let source = fs::read_to_string(checkout().join(file)).unwrap();
        let is_there = source.lines().any(|line| line.trim() == *declaration);
        assert!(is_there, "{file} has no line `{declaration}`");
        let cells = rows.remove(*name).unwrap_or_else(|| panic!("no row `{name}`"));
        assert_eq!(cells[1], *version, "the written version in the row `{name}`");
    }
    for name in WITHOUT_A_CONSTANT {
        assert!(rows.remove(*name).is_some(), "no row `{name}`");
    }
    assert!(rows.is_empty(), "rows that nothing compares: {:?}", rows.keys());
}

/// The rows by name, each with its cells: what carries the version, the one written, those read, and
/// what happens to others.
fn read_version_rows() -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(checkout().join("docs/versions.md")).unwrap();
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let rows = text.lines().filter(|line| line.starts_with("| ")).map(cells);
    rows.filter(|row| row[0] != "format" && row[0] != "---")
        .map(|mut row| {
            assert_eq!(row.len(), 5, "a row of five cells: {row:?}");
            let name = row.remove(0);
            (name.split(" ([").next().unwrap_or_default().to_owned(), row)
        })
        .collect()
}

#[test]
fn every_test_that_the_threat_model_names_exists() {
    let text = fs::read_to_string(checkout().join("docs/threat-model.md")).unwrap();
    let named: BTreeSet<&str> = text.split('`').skip(1).step_by(2).filter(is_test_name).collect();
    assert!(named.len() > 40, "only {} tests are named", named.len());
    let sources: Vec<String> = ["crates", "zkvm", "python"]
        .iter()
        .flat_map(|folder| files_under(folder, &[".rs", ".py"]))
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    let is_defined = |name: &str| {
        let definition = format!("fn {name}(");
        sources.iter().any(|source| is_test(source, &definition))
    };
    let missing: Vec<_> = named.into_iter().filter(|name| !is_defined(name)).collect();
    assert!(missing.is_empty(), "tests that are not there: {missing:?}");
    let without: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("## What each binding"))
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"))
        .filter(|line| !line.ends_with("| test |"))
        .filter(|line| !line.split('`').skip(1).step_by(2).any(|name| is_test_name(&name)))
        .collect();
    assert!(without.is_empty(), "rows without a test: {without:#?}");
}

#[test]
fn the_numbers_of_malformed_messages_in_the_document_are_those_of_the_vectors() {
    let text = fs::read_to_string(checkout().join("docs/gateway.md")).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = format!(
        "`vectors/http` lists {} malformed or ambiguous requests and {} answers",
        request_cases().len(),
        answer_cases().len()
    );
    assert!(text.contains(&wanted), "docs/gateway.md does not say: {wanted}");
}

/// Whether the source defines a test like this: an attribute right above the definition names a test.
fn is_test(source: &str, definition: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let defined = lines.iter().enumerate().filter(|(_, line)| line.contains(definition));
    defined.into_iter().any(|(line, _)| {
        let above = lines[..line].iter().rev().take_while(|line| line.starts_with("#["));
        above.into_iter().any(|line| line.starts_with("#[test") || line.contains("::test"))
    })
}

/// Whether a name is a test's: words joined by three underscores or more; keys of policies have fewer.
fn is_test_name(name: &&str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.matches('_').count() >= 3 && name.bytes().all(is_word)
}
