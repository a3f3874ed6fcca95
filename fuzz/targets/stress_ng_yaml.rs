//! The metrics of stress-ng.
#![no_main]

use confide_tools::stress_ng;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(stressors) = stress_ng::read(text) else { return };
    assert!(stressors.iter().all(|one| one.per_s > 0.0 && one.per_cpu_s.is_finite()));
});
