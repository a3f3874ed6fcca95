//! An X.509 certificate and its SGX extension, DER; a certificate that carries evidence.
#![no_main]

use confide_evidence::{
    attested_certificate::AttestedCertificate, certificate::Certificate, pck::PckExtension,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(Certificate { sgx_extension: Some(extension), .. }) =
        Certificate::parse("certificate", data)
    {
        let _ = PckExtension::parse(extension);
    }
    let _ = PckExtension::parse(data);
    let _ = AttestedCertificate::parse(data);
});
