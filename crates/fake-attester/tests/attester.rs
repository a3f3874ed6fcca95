//! What a simulated attester promises its callers.

use std::{sync::mpsc, thread};

use confide_evidence::{Attest, ReportData};
use confide_fake_attester::{
    FakeAttester, FakeAttesterOptions, FakeError, Fault, Mode, STATE_FILE, Tee,
};
use confide_tests::Folder;

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;

#[test]
fn the_same_options_give_the_same_bytes() {
    for tee in [Tee::Tdx, Tee::Sgx] {
        let (a, b) = (attester(tee), attester(tee));
        assert_eq!(a.root_der(), b.root_der());
        assert_eq!(a.collateral_json(), b.collateral_json());
        assert_eq!(a.policy_toml(), b.policy_toml());
        let asked = ReportData([3; 64]);
        assert_eq!(a.quote(&asked), b.quote(&asked));
    }
}

#[test]
fn the_root_and_the_policy_depend_on_the_seed_and_not_on_the_time() {
    let (first, options) = (attester(Tee::Tdx), options(Tee::Tdx));
    let later = FakeAttesterOptions { issued_at: NOW + 86_400, ..options.clone() };
    let later = FakeAttester::new(later).unwrap();
    assert_eq!(first.root_der(), later.root_der());
    assert_eq!(first.policy_toml(), later.policy_toml());
    assert_ne!(first.collateral_json(), later.collateral_json());
    let other = FakeAttester::new(FakeAttesterOptions { seed: [8; 32], ..options }).unwrap();
    assert_ne!(first.root_der(), other.root_der());
}

#[test]
fn a_saved_attester_loads_as_the_same() {
    let scratch = Folder::new("saved");
    let dir = scratch.path();
    let saved =
        FakeAttester::new(FakeAttesterOptions { debug: true, ..options(Tee::Sgx) }).unwrap();
    saved.save(dir).unwrap();
    let loaded = FakeAttester::load(dir).unwrap();
    assert_eq!(saved.quote(&ReportData::ZERO), loaded.quote(&ReportData::ZERO));
    assert_eq!(saved.collateral_json(), loaded.collateral_json());
    for (name, bytes) in [
        ("collateral.json", saved.collateral_json().into_bytes()),
        ("root.der", saved.root_der().to_vec()),
        ("policy.toml", saved.policy_toml().into_bytes()),
    ] {
        assert_eq!(std::fs::read(dir.join(name)).unwrap(), bytes, "{name}");
    }
}

#[cfg(unix)]
#[test]
fn the_seed_is_readable_by_its_owner_only_even_in_a_file_that_was_there() {
    use std::{fs, os::unix::fs::PermissionsExt};
    let scratch = Folder::new("private");
    let dir = scratch.path();
    fs::create_dir_all(dir).unwrap();
    let path = dir.join(STATE_FILE);
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    attester(Tee::Tdx).save(dir).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_state_that_is_not_ours_is_refused() {
    let scratch = Folder::new("foreign");
    let dir = scratch.path();
    std::fs::create_dir_all(dir).unwrap();
    assert!(matches!(FakeAttester::load(dir), Err(FakeError::File { action: "read", .. })));
    attester(Tee::Tdx).save(dir).unwrap();
    let path = dir.join(STATE_FILE);
    let good = std::fs::read_to_string(&path).unwrap();
    for bad in [
        String::new(),
        good.replace("true", "false"),
        good.replace("\"seed\": \"", "\"seed\": \"zz"),
        good.replace("\"mode\"", "\"speed\""),
        good.replace("\"tdx\"", "\"sev\""),
        good.clone() + &" ".repeat(5000),
    ] {
        std::fs::write(&path, bad).unwrap();
        assert!(matches!(FakeAttester::load(dir), Err(FakeError::State { .. })));
    }
}

#[test]
fn issue_times_outside_the_life_of_the_root_are_refused() {
    for issued_at in [0, 1_526_860_800, 2_524_607_999, u64::MAX] {
        let refused = FakeAttester::new(FakeAttesterOptions { issued_at, ..options(Tee::Tdx) });
        assert!(matches!(refused, Err(FakeError::IssuedAt { got, .. }) if got == issued_at));
    }
}

#[test]
fn everything_it_makes_says_simulated() {
    for tee in [Tee::Tdx, Tee::Sgx] {
        let attester = attester(tee);
        assert!(attester.is_simulated());
        assert!(attester.policy_toml().contains("SIMULATED"));
        assert!(attester.collateral().unwrap().windows(9).any(|part| part == b"SIMULATED"));
        for bytes in [attester.root_der(), &attester.quote(&ReportData::ZERO)] {
            assert!(bytes.windows(9).any(|part| part == b"SIMULATED"));
        }
    }
}

#[test]
fn a_debug_print_does_not_show_the_seed() {
    let shown = format!("{:?}", FakeAttesterOptions { seed: [0xab; 32], ..options(Tee::Tdx) });
    assert!(!shown.contains("171") && !shown.contains("ab"), "{shown}");
}

#[test]
fn device_mode_answers_every_caller() {
    let options = FakeAttesterOptions { mode: Mode::Device, ..options(Tee::Tdx) };
    let attester = std::sync::Arc::new(FakeAttester::new(options).unwrap());
    let (sender, answers) = mpsc::channel();
    for number in 0..3_u8 {
        let (attester, sender) = (attester.clone(), sender.clone());
        thread::spawn(move || {
            let quote = attester.quote(&ReportData([number; 64]));
            sender.send((number, quote)).unwrap();
        });
    }
    drop(sender);
    let answers: Vec<_> = answers.iter().collect();
    assert_eq!(answers.len(), 3);
    for (number, quote) in answers {
        assert_eq!(quote[48 + 520..48 + 584], [number; 64]);
    }
}

#[test]
fn a_fault_changes_the_evidence_and_not_the_root() {
    let honest = attester(Tee::Tdx);
    let faulty = FakeAttester::with_fault(options(Tee::Tdx), Fault::OutOfDate).unwrap();
    assert_eq!(honest.root_der(), faulty.root_der());
    assert_ne!(honest.quote(&ReportData::ZERO), faulty.quote(&ReportData::ZERO));
}

fn options(tee: Tee) -> FakeAttesterOptions {
    FakeAttesterOptions { seed: [1; 32], tee, debug: false, issued_at: NOW, mode: Mode::Raw }
}

fn attester(tee: Tee) -> FakeAttester {
    FakeAttester::new(options(tee)).unwrap()
}
