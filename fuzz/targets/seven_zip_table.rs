//! The table of 7-zip's benchmark.
#![no_main]

use confide_tools::seven_zip;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(ratings) = seven_zip::read(text) else { return };
    for rating in [ratings.compress, ratings.decompress] {
        assert!(rating.mips.is_finite() && rating.mips >= 0.0 && rating.kib_per_s >= 0.0);
    }
});
