//! A ciphertext of CKKS: what is read is written back byte for byte.
#![no_main]

use std::sync::{Arc, LazyLock};

use confide_report_003::ckks::{Ciphertext, CkksContext, Parameters};
use libfuzzer_sys::fuzz_target;

static CKKS: LazyLock<Arc<CkksContext>> = LazyLock::new(|| {
    CkksContext::new(&Parameters::dangerous_of_degree(16)).expect("a degree with a transform")
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(read) = Ciphertext::from_bytes(&CKKS, bytes) {
        assert_eq!(read.to_bytes(&CKKS), bytes);
    }
});
