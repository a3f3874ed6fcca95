//! A receipt and an attestation report (aci/1): what is read has one canonical form, and reads the
//! same from it.
#![no_main]

use confide_receipt::{
    AttestationReport, Json, Keyset, RECEIVED_EVENT, RETURNED_EVENT, SignedReceipt,
};
use libfuzzer_sys::fuzz_target;

/// The key that signed the receipts in `vectors/receipt`, so that the seeds are accepted.
const PUBLIC_KEY: [u8; 32] = [
    0x81, 0x39, 0x77, 0x0e, 0xa8, 0x7d, 0x17, 0x5f, 0x56, 0xa3, 0x54, 0x66, 0xc3, 0x4c, 0x7e, 0xcc,
    0xcb, 0x8d, 0x8a, 0x91, 0xb4, 0xee, 0x37, 0xa2, 0x5d, 0xf6, 0x0f, 0x5b, 0x8f, 0xc9, 0xb3, 0x94,
];

fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = Json::parse(bytes, bytes.len()) {
        let canonical = document.to_canonical();
        assert!(canonical.len() <= bytes.len());
        let again = Json::parse(canonical.as_bytes(), canonical.len());
        assert_eq!(again.expect("a canonical form is JSON"), document);
        assert_eq!(document.to_canonical(), canonical);
    }
    check_receipt(bytes, &Keyset::new("receipt-1", &PUBLIC_KEY, &[5; 32], 1_780_275_600));
    for nonce in [None, Some(&[9; 32])] {
        if let Ok(report) = AttestationReport::parse(bytes, nonce) {
            assert_eq!(report.report_data(), report.keyset().report_data(nonce));
            let _ = (report.keyset().not_after(), report.keyset().tls_keys().count());
            check_receipt(bytes, report.keyset());
        }
    }
});

fn check_receipt(bytes: &[u8], keyset: &Keyset) {
    if let Ok(receipt) = SignedReceipt::verify(bytes, keyset) {
        for event in [RECEIVED_EVENT, RETURNED_EVENT] {
            let _ = (receipt.is_cut(event), receipt.check_body(event, bytes));
        }
    }
}
