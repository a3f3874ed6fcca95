//! The evidence from which mutations begin: simulated evidence of every kind, and published
//! evidence where it is at hand.

use std::{fs, path::PathBuf};

use confide_evidence::ReportData;
use confide_fake_attester::{
    FakeAttester, FakeAttesterOptions, FakeEndorsements, Fault, Mode, PckCa, SimulatedPlatform,
    TdBody, Tee,
};
use dcap_qvl::QuoteCollateralV3;
use serde_json::Value;

/// 2026-06-01.
pub(crate) const NOW: u64 = 1_780_272_000;
const SEED: [u8; 32] = [1; 32];

/// Evidence, its endorsements, and the time and root to judge it by.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) quote: Vec<u8>,
    pub(crate) collateral: QuoteCollateralV3,
    pub(crate) now: u64,
    pub(crate) root: Vec<u8>,
    /// The keys that can sign it again, where it is simulated.
    pub(crate) forger: Option<Forger>,
}

#[derive(Clone)]
pub(crate) struct Forger {
    pub(crate) vendors: FakeEndorsements,
    pub(crate) variant: SimulatedPlatform,
    pub(crate) tee: Tee,
}

pub(crate) fn all() -> Vec<Subject> {
    let mut all = simulated_subjects();
    all.extend(published_subjects());
    all
}

fn simulated_subjects() -> Vec<Subject> {
    let vendors = FakeEndorsements::new(SEED, NOW).unwrap();
    let processor =
        SimulatedPlatform { pck_ca: PckCa::Processor, platform: 1, ..SimulatedPlatform::default() };
    let td10 = SimulatedPlatform { td_body: TdBody::Td10, ..SimulatedPlatform::default() };
    let plain = SimulatedPlatform::default();
    let mut subjects = vec![
        (Tee::Tdx, plain, None),
        (Tee::Sgx, plain, None),
        (Tee::TdxV5, plain, None),
        (Tee::TdxV5, td10, None),
        (Tee::Tdx, processor, None),
        (Tee::Sgx, processor, None),
    ];
    for fault in [
        Fault::OutOfDate,
        Fault::SwHardeningNeeded,
        Fault::OutOfDateModule,
        Fault::OtherPckChain,
        Fault::RolledBackCrl,
        Fault::RevokedPck,
        Fault::UnknownTcbStatus,
    ] {
        subjects.push((Tee::Tdx, plain, Some(fault)));
    }
    let make = |(tee, variant, fault): (Tee, SimulatedPlatform, Option<Fault>)| {
        let options =
            FakeAttesterOptions { seed: SEED, tee, debug: false, issued_at: NOW, mode: Mode::Raw };
        let attester = FakeAttester::with_vendors(&vendors, options, variant, fault).unwrap();
        Subject {
            name: format!("simulated {tee:?} {fault:?} {:?}", variant.pck_ca),
            quote: attester.quote(&ReportData([7; 64])),
            collateral: serde_json::from_str(&attester.collateral_json()).unwrap(),
            now: NOW + 60,
            root: attester.root_der().to_vec(),
            forger: Some(Forger { vendors: vendors.clone(), variant, tee }),
        }
    };
    subjects.into_iter().map(make).collect()
}

/// The published cases that are not mutations themselves.
fn published_subjects() -> Vec<Subject> {
    let vectors = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors"));
    let Ok(cases) = fs::read(vectors.join("cases.json")) else {
        println!("skipped: no foreign vectors");
        return Vec::new();
    };
    let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
    let root = fs::read(vectors.join("roots/intel-sgx-root-ca.der")).unwrap();
    let plain = |case: &&Value| {
        ["mutate_quote", "mutate_collateral", "root_ca_der_hex"].iter().all(|&f| case[f].is_null())
    };
    let read = |name: &Value| fs::read(vectors.join(name.as_str().unwrap())).unwrap();
    let subject = |case: &Value| Subject {
        name: case["name"].as_str().unwrap().to_owned(),
        quote: read(&case["quote"]),
        collateral: serde_json::from_slice(&read(&case["collateral"])).unwrap(),
        now: case["now"].as_u64().unwrap(),
        root: root.clone(),
        forger: None,
    };
    cases.iter().filter(plain).map(subject).collect()
}
