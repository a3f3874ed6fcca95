//! TCB info JSON.
#![no_main]

use confide_evidence::tcb_info::TcbInfo;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = TcbInfo::parse(text);
});
