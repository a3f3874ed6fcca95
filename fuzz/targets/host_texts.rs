//! Texts about this machine, as a kernel, nvidia-smi or chrony may print them.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| confide_bench::fuzz_host_parsers(text));
