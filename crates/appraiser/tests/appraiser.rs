//! The appraiser of a running program, with simulated evidence.

use std::thread;

use confide_appraiser::{AppraisalError, PolicyAppraiser};
use confide_evidence::{Appraise, BindingKind, PresentedEvidence, ReportData, claims::Claims};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Fault, Mode, Tee};
use confide_verifier::{Policy, Reason, Scope};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;

/// The configuration digest in the claims of every attested end here.
const CONFIGURATION: [u8; 32] = [7; 32];

fn now() -> u64 {
    NOW
}

#[test]
fn a_rejection_says_whose_endorsements_have_expired() {
    for tee in [Tee::Tdx, Tee::Snp] {
        let options = FakeAttesterOptions { tee, ..options() };
        let attester = FakeAttester::with_fault(options, Fault::ExpiredCrl).unwrap();
        let shown = PeerEvidence::from_attester(&attester);
        let own = attester.collateral_json();
        for collateral in [None, Some(own.as_bytes())] {
            let policy = Policy::from_toml(&attester.policy_toml_pinning(CONFIGURATION)).unwrap();
            let appraiser = PolicyAppraiser::new(policy, collateral, now).unwrap();
            let refused = appraiser.appraise(&shown.as_presented()).unwrap_err();
            let reason = refused.rejection().unwrap().reason();
            assert!(matches!(reason, Reason::OutsideWindow { .. }), "{refused}");
            assert_eq!(refused.has_own_endorsements(), collateral.is_some(), "{tee:?}");
        }
    }
}

/// Issue: a policy that names no program or no configuration opened the address with one warning.
#[test]
fn a_peer_of_which_only_the_platform_is_known_is_refused_unless_the_policy_is_content_with_that() {
    for tee in [Tee::Tdx, Tee::Snp] {
        let attester = FakeAttester::new(FakeAttesterOptions { tee, ..options() }).unwrap();
        let shown = PeerEvidence::from_attester(&attester);
        let whole = attester.policy_toml_pinning(CONFIGURATION);
        let configuration = attester.policy_toml();
        let no_workload = without_workload(&whole);
        let roots_only = format!(
            "{}\n[snp]\ntcb_min = \"dangerous-any\"\n",
            whole.lines().find(|line| line.starts_with("roots")).unwrap()
        );
        for (text, missing) in [
            (&configuration, vec!["config_digest"]),
            (&no_workload, vec!["workload"]),
            (&roots_only, vec!["workload", "config_digest"]),
        ] {
            let judge = |text: &str| {
                let policy = Policy::from_toml(text).unwrap();
                PolicyAppraiser::new(policy, None, now).unwrap().appraise(&shown.as_presented())
            };
            let refused = judge(text).unwrap_err();
            assert_eq!(refused.failed_check(), "scope", "{refused}");
            assert!(
                matches!(&refused, AppraisalError::Scope { missing: got } if *got == missing),
                "{refused}"
            );
            let content = judge(&format!("dangerous_scope = \"platform\"\n{text}")).unwrap();
            assert_eq!(content.verdict().scope(), Scope::Platform);
        }
        // A caller that passes the scope on gets the verdict, and decides by its scope.
        let policy = Policy::from_toml(&configuration).unwrap();
        let appraiser = PolicyAppraiser::new(policy, None, now).unwrap();
        let evidence = confide_verifier::Evidence {
            quote: &shown.quote,
            claims: Some(&shown.claims),
            report_data: Some(shown.report_data),
            ..Default::default()
        };
        let endorsements = Some(shown.collateral.as_bytes());
        let told = appraiser.judge_any_scope(&evidence, endorsements).unwrap();
        assert_eq!(told.verdict().scope(), Scope::Platform);
        assert!(appraiser.judge(&evidence, endorsements).is_err());
    }
}

/// The same policy without the table of its program, which stands last.
fn without_workload(text: &str) -> String {
    text.split_once("[workload.").unwrap().0.to_owned()
}

