//! Proofs that were changed. None may pass, and each is refused by its name.

mod prover;

use std::{fs, sync::OnceLock};

use confide_prover::line::RefusalReason;
use prover::{Answer, Body, Folder, fibonacci, run, sort};

/// Memory that cuts the run below into several segments.
const MEMORY: &str = "1543503872";

/// Bytes of the body that are flipped, one at a time, spread over all of it.
const FLIPS: usize = 48;

#[test]
fn the_proof_that_is_forged_below_is_a_good_one() {
    let done = check("sort", &proof().join()).into_result();
    assert_eq!(done.segments, Some(proof().segments.len() as u32));
    assert!(proof().segments.len() >= 3, "{} segments", proof().segments.len());
}

#[test]
fn a_changed_public_value_is_refused() {
    let mut forged = proof().clone();
    // The path comes first, then the values: each of the 32 is a word, and the root follows.
    let end = forged.public_values.len() - 32;
    forged.public_values[end - 4 * 32] ^= 1;
    assert_eq!(check_refused("sort", &forged.join()), RefusalReason::PublicValues);
    // A value above 255 is not a byte, whatever it is equal to.
    let mut forged = proof().clone();
    forged.public_values[end - 4 * 32 + 1] = 1;
    assert_eq!(check_refused("sort", &forged.join()), RefusalReason::PublicValues);
}

#[test]
fn a_dropped_segment_is_refused() {
    for place in 0..proof().segments.len() {
        let mut forged = proof().clone();
        forged.segments.remove(place);
        assert_eq!(
            check_refused("sort", &forged.join()),
            RefusalReason::Segments,
            "without {place}"
        );
    }
    let mut forged = proof().clone();
    forged.segments.clear();
    assert_eq!(check_refused("sort", &forged.join()), RefusalReason::MalformedProof);
}

#[test]
fn swapped_and_doubled_segments_are_refused() {
    let last = proof().segments.len() - 1;
    for (a, b) in [(0, 1), (0, last), (last - 1, last)] {
        let mut forged = proof().clone();
        forged.segments.swap(a, b);
        assert_eq!(check_refused("sort", &forged.join()), RefusalReason::Segments, "{a} and {b}");
    }
    for place in [0, last] {
        let mut forged = proof().clone();
        forged.segments.insert(place, proof().segments[place].clone());
        assert_eq!(check_refused("sort", &forged.join()), RefusalReason::Segments, "{place} twice");
    }
}

#[test]
fn parts_of_another_run_of_the_same_program_are_refused() {
    let other = make_proof(501);
    assert_eq!(other.segments.len(), proof().segments.len());
    for place in 0..other.segments.len() {
        let mut forged = proof().clone();
        forged.segments[place].clone_from(&other.segments[place]);
        assert_eq!(
            check_refused("sort", &forged.join()),
            RefusalReason::Segments,
            "segment {place}"
        );
    }
    // What the other run revealed, next to this one's segments.
    let mut forged = proof().clone();
    forged.public_values.clone_from(&other.public_values);
    assert_eq!(check_refused("sort", &forged.join()), RefusalReason::PublicValues);
}

#[test]
fn a_flipped_byte_is_refused_wherever_it_is() {
    let whole = proof().join();
    for i in 0..FLIPS {
        let place = i * whole.len() / FLIPS + i % 7;
        let mut forged = whole.clone();
        forged[place] ^= 1 << (i % 8);
        let why = check_refused("sort", &forged);
        assert_ne!(why, RefusalReason::Fault, "byte {place}");
    }
}

#[test]
fn what_is_no_body_is_refused() {
    let whole = proof().join();
    for length in [0, 15, 16, 79, 80, 84, 1000, whole.len() / 2, whole.len() - 1] {
        assert_eq!(
            check_refused("sort", &whole[..length]),
            RefusalReason::MalformedProof,
            "{length} bytes"
        );
    }
    let longer = [whole.as_slice(), &[0]].concat();
    assert_eq!(check_refused("sort", &longer), RefusalReason::MalformedProof);
    // A count that no file can hold must not be believed.
    let mut forged = whole;
    forged[80..84].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(check_refused("sort", &forged), RefusalReason::MalformedProof);
}

#[test]
fn a_proof_of_another_program_is_refused() {
    let folder = Folder::new();
    let input = folder.file("input", &fibonacci(3));
    let out = folder.path("proof");
    run(&["prove", "--guest", "fibonacci", "--input", &input, "--out", &out, "--mode", "app"])
        .into_result();
    let other = fs::read(out).unwrap();
    assert_eq!(check_refused("sort", &other), RefusalReason::AnotherProgram);
    assert_eq!(check_refused("fibonacci", &proof().join()), RefusalReason::AnotherProgram);
    // It says that it is of `sort`, and is not.
    let mut forged = Body::cut(&other);
    forged.head.clone_from(&proof().head);
    assert_eq!(check_refused("sort", &forged.join()), RefusalReason::AnotherProgram);
    // Its segment among those of the other.
    let mut mixed = proof().clone();
    mixed.segments[1].clone_from(&forged.segments[0]);
    assert_eq!(check_refused("sort", &mixed.join()), RefusalReason::AnotherProgram);
}

#[test]
fn other_parameters_are_refused() {
    let mut forged = proof().clone();
    forged.head[16] ^= 1;
    assert_eq!(check_refused("sort", &forged.join()), RefusalReason::Parameters);
}

#[test]
fn a_proof_of_one_mode_is_none_of_the_other() {
    let folder = Folder::new();
    let file = folder.file("proof", &proof().join());
    let answer = run(&["check", "--guest", "sort", "--proof", &file, "--mode", "aggregated"]);
    assert_eq!(answer.into_refusal().why, RefusalReason::MalformedProof);
}

/// A proof of several segments, made once.
fn proof() -> &'static Body {
    static PROOF: OnceLock<Body> = OnceLock::new();
    PROOF.get_or_init(|| make_proof(500))
}

fn make_proof(place: u32) -> Body {
    let folder = Folder::new();
    let input = folder.file("input", &sort(2500, place));
    let out = folder.path("proof");
    let arguments = ["prove", "--guest", "sort", "--input", &input, "--out", &out];
    run(&[&arguments[..], &["--mode", "app", "--memory", MEMORY]].concat()).into_result();
    Body::cut(&fs::read(out).expect("a proof"))
}

fn check_refused(guest: &str, body: &[u8]) -> RefusalReason {
    check(guest, body).into_refusal().why
}

fn check(guest: &str, body: &[u8]) -> Answer {
    let folder = Folder::new();
    let file = folder.file("proof", body);
    run(&["check", "--guest", guest, "--proof", &file, "--mode", "app"])
}
