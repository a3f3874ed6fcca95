//! fio's JSON with histograms.
#![no_main]

use confide_tools::fio;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(job) = fio::read(text) else { return };
    for side in [&job.read, &job.write] {
        assert!(side.per_s.is_finite() && side.bytes_per_s >= 0.0);
        assert!(side.mean_us.is_none_or(f64::is_finite));
        let [p50, p99] = [0.5, 0.99].map(|q| side.times_ns.quantile(q));
        assert!(p50.zip(p99).is_none_or(|(p50, p99)| p50 <= p99));
    }
});
