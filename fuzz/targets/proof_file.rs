//! A proof file: what is read is what would be written.
#![no_main]

use confide_prover::ProofFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = ProofFile::decode(bytes) {
        assert_eq!(file.encode().as_deref(), Ok(bytes));
    }
});
