//! A notary's statement: what is read is written back byte for byte.
#![no_main]

use confide_disclosure::NotaryStatement;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(statement) = NotaryStatement::decode(bytes) {
        assert_eq!(statement.encode(), bytes);
        let _ = statement.verify(&[1; 64]);
    }
});
