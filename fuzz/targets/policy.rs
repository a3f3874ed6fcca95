//! A policy, TOML.
#![no_main]

use confide_verifier::Policy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Policy::from_toml(text);
});
