//! A policy for proofs, TOML.
#![no_main]

use confide_prover::ProofPolicy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = ProofPolicy::from_toml(text);
});
