//! cyclictest's JSON with histograms.
#![no_main]

use confide_tools::cyclictest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = serde_json::from_slice(bytes) else { return };
    let Ok(wakeups) = cyclictest::read_wakeups(&document) else { return };
    assert!(document["thread"].as_object().is_some_and(|threads| !threads.is_empty()));
    assert!(wakeups.mean_us.is_finite());
    let [p50, p99] = [0.5, 0.99].map(|q| wakeups.times_us.quantile(q));
    assert!(p50.zip(p99).is_none_or(|(p50, p99)| p50 <= p99));
});
