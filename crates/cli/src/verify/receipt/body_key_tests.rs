//! Reports that give a key for bodies, and reports that are refused by name.

use confide_encrypted_body::RecipientKey;
use confide_evidence::weights_claim::{MeasuredWeights, WeightsSource};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, Tee};
use confide_receipt::{Keyset, ReportContent};
use confide_verifier::Reason;

use super::*;

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
const NOT_AFTER: u64 = NOW + 3600;
const CONFIG: [u8; 32] = [7; 32];
const NONCE: Nonce = [9; 32];

/// A simulated gateway with the keys that its keyset lists.
struct Gateway {
    attester: FakeAttester,
    entries: Vec<BodyKeyEntry>,
}

impl Gateway {
    fn new(tee: Tee, kems: &[BodyKem]) -> Self {
        let mode = Mode::Raw;
        let options =
            FakeAttesterOptions { seed: [3; 32], tee, debug: false, issued_at: NOW, mode };
        let attester = FakeAttester::new(options).unwrap();
        Self { attester, entries: kems.iter().map(|kem| make_entry(*kem)).collect() }
    }

    fn with_weights(digests: &[Option<u8>]) -> Self {
        let mut gateway = Self::new(Tee::Tdx, &BodyKem::ALL);
        let servers = digests.iter().map(|digest| {
            let source = WeightsSource::HashedAtStart;
            digest.map(|byte| MeasuredWeights { source, digest: [byte; 32] })
        });
        let claim = WeightsClaim::from_servers(servers);
        for entry in &mut gateway.entries {
            entry.weights = claim.clone();
        }
        gateway
    }

    fn keyset(&self) -> Keyset {
        Keyset::new("receipt-1", &[1; 32], &[5; 32], NOT_AFTER).with_body_keys(&self.entries)
    }

    /// A report with `keyset`, and a quote over `quoted`.
    fn report_with(&self, keyset: &Keyset, quoted: &Keyset) -> String {
        let content = ReportContent {
            keyset,
            nonce: Some(&NONCE),
            tee_type: "tdx",
            quote: &self.attester.quote(&quoted.report_data(Some(&NONCE))),
            collateral: Some(&self.attester.collateral_json()),
            is_simulated: true,
            is_direct: true,
        };
        content.to_json()
    }

    /// The policy that pins the gateway, with one more line.
    fn policy_with(&self, line: &str) -> Policy {
        let pinning = self.attester.policy_toml_pinning(CONFIG);
        let text = pinning.replacen("[workload", &format!("{line}\n[workload"), 1);
        assert_ne!(text, pinning);
        Policy::from_toml(&text).unwrap()
    }

    fn judge(&self, policy: &Policy) -> Result<AcceptedBodyKey, BodyKeyRefusal> {
        let keyset = self.keyset();
        let report = self.report_with(&keyset, &keyset);
        judge_body_key(report.as_bytes(), &NONCE, policy, None, NOW)
    }

    fn refusal(&self, policy: &Policy) -> BodyKeyRefusal {
        self.judge(policy).err().expect("it is refused")
    }
}

fn make_entry(kem: BodyKem) -> BodyKeyEntry {
    let key = RecipientKey::generate(kem).unwrap();
    BodyKeyEntry {
        algorithm: kem.algorithm().into(),
        key_id: "body-1".into(),
        public_key: key.public_key().as_bytes().to_vec(),
        config_digest: CONFIG,
        weights: None,
    }
}

#[test]
fn a_pinned_gateway_gives_its_hybrid_key_or_else_the_classical_one() {
    for tee in [Tee::Sgx, Tee::Tdx, Tee::TdxV5, Tee::Snp] {
        let gateway = Gateway::new(tee, &[BodyKem::X25519, BodyKem::XWing]);
        let accepted = gateway.judge(&gateway.policy_with("")).unwrap();
        assert_eq!(accepted.key.key.kem(), BodyKem::XWing);
        assert_eq!(accepted.key.key.as_bytes(), gateway.entries[1].public_key);
        assert_eq!((accepted.key.not_after, accepted.config_digest), (NOT_AFTER, CONFIG));
        assert_eq!((accepted.scope, accepted.weights), (Scope::Workload, None));
        assert!(accepted.is_simulated, "{tee:?}");
    }
    let mut gateway = Gateway::new(Tee::Tdx, &[BodyKem::X25519, BodyKem::XWing]);
    gateway.entries[1].public_key.pop();
    let accepted = gateway.judge(&gateway.policy_with("")).unwrap();
    assert_eq!(accepted.key.key.kem(), BodyKem::X25519, "the other one is no key");
}

#[test]
fn a_keyset_without_a_usable_key_is_refused() {
    let mut gateway = Gateway::new(Tee::Tdx, &[]);
    assert!(matches!(gateway.refusal(&gateway.policy_with("")), BodyKeyRefusal::NoKey));
    gateway.entries.push(make_entry(BodyKem::X25519));
    gateway.entries[0].algorithm = "x25519-aes-256-gcm-hkdf-sha256".into();
    assert!(matches!(gateway.refusal(&gateway.policy_with("")), BodyKeyRefusal::NoKey));
}

