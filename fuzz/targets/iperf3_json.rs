//! iperf3's JSON.
#![no_main]

use confide_tools::iperf3;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(transfer) = iperf3::read(text) else { return };
    assert!(transfer.received_bits_per_s.is_finite() && transfer.retransmits != Some(-1.0));
});
