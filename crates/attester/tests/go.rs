//! Google's Go library for configfs-tsm against the *simulated* tree, at the kernel's own path.
//!
//! The tree and the code that reads it come from one hand; this reader does not.

mod namespace;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use confide_attester::{CertTable, TSM_ROOT, Tsm, TsmOptions};
use confide_evidence::{Attest, ReportData};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, Tee, TsmFault, TsmTree};
use confide_verifier::{AwsLc, Endorsements, Evidence, Policy, UnixTime, appraise};
use namespace::with_private_mounts;

/// 2026-06-01, in Unix seconds.
const NOW: u64 = 1_780_272_000;

#[test]
fn googles_library_gets_the_same_quote_from_the_same_tree() {
    let Some(program) = build() else { return };
    with_private_mounts("googles_library_gets_the_same_quote_from_the_same_tree", |folder| {
        let attester = Arc::new(fake_attester(Tee::Tdx));
        // The library looks at the kernel's path; in this namespace nothing else is there.
        let (root, arguments) = match mount_at_kernel_path() {
            Some(place) => (place, vec![]),
            None => (folder.into(), vec!["-root".to_owned(), folder.display().to_string()]),
        };
        let tree = TsmTree::new(Arc::clone(&attester)).unwrap().mount(&root).unwrap();
        let asked = ReportData([0x5a; 64]);
        let run = || {
            let mut command = Command::new(&program);
            command.args(&arguments).args(["-report-data", &asked.to_string()]);
            command.output().expect("the Go program runs")
        };
        let output = run();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed["provider"], "tdx_guest");
        let theirs = hex::decode(printed["outblob"].as_str().unwrap()).unwrap();
        accept(&attester, &theirs, &asked);
        let ours = Tsm::open(TsmOptions { root: root.clone(), ..TsmOptions::default() }).unwrap();
        // Simulated signatures are deterministic, so the two readers got the same bytes.
        assert_eq!(ours.attest(&asked).unwrap(), theirs);
        assert_eq!(tree.entry_count(), 0);
        // Both see a second writer by the counter.
        tree.inject_fault(Some(TsmFault::Race(u32::MAX)));
        let raced = run();
        let said = String::from_utf8_lossy(&raced.stderr);
        assert!(!raced.status.success() && said.contains("generation"), "{said}");
        assert!(ours.attest(&asked).is_err());
        tree.unmount().unwrap();
    });
}

#[test]
fn googles_library_reads_the_certificate_table_as_ours_does() {
    let Some(program) = build() else { return };
    with_private_mounts("googles_library_reads_the_certificate_table_as_ours_does", |folder| {
        let attester = Arc::new(fake_attester(Tee::Snp));
        let _tree = TsmTree::new(Arc::clone(&attester)).unwrap().mount(folder).unwrap();
        let mut command = Command::new(&program);
        let output = command.arg("-aux").arg("-root").arg(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed["provider"], "sev_guest");
        let options = TsmOptions { root: folder.into(), ..TsmOptions::default() };
        let report = Tsm::open(options).unwrap().report(&ReportData::ZERO).unwrap();
        assert_eq!(printed["outblob"], hex::encode(&report.evidence));
        let table = CertTable::parse(&report.auxblob).unwrap();
        for (name, der) in [("vcek", table.vcek), ("ask", table.ask), ("ark", table.ark)] {
            assert_eq!(printed[name], hex::encode(der.unwrap()), "{name}");
        }
    });
}

/// Builds the Go program; `None` if Go or its modules are missing.
fn build() -> Option<PathBuf> {
    let go = ["go", "/usr/local/go/bin/go"].into_iter().find(|go| {
        Command::new(go).arg("version").output().is_ok_and(|output| output.status.success())
    });
    let Some(go) = go else {
        println!("skipped: no Go");
        return None;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/go");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-configfs-tsm");
    let go = |arguments: &[&str]| {
        let mut command = Command::new(go);
        command.args(arguments).current_dir(&source).env("GOFLAGS", "-mod=readonly");
        command.output().expect("Go runs")
    };
    if !go(&["mod", "download"]).status.success() {
        println!("skipped: no Go modules");
        return None;
    }
    let built = go(&["build", "-o", &program.display().to_string(), "./tsm"]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

/// Mounts an empty folder at the kernel's path, and returns the path; `None` if the kernel does
/// not allow that.
fn mount_at_kernel_path() -> Option<PathBuf> {
    let place = Path::new(TSM_ROOT);
    let configfs = place.parent()?;
    let covered = if configfs.is_dir() { configfs } else { configfs.parent()? };
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(covered).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("the library is led to another folder: nothing can be mounted at its own");
        return None;
    }
    fs::create_dir_all(place).ok()?;
    Some(place.into())
}

fn fake_attester(tee: Tee) -> FakeAttester {
    let options =
        FakeAttesterOptions { seed: [7; 32], tee, debug: false, issued_at: NOW, mode: Mode::Raw };
    FakeAttester::new(options).unwrap()
}

fn accept(attester: &FakeAttester, quote: &[u8], asked: &ReportData) {
    let policy = Policy::from_toml(&attester.policy_toml()).unwrap();
    let endorsements = Endorsements::parse(attester.collateral_json().as_bytes()).unwrap();
    let evidence =
        Evidence { quote, claims: None, report_data: Some(*asked), gpu: None, binding: None };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
    appraise(&evidence, &endorsements, &policy, now, &AwsLc).unwrap();
}
