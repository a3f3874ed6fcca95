//! Requests of the attestation service.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = confide_attestation_service::is_appraisal_request(data);
});
