//! A simulated GPU before the verifier: accepted in order, refused for every fault, and bound to
//! the claims of the CPU next to it.

use std::{collections::BTreeMap, time::Duration};

use confide_evidence::{
    Attest, PresentedGpuEvidence, ReportData,
    binder::{Role, key_gpu_nonce, key_report_data},
    claims::Claims,
};
use confide_fake_attester::{
    FakeAttester, FakeAttesterOptions, FakeAttesterWithGpu, FakeGpu, GpuFault, GpuOptions, Mode,
    Tee,
};
use confide_verifier::{
    Appraised, AwsLc, Check, Endorsements, Evidence, GpuAppraisal, GpuAppraised, Outcome, Policy,
    Reason, Roots, UnixTime, appraise,
};
use sha2::{Digest, Sha256};

const NOW_S: u64 = 1_780_272_000;
const NONCE: [u8; 32] = [0x5a; 32];

#[test]
fn a_gpu_in_order_is_accepted_with_every_check_passed() {
    let gpu = FakeGpu::new(options()).expect("a simulated GPU");
    let appraised = judge(&gpu, &policy(&gpu, "required = true")).expect("it is accepted");
    let claims = appraised.claims();
    assert_eq!(claims.driver.as_deref(), Some("590.48.01"));
    assert_eq!(claims.vbios.as_deref(), Some("97.00.51.00.99"));
    assert_eq!(claims.mode, Some("SPT"));
    assert!(claims.measurements_compared && claims.device.contains("SIMULATED"));
    let outcomes = outcomes(appraised.checks());
    let only_by_policy = ["gpu_driver", "gpu_vbios"];
    for (name, outcome) in outcomes {
        if !only_by_policy.contains(&name) {
            assert_eq!(outcome, Outcome::Passed, "{name}");
        }
    }
}

#[test]
fn a_production_policy_refuses_a_simulated_gpu() {
    let gpu = FakeGpu::new(options()).expect("a simulated GPU");
    let refused = judge(&gpu, &Policy::default());
    assert!(matches!(refused, Err(Reason::UntrustedRoot { .. })), "{refused:?}");
    // A root that is trusted for the device alone vouches for no manifest.
    let device_only = Policy { roots: Roots::from_der(gpu.root_ders()[0]), ..Policy::default() };
    assert!(matches!(judge(&gpu, &device_only), Err(Reason::UntrustedRoot { .. })));
}

#[test]
fn every_fault_is_refused_with_its_reason() {
    use GpuFault as F;
    let faults = [
        (F::Nonce, "Value"),
        (F::ReportSignature, "Signature"),
        (F::FirmwareId, "Value"),
        (F::NoFirmwareId, "CertificateUse"),
        (F::Measurement, "GpuMeasurement"),
        (F::LeafIsCa, "CertificateUse"),
        (F::DeviceIsNoCa, "CertificateUse"),
        (F::LeafEnded, "OutsideWindow"),
        (F::OtherDevice, "Chain"),
        (F::ChainGap, "ChainShape"),
        (F::ManifestChanged, "Signature"),
        (F::ManifestSignature, "Signature"),
        (F::ManifestVersion, "Value"),
        (F::ManifestOverlap, "GpuMeasurement"),
        (F::OneManifest, "GpuNotEvaluated"),
        (F::DeviceRevoked, "CertificateRevoked"),
        (F::ManifestRevoked, "CertificateRevoked"),
        (F::OcspEnded, "OutsideWindow"),
        (F::OcspSignature, "Signature"),
        (F::OcspResponder, "CertificateUse"),
    ];
    for (fault, wanted) in faults {
        let faulty = GpuOptions { fault: Some(fault), ..options() };
        let gpu = FakeGpu::new(faulty).expect("a simulated GPU");
        let refused = judge(&gpu, &policy(&gpu, "required = true")).map(|_| ());
        let reason = format!("{:?}", refused.expect_err("it is faulty"));
        let variant = reason.split(|c: char| !c.is_alphanumeric()).next();
        assert_eq!(variant, Some(wanted), "{fault:?}: {reason}");
    }
}

