//! CBOR claims; what is read must write the same bytes.
#![no_main]

use confide_evidence::claims::Claims;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(claims) = Claims::decode(data) {
        assert_eq!(claims.encode(), data);
    }
});
