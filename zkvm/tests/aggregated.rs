//! Aggregated proofs. Making one takes minutes, so one is committed; making it again is left to
//! `make long` (`cargo test --release -- --ignored`).

mod prover;

use std::fs;

use confide_prover::line::{Phase, RefusalReason};
use prover::{Answer, Body, Folder, fibonacci, repository, run};

/// An aggregated proof of the tenth Fibonacci number.
const PROOF: &str = "zkvm/tests/data/fibonacci-10.aggregated";

/// What the report of the study promises of its size, whatever was proved.
const BYTES_MAX: usize = 270_000;

/// Bytes of the body that are flipped, one at a time, spread over all of it.
const FLIPS: usize = 40;

#[test]
fn an_aggregated_proof_is_small_and_holds() {
    let body = committed_proof();
    assert!(body.len() <= BYTES_MAX, "{} bytes", body.len());
    let checked = check("fibonacci", &body).into_result();
    let folder = Folder::new();
    let input = folder.file("input", &fibonacci(10));
    let native = run(&[
        "native",
        "--guest",
        "fibonacci",
        "--input",
        &input,
        "--out",
        &folder.path("statement"),
    ]);
    let native = native.into_result();
    assert_eq!(checked.public_values, native.public_values);
    assert_eq!(checked.program_digest, native.program_digest);
    assert!(checked.strength.unwrap().proven_bits >= 100);
    assert_eq!(checked.segments, None, "an aggregated proof does not show them");
}

#[test]
fn a_changed_aggregated_proof_is_refused() {
    let whole = committed_proof();
    for i in 0..FLIPS {
        let place = i * whole.len() / FLIPS + i % 7;
        let mut forged = whole.clone();
        forged[place] ^= 1 << (i % 8);
        assert_ne!(check_refused("fibonacci", &forged), RefusalReason::Fault, "byte {place}");
    }
    let mut forged = Body::cut(&whole);
    let end = forged.public_values.len() - 32;
    forged.public_values[end - 4 * 32] ^= 1;
    assert_eq!(check_refused("fibonacci", &forged.join()), RefusalReason::PublicValues);
    assert_eq!(check_refused("sort", &whole), RefusalReason::AnotherProgram);
    assert_eq!(
        check_refused("fibonacci", &whole[..whole.len() - 1]),
        RefusalReason::MalformedProof
    );
}

#[test]
fn an_aggregated_proof_that_names_another_program_is_still_of_its_own() {
    let mut forged = Body::cut(&committed_proof());
    // The name of `sort` is taken from the commitments that are built in.
    let text = fs::read_to_string(repository("zkvm/keys/programs.json")).unwrap();
    let records: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let sort = records.iter().find(|record| record["claim"] == "sort").unwrap();
    let executable = sort["executable"].as_str().unwrap();
    for (at, byte) in forged.head[48..80].iter_mut().enumerate() {
        *byte = u8::from_str_radix(&executable[2 * at..2 * at + 2], 16).unwrap();
    }
    assert_eq!(check_refused("sort", &forged.join()), RefusalReason::AnotherProgram);
}

#[test]
#[ignore = "it takes minutes; CONFIDE_KEEP_PROOF=1 also replaces the committed one"]
fn an_aggregated_proof_is_made() {
    let folder = Folder::new();
    let input = folder.file("input", &fibonacci(10));
    let out = folder.path("proof");
    let arguments = ["prove", "--guest", "fibonacci", "--input", &input, "--out", &out];
    let answer = run(&[&arguments[..], &["--mode", "aggregated"]].concat());
    let joined = answer.progress.iter().filter(|p| p.phase == Phase::Aggregate).count();
    assert_eq!(joined, 3);
    let made = fs::read(&out).unwrap();
    check("fibonacci", &made).into_result();
    if std::env::var("CONFIDE_KEEP_PROOF").is_ok() {
        fs::write(repository(PROOF), made).unwrap();
    }
}

fn committed_proof() -> Vec<u8> {
    fs::read(repository(PROOF)).expect("the committed proof")
}

fn check_refused(guest: &str, body: &[u8]) -> RefusalReason {
    check(guest, body).into_refusal().why
}

fn check(guest: &str, body: &[u8]) -> Answer {
    let folder = Folder::new();
    let file = folder.file("proof", body);
    run(&["check", "--guest", guest, "--proof", &file, "--mode", "aggregated"])
}
