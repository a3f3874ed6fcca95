//! Simulated SEV-SNP evidence before the `sev` crate, and compared with AMD's own certificates.

use std::{collections::HashMap, fs, path::PathBuf, sync::LazyLock};

use confide_evidence::ReportData;
use confide_fake_attester::{
    EndorsementEdition, FakeAttester, FakeAttesterOptions, FakeEndorsements, Fault, Mode, Product,
    ReportVersion, SimulatedPlatform, SnpSigner, Tee,
};
use sev::{
    certs::snp::{Certificate, Chain, Verifiable, ca},
    firmware::guest::AttestationReport,
    parser::ByteParser,
};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
const SEED: [u8; 32] = [1; 32];

/// RSA keys take a while: one set of vendors for the whole file.
static VENDORS: LazyLock<FakeEndorsements> =
    LazyLock::new(|| FakeEndorsements::new(SEED, NOW).unwrap());

#[test]
fn the_sev_crate_accepts_every_product_signer_and_version() {
    for variant in variants() {
        let attester = attester(variant, None);
        let report = attester.quote(&ReportData([7; 64]));
        let parsed = AttestationReport::from_bytes(&report).unwrap();
        assert_eq!(parsed.report_data[..], [7; 64]);
        assert_eq!(parsed.version, number(variant.report_version));
        let chain = chain(&attester);
        (&chain, &parsed).verify().unwrap_or_else(|error| panic!("{variant:?}: {error}"));
        let tcb = parsed.reported_tcb;
        if variant.product == Product::Turin && variant.report_version != ReportVersion::V2 {
            assert_eq!((tcb.fmc, tcb.bootloader, tcb.snp, tcb.microcode), (Some(1), 1, 4, 88));
        }
    }
}

#[test]
fn the_sev_crate_refuses_a_flipped_byte() {
    let attester = attester(SimulatedPlatform::default(), None);
    let chain = chain(&attester);
    let report = attester.quote(&ReportData::ZERO);
    for offset in [0x04, 0x50, 0x90, 0x1a0, 0x2a0, 0x2e8] {
        let mut report = report.clone();
        report[offset] ^= 1;
        let Ok(parsed) = AttestationReport::from_bytes(&report) else { continue };
        assert!((&chain, &parsed).verify().is_err(), "{offset:#x}");
    }
}

#[test]
fn the_sev_crate_refuses_the_chain_of_another_signer() {
    let vcek = attester(SimulatedPlatform::default(), None);
    let vlek = attester(
        SimulatedPlatform { signer: SnpSigner::Vlek, ..SimulatedPlatform::default() },
        None,
    );
    let report = AttestationReport::from_bytes(&vcek.quote(&ReportData::ZERO)).unwrap();
    assert!((&chain(&vlek), &report).verify().is_err());
    let mixed = Chain { ca: chain(&vlek).ca, vek: chain(&vcek).vek };
    assert!((&mixed, &report).verify().is_err());
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let (a, b) = (attester(SimulatedPlatform::default(), None), {
        FakeAttester::with_variant(options(), SimulatedPlatform::default(), None).unwrap()
    });
    assert_eq!(a.root_der(), b.root_der());
    assert_eq!(a.collateral_json(), b.collateral_json());
    assert_eq!(a.quote(&ReportData::ZERO), b.quote(&ReportData::ZERO));
}

#[test]
fn the_certificate_that_the_vendor_gives_for_a_chip_is_the_attesters_own() {
    let attester = attester(SimulatedPlatform::default(), None);
    let report = attester.quote(&ReportData::ZERO);
    let chip_id: [u8; 64] = report[0x1a0..0x1e0].try_into().unwrap();
    let tcb = confide_fake_attester::SnpTcb {
        fmc: 0,
        bootloader: report[0x180],
        tee: report[0x181],
        snp: report[0x186],
        microcode: report[0x187],
    };
    let der = VENDORS.vcek(Product::Milan, &chip_id, tcb);
    assert_eq!(Some(der.as_slice()), attester.endorsement_key_der());
}

