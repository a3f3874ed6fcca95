//! Inputs of `dcap` written by the command line's writer and read by the guest's own reader, over
//! real quotes.

mod prover;

use std::fs;

use confide_guest_dcap::{DcapInput, run as appraise};
use confide_prover::DcapGuestInput;
use confide_verifier::AwsLc;
use prover::{Folder, repository, run};

/// A real quote of each kind, its collateral, and an instant at which they hold.
const REAL: [(&str, &str, u64); 3] = [
    ("tdx-v4-gcp-a.bin", "00806f-2026-06-eval19.json", 1_784_102_583),
    ("tdx-v5-go.bin", "90c06f-2026-06-eval19.json", 1_782_215_795),
    ("sgx-v3-qvl.bin", "sgx-00a067-2025-06-eval17.json", 1_751_624_924),
];

#[test]
fn the_guest_reads_what_the_command_line_writes() {
    let folder = repository("../shared/vectors");
    if !folder.is_dir() {
        println!("skipped: no foreign vectors");
        return;
    }
    for (quote, collateral, at) in REAL {
        let quote = fs::read(folder.join("quotes").join(quote)).unwrap();
        let json = fs::read(folder.join("collateral").join(collateral)).unwrap();
        let known = DcapInput::new(&quote, &json, at).unwrap();
        for within in [(0, u64::MAX), (at - 1, at + 1), (at, at)] {
            let bytes = write_input(&known, within);
            let read = DcapInput::decode(&bytes).unwrap();
            assert_eq!((read.at, read.not_before, read.not_after), (at, within.0, within.1));
            assert_eq!(read.quote, quote);
            assert_eq!(format!("{:?}", read.collateral), format!("{:?}", known.collateral));
            // One encoding: each writes what the other does.
            assert_eq!(bytes, read.encode());
            let statement = appraise(&bytes, &AwsLc).unwrap();
            let confide_statement::Statement::Dcap(dcap) = &statement else { panic!("another") };
            assert!(within.0 <= dcap.valid_from && dcap.valid_until <= within.1);
        }
    }
}

#[test]
fn a_real_quote_is_emulated_to_the_statement_that_the_verifier_gives() {
    let vectors = repository("../shared/vectors");
    let (quote, collateral, at) = REAL[0];
    let Ok(quote) = fs::read(vectors.join("quotes").join(quote)) else {
        println!("skipped: no foreign vectors");
        return;
    };
    let json = fs::read(vectors.join("collateral").join(collateral)).unwrap();
    let bytes = write_input(&DcapInput::new(&quote, &json, at).unwrap(), (0, u64::MAX));
    let wanted = appraise(&bytes, &AwsLc).unwrap();
    let folder = Folder::new();
    let input = folder.file("input", &bytes);
    let emulated = run(&["emulate", "--guest", "dcap", "--input", &input]).into_result();
    assert_eq!(emulated.public_values.0, wanted.digest());
    assert!(emulated.cycles.unwrap() < 3_000_000, "{:?}", emulated.cycles);
}

fn write_input(known: &DcapInput, within: (u64, u64)) -> Vec<u8> {
    let it = &known.collateral;
    let parts = DcapGuestInput {
        at: known.at,
        within,
        quote: &known.quote,
        pck_crl_issuer_chain: &it.pck_crl_issuer_chain,
        root_ca_crl: &it.root_ca_crl,
        pck_crl: &it.pck_crl,
        tcb_info_issuer_chain: &it.tcb_info_issuer_chain,
        tcb_info: &it.tcb_info,
        tcb_info_signature: &it.tcb_info_signature,
        qe_identity_issuer_chain: &it.qe_identity_issuer_chain,
        qe_identity: &it.qe_identity,
        qe_identity_signature: &it.qe_identity_signature,
        pck_certificate_chain: it.pck_certificate_chain.as_deref().unwrap_or_default(),
    };
    parts.encode()
}
