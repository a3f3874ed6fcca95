//! What ApacheBench prints.
#![no_main]

use confide_tools::ab::report::Report;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(report) = Report::parse(text) {
        assert!(report.rate_per_s.is_finite() && report.mean_ms >= 0.0);
        assert!(report.bad_answers() <= report.not_2xx.saturating_add(report.failed));
    }
});
