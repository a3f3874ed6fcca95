//! Prepared endorsements: what they cost, what they refuse, and that nothing known is believed
//! where it does not belong.

mod own_pki;
mod ways;

use std::{cell::Cell, time::Duration};

use confide_evidence::quote::Quote;
use confide_verifier::{
    Appraised, AwsLc, Crypto, Endorsements, Evidence, LastPlatform, NewVerdicts, NoMemory, P256Key,
    Policy, PreparedEndorsements, Reason, RecallPlatform, Roots, SignatureVerificationAlgorithm,
    UnixTime,
};
use own_pki::{BuiltEvidence, NOW, Recipe};
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature};
use ways::{memory, verdict_json};

#[test]
fn a_first_sight_costs_nine_signatures_and_a_known_platform_one() {
    let made = Recipe::default().make();
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    let (evidence, policy) = (evidence(&made), policy(&made));
    let (_, reference) = count_signatures(|| {
        confide_verifier::appraise(&evidence, &endorsements, &policy, unix_time(NOW), &Counting)
            .unwrap()
    });
    assert_eq!(reference, 9);
    let (prepared, signatures) = count_signatures(|| {
        endorsements.prepare(&policy.roots, unix_time(NOW), &Counting).unwrap()
    });
    // Root CRL, TCB signer, TCB info, QE identity, PCK CA, PCK CRL: six above the platform.
    assert_eq!(signatures, 6);
    let ask = |known: &dyn RecallPlatform| {
        count_signatures(|| {
            prepared.appraise(&evidence, &policy, unix_time(NOW), &Counting, known).unwrap()
        })
    };
    let ((_, learned), signatures) = ask(&NoMemory);
    assert_eq!(signatures, 3);
    assert!(learned.pck.is_none() && learned.enclave.is_none(), "nobody remembers");
    let ((_, learned), signatures) = ask(&memory(None));
    assert_eq!(signatures, 3);
    let pck_only = NewVerdicts { enclave: None, ..learned.clone() };
    let ((_, more), signatures) = ask(&memory(Some(&pck_only)));
    assert_eq!(signatures, 2);
    assert!(more.pck.is_none() && more.enclave.is_some());
    let ((_, more), signatures) = ask(&memory(Some(&learned)));
    assert_eq!(signatures, 1);
    assert!(more.pck.is_none() && more.enclave.is_none());
}

#[test]
fn what_was_learnt_elsewhere_is_learnt_again() {
    let made = Recipe::default().make();
    let policy = policy(&made);
    let prepared = prepare(&made);
    let learned = learn(&prepared, &made);
    let cost =
        |prepared: &PreparedEndorsements, made: &BuiltEvidence, known: &LastPlatform, now: u64| {
            let evidence = evidence(made);
            let policy = self::policy(made);
            count_signatures(|| {
                prepared.appraise(&evidence, &policy, unix_time(now), &Counting, known).unwrap()
            })
            .1
        };
    assert_eq!(cost(&prepared, &made, &memory(Some(&learned)), NOW), 1);
    // Another platform's bytes, and other endorsements.
    let other = Recipe::default().make();
    assert_eq!(cost(&prepare(&other), &other, &memory(Some(&learned)), NOW), 3);
    // The same endorsements in other words are another generation.
    let text = String::from_utf8(made.collateral.clone()).unwrap();
    let spaced = text.replace(r"-----END CERTIFICATE-----\n", r"-----END CERTIFICATE-----\n\n");
    assert_ne!(text, spaced);
    let again = Endorsements::parse(spaced.as_bytes()).unwrap();
    let again = again.prepare(&policy.roots, unix_time(NOW), &AwsLc).unwrap();
    assert_ne!(again.endorsements_id(), prepared.endorsements_id());
    assert_eq!(cost(&again, &made, &memory(Some(&learned)), NOW), 3);
    // Another process' secret.
    let foreign = LastPlatform {
        secret: confide_verifier::TagKey::new(*b"another process!"),
        ..memory(Some(&learned))
    };
    assert_eq!(cost(&prepared, &made, &foreign, NOW), 3);
    // Too old, and from the future.
    let lifetime = policy.cache_lifetime_s;
    assert_eq!(cost(&prepared, &made, &memory(Some(&learned)), NOW + lifetime), 1);
    assert_eq!(cost(&prepared, &made, &memory(Some(&learned)), NOW + lifetime + 1), 3);
    assert_eq!(cost(&prepared, &made, &memory(Some(&learned)), NOW - 1), 3);
}

