//! A reference manifest of a GPU, XML.
#![no_main]

use confide_evidence::gpu::Rim;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Rim::parse(bytes);
});
