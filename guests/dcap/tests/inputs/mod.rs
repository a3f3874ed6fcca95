//! Inputs of the program: simulated, real, changed.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::PathBuf;

use confide_evidence::ReportData;
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Fault, Mode, Tee};
use confide_guest_dcap::DcapInput;

/// 2026-06-01 in Unix seconds.
pub(crate) const NOW: u64 = 1_780_272_000;

/// A real quote of each kind, its collateral, and an instant at which they hold.
const REAL: [(&str, &str, u64); 3] = [
    ("tdx-v4-gcp-a.bin", "00806f-2026-06-eval19.json", 1_784_102_583),
    ("tdx-v5-go.bin", "90c06f-2026-06-eval19.json", 1_782_215_795),
    ("sgx-v3-qvl.bin", "sgx-00a067-2025-06-eval17.json", 1_751_624_924),
];

/// An honest simulated quote of each kind.
pub(crate) fn simulated_inputs() -> Vec<Vec<u8>> {
    let kinds = [Tee::Tdx, Tee::TdxV5, Tee::Sgx];
    kinds.map(|tee| input(&attester(tee, None), NOW).encode()).into()
}

/// Inputs of real quotes; none, with a printed line, where the folder is absent.
pub(crate) fn real() -> Vec<Vec<u8>> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors"));
    let inputs = REAL.iter().map_while(|(quote, collateral, at)| {
        let quote = std::fs::read(folder.join("quotes").join(quote)).ok()?;
        let collateral = std::fs::read(folder.join("collateral").join(collateral)).ok()?;
        Some(DcapInput::new(&quote, &collateral, *at).unwrap().encode())
    });
    let inputs: Vec<_> = inputs.collect();
    if inputs.is_empty() {
        println!("skipped: no foreign vectors");
    }
    inputs
}

/// Copies with one bit changed each, at places that differ from input to input. The magic stays.
pub(crate) fn changed_copies(input: &[u8], count: usize, nth: usize) -> Vec<Vec<u8>> {
    let step = input.len() / count;
    let places = (16..input.len() - step).step_by(step).map(|at| at + nth);
    places
        .map(|at| {
            let mut changed = input.to_vec();
            changed[at] ^= 1 << (at % 8);
            changed
        })
        .collect()
}

pub(crate) fn input(attester: &FakeAttester, now: u64) -> DcapInput {
    let quote = attester.quote(&ReportData([7; 64]));
    DcapInput::new(&quote, attester.collateral_json().as_bytes(), now).unwrap()
}

pub(crate) fn attester(tee: Tee, fault: Option<Fault>) -> FakeAttester {
    match fault {
        None => FakeAttester::new(options(tee)),
        Some(fault) => FakeAttester::with_fault(options(tee), fault),
    }
    .unwrap()
}

pub(crate) fn options(tee: Tee) -> FakeAttesterOptions {
    FakeAttesterOptions { seed: [1; 32], tee, debug: false, issued_at: NOW, mode: Mode::Raw }
}