#[test]
fn another_leaf_before_a_known_quoting_enclave_is_not_taken_for_the_known_one() {
    let made = Recipe::default().make();
    let prepared = prepare(&made);
    let learned = learn(&prepared, &made);
    let quote = Quote::parse(&made.quote).unwrap();
    let start = made.quote.len() - quote.pck_chain.len();
    // Every byte of the certification data counts, signature and authentication data included.
    for at_byte in (start - 38..made.quote.len()).step_by(7) {
        let mut spoiled = made.quote.clone();
        spoiled[at_byte] ^= 1;
        let evidence = Evidence { quote: &spoiled, ..Evidence::default() };
        let known = memory(Some(&learned));
        let policy = policy(&made);
        let ask = |known: &dyn RecallPlatform| {
            verdict_json(
                &prepared
                    .appraise(&evidence, &policy, unix_time(NOW), &AwsLc, known)
                    .map(|it| it.0),
            )
        };
        assert_eq!(ask(&known), ask(&NoMemory), "byte {at_byte}");
    }
}

#[test]
fn a_rejection_teaches_nothing() {
    let made = Recipe { td_attributes: 0, ..Recipe::default() }.make();
    let prepared = prepare(&made);
    let known = memory(None);
    let no = prepared.appraise(&evidence(&made), &policy(&made), unix_time(NOW), &AwsLc, &known);
    assert!(matches!(no.unwrap_err().reason(), Reason::TdAttributes { .. }));
}

#[test]
fn a_prepared_set_ends_where_the_reference_ends_and_names_the_same_document() {
    for crl_life in [((2026, 5, 20), (2026, 6, 10)), ((2026, 5, 25), (2026, 7, 19))] {
        let made = Recipe { crl_life, ..Recipe::default() }.make();
        let endorsements = Endorsements::parse(&made.collateral).unwrap();
        let prepared = prepare(&made);
        let learned = learn(&prepared, &made);
        let (evidence, policy) = (evidence(&made), policy(&made));
        let policy = Policy { cache_lifetime_s: u64::MAX, ..policy };
        let (from, until) = prepared.validity();
        let far = [0, u64::from(u32::MAX), u64::MAX];
        for now in [from - 1, from, NOW, until, until + 1].into_iter().chain(far) {
            let reference = confide_verifier::appraise(
                &evidence,
                &endorsements,
                &policy,
                unix_time(now),
                &AwsLc,
            );
            assert_eq!(reference.is_ok(), (from..=until).contains(&now), "{now}");
            for known in [&NoMemory as &dyn RecallPlatform, &memory(Some(&learned))] {
                let it = prepared.appraise(&evidence, &policy, unix_time(now), &AwsLc, known);
                assert_eq!(verdict_json(&it.map(|it| it.0)), verdict_json(&reference), "{now}");
            }
        }
    }
}

#[test]
fn a_prepared_set_is_refused_by_a_policy_that_does_not_trust_its_root() {
    let made = Recipe::default().make();
    let prepared = prepare(&made);
    let learned = learn(&prepared, &made);
    let policy = Policy::default();
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    let reference = confide_verifier::appraise(
        &evidence(&made),
        &endorsements,
        &policy,
        unix_time(NOW),
        &AwsLc,
    );
    let known = memory(Some(&learned));
    let it = prepared.appraise(&evidence(&made), &policy, unix_time(NOW), &AwsLc, &known);
    let it: Result<Appraised, _> = it.map(|it| it.0);
    assert!(matches!(it.as_ref().unwrap_err().reason(), Reason::UntrustedRoot { .. }));
    assert_eq!(verdict_json(&it), verdict_json(&reference));
}

