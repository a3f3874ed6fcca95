//! What a notary signs: what is read is what would be written.
#![no_main]

use confide_disclosure::NotaryStatement;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(statement) = NotaryStatement::decode(bytes) {
        assert_eq!(statement.encode(), bytes);
        let _ = statement.verify(&[1; 64]);
    }
});
