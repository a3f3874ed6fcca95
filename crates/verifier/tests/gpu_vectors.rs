//! A published report of a real GPU, where the shared vectors are present.

use std::{fs, path::PathBuf};

use confide_evidence::gpu::{decode_chain, report_bytes};
use confide_verifier::{
    AwsLc, GpuAppraisal, GpuAppraised, NVIDIA_DEVICE_ROOT_DER, NVIDIA_DEVICE_ROOT_SHA256,
    NVIDIA_RIM_ROOT_DER, NVIDIA_RIM_ROOT_SHA256, Outcome, Policy, Reason, RootKind, Roots,
    UnixTime, verify_rim,
};
use sha2::{Digest, Sha256};

/// 2026-01-01.
const NOW_S: u64 = 1_767_225_600;

#[test]
fn nvidias_roots_have_the_hashes_that_are_pinned() {
    let pinned = [
        (NVIDIA_DEVICE_ROOT_DER, NVIDIA_DEVICE_ROOT_SHA256),
        (NVIDIA_RIM_ROOT_DER, NVIDIA_RIM_ROOT_SHA256),
    ];
    for (der, sha256) in pinned {
        assert_eq!(<[u8; 32]>::from(Sha256::digest(der)), sha256);
    }
    let Some(hopper) = Hopper::read() else { return };
    let chain = decode_chain(&hopper.chain).expect("a chain");
    assert_eq!(chain.last().map(|der| &der[..]), Some(NVIDIA_DEVICE_ROOT_DER));
}

#[test]
fn a_hoppers_report_is_accepted_under_nvidias_root() {
    let Some(hopper) = Hopper::read() else { return };
    let appraised = hopper.judge(&Policy::default(), NOW_S).expect("it is genuine");
    assert_eq!(appraised.root().kind, RootKind::Production);
    let claims = appraised.claims();
    assert_eq!(claims.device, "GH100 A01 GSP BROM");
    assert_eq!(claims.driver.as_deref(), Some("550.90.07"));
    assert_eq!(claims.vbios.as_deref(), Some("96.00.9f.00.01"));
    assert!(!claims.measurements_compared);
    let outcome = |name| {
        let check = appraised.checks().iter().find(|check| check.name == name);
        check.map(|check| check.outcome)
    };
    for passed in ["gpu_root", "gpu_chain", "gpu_firmware_id", "gpu_nonce", "gpu_signature"] {
        assert_eq!(outcome(passed), Some(Outcome::Passed), "{passed}");
    }
    for not_evaluated in
        ["gpu_revocation", "gpu_confidential_computing", "gpu_measurements", "gpu_debug"]
    {
        assert_eq!(outcome(not_evaluated), Some(Outcome::NotEvaluated), "{not_evaluated}");
    }
    assert_eq!(appraised.to_json()["outcome"], "accepted");
}

#[test]
fn a_hopper_is_refused_for_each_fault() {
    let Some(hopper) = Hopper::read() else { return };
    let policy = Policy::default();
    let root_only = hopper.with_chain("bad-chain-root-only.txt");
    let refused = root_only.judge(&policy, NOW_S).err().map(|it| it.reason().clone());
    assert!(matches!(refused, Some(Reason::ChainShape { .. })), "{refused:?}");
    let gap = hopper.with_chain("bad-chain-gap.txt").judge(&policy, NOW_S);
    assert!(matches!(gap.err().map(|it| it.reason().clone()), Some(Reason::ChainShape { .. })));
    // The leaf's certificate begins on 2020-10-17, the root's on 2021-11-05.
    let early = hopper.judge(&policy, 1_600_000_000).err().map(|it| it.reason().clone());
    assert!(matches!(early, Some(Reason::OutsideWindow { .. })), "{early:?}");
    let other = Policy { roots: Roots::from_der(b"another root"), ..Policy::default() };
    let other = hopper.judge(&other, NOW_S).err().map(|it| it.reason().clone());
    assert!(matches!(other, Some(Reason::UntrustedRoot { .. })), "{other:?}");
    let intel = Policy::from_toml("roots = [\"intel-production\"]").expect("a policy");
    assert!(hopper.judge(&intel, NOW_S).is_err());
    let mut nonce = Hopper::read().expect("it was there");
    nonce.nonce[31] ^= 1;
    let nonce = nonce.judge(&policy, NOW_S).err().map(|it| it.reason().clone());
    assert!(matches!(nonce, Some(Reason::Value { field: "GPU nonce", .. })), "{nonce:?}");
}