#[test]
fn an_edition_changes_the_revocation_list_and_no_certificate() {
    let now = VENDORS.issue_amd(Product::Milan, &EndorsementEdition::issued_at(NOW));
    let mut later = EndorsementEdition::issued_at(NOW + 86_400);
    later.revoked_amd = vec![VENDORS.amd_intermediate_serial(Product::Milan, SnpSigner::Vcek)];
    let later = VENDORS.issue_amd(Product::Milan, &later);
    assert_eq!(now.vcek_chain, later.vcek_chain);
    assert_eq!(now.vlek_chain, later.vlek_chain);
    assert_ne!(now.crl, later.crl);
}

#[test]
fn another_machine_has_another_chip_and_key() {
    let first = attester(SimulatedPlatform::default(), None);
    let second = attester(SimulatedPlatform { platform: 1, ..SimulatedPlatform::default() }, None);
    assert_ne!(first.endorsement_key_der(), second.endorsement_key_der());
    assert_eq!(first.chain_pem(), second.chain_pem());
}

#[test]
fn certificates_have_the_shape_of_amds_own() {
    let Some(snp) = foreign() else { return println!("skipped: no foreign vectors") };
    let read = |name: &str| fs::read(snp.join(name)).unwrap();
    let milan = attester(SimulatedPlatform::default(), None);
    let genoa = SimulatedPlatform { product: Product::Genoa, ..SimulatedPlatform::default() };
    let vlek = SimulatedPlatform { signer: SnpSigner::Vlek, ..SimulatedPlatform::default() };
    let ders = |pem: &[u8]| -> Vec<Vec<u8>> {
        let chain = confide_evidence::pem::decode_chain("chain", pem).unwrap();
        chain.into_iter().map(|der| der.to_vec()).collect()
    };
    let pairs = [
        (read("milan-ask-ark.pem"), milan.chain_pem().unwrap().to_owned()),
        (read("genoa-ask-ark.pem"), attester(genoa, None).chain_pem().unwrap().to_owned()),
        (read("milan-asvk-ark.pem"), attester(vlek, None).chain_pem().unwrap().to_owned()),
    ];
    for (theirs, ours) in pairs {
        for (theirs, ours) in ders(&theirs).iter().zip(ders(ours.as_bytes())) {
            assert_eq!(shape(theirs), shape(&ours));
        }
    }
    let theirs = shape(&read("milan-a-vcek.der"));
    assert_eq!(theirs, shape(milan.endorsement_key_der().unwrap()));
    let theirs = shape(&read("milan-c-vlek.der"));
    let vlek = attester(vlek, None);
    assert_eq!(theirs, shape(vlek.endorsement_key_der().unwrap()));
}

#[test]
fn reports_have_zeros_where_amds_have_them() {
    let Some(snp) = foreign() else { return println!("skipped: no foreign vectors") };
    let milan =
        SimulatedPlatform { report_version: ReportVersion::V2, ..SimulatedPlatform::default() };
    let vlek = SimulatedPlatform { signer: SnpSigner::Vlek, ..SimulatedPlatform::default() };
    for (name, variant) in [("milan-a-report.bin", milan), ("milan-c-vlek-report.bin", vlek)] {
        let theirs = fs::read(snp.join(name)).unwrap();
        let ours = attester(variant, None).quote(&ReportData([9; 64]));
        assert_eq!(theirs.len(), ours.len());
        assert_eq!(theirs[..4], ours[..4], "version");
        assert_eq!(theirs[0x34..0x38], ours[0x34..0x38], "signature algorithm");
        assert_eq!(theirs[0x48..0x50], ours[0x48..0x50], "signing key");
        for reserved in [0x4c..0x50, 0x18b..0x1a0, 0x208..0x2a0, 0x2d0..0x2e8, 0x318..0x4a0] {
            assert!(theirs[reserved.clone()].iter().all(|&byte| byte == 0), "{reserved:x?}");
            assert!(ours[reserved.clone()].iter().all(|&byte| byte == 0), "{reserved:x?}");
        }
    }
}

