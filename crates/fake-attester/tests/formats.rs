//! Simulated evidence before the project's own parsers, field by field.

use confide_evidence::{
    ReportData,
    certificate::Certificate,
    collateral::Collateral,
    crl::CrlDates,
    pck::PckExtension,
    pem::decode_chain,
    qe_identity::QeIdentity,
    quote::{Body, Quote},
    tcb_info::{TcbInfo, TcbStatus},
};
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Fault, Mode, Tee};
use sha2::{Digest, Sha256, Sha384};

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;
const MONTH: u64 = 30 * 86_400;

#[test]
fn a_td_report_holds_the_simulated_measurements() {
    let bytes = attester(Tee::Tdx).quote(&ReportData([5; 64]));
    let quote = Quote::parse(&bytes).unwrap();
    let Body::Tdx(report) = quote.body else { panic!("not a TD report") };
    assert_eq!(quote.header.version(), 4);
    assert_eq!(quote.header.user_data(), b"SIMULATED by confide");
    assert_eq!(quote.report_data(), ReportData([5; 64]));
    assert_eq!(quote.padding_length, 0);
    assert_eq!(report.mr_td()[..], Sha384::digest("SIMULATED mrtd")[..]);
    assert_eq!(report.mr_seam()[..], Sha384::digest("SIMULATED mrseam")[..]);
    for (number, rtmr) in report.rtmrs().into_iter().enumerate() {
        assert_eq!(rtmr[..], Sha384::digest(format!("SIMULATED rtmr{number}"))[..]);
    }
    assert_eq!(report.mr_signer_seam(), &[0; 48]);
    assert_eq!(report.seam_attributes(), &[0; 8]);
    assert_eq!(report.td_attributes(), 1 << 28);
    assert!(!report.is_debug());
}

#[test]
fn an_enclave_report_holds_the_simulated_measurements() {
    let bytes = attester(Tee::Sgx).quote(&ReportData([6; 64]));
    let quote = Quote::parse(&bytes).unwrap();
    let Body::Sgx(report) = quote.body else { panic!("not an enclave report") };
    assert_eq!(quote.header.version(), 3);
    assert_eq!(quote.report_data(), ReportData([6; 64]));
    assert_eq!(report.mr_enclave()[..], Sha256::digest("SIMULATED mrenclave")[..]);
    assert_eq!(report.mr_signer()[..], Sha256::digest("SIMULATED mrsigner")[..]);
    assert_eq!((report.isv_prod_id(), report.isv_svn()), (1, 1));
    assert!(!report.is_debug());
}

#[test]
fn a_configuration_that_is_no_list_of_flags_is_refused() {
    let bytes = attester(Tee::Tdx).quote(&ReportData::ZERO);
    let chain = decode_chain("PCK chain", Quote::parse(&bytes).unwrap().pck_chain).unwrap();
    let certificate = Certificate::parse("PCK", &chain[0]).unwrap();
    let good = certificate.sgx_extension.unwrap();
    assert!(PckExtension::parse(good).is_ok());
    // The last entry is the last flag: its tag, its length, its value.
    for (from_the_end, value) in [(3, 2), (2, 0)] {
        let mut bad = good.to_vec();
        let at = bad.len() - from_the_end;
        bad[at] = value;
        assert!(PckExtension::parse(&bad).is_err(), "{from_the_end}");
    }
}

#[test]
fn the_chain_in_the_quote_is_leaf_platform_ca_and_root() {
    let attester = attester(Tee::Tdx);
    let bytes = attester.quote(&ReportData::ZERO);
    let quote = Quote::parse(&bytes).unwrap();
    assert_eq!(quote.pck_chain.last(), Some(&0));
    let chain = decode_chain("PCK chain", quote.pck_chain).unwrap();
    assert_eq!(chain.len(), 3);
    assert_eq!(chain[2], attester.root_der());
    let read: Vec<_> =
        chain.iter().map(|der| Certificate::parse("certificate", der).unwrap()).collect();
    let names = ["PCK Certificate", "PCK Platform CA", "Root CA"];
    for ((certificate, name), issuer) in read.iter().zip(names).zip([1, 2, 2]) {
        assert_eq!(certificate.common_name, format!("Intel SGX {name}"));
        assert_eq!(certificate.issuer, read[issuer].subject);
        assert!(certificate.subject.windows(9).any(|part| part == b"SIMULATED"));
        assert!((certificate.not_before..=certificate.not_after).contains(&NOW));
        assert_eq!(certificate.serial.len(), 20);
        let usage = certificate.key_usage.unwrap();
        assert_eq!(usage.key_cert_sign, certificate.is_ca);
        assert_eq!(usage.crl_sign, certificate.is_ca);
        assert_eq!(usage.digital_signature, !certificate.is_ca);
        assert!(!certificate.has_other_critical_extension);
    }
    let extension = PckExtension::parse(read[0].sgx_extension.unwrap()).unwrap();
    assert_eq!(extension.fmspc, *b"SIM\0\0\0");
    assert_eq!(extension.components, extension.cpu_svn);
    assert_eq!((extension.pce_svn, extension.pce_id, extension.sgx_type), (13, [0, 0], 1));
}

#[test]
fn collateral_has_four_levels_and_holds_for_thirty_days() {
    for tee in [Tee::Tdx, Tee::Sgx] {
        let collateral = Collateral::parse(attester(tee).collateral_json().as_bytes()).unwrap();
        let info = TcbInfo::parse(&collateral.tcb_info).unwrap();
        let statuses: Vec<_> = info.tcb_levels.iter().map(|level| level.tcb_status).collect();
        let wanted = [
            TcbStatus::UpToDate,
            TcbStatus::SwHardeningNeeded,
            TcbStatus::OutOfDate,
            TcbStatus::Revoked,
        ];
        assert_eq!(statuses, wanted);
        assert_eq!((info.issue_date, info.next_update), (NOW, NOW + MONTH));
        let identity = QeIdentity::parse(&collateral.qe_identity).unwrap();
        assert_eq!((identity.issue_date, identity.next_update), (NOW, NOW + MONTH));
        for der in [&collateral.root_ca_crl, &collateral.pck_crl] {
            let crl = CrlDates::parse("CRL", der).unwrap();
            assert_eq!((crl.this_update, crl.next_update), (NOW, NOW + MONTH));
            assert_eq!(crl.number, NOW);
        }
    }
}

#[test]
fn crl_faults_show_in_dates_and_numbers() {
    for (fault, this_update, number) in [
        (Fault::ExpiredCrl, NOW - 2 * MONTH, NOW),
        (Fault::FutureCrl, NOW + MONTH / 3, NOW),
        (Fault::RolledBackCrl, NOW - 20 * 86_400, NOW - 20 * 86_400),
    ] {
        let faulty = FakeAttester::with_fault(options(Tee::Tdx), fault).unwrap();
        let collateral = Collateral::parse(faulty.collateral_json().as_bytes()).unwrap();
        for der in [&collateral.root_ca_crl, &collateral.pck_crl] {
            let crl = CrlDates::parse("CRL", der).unwrap();
            assert_eq!((crl.this_update, crl.number), (this_update, number), "{fault:?}");
        }
    }
}

fn options(tee: Tee) -> FakeAttesterOptions {
    FakeAttesterOptions { seed: [1; 32], tee, debug: false, issued_at: NOW, mode: Mode::Raw }
}

fn attester(tee: Tee) -> FakeAttester {
    FakeAttester::new(options(tee)).unwrap()
}
