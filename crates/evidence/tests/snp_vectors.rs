//! Real SEV-SNP reports and AMD's certificates (`../shared/vectors/snp`), field by field.

use std::path::PathBuf;

use confide_evidence::{
    EvidenceKind, ParseError, detect_kind, pem,
    snp::{AmdCertificate, AmdKey, Cpuid, Product, Report, SigningKey},
};

#[test]
fn a_report_of_version_2_is_read_field_by_field() {
    let Some(bytes) = read("milan-a-report.bin") else { return };
    assert_eq!(detect_kind(&bytes), Some(EvidenceKind::SnpReport));
    let report = Report::parse(&bytes).unwrap();
    assert_eq!((report.version(), report.guest_svn(), report.vmpl()), (2, 0, 0));
    let policy = report.policy();
    assert!(policy.is_well_formed() && policy.allows_smt() && policy.allows_debug());
    assert!(!policy.allows_migration_agent());
    assert_eq!(report.report_data().0[..6], [1, 2, 3, 4, 5, 0]);
    assert_eq!(report.measurement()[..4], [0xb0, 0x7a, 0xf9, 0x62]);
    assert_eq!(report.reported_tcb(), &[2, 0, 0, 0, 0, 0, 5, 0x44]);
    assert_eq!(report.chip_id()[..2], [0x3a, 0xc3]);
    assert_eq!(report.current_version().to_string(), "1.49.3");
    assert_eq!(report.signing_key(), SigningKey::Vcek);
    assert_eq!((report.cpuid(), report.mitigations()), (None, None));
}

#[test]
fn version_3_adds_the_processor_and_a_loaded_key_hides_the_chip() {
    let Some(bytes) = read("milan-c-vlek-report.bin") else { return };
    let report = Report::parse(&bytes).unwrap();
    assert_eq!(report.cpuid(), Some(Cpuid { family: 0x19, model: 1, stepping: 1 }));
    assert_eq!(Product::from_cpuid(0x19, 1), Some(Product::Milan));
    assert_eq!(report.signing_key(), SigningKey::Vlek);
    assert_eq!(report.chip_id(), &[0; 64]);
    assert_eq!(report.platform_info().0, 0x27);
}

#[test]
fn reserved_bytes_versions_and_lengths_are_checked() {
    let Some(good) = read("milan-a-report.bin") else { return };
    let spoiled = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Report::parse(&bytes).err()
    };
    for at in [0x4c, 0x4f, 0x188, 0x18a, 0x19f, 0x1eb, 0x1ef, 0x1f8, 0x207, 0x208, 0x29f] {
        let error = spoiled(at, 1).unwrap();
        let subject = "reserved byte of the SNP report";
        assert!(matches!(error, ParseError::Unsupported { subject: got, .. } if got == subject));
    }
    for (at, value) in [(0, 1), (0, 6), (1, 1), (0x34, 2), (0x48, 0x20), (0x4b, 1)] {
        assert!(matches!(spoiled(at, value), Some(ParseError::Unsupported { .. })), "{at:#x}");
    }
    for at in [0x330, 0x49f] {
        assert!(matches!(spoiled(at, 1), Some(ParseError::TrailingBytes { .. })), "{at:#x}");
    }
    let mut newer = good.clone();
    newer[0] = 3;
    newer[0x188..0x18b].fill(1);
    Report::parse(&newer).unwrap();
    newer[0x1f8..0x208].fill(1);
    assert!(Report::parse(&newer).is_err());
    newer[0] = 5;
    assert_eq!(Report::parse(&newer).unwrap().mitigations(), Some([0x0101_0101_0101_0101; 2]));
    for length in [0, 1, 1183, 1185] {
        let bytes = vec![2; length];
        assert!(matches!(Report::parse(&bytes), Err(ParseError::Length { .. })));
    }
}

#[test]
fn r_and_s_are_turned_round_and_have_to_fit_in_48_bytes() {
    let Some(mut bytes) = read("milan-a-report.bin") else { return };
    let signature = Report::parse(&bytes).unwrap().signature().unwrap();
    assert_eq!((signature[47], signature[95]), (bytes[0x2a0], bytes[0x2e8]));
    assert_eq!((signature[0], signature[48]), (bytes[0x2cf], bytes[0x317]));
    for at in [0x2d0, 0x2e7, 0x318, 0x32f] {
        bytes[at] = 1;
        assert_eq!(Report::parse(&bytes).unwrap().signature(), None, "{at:#x}");
        bytes[at] = 0;
    }
}

#[test]
fn certificates_say_which_chip_and_which_security_versions_they_are_for() {
    let Some(vcek) = read("milan-a-vcek.der") else { return };
    let certificate = AmdCertificate::parse("VCEK", &vcek).unwrap();
    assert_eq!(certificate.common_name, "SEV-VCEK");
    assert!(matches!(certificate.key, AmdKey::P384(_)));
    assert_eq!(certificate.serial, [0]);
    let extensions = certificate.extensions;
    assert_eq!(extensions.product_name, Some("Milan-B0"));
    assert_eq!(extensions.hwid.map(<[u8]>::len), Some(64));
    assert_eq!(extensions.csp_id, None);
    assert_eq!(extensions.tcb(Product::Milan), Some([2, 0, 0, 0, 0, 0, 5, 0x44]));
    assert_eq!(extensions.tcb(Product::Turin), None);

    let vlek = read("milan-c-vlek.der").unwrap();
    let extensions = AmdCertificate::parse("VLEK", &vlek).unwrap().extensions;
    assert_eq!(extensions.product_name, Some("Milan"));
    assert_eq!(extensions.csp_id, Some("CN=cc-us-east-2.amazonaws.com"));
    assert_eq!(extensions.hwid, None);
    assert_eq!(extensions.tcb(Product::Milan), Some([4, 0, 0, 0, 0, 0, 24, 0xd9]));

    let chain = pem::decode_chain("chain", &read("milan-ask-ark.pem").unwrap()).unwrap();
    for (der, name) in chain.iter().zip(["SEV-Milan", "ARK-Milan"]) {
        let certificate = AmdCertificate::parse("chain", der).unwrap();
        assert_eq!((certificate.common_name, certificate.key), (name, AmdKey::Rsa4096));
        assert!(certificate.is_ca && certificate.key_usage.unwrap().key_cert_sign);
    }
}

fn read(name: &str) -> Option<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors/snp");
    let bytes = std::fs::read(PathBuf::from(folder).join(name)).ok();
    if bytes.is_none() {
        println!("skipped: no foreign vectors");
    }
    bytes
}
