//! A trace of arrivals, and a log of events.
#![no_main]

use confide_load::{read_log, read_trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(rows) = read_trace(data) {
        assert!(rows.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s));
    }
    let _ = read_log(data);
});