#[test]
fn a_flipped_bit_anywhere_in_a_hoppers_report_is_refused() {
    let Some(mut hopper) = Hopper::read() else { return };
    let policy = Policy::default();
    // Each byte once, its bits in turn: the whole would take a minute without optimisation.
    for at in 0..hopper.report.len() {
        hopper.report[at] ^= 1 << (at % 8);
        assert!(hopper.judge(&policy, NOW_S).is_err(), "byte {at}");
        hopper.report[at] ^= 1 << (at % 8);
    }
    assert!(hopper.judge(&policy, NOW_S).is_ok());
}

#[test]
fn a_required_hopper_without_manifests_is_refused_unless_the_policy_says_so() {
    let Some(hopper) = Hopper::read() else { return };
    let judge = |text: &str| {
        let policy = Policy::from_toml(text).expect("a policy");
        hopper.judge(&policy, NOW_S).map_err(|refused| refused.reason().clone())
    };
    let refused = judge("[gpu]\nrequired = true");
    assert!(matches!(refused, Err(Reason::GpuNotEvaluated { .. })), "{refused:?}");
    let lifted = "[gpu]\nrequired = true\ndangerous_accept_rim_not_evaluated = true\n";
    assert!(judge(lifted).is_err());
    let lifted = format!("{lifted}dangerous_accept_debug = true\n");
    assert!(judge(&lifted).is_err());
    let lifted = format!("{lifted}dangerous_accept_revocation_not_evaluated = true\n");
    assert!(judge(&lifted).is_ok());
    assert!(judge("[gpu]\ndriver = \"550.90.07\"\nvbios = [\"96.00.9f.00.01\"]").is_ok());
    assert!(judge("[gpu]\ndriver = \"550.90.08\"").is_err());
    assert!(judge("[gpu]\nvbios = \"96.00.9f.00.02\"").is_err());
    let pinned = format!("[gpu]\nrim_sha256 = \"{}\"", "00".repeat(32));
    assert!(matches!(judge(&pinned), Err(Reason::GpuNotEvaluated { .. })));
    assert!(Policy::from_toml("[gpu]\nunknown = 1").is_err());
}

/// NVIDIA's package nv-local-gpu-verifier holds 26 manifests; their folder is named by
/// `CONFIDE_NVIDIA_SAMPLES`. Their signers' certificates ended in 2025.
#[test]
fn nvidias_manifests_are_signed_under_nvidias_root() {
    let Some(folder) = std::env::var_os("CONFIDE_NVIDIA_SAMPLES") else {
        return println!("skipped: no folder of manifests in CONFIDE_NVIDIA_SAMPLES");
    };
    let (mut seen, roots) = (0, Roots::production());
    let unix_time = |now_s| UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_s));
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "swidtag") {
            continue;
        }
        let file = fs::read(&path).expect("a file");
        // 2024-06-01
        let verified = verify_rim(&file, &roots, unix_time(1_717_200_000), &AwsLc);
        assert!(verified.is_ok(), "{}: {verified:?}", path.display());
        let late = verify_rim(&file, &roots, unix_time(NOW_S + 31_536_000), &AwsLc);
        assert!(matches!(late, Err(Reason::OutsideWindow { .. })));
        let text = String::from_utf8(file).expect("UTF-8");
        let changed = text.replacen("active=\"True\"", "active=\"False\"", 1);
        let changed = verify_rim(changed.as_bytes(), &roots, unix_time(1_717_200_000), &AwsLc);
        assert!(matches!(changed, Err(Reason::Signature { .. })));
        seen += 1;
    }
    assert!(seen > 0);
}

struct Hopper {
    report: Vec<u8>,
    chain: Vec<u8>,
    nonce: [u8; 32],
}

impl Hopper {
    fn read() -> Option<Self> {
        let text = foreign("hopper-report.hex.txt")?;
        let report = report_bytes(&text).expect("hexadecimal").into_owned();
        let nonce = report[4..36].try_into().expect("32 bytes");
        Some(Self { report, chain: foreign("hopper-cert-chain.pem")?, nonce })
    }

    fn with_chain(&self, name: &str) -> Self {
        let chain = foreign(name).expect("it lies beside the others");
        Self { report: self.report.clone(), chain, nonce: self.nonce }
    }

    fn judge(
        &self,
        policy: &Policy,
        now_s: u64,
    ) -> Result<GpuAppraised, confide_verifier::Rejection> {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_s));
        let case = GpuAppraisal::from_report(&self.report, &self.chain, self.nonce);
        case.map_err(confide_verifier::Rejection::before_checks)?.appraise(policy, now, &AwsLc)
    }
}

fn foreign(name: &str) -> Option<Vec<u8>> {
    let folder = std::env::var_os("CONFIDE_SHARED")
        .map(PathBuf::from)
        .unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").into());
    let bytes = fs::read(folder.join("vectors/gpu").join(name)).ok();
    if bytes.is_none() {
        println!("skipped: no foreign vectors");
    }
    bytes
}