#[test]
fn a_key_that_the_quote_does_not_cover_is_refused() {
    let gateway = Gateway::new(Tee::Tdx, &BodyKem::ALL);
    let other = Gateway::new(Tee::Tdx, &BodyKem::ALL);
    // All digests are those of the proxy's own keyset, and the quote is the gateway's.
    let report = gateway.report_with(&other.keyset(), &gateway.keyset());
    let policy = gateway.policy_with("");
    let refused = judge_body_key(report.as_bytes(), &NONCE, &policy, None, NOW);
    let Some(BodyKeyRefusal::Report(ReceiptRefusal::Evidence(rejection))) = refused.err() else {
        panic!("accepted, or refused for another reason");
    };
    let reason = rejection.reason();
    assert!(matches!(reason, Reason::Value { field: "report data", .. }), "{reason}");
}

#[test]
fn a_report_for_another_nonce_or_of_another_time_is_refused() {
    let gateway = Gateway::new(Tee::Tdx, &BodyKem::ALL);
    let (keyset, policy) = (gateway.keyset(), gateway.policy_with(""));
    let report = gateway.report_with(&keyset, &keyset);
    let judge = |nonce: &Nonce, at: u64| {
        judge_body_key(report.as_bytes(), nonce, &policy, None, at).err().map(|it| it.to_string())
    };
    assert_eq!(judge(&NONCE, NOT_AFTER), None);
    assert!(judge(&[8; 32], NOW).unwrap().starts_with("report: "));
    assert!(judge(&NONCE, NOT_AFTER + 1).unwrap().contains("the keyset expired at"));
    let short = gateway.policy_with("key_validity_s_max = 60");
    let refused = gateway.refusal(&short);
    assert!(matches!(refused, BodyKeyRefusal::KeysetLife { wanted: 60, got: 3600 }), "{refused}");
}

#[test]
fn the_configuration_has_to_be_one_that_the_policy_pins() {
    let mut gateway = Gateway::new(Tee::Tdx, &BodyKem::ALL);
    for entry in &mut gateway.entries {
        entry.config_digest = [8; 32];
    }
    let refused = gateway.refusal(&gateway.policy_with(""));
    let (ours, other) = (hex::encode(CONFIG), hex::encode([8; 32]));
    let BodyKeyRefusal::Configuration { wanted, got } = refused else { panic!("{refused}") };
    assert_eq!((wanted, got), (ours, other));
}

#[test]
fn a_policy_that_knows_the_platform_only_has_to_say_so() {
    let gateway = Gateway::new(Tee::Tdx, &BodyKem::ALL);
    let unpinned = Policy::from_toml(&gateway.attester.policy_toml()).unwrap();
    assert!(matches!(gateway.refusal(&unpinned), BodyKeyRefusal::PlatformOnly));
    let without_program = Policy { workload: None, ..gateway.policy_with("") };
    assert!(matches!(gateway.refusal(&without_program), BodyKeyRefusal::PlatformOnly));
    let dangerous = Policy::from_toml(&gateway.attester.dangerous_policy_toml()).unwrap();
    assert_eq!(gateway.judge(&dangerous).unwrap().scope, Scope::Platform);
}

#[test]
fn a_demand_for_session_binding_is_refused() {
    let gateway = Gateway::new(Tee::Tdx, &BodyKem::ALL);
    let session = gateway.policy_with("binding = \"session\"");
    assert!(matches!(gateway.refusal(&session), BodyKeyRefusal::Session));
    assert!(gateway.judge(&gateway.policy_with("binding = \"key\"")).is_ok());
}

#[test]
fn demanded_weights_have_to_be_those_of_every_model() {
    let demand = format!("weights = \"{}\"", hex::encode([4; 32]));
    for (digests, is_accepted) in [
        (&[Some(4)][..], true),
        (&[Some(4), Some(4)], true),
        (&[], false),
        (&[None], false),
        (&[Some(4), None], false),
        (&[Some(4), Some(5)], false),
        (&[Some(5)], false),
    ] {
        let gateway = Gateway::with_weights(digests);
        match gateway.judge(&gateway.policy_with(&demand)) {
            Ok(accepted) => {
                assert!(is_accepted, "{digests:?}");
                assert_eq!(accepted.weights, gateway.entries[0].weights);
            }
            Err(BodyKeyRefusal::Weights { wanted, got }) => {
                assert!(!is_accepted, "{digests:?}");
                assert_eq!(wanted, hex::encode([4; 32]));
                assert_eq!(got, WeightsClaim::describe(gateway.entries[0].weights.as_ref()));
            }
            Err(other) => panic!("{digests:?}: {other}"),
        }
        // Without a demand, and where the policy says so, any will do.
        for line in ["", "weights = \"dangerous-any\""] {
            assert!(gateway.judge(&gateway.policy_with(line)).is_ok(), "{digests:?} {line}");
        }
    }
}
