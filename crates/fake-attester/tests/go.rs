//! Simulated evidence before Google's Go verifiers, built from `tests/go/quotes` and run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use confide_evidence::ReportData;
use confide_fake_attester::{
    EndorsementEdition, FakeAttester, FakeAttesterOptions, FakeEndorsements, Fault, Mode, PckCa,
    Product, ReportVersion, SimulatedPlatform, SnpSigner, Tee,
};
use confide_tests::Folder;

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
const SEED: [u8; 32] = [1; 32];

static VENDORS: LazyLock<FakeEndorsements> =
    LazyLock::new(|| FakeEndorsements::new(SEED, NOW).unwrap());
static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(build);

#[test]
fn go_tdx_guest_accepts_a_quote_and_refuses_a_flipped_byte() {
    let Some(program) = PROGRAM.as_deref() else { return };
    let dir = tdx_folder(Tee::Tdx, SimulatedPlatform::default(), None);
    verdict(program, "tdx", dir.path(), &[]).unwrap();
    // User data, TD attributes, report data, signature, QE report, PCK chain.
    for offset in [30, 170, 600, 640, 800, 2000] {
        let refused =
            with_flipped_byte(dir.path(), offset, || verdict(program, "tdx", dir.path(), &[]));
        assert!(refused.is_err(), "byte {offset}");
    }
}

/// Release 0.3.1 knows version 4 and the Platform CA only: it has to say so rather than accept
/// what it cannot check. dcap-qvl takes both, see `oracle.rs`.
#[test]
fn go_tdx_guest_refuses_what_its_release_does_not_know() {
    let Some(program) = PROGRAM.as_deref() else { return };
    let processor = SimulatedPlatform { pck_ca: PckCa::Processor, ..SimulatedPlatform::default() };
    for (tee, variant) in [(Tee::TdxV5, SimulatedPlatform::default()), (Tee::Tdx, processor)] {
        let dir = tdx_folder(tee, variant, None);
        assert!(verdict(program, "tdx", dir.path(), &[]).is_err(), "{tee:?} {variant:?}");
    }
}

#[test]
fn go_tdx_guest_refuses_what_is_revoked_expired_or_out_of_date() {
    let Some(program) = PROGRAM.as_deref() else { return };
    for fault in [
        Fault::RevokedPck,
        Fault::RevokedPlatformCa,
        Fault::ExpiredCollateral,
        Fault::ExpiredCrl,
        Fault::OutOfDate,
        Fault::OutOfDateModule,
        Fault::ForeignFmspc,
        Fault::ForeignQuotingEnclave,
        Fault::UnboundAttestationKey,
        Fault::UnknownTcbStatus,
    ] {
        let dir = tdx_folder(Tee::Tdx, SimulatedPlatform::default(), Some(fault));
        assert!(verdict(program, "tdx", dir.path(), &[]).is_err(), "{fault:?}");
    }
}

#[test]
fn go_sev_guest_accepts_milan_and_genoa_and_refuses_a_flipped_byte() {
    let Some(program) = PROGRAM.as_deref() else { return };
    // Release 0.15 knows neither the chip identifiers of Turin nor its FMC version.
    for product in [Product::Milan, Product::Genoa] {
        for signer in [SnpSigner::Vcek, SnpSigner::Vlek] {
            for report_version in [ReportVersion::V2, ReportVersion::V3, ReportVersion::V5] {
                let variant = SimulatedPlatform {
                    product,
                    signer,
                    report_version,
                    ..SimulatedPlatform::default()
                };
                let dir = snp_folder(variant, None);
                let arguments = [product.name()];
                verdict(program, "snp", dir.path(), &arguments)
                    .unwrap_or_else(|said| panic!("{variant:?}: {said}"));
                for offset in [0x04, 0x50, 0x90, 0x180, 0x2a0, 0x2e8] {
                    let refused = with_flipped_byte(dir.path(), offset, || {
                        verdict(program, "snp", dir.path(), &arguments)
                    });
                    assert!(refused.is_err(), "{variant:?}, byte {offset:#x}");
                }
            }
        }
    }
}