#[test]
fn a_known_platform_is_learnt_once_and_accepted_again() {
    let attester = FakeAttester::new(options()).unwrap();
    let appraiser = appraiser(&attester);
    let shown = PeerEvidence::from_attester(&attester);
    let first = appraiser.appraise(&shown.as_presented()).unwrap();
    assert_eq!(appraiser.platforms().entry_counts(), (1, 1));
    let again = appraiser.appraise(&PeerEvidence::from_attester(&attester).as_presented()).unwrap();
    assert_eq!(appraiser.platforms().entry_counts(), (1, 1));
    assert!(first.is_simulated() && again.is_simulated());
    assert_eq!(first.guarantee(), "none (simulated)");
    assert_eq!(first.verdict().to_json()["checks"], again.verdict().to_json()["checks"]);
}

#[test]
fn rejected_evidence_is_not_remembered_and_pushes_nothing_out() {
    let attester = FakeAttester::new(options()).unwrap();
    let appraiser = appraiser(&attester);
    appraiser.appraise(&PeerEvidence::from_attester(&attester).as_presented()).unwrap();
    let shown = PeerEvidence::from_attester(&attester);
    for at in (0..shown.quote.len()).step_by(97) {
        let mut spoiled = shown.quote.clone();
        spoiled[at] ^= 1;
        let refused =
            appraiser.appraise(&PresentedEvidence { quote: &spoiled, ..shown.as_presented() });
        assert!(refused.is_err() || spoiled[at] == b'\n' ^ 1, "byte {at}");
    }
    assert_eq!(appraiser.platforms().entry_counts(), (1, 1));
}

#[test]
fn a_newer_revocation_list_drops_what_was_learnt_under_the_older() {
    let old = FakeAttester::with_fault(options(), Fault::RolledBackCrl).unwrap();
    let new = FakeAttester::new(options()).unwrap();
    let appraiser = appraiser(&new);
    appraiser.appraise(&PeerEvidence::from_attester(&old).as_presented()).unwrap();
    appraiser.appraise(&PeerEvidence::from_attester(&new).as_presented()).unwrap();
    assert_eq!(appraiser.platforms().entry_counts(), (1, 1), "the old verdicts are gone");
    let error = appraiser.appraise(&PeerEvidence::from_attester(&old).as_presented()).unwrap_err();
    assert_eq!(error.failed_check(), "root_crl");
    appraiser.appraise(&PeerEvidence::from_attester(&new).as_presented()).unwrap();
}

#[test]
fn endorsements_of_ones_own_are_swapped_while_others_appraise() {
    let attester = FakeAttester::new(options()).unwrap();
    let later =
        FakeAttester::new(FakeAttesterOptions { issued_at: NOW - 60, ..options() }).unwrap();
    let policy = Policy::from_toml(&attester.policy_toml_pinning(CONFIGURATION)).unwrap();
    let collateral = attester.collateral_json();
    let appraiser = PolicyAppraiser::new(policy, Some(collateral.as_bytes()), now).unwrap();
    let unreadable = appraiser.replace_collateral(b"{}").unwrap_err();
    assert!(matches!(unreadable, AppraisalError::Collateral(_)));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    appraiser
                        .appraise(&PeerEvidence::from_attester(&attester).as_presented())
                        .unwrap();
                }
            });
        }
        let collateral = attester.collateral_json() + "\n";
        for _ in 0..5 {
            appraiser.replace_collateral(collateral.as_bytes()).unwrap();
        }
    });
    // Certificates issued at another second are other certificates.
    appraiser.replace_collateral(later.collateral_json().as_bytes()).unwrap();
    appraiser.appraise(&PeerEvidence::from_attester(&later).as_presented()).unwrap();
}

#[test]
fn a_crowd_with_the_same_new_endorsements_learns_one_platform() {
    let attester = FakeAttester::new(options()).unwrap();
    let appraiser = appraiser(&attester);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                appraiser.appraise(&PeerEvidence::from_attester(&attester).as_presented()).unwrap()
            });
        }
    });
    assert_eq!(appraiser.platforms().entry_counts(), (1, 1));
}

