//! Everything that is linked has a licence that permits use, change and distribution without patent claims.

use std::process::Command;

use confide_tests::checkout;
use serde_json::Value;

/// Licences that may be linked. One alternative of an `OR` suffices; every part of an `AND` has to be listed.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "BlueOak-1.0.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "OpenSSL",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages of which no byte is in a released program, each with its reason.
const NOT_LINKED: &[(&str, &str)] = &[
    ("libfuzzer-sys", "NCSA next to its own; only the fuzz targets have it"),
    ("option-ext", "MPL-2.0; it comes with `sev`, which only tests use, as a peer"),
];

/// Packages that name a file instead of a licence, with what stands in it.
const NAMED_BY_FILE: &[(&str, &str)] = &[("spartan2", "MIT")];

#[test]
fn everything_linked_has_a_permissive_licence() {
    let mut refused = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap_or("?");
        if NOT_LINKED.iter().any(|(package, _)| *package == name) {
            continue;
        }
        let by_file = NAMED_BY_FILE.iter().find(|(package, _)| *package == name);
        let by_file = by_file.filter(|_| package["license_file"].is_string()).map(|(_, it)| *it);
        let licence = package["license"].as_str().or(by_file).unwrap_or("none named");
        if !permits(licence) {
            refused.push(format!("{name}: {licence}"));
        }
    }
    assert!(refused.is_empty(), "licences outside the list: {refused:#?}");
}

#[test]
fn a_peer_that_is_built_when_asked_for_has_no_licence_that_reaches_further_than_its_files() {
    // This test does not fetch 500 packages: it runs where `make peers-sp1` has fetched them.
    let Some(packages) = packages_of(PEER, &["--offline"]) else {
        println!("skipped: {PEER} is not fetched");
        return;
    };
    let licence = |package: &Value| package["license"].as_str().unwrap_or_default().to_owned();
    let refused =
        packages.iter().map(licence).filter(|licence| !permits(licence) && licence != "MPL-2.0");
    assert_eq!(refused.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn copyleft_is_refused() {
    assert!(!permits("AGPL-3.0-only"));
    assert!(!permits("MIT AND GPL-3.0-or-later"));
    assert!(!permits("BUSL-1.1"));
    assert!(permits("GPL-2.0 OR MIT"));
    assert!(permits("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(permits("MIT/Apache-2.0"));
}

/// The workspaces whose programs people run: ours, the guests, and their prover.
const WORKSPACES: &[&str] = &["", "guests", "guests/dcap", "web", "zkvm"];

/// The workspace of SP1. Its assembler `dynasm` has MPL-2.0; we ship none of it.
const PEER: &str = "bench/peers/sp1";

/// Every package of the lock files, as `cargo metadata` describes it.
fn packages() -> Vec<Value> {
    let all = |folder: &&str| packages_of(folder, &[]).expect("cargo metadata");
    WORKSPACES.iter().flat_map(all).collect()
}

/// The packages of one workspace; `None` if cargo fails, whose reason is printed.
fn packages_of(folder: &str, more: &[&str]) -> Option<Vec<Value>> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(more)
        .current_dir(checkout().join(folder))
        .output()
        .expect("cargo runs");
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    Some(metadata["packages"].as_array().expect("metadata lists packages").clone())
}

/// Whether an SPDX expression leaves a way through [`ALLOWED`]. Brackets, AND, OR; `/` is an old OR.
fn permits(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let answer = allows_any(&words, &mut at);
    answer && at == words.len()
}

fn allows_any(words: &[&str], at: &mut usize) -> bool {
    let mut answer = allows_all(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        answer |= allows_all(words, at);
    }
    answer
}

fn allows_all(words: &[&str], at: &mut usize) -> bool {
    let mut answer = allows_name(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        answer &= allows_name(words, at);
    }
    answer
}

fn allows_name(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let answer = allows_any(words, at);
        *at += 1;
        return answer;
    }
    let mut name = (*word).to_string();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", words.get(*at + 1).unwrap_or(&"?"));
        *at += 2;
    }
    ALLOWED.contains(&name.as_str())
}
