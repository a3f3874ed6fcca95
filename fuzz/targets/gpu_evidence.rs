//! GPU evidence as a channel carries it, CBOR.
#![no_main]

use confide_evidence::gpu::{GpuEvidence, decode_chain};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(evidence) = GpuEvidence::decode(bytes) {
        assert_eq!(evidence.encode(), bytes);
        let _ = decode_chain(evidence.chain);
    }
});
