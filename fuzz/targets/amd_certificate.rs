//! A certificate of AMD's, DER.
#![no_main]

use confide_evidence::snp::{AmdCertificate, Product};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(certificate) = AmdCertificate::parse("certificate", data) {
        for product in Product::ALL {
            let _ = certificate.extensions.tcb(product);
        }
    }
});
