//! The journal of a run that was killed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = confide_bench::LoadedRecord::from_journal_bytes(data);
});
