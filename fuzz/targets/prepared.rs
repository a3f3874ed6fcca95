//! Mutated quotes before both paths: the slow reference and prepared endorsements, with a platform
//! known and not, must give the same verdict and the same words.
#![no_main]

use std::{sync::OnceLock, time::Duration};

use confide_evidence::ReportData;
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, Tee};
use confide_verifier::{
    Appraised, AwsLc, Endorsements, Evidence, LastPlatform, NoMemory, Policy, PreparedEndorsements,
    RecallPlatform, Rejection, TagKey, UnixTime, appraise,
};
use libfuzzer_sys::fuzz_target;

/// The time of appraisal, in Unix seconds: 2026-06-01.
const NOW: u64 = 1_780_272_000;

struct Ground {
    quote: Vec<u8>,
    policy: Policy,
    endorsements: Endorsements,
    prepared: PreparedEndorsements,
    known: LastPlatform,
}

static GROUND: OnceLock<Ground> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let ground = GROUND.get_or_init(ground);
    let mut quote = ground.quote.clone();
    for change in data.chunks_exact(3).take(8) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % quote.len();
        quote[at] ^= change[2];
    }
    if let [first, ..] = data.chunks_exact(3).remainder() {
        quote.truncate(quote.len() - usize::from(*first));
    }
    let evidence = Evidence { quote: &quote, ..Evidence::default() };
    let (policy, now) = (&ground.policy, now());
    let reference = appraise(&evidence, &ground.endorsements, policy, now, &AwsLc);
    for memory in [&NoMemory as &dyn RecallPlatform, &ground.known] {
        let it = ground.prepared.appraise(&evidence, policy, now, &AwsLc, memory);
        assert_eq!(render_verdict(&it.map(|it| it.0)), render_verdict(&reference));
    }
});

fn ground() -> Ground {
    let options = FakeAttesterOptions {
        seed: [7; 32],
        tee: Tee::Tdx,
        debug: false,
        issued_at: NOW - 3_600,
        mode: Mode::Raw,
    };
    let attester = FakeAttester::new(options).expect("an attester");
    let policy = Policy::from_toml(&attester.policy_toml()).expect("its policy");
    let endorsements =
        Endorsements::parse(attester.collateral_json().as_bytes()).expect("its collateral");
    let prepared = endorsements.clone().prepare(&policy.roots, now(), &AwsLc).expect("it holds");
    let quote = attester.quote(&ReportData::ZERO);
    let mut known = LastPlatform { secret: TagKey::new([9; 16]), pck: None, enclave: None };
    let evidence = Evidence { quote: &quote, ..Evidence::default() };
    let yes = prepared.appraise(&evidence, &policy, now(), &AwsLc, &known);
    let (_, learned) = yes.expect("its quote");
    (known.pck, known.enclave) = (learned.pck, learned.enclave);
    Ground { quote, policy, endorsements, prepared, known }
}

fn render_verdict(verdict: &Result<Appraised, Rejection>) -> String {
    match verdict {
        Ok(appraised) => appraised.to_json().to_string(),
        Err(rejection) => rejection.to_json().to_string(),
    }
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(NOW))
}