#[test]
fn one_revocation_counts_wherever_it_stands_among_the_answers() {
    let good = FakeGpu::new(options()).expect("a simulated GPU");
    let with = |fault| {
        let gpu = FakeGpu::new(GpuOptions { fault: Some(fault), ..options() });
        gpu.expect("a simulated GPU").ocsp().to_vec()
    };
    let (revoked, ended) = (with(GpuFault::DeviceRevoked), with(GpuFault::OcspEnded));
    let policy = policy(&good, "required = true");
    let ask = |answers: [&[Vec<u8>]; 2]| {
        let container = good.evidence(&NONCE);
        let mut case = GpuAppraisal::from_container(&container, NONCE).expect("a container");
        case.ocsp = answers.into_iter().flatten().map(Vec::as_slice).collect();
        case.appraise(&policy, now(), &AwsLc).map_err(|refused| refused.reason().clone())
    };
    for answers in [[good.ocsp(), &revoked], [&revoked, good.ocsp()]] {
        let refused = ask(answers).map(|_| ());
        assert!(matches!(refused, Err(Reason::CertificateRevoked { .. })), "{refused:?}");
    }
    // The stapled answer has expired; the relying party's own has not, and the other way round.
    for answers in [[good.ocsp(), &ended], [&ended, good.ocsp()]] {
        ask(answers).expect("one answer holds");
    }
    assert!(matches!(ask([&ended, &ended]), Err(Reason::OutsideWindow { .. })));
}

#[test]
fn what_is_not_stapled_is_not_evaluated_and_refused_where_a_gpu_is_required() {
    let bare = GpuOptions { rims: false, ocsp: false, feature_flag: None, ..options() };
    let gpu = FakeGpu::new(bare).expect("a simulated GPU");
    let accepted = judge(&gpu, &policy(&gpu, "")).expect("no GPU is required");
    let outcomes = outcomes(accepted.checks());
    for name in [
        "gpu_revocation",
        "gpu_rim_revocation",
        "gpu_driver_rim",
        "gpu_vbios_rim",
        "gpu_measurements",
        "gpu_debug",
        "gpu_confidential_computing",
        "gpu_required",
    ] {
        assert_eq!(outcomes.get(name), Some(&Outcome::NotEvaluated), "{name}");
    }
    let required = judge(&gpu, &policy(&gpu, "required = true"));
    assert!(matches!(required, Err(Reason::GpuNotEvaluated { .. })));
    let rims = FakeGpu::new(GpuOptions { ocsp: false, ..options() }).expect("a simulated GPU");
    assert!(matches!(
        judge(&rims, &policy(&rims, "required = true")),
        Err(Reason::GpuNotEvaluated { .. })
    ));
    let lifted = "required = true\ndangerous_accept_revocation_not_evaluated = true";
    assert!(judge(&rims, &policy(&rims, lifted)).is_ok());
}

#[test]
fn every_field_of_the_policy_is_enforced() {
    let gpu = FakeGpu::new(options()).expect("a simulated GPU");
    let hashes: Vec<String> =
        gpu.rims().iter().map(|rim| format!("\"{}\"", hex::encode(Sha256::digest(rim)))).collect();
    let both = format!("rim_sha256 = [{}]", hashes.join(", "));
    assert!(judge(&gpu, &policy(&gpu, &both)).is_ok());
    let one = format!("rim_sha256 = [{}]", hashes[0]);
    assert!(matches!(judge(&gpu, &policy(&gpu, &one)), Err(Reason::Value { .. })));
    for (field, good, bad) in
        [("driver", "590.48.01", "590.48.02"), ("vbios", "97.00.51.00.99", "97.00.51.00.9a")]
    {
        assert!(judge(&gpu, &policy(&gpu, &format!("{field} = \"{good}\""))).is_ok());
        let refused = judge(&gpu, &policy(&gpu, &format!("{field} = \"{bad}\"")));
        assert!(matches!(refused, Err(Reason::Value { .. })), "{field}");
    }
    for flag in [0, 1, 2] {
        let options = GpuOptions { feature_flag: Some(flag), ..options() };
        let gpu = FakeGpu::new(options).expect("a simulated GPU");
        assert_eq!(judge(&gpu, &policy(&gpu, "")).is_ok(), flag != 2);
        let lifted = judge(&gpu, &policy(&gpu, "dangerous_accept_protected_pcie = true"));
        assert!(lifted.is_ok());
    }
}

