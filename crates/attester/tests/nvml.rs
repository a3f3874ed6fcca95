//! The device code against a C library with NVML's calls, which serves a simulated GPU's bytes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use confide_attester::{AttesterError, Nvml};
use confide_fake_attester::{FakeGpu, GpuOptions};
use confide_verifier::{AwsLc, GpuAppraisal, Policy, Roots, UnixTime};

const NOW_S: u64 = 1_780_272_000;
const NONCE: [u8; 32] = [0x5a; 32];

#[test]
fn evidence_through_nvml_is_accepted_by_the_verifier() {
    let Some(library) = Library::build("good", "") else { return };
    let state = library.gpu().state().expect("the library answers");
    assert!(state.confidential_computing && state.ready && !state.dev_tools);
    assert_eq!(state.gpus, 1);
    let bytes = library.gpu().evidence(&NONCE).expect("evidence");
    let [device_root, _] = library.fake.root_ders();
    let policy = Policy { roots: Roots::from_der(device_root), ..Policy::default() };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW_S));
    let case = GpuAppraisal::from_container(&bytes, NONCE).expect("a container");
    case.appraise(&policy, now, &AwsLc).expect("it is accepted");
}

#[test]
fn evidence_over_another_nonce_is_not_handed_out() {
    let Some(library) = Library::build("nonce", "") else { return };
    let got = library.gpu().evidence(&[1; 32]);
    assert!(matches!(got, Err(AttesterError::GpuNonce { .. })), "{got:?}");
}

#[test]
fn a_gpu_without_confidential_computing_is_not_asked() {
    for flags in ["-DFEATURE=0", "-DREADY=0"] {
        let Some(library) = Library::build("mode", flags) else { return };
        let got = library.gpu().evidence(&NONCE);
        assert!(matches!(got, Err(AttesterError::GpuMode { .. })), "{got:?}");
    }
}

#[test]
fn failures_and_impossible_lengths_are_named() {
    for flags in ["-DINIT=9", "-DHANDLE=2", "-DREPORT=3", "-DCERTIFICATE=999"] {
        let Some(library) = Library::build("failure", flags) else { return };
        let got = library.gpu().evidence(&NONCE);
        assert!(matches!(got, Err(AttesterError::Nvml { .. })), "{flags}: {got:?}");
    }
    for flags in ["-DREPORT_BYTES=0", "-DREPORT_BYTES=8193", "-DREPORT_BYTES=0xffffffff"] {
        let Some(library) = Library::build("length", flags) else { return };
        let got = library.gpu().evidence(&NONCE);
        assert!(matches!(got, Err(AttesterError::Length { .. })), "{flags}: {got:?}");
    }
}

#[test]
fn a_missing_library_or_call_is_named() {
    let got = Nvml::new("/nonexistent/libnvidia-ml.so.1", 0).evidence(&NONCE);
    assert!(matches!(got, Err(AttesterError::Library { .. })), "{got:?}");
    let Some(library) = Library::build("old", "-DOLD") else { return };
    let got = library.gpu().evidence(&NONCE);
    assert!(matches!(got, Err(AttesterError::Library { .. })), "{got:?}");
}

struct Library {
    path: PathBuf,
    fake: FakeGpu,
}

impl Library {
    /// Compiles `nvml.c` with these flags; `None` without a C compiler.
    fn build(name: &str, flags: &str) -> Option<Self> {
        let fake = FakeGpu::new(GpuOptions {
            rims: false,
            ocsp: false,
            ..GpuOptions::new([7; 32], NOW_S)
        });
        let fake = fake.expect("a simulated GPU");
        let label: String = flags.chars().filter(char::is_ascii_alphanumeric).collect();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvml-{name}-{label}"));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("report.bin"), fake.report(&NONCE)).expect("a file");
        fs::write(folder.join("chain.pem"), fake.chain_pem()).expect("a file");
        let path = folder.join("libnvidia-ml.so.1");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(&path)
            .arg(format!("-DFOLDER=\"{}\"", folder.display()))
            .args(flags.split_whitespace())
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml.c"))
            .output();
        let Ok(compiled) = compiled else {
            println!("skipped: no C compiler");
            return None;
        };
        let said = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{said}");
        Some(Self { path, fake })
    }

    fn gpu(&self) -> Nvml {
        Nvml::new(&self.path, 0)
    }
}
