//! What a kernel, nvidia-smi or chrony may print of this machine.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| confide_bench::read_host_texts(text));
