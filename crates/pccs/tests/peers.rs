//! Programs of others fetch from our service: dcap-qvl's own client, and go-sev-guest's getter.

#[path = "../../cli/src/collateral/simulated_documents.rs"]
mod simulated_documents;

mod served;

use std::{path::Path, process::Command, sync::Arc};

use confide_evidence::ReportData;
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Tee};
use confide_pccs::{
    DocumentSource, DocumentStore, Faults, PccsLimits, ServedEdition, Simulation, open_database,
};
use served::{Folder, ISSUED_AT, Served, collateral, options, serve};
use simulated_documents::SimulatedDocuments;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dcap_qvls_client_fetches_from_us_and_its_verifier_accepts() {
    let Some(program) = build_peer() else { return };
    for tee in [Tee::Tdx, Tee::TdxV5, Tee::Sgx] {
        let (service, folder) = simulating(tee, Faults::default()).await;
        let verdict = |more: &[&str]| qvl(&program, &service, &folder, more);
        assert_eq!(verdict(&[]), Ok("UpToDate".into()), "{tee:?}");
        assert_eq!(verdict(&["early"]), Ok("UpToDate".into()), "{tee:?}");
        service.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dcap_qvls_client_fetches_what_was_imported() {
    let Some(program) = build_peer() else { return };
    let (folder, _) = evidence(Tee::Tdx);
    let database = open_database(folder.0.join("pccs.sqlite").to_str().unwrap()).await.unwrap();
    for document in confide_pccs::split_endorsements(&collateral(None), ISSUED_AT).unwrap() {
        let _ = database.write(document).await.unwrap();
    }
    let kept = DocumentStore::new(database, None, &PccsLimits::default());
    let service = serve(DocumentSource::Store(Arc::new(kept)), |_| {}).await;
    assert_eq!(qvl(&program, &service, &folder, &[]), Ok("UpToDate".into()));
    service.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dcap_qvls_verifier_refuses_our_faults() {
    let Some(program) = build_peer() else { return };
    for faults in [
        Faults { edition: ServedEdition::LateCrls, ..Faults::default() },
        Faults { edition: ServedEdition::Expired, ..Faults::default() },
        Faults { failure_rate: 1.0, ..Faults::default() },
        Faults { truncated_rate: 1.0, ..Faults::default() },
    ] {
        let (service, folder) = simulating(Tee::Tdx, faults.clone()).await;
        let verdict = qvl(&program, &service, &folder, &[]);
        assert!(verdict.is_err(), "{faults:?}: {verdict:?}");
        service.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_sev_guests_getter_fetches_from_us_and_its_verifier_accepts() {
    let Some(program) = build_getter() else { return };
    let (service, folder) = simulating(Tee::Snp, Faults::default()).await;
    let verdict = sev_guest(&program, &service, &folder);
    assert_eq!(verdict, Ok("accepted".into()));
    service.stop().await.unwrap();
    // That verifier looks at no date of a list, so a late one is not a test for it.
    let faults = Faults { truncated_rate: 1.0, ..Faults::default() };
    let (service, folder) = simulating(Tee::Snp, faults).await;
    assert!(sev_guest(&program, &service, &folder).is_err());
    service.stop().await.unwrap();
}

fn qvl(program: &Path, service: &Served, folder: &Folder, more: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command
        .arg(service.url())
        .arg(folder.0.join("evidence.bin"))
        .arg(folder.0.join("root.der"))
        .arg((ISSUED_AT + 60).to_string())
        .args(more);
    run_peer(&mut command)
}

fn sev_guest(program: &Path, service: &Served, folder: &Folder) -> Result<String, String> {
    let mut command = Command::new(program);
    command
        .args(["-base", &service.url()])
        .arg("-report")
        .arg(folder.0.join("evidence.bin"))
        .arg("-root")
        .arg(folder.0.join("root.der"))
        .args(["-at", &(ISSUED_AT + 60).to_string()]);
    run_peer(&mut command)
}

/// Runs the program: its answer, or its complaint.
fn run_peer(command: &mut Command) -> Result<String, String> {
    let output = tokio::task::block_in_place(|| command.output().unwrap());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

async fn simulating(tee: Tee, faults: Faults) -> (Served, Folder) {
    let (folder, attester) = evidence(tee);
    let simulation = Simulation::new(Arc::new(SimulatedDocuments::new(&attester)), faults);
    (serve(DocumentSource::Simulated(Arc::new(simulation)), |_| {}).await, folder)
}

/// Makes a folder with evidence and root.
fn evidence(tee: Tee) -> (Folder, FakeAttester) {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = Folder::new(&format!("peers{number}"));
    let attester = FakeAttester::new(FakeAttesterOptions { tee, ..options() }).unwrap();
    let quote = attester.quote(&ReportData::ZERO);
    std::fs::write(folder.0.join("evidence.bin"), quote).unwrap();
    std::fs::write(folder.0.join("root.der"), attester.root_der()).unwrap();
    (folder, attester)
}

/// Builds `tests/dcap-qvl-fetch`, in a folder next to cargo's own output.
fn build_peer() -> Option<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/dcap-qvl-fetch");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    let built = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["build", "--quiet", "--locked", "--target-dir"])
        .arg(&target)
        .current_dir(folder)
        .output();
    match built {
        Ok(output) if output.status.success() => Some(target.join("debug/dcap-qvl-fetch")),
        _ => {
            println!("skipped: dcap-qvl's client cannot be built (no packages)");
            None
        }
    }
}

/// Builds `tests/go/kds`.
fn build_getter() -> Option<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/go");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-kds");
    let built = ["go", "/usr/local/go/bin/go"].into_iter().find_map(|go| {
        let mut command = Command::new(go);
        command.args(["build", "-mod=readonly", "-buildvcs=false", "-o"]).arg(&program);
        command.arg("./kds").current_dir(&folder).output().ok()
    });
    match built {
        Some(output) if output.status.success() => Some(program),
        Some(output) => {
            println!("{}", String::from_utf8_lossy(&output.stderr));
            println!("skipped: go-sev-guest cannot be built (no modules)");
            None
        }
        None => {
            println!("skipped: no Go");
            None
        }
    }
}