#[test]
fn a_flipped_byte_anywhere_in_the_container_changes_no_claim() {
    let gpu = FakeGpu::new(GpuOptions { ocsp: false, ..options() }).expect("a simulated GPU");
    let policy = policy(&gpu, "");
    let bytes = gpu.evidence(&NONCE);
    let good = judge_bytes(&bytes, &policy).expect("in order");
    // A prime step, so that every member is met; the whole would take minutes.
    for at in (0..bytes.len()).step_by(401) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        // White space between certificates and parts of a manifest that are not signed may change.
        if let Ok(read) = judge_bytes(&flipped, &policy) {
            assert_eq!(read.claims(), good.claims(), "byte {at}");
        }
    }
}

#[test]
fn a_gpu_beside_a_cpu_is_accepted_when_the_claims_hold_its_hash() {
    let pair = Pair::new();
    let appraised = pair.judge(|_| {}, "required = true").expect("in order");
    let gpu = appraised.gpu().expect("it was presented");
    assert!(gpu.claims().measurements_compared);
    assert_eq!(outcomes(appraised.checks()).get("gpu"), Some(&Outcome::Passed));
    let json = appraised.to_json();
    assert_eq!(json["gpu"]["claims"]["tee"], "nvidia-gpu");
    assert_eq!(json["gpu"]["checks"][0]["name"], "gpu_report_format");
}

#[test]
fn a_gpu_that_the_cpus_claims_do_not_bind_is_refused() {
    let pair = Pair::new();
    let no_hash = pair.judge(|parts| parts.hash = None, "");
    assert!(matches!(no_hash, Err(Reason::Value { .. })), "{no_hash:?}");
    let other_hash = pair.judge(|parts| parts.hash = Some([1; 32]), "");
    assert!(matches!(other_hash, Err(Reason::Value { .. })));
    let other_nonce = pair.judge(|parts| parts.nonce = [1; 32], "");
    assert!(matches!(other_nonce, Err(Reason::Value { field: "GPU nonce", .. })));
    let promised = pair.judge(|parts| parts.gpu = None, "");
    assert!(matches!(promised, Err(Reason::GpuMissing)));
    let none = |parts: &mut Parts| (parts.gpu, parts.hash) = (None, None);
    assert!(matches!(pair.judge(none, "required = true"), Err(Reason::GpuMissing)));
    let without = pair.judge(none, "").expect("no GPU is required");
    assert!(without.gpu().is_none() && without.to_json()["gpu"].is_null());
    let swapped = pair.judge(
        |parts| {
            let other = GpuOptions { seed: [8; 32], ..options() };
            parts.gpu = FakeGpu::new(other).ok().map(|gpu| gpu.evidence(&parts.nonce));
        },
        "",
    );
    assert!(matches!(swapped, Err(Reason::Value { .. })));
}

/// A simulated trust domain with a simulated GPU.
struct Pair {
    attester: FakeAttesterWithGpu<FakeAttester>,
    roots: String,
    policy: String,
}

/// The evidence that is presented, before a test changes it.
struct Parts {
    gpu: Option<Vec<u8>>,
    hash: Option<[u8; 32]>,
    nonce: [u8; 32],
}