#[test]
fn evidence_without_endorsements_or_of_another_kind_is_refused() {
    let attester = FakeAttester::new(options()).unwrap();
    let appraiser = appraiser(&attester);
    let shown = PeerEvidence::from_attester(&attester);
    let bare = PresentedEvidence { collateral: None, ..shown.as_presented() };
    assert!(matches!(appraiser.appraise(&bare), Err(AppraisalError::NoCollateral)));
    for nothing in [&[] as &[u8], b"noise"] {
        let error =
            appraiser.appraise(&PresentedEvidence { quote: nothing, ..shown.as_presented() });
        assert_eq!(error.unwrap_err().failed_check(), "quote_format");
    }
}

#[test]
fn a_chip_key_of_amds_is_verified_once_and_an_older_list_is_refused_afterwards() {
    let amd = FakeAttesterOptions { tee: Tee::Snp, ..options() };
    let old = FakeAttester::with_fault(amd.clone(), Fault::RolledBackCrl).unwrap();
    let new = FakeAttester::new(amd).unwrap();
    let appraiser = appraiser(&new);
    appraiser.appraise(&PeerEvidence::from_attester(&old).as_presented()).unwrap();
    let yes = appraiser.appraise(&PeerEvidence::from_attester(&new).as_presented()).unwrap();
    assert!(yes.is_simulated());
    assert_eq!(yes.guarantee(), "none (simulated)");
    assert_eq!(appraiser.chip_key_count(), 2);
    let shown = PeerEvidence::from_attester(&new);
    let again = appraiser.appraise(&shown.as_presented()).unwrap();
    assert_eq!(appraiser.chip_key_count(), 2);
    assert_eq!(yes.verdict().to_json()["checks"], again.verdict().to_json()["checks"]);
    let error = appraiser.appraise(&PeerEvidence::from_attester(&old).as_presented()).unwrap_err();
    assert_eq!(error.failed_check(), "revocation");
    let mut spoiled = shown.quote.clone();
    spoiled[0x50] ^= 1;
    let error = appraiser.appraise(&PresentedEvidence { quote: &spoiled, ..shown.as_presented() });
    assert_eq!(error.unwrap_err().failed_check(), "report_signature");
    // White space is a peer's to choose, and fills no memory.
    let padded = format!("{}{}", " ".repeat(64 * 1024), new.collateral_json()).into_bytes();
    let padded = PresentedEvidence { collateral: Some(&padded), ..shown.as_presented() };
    appraiser.appraise(&padded).unwrap();
    assert_eq!(appraiser.chip_key_count(), 2);
    let bare = PresentedEvidence { collateral: None, ..shown.as_presented() };
    assert!(matches!(appraiser.appraise(&bare), Err(AppraisalError::NoCollateral)));
}

fn options() -> FakeAttesterOptions {
    let (seed, issued_at) = ([7; 32], NOW - 3_600);
    FakeAttesterOptions { seed, tee: Tee::Tdx, debug: false, issued_at, mode: Mode::Raw }
}

fn appraiser(attester: &FakeAttester) -> PolicyAppraiser {
    let policy = Policy::from_toml(&attester.policy_toml_pinning(CONFIGURATION)).unwrap();
    PolicyAppraiser::new(policy, None, now).unwrap()
}

/// The evidence that a peer presents on one connection.
struct PeerEvidence {
    quote: Vec<u8>,
    claims: Vec<u8>,
    collateral: String,
    report_data: ReportData,
}

impl PeerEvidence {
    fn from_attester(attester: &FakeAttester) -> Self {
        let claims = Claims {
            config_digest: CONFIGURATION,
            guarantee: "operator is outside the TEE".into(),
            nonce: None,
            not_after: NOW + 60,
            not_before: NOW - 60,
            pubkey_hash: [1; 32],
            gpu_evidence_hash: None,
            weights: None,
        };
        let report_data = ReportData([5; 64]);
        Self {
            quote: attester.quote(&report_data),
            claims: claims.encode(),
            collateral: attester.collateral_json(),
            report_data,
        }
    }

    fn as_presented(&self) -> PresentedEvidence<'_> {
        PresentedEvidence {
            binding: BindingKind::TlsExporter,
            claims: &self.claims,
            collateral: Some(self.collateral.as_bytes()),
            expected_report_data: self.report_data,
            gpu: None,
            quote: &self.quote,
        }
    }
}
