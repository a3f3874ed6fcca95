//! Simulated certificate chains and revocation lists before OpenSSL's command line.

use std::{fs, path::Path, process::Command};

use confide_evidence::{ReportData, quote::Quote};
use confide_fake_attester::{
    FakeAttester, FakeAttesterOptions, FakeEndorsements, Mode, PckCa, Product, SimulatedPlatform,
    SnpSigner, Tee,
};
use confide_tests::Folder;

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;

#[test]
fn openssl_verifies_amds_chains_with_their_pss_parameters() {
    let Some(folder) = scratch("amd") else { return };
    let dir = folder.path();
    let vendors = FakeEndorsements::new([1; 32], NOW).unwrap();
    for product in Product::ALL {
        for signer in [SnpSigner::Vcek, SnpSigner::Vlek] {
            let variant = SimulatedPlatform { product, signer, ..SimulatedPlatform::default() };
            let attester =
                FakeAttester::with_vendors(&vendors, options(Tee::Snp), variant, None).unwrap();
            let (intermediate, root) = last(attester.chain_pem().unwrap());
            write(dir, "root.pem", root);
            write(dir, "ca.pem", intermediate);
            write(dir, "leaf.der", attester.endorsement_key_der().unwrap());
            write(dir, "crl.der", attester.crl_der().unwrap());
            openssl(dir, "x509 -inform der -in leaf.der -out leaf.pem");
            openssl(dir, "crl -inform der -in crl.der -out crl.pem");
            openssl(dir, &format!("verify {AT} -CAfile root.pem -untrusted ca.pem leaf.pem"));
            openssl(
                dir,
                &format!("verify {AT} -crl_check -CRLfile crl.pem -CAfile root.pem ca.pem"),
            );
            openssl(dir, "crl -in crl.pem -CAfile root.pem -noout");
            let mut flipped = attester.endorsement_key_der().unwrap().to_vec();
            let near_the_end = flipped.len() - 100;
            flipped[near_the_end] ^= 1;
            write(dir, "leaf.der", &flipped);
            openssl(dir, "x509 -inform der -in leaf.der -out leaf.pem");
            assert_refused(
                dir,
                &format!("verify {AT} -CAfile root.pem -untrusted ca.pem leaf.pem"),
            );
        }
    }
}

#[test]
fn openssl_verifies_intels_chain_and_lists() {
    let Some(folder) = scratch("intel") else { return };
    let dir = folder.path();
    let vendors = FakeEndorsements::new([1; 32], NOW).unwrap();
    for pck_ca in [PckCa::Platform, PckCa::Processor] {
        for tee in [Tee::Tdx, Tee::TdxV5, Tee::Sgx] {
            let variant = SimulatedPlatform { pck_ca, ..SimulatedPlatform::default() };
            let attester =
                FakeAttester::with_vendors(&vendors, options(tee), variant, None).unwrap();
            let quote = attester.quote(&ReportData::ZERO);
            let chain = Quote::parse(&quote).unwrap().pck_chain;
            let chain = std::str::from_utf8(chain).unwrap().trim_end_matches('\0');
            let (rest, root) = last(chain);
            let (leaf, ca) = last(rest);
            let intel = vendors
                .issue_intel(&confide_fake_attester::EndorsementEdition::issued_at(NOW))
                .unwrap();
            write(dir, "root.pem", root);
            write(dir, "ca.pem", ca);
            write(dir, "leaf.pem", leaf);
            write(dir, "root.der", &intel.root_crl);
            let list = match pck_ca {
                PckCa::Platform => &intel.platform.crl,
                PckCa::Processor => &intel.processor.crl,
            };
            write(dir, "pck.der", list);
            openssl(dir, "crl -inform der -in root.der -out root-crl.pem");
            openssl(dir, "crl -inform der -in pck.der -out pck-crl.pem");
            let lists = "-crl_check_all -CRLfile root-crl.pem -CRLfile pck-crl.pem";
            let chain = "-CAfile root.pem -untrusted ca.pem leaf.pem";
            openssl(dir, &format!("verify {AT} {lists} {chain}"));
        }
    }
}

/// A minute after [`NOW`].
const AT: &str = "-attime 1780272060";

fn options(tee: Tee) -> FakeAttesterOptions {
    FakeAttesterOptions { seed: [1; 32], tee, debug: false, issued_at: NOW, mode: Mode::Raw }
}

/// All certificates but the last, and the last.
fn last(pem: &str) -> (&str, &str) {
    pem.split_at(pem.rfind("-----BEGIN").unwrap())
}

fn scratch(name: &str) -> Option<Folder> {
    if Command::new("openssl").arg("version").output().is_err() {
        println!("skipped: no openssl");
        return None;
    }
    Some(Folder::new(name))
}

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    fs::write(dir.join(name), bytes).unwrap();
}

fn openssl(dir: &Path, arguments: &str) {
    let (success, said) = run(dir, arguments);
    assert!(success, "openssl {arguments}: {said}");
    assert!(!said.contains("verify failure"), "openssl {arguments}: {said}");
}

fn assert_refused(dir: &Path, arguments: &str) {
    let (success, said) = run(dir, arguments);
    assert!(!success, "openssl {arguments}: {said}");
}

fn run(dir: &Path, arguments: &str) -> (bool, String) {
    let output =
        Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}