impl Pair {
    fn new() -> Self {
        let attester = FakeAttester::new(FakeAttesterOptions {
            seed: [3; 32],
            tee: Tee::Tdx,
            debug: false,
            issued_at: NOW_S,
            mode: Mode::Raw,
        });
        let attester = attester.expect("a simulated trust domain");
        let gpu = FakeGpu::new(options()).expect("a simulated GPU");
        let [device, manifests] = gpu.root_ders();
        let roots = [attester.root_der(), device, manifests];
        let roots = roots.map(|der| format!("\"sha256:{}\"", hex::encode(Sha256::digest(der))));
        // The policy of the trust domain alone, without its roots.
        let lines = attester.policy_toml();
        let lines: Vec<_> = lines.lines().filter(|line| !line.starts_with("roots")).collect();
        let (roots, policy) = (format!("roots = [{}]\n", roots.join(", ")), lines.join("\n"));
        Self { attester: FakeAttesterWithGpu::new(attester, gpu), roots, policy }
    }

    fn judge(&self, spoil: impl Fn(&mut Parts), gpu: &str) -> Result<Appraised, Reason> {
        let pubkey_hash = [9; 32];
        let nonce = key_gpu_nonce(Role::Server, &pubkey_hash);
        let evidence =
            self.attester.gpu_evidence(&nonce).expect("it answers").expect("it has a GPU");
        let hash = Some(Sha256::digest(&evidence).into());
        let mut parts = Parts { gpu: Some(evidence), hash, nonce };
        spoil(&mut parts);
        let claims = Claims {
            config_digest: [7; 32],
            gpu_evidence_hash: parts.hash,
            guarantee: "a test".into(),
            nonce: None,
            not_after: NOW_S + 600,
            not_before: NOW_S,
            pubkey_hash,
            weights: None,
        };
        let claims = claims.encode();
        let report_data: ReportData = key_report_data(&claims);
        let quote = self.attester.attest(&report_data).expect("a quote");
        let collateral = self.attester.collateral().expect("collateral");
        let endorsements = Endorsements::parse(&collateral).expect("it is readable");
        let policy = format!("{}{}\n[gpu]\n{gpu}\n", self.roots, self.policy);
        let policy = Policy::from_toml(&policy).expect("a policy");
        let evidence = Evidence {
            quote: &quote,
            claims: Some(&claims),
            report_data: None,
            gpu: parts
                .gpu
                .as_deref()
                .map(|evidence| PresentedGpuEvidence { evidence, nonce: parts.nonce }),
            ..Evidence::default()
        };
        appraise(&evidence, &endorsements, &policy, now(), &AwsLc)
            .map_err(|refused| refused.reason().clone())
    }
}

fn options() -> GpuOptions {
    GpuOptions::new([7; 32], NOW_S)
}

fn policy(gpu: &FakeGpu, table: &str) -> Policy {
    let roots =
        gpu.root_ders().map(|der| format!("\"sha256:{}\"", hex::encode(Sha256::digest(der))));
    let text = format!("roots = [{}]\n[gpu]\n{table}\n", roots.join(", "));
    Policy::from_toml(&text).expect("a policy")
}

fn judge(gpu: &FakeGpu, policy: &Policy) -> Result<GpuAppraised, Reason> {
    judge_bytes(&gpu.evidence(&NONCE), policy)
}

fn judge_bytes(bytes: &[u8], policy: &Policy) -> Result<GpuAppraised, Reason> {
    let appraised = GpuAppraisal::from_container(bytes, NONCE)?.appraise(policy, now(), &AwsLc);
    appraised.map_err(|refused| refused.reason().clone())
}

fn outcomes(checks: &[Check]) -> BTreeMap<&'static str, Outcome> {
    checks.iter().map(|check| (check.name, check.outcome)).collect()
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(NOW_S))
}
