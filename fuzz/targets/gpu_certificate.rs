//! A certificate of a GPU, and a revocation answer, DER.
#![no_main]

use confide_evidence::gpu::{DeviceCertificate, OcspResponse};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(certificate) = DeviceCertificate::parse("certificate", bytes) {
        let _ = certificate.subject_der();
    }
    if let Ok(answer) = OcspResponse::parse(bytes) {
        assert!(answer.signed.len() < bytes.len());
    }
});