#[test]
fn go_sev_guest_refuses_a_revoked_ask_and_a_chain_of_another_seed() {
    let Some(program) = PROGRAM.as_deref() else { return };
    let dir = snp_folder(SimulatedPlatform::default(), Some(Fault::RevokedPlatformCa));
    let said = verdict(program, "snp", dir.path(), &["Milan"]).unwrap_err();
    assert!(said.contains("revoked"), "{said}");
    let dir = snp_folder(SimulatedPlatform::default(), None);
    let other = FakeEndorsements::new([2; 32], NOW).unwrap();
    let chain = other.issue_amd(Product::Milan, &EndorsementEdition::issued_at(NOW)).vcek_chain;
    fs::write(dir.join("vcek-chain.pem"), chain).unwrap();
    assert!(verdict(program, "snp", dir.path(), &["Milan"]).is_err());
}

/// Makes a folder with evidence and the answers of Intel's service.
fn tdx_folder(tee: Tee, variant: SimulatedPlatform, fault: Option<Fault>) -> Folder {
    let attester = attester(tee, variant, fault);
    let dir = Folder::new("go");
    let collateral: serde_json::Value = serde_json::from_str(&attester.collateral_json()).unwrap();
    let field = |name: &str| collateral[name].as_str().unwrap().to_owned();
    let signed = |name: &str, field_name: &str| {
        let (json, signature) = (field(field_name), field(&format!("{field_name}_signature")));
        format!(r#"{{"{name}":{json},"signature":"{signature}"}}"#)
    };
    let ca = variant.pck_ca.name();
    let file = |name: &str, bytes: &[u8]| fs::write(dir.join(name), bytes).unwrap();
    file("evidence.bin", &attester.quote(&ReportData([3; 64])));
    file("root.der", attester.root_der());
    file("tcb.json", signed("tcbInfo", "tcb_info").as_bytes());
    file("qe-identity.json", signed("enclaveIdentity", "qe_identity").as_bytes());
    file("tcb-signing.pem", field("tcb_info_issuer_chain").as_bytes());
    file(&format!("pck-issuers-{ca}.pem"), field("pck_crl_issuer_chain").as_bytes());
    file(&format!("pck-crl-{ca}.der"), &hex::decode(field("pck_crl")).unwrap());
    file("root-crl.der", &hex::decode(field("root_ca_crl")).unwrap());
    dir
}

/// Makes a folder with evidence and the answers of AMD's service.
fn snp_folder(variant: SimulatedPlatform, fault: Option<Fault>) -> Folder {
    let attester = attester(Tee::Snp, variant, fault);
    let dir = Folder::new("go");
    let amd = VENDORS.issue_amd(variant.product, &EndorsementEdition::issued_at(NOW));
    let file = |name: &str, bytes: &[u8]| fs::write(dir.join(name), bytes).unwrap();
    file("evidence.bin", &attester.quote(&ReportData([3; 64])));
    file("endorsement-key.der", attester.endorsement_key_der().unwrap());
    file("vcek-chain.pem", amd.vcek_chain.as_bytes());
    file("vlek-chain.pem", amd.vlek_chain.as_bytes());
    file("crl.der", attester.crl_der().unwrap());
    dir
}

fn attester(tee: Tee, variant: SimulatedPlatform, fault: Option<Fault>) -> FakeAttester {
    let options =
        FakeAttesterOptions { seed: SEED, tee, debug: false, issued_at: NOW, mode: Mode::Raw };
    FakeAttester::with_vendors(&VENDORS, options, variant, fault).unwrap()
}

fn with_flipped_byte<T>(dir: &Path, offset: usize, ask: impl FnOnce() -> T) -> T {
    let path = dir.join("evidence.bin");
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[offset] ^= 1;
    fs::write(&path, bad).unwrap();
    let answer = ask();
    fs::write(&path, good).unwrap();
    answer
}

/// The message of the Go program where it refuses.
fn verdict(program: &Path, kind: &str, dir: &Path, more: &[&str]) -> Result<(), String> {
    // A minute later, for certificates that begin at this second.
    let now = (NOW + 60).to_string();
    let output = Command::new(program)
        .arg(kind)
        .arg(dir)
        .arg(now)
        .args(more)
        .output()
        .expect("the Go program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(1) => Err(said),
        status => panic!("status {status:?}: {said}"),
    }
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
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-quotes");
    let go = |arguments: &[&str]| {
        let mut command = Command::new(go);
        command.args(arguments).current_dir(&source).env("GOFLAGS", "-mod=readonly");
        command.output().expect("Go runs")
    };
    if !go(&["mod", "download"]).status.success() {
        println!("skipped: no Go modules");
        return None;
    }
    let built = go(&["build", "-o", &program.display().to_string(), "./quotes"]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}