#[test]
fn an_empty_quote_is_refused_by_a_named_check() {
    let made = Recipe::default().make();
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    let evidence = Evidence { quote: &[], ..Evidence::default() };
    let no = ways::appraise(&evidence, &endorsements, &policy(&made), unix_time(NOW), &AwsLc);
    let no = no.unwrap_err();
    assert_eq!(no.checks()[0].name, "quote_format");
    assert_eq!(no.checks()[0].outcome, confide_verifier::Outcome::Failed);
}

fn prepare(made: &BuiltEvidence) -> PreparedEndorsements {
    let endorsements = Endorsements::parse(&made.collateral).unwrap();
    endorsements.prepare(&policy(made).roots, unix_time(NOW), &AwsLc).unwrap()
}

fn learn(prepared: &PreparedEndorsements, made: &BuiltEvidence) -> NewVerdicts {
    let known = memory(None);
    prepared.appraise(&evidence(made), &policy(made), unix_time(NOW), &Counting, &known).unwrap().1
}

fn evidence(made: &BuiltEvidence) -> Evidence<'_> {
    Evidence { quote: &made.quote, claims: None, report_data: None, gpu: None, binding: None }
}

fn policy(made: &BuiltEvidence) -> Policy {
    Policy { roots: Roots::from_der(&made.root_der), ..Policy::default() }
}

fn unix_time(unix: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix))
}

thread_local! {
    static SIGNATURES: Cell<u32> = const { Cell::new(0) };
}

fn count_signatures<T>(work: impl FnOnce() -> T) -> (T, u32) {
    SIGNATURES.set(0);
    let done = work();
    (done, SIGNATURES.get())
}

fn count() {
    SIGNATURES.set(SIGNATURES.get() + 1);
}

/// aws-lc-rs, with every P-256 verification counted on its thread.
#[derive(Debug)]
struct Counting;

impl Crypto for Counting {
    fn verify_p256(&self, public_key: &[u8; 65], message: &[u8], signature: &[u8; 64]) -> bool {
        count();
        AwsLc.verify_p256(public_key, message, signature)
    }

    fn prepare_p256(&self, public_key: &[u8; 65]) -> Option<Box<dyn P256Key>> {
        Some(Box::new(CountingKey(AwsLc.prepare_p256(public_key)?)))
    }

    fn sha256(&self, parts: &[&[u8]]) -> [u8; 32] {
        AwsLc.sha256(parts)
    }

    fn verify_p384(&self, public_key: &[u8; 97], message: &[u8], signature: &[u8; 96]) -> bool {
        AwsLc.verify_p384(public_key, message, signature)
    }

    fn sha384(&self, parts: &[&[u8]]) -> [u8; 48] {
        AwsLc.sha384(parts)
    }

    fn p384_certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm {
        AwsLc.p384_certificate_algorithm()
    }

    fn amd_certificate_algorithms(&self) -> [&'static dyn SignatureVerificationAlgorithm; 2] {
        AwsLc.amd_certificate_algorithms()
    }

    fn certificate_algorithm(&self) -> &'static dyn SignatureVerificationAlgorithm {
        &Counting
    }
}

#[derive(Debug)]
struct CountingKey(Box<dyn P256Key>);

impl P256Key for CountingKey {
    fn verify(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        count();
        self.0.verify(message, signature)
    }
}

impl SignatureVerificationAlgorithm for Counting {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        count();
        AwsLc.certificate_algorithm().verify_signature(public_key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        AwsLc.certificate_algorithm().public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        AwsLc.certificate_algorithm().signature_alg_id()
    }
}