#[test]
fn faults_change_what_they_name_and_leave_the_signatures_whole() {
    let honest = attester(SimulatedPlatform::default(), None);
    for fault in [Fault::WrongChip, Fault::WrongTcb, Fault::RevokedPck, Fault::RevokedPlatformCa] {
        let faulty = attester(SimulatedPlatform::default(), Some(fault));
        let report = faulty.quote(&ReportData::ZERO);
        assert_eq!(report, honest.quote(&ReportData::ZERO), "{fault:?}");
        let parsed = AttestationReport::from_bytes(&report).unwrap();
        (&chain(&faulty), &parsed).verify().unwrap();
        assert_ne!(faulty.collateral_json(), honest.collateral_json(), "{fault:?}");
    }
    for fault in [Fault::Debug, Fault::LowPrivilege, Fault::MigrationAgent] {
        let faulty = attester(SimulatedPlatform::default(), Some(fault));
        let report = faulty.quote(&ReportData::ZERO);
        assert_ne!(report, honest.quote(&ReportData::ZERO), "{fault:?}");
        let parsed = AttestationReport::from_bytes(&report).unwrap();
        (&chain(&faulty), &parsed).verify().unwrap();
    }
    assert!(
        attester(SimulatedPlatform::default(), Some(Fault::EmptyQuote))
            .quote(&ReportData::ZERO)
            .is_empty()
    );
}

fn variants() -> Vec<SimulatedPlatform> {
    let mut all = Vec::new();
    for product in Product::ALL {
        for signer in [SnpSigner::Vcek, SnpSigner::Vlek] {
            for report_version in [ReportVersion::V2, ReportVersion::V3, ReportVersion::V5] {
                all.push(SimulatedPlatform {
                    product,
                    signer,
                    report_version,
                    ..SimulatedPlatform::default()
                });
            }
        }
    }
    all
}

fn number(version: ReportVersion) -> u32 {
    HashMap::from([(ReportVersion::V2, 2), (ReportVersion::V3, 3), (ReportVersion::V5, 5)])
        [&version]
}

fn options() -> FakeAttesterOptions {
    FakeAttesterOptions { seed: SEED, tee: Tee::Snp, debug: false, issued_at: NOW, mode: Mode::Raw }
}

fn attester(variant: SimulatedPlatform, fault: Option<Fault>) -> FakeAttester {
    FakeAttester::with_vendors(&VENDORS, options(), variant, fault).unwrap()
}

fn chain(attester: &FakeAttester) -> Chain {
    let pem = attester.chain_pem().unwrap();
    let split = pem.rfind("-----BEGIN").unwrap();
    let (ask, ark) = pem.split_at(split);
    Chain {
        ca: ca::Chain {
            ask: Certificate::from_pem(ask.as_bytes()).unwrap(),
            ark: Certificate::from_pem(ark.as_bytes()).unwrap(),
        },
        vek: Certificate::from_der(attester.endorsement_key_der().unwrap()).unwrap(),
    }
}

fn foreign() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors/snp"));
    folder.exists().then_some(folder)
}

/// Tags and depths of a certificate, with the bytes of all that is not this one's own: object
/// identifiers, algorithm parameters, flags, basic constraints and key usages. Values of the same
/// kind but another length, and our attribute `description`, do not show.
fn shape(der: &[u8]) -> Vec<String> {
    let mut out = Vec::new();
    walk(der, 0, &mut out);
    // SET, SEQUENCE, the identifier 2.5.4.13 and its value.
    while let Some(at) = out.iter().position(|line| line.ends_with("55040d")) {
        out.drain(at - 2..at + 2);
    }
    out
}

fn walk(mut der: &[u8], depth: usize, out: &mut Vec<String>) {
    let mut identifier = String::new();
    while let [tag, rest @ ..] = der {
        let (length, rest) = match rest {
            [0x81, n, rest @ ..] => (usize::from(*n), rest),
            [0x82, a, b, rest @ ..] => (usize::from(*a) << 8 | usize::from(*b), rest),
            [n, rest @ ..] => (usize::from(*n), rest),
            [] => panic!("cut off"),
        };
        let (value, after) = rest.split_at(length);
        let fixed = matches!(tag, 0x01 | 0x05 | 0x06)
            || matches!(identifier.as_str(), "551d13" | "551d0f")
            || (*tag == 0x02 && depth >= 4);
        let shown = if fixed { hex::encode(value) } else { String::new() };
        out.push(format!("{depth} {tag:02x} {shown}"));
        if *tag == 0x06 {
            identifier = hex::encode(value);
        }
        if tag & 0x20 != 0 {
            walk(value, depth + 1, out);
        }
        der = after;
    }
}
