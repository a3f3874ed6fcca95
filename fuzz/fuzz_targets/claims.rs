//! Claims: whatever is read is what would be written.
#![no_main]

use confide_evidence::claims::Claims;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(claims) = Claims::decode(bytes) {
        assert_eq!(claims.encode(), bytes);
        assert!(claims.check().is_ok());
    }
});
