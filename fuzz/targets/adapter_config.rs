//! PEFT's adapter_config.json: its fields, and regular expressions of Python's kind.
#![no_main]

use confide_lora::peft::{Config, RANK_MAX};

const PATHS: [&str; 3] =
    ["model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "q_proj"];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(config) = Config::parse(bytes) else { return };
    for path in PATHS {
        // An expression may take too many steps; a rank that is given is one that can be.
        if let (Ok(rank), Ok(scale)) = (config.module_rank(path), config.module_scale(path)) {
            assert!((1..=RANK_MAX).contains(&rank));
            assert!(scale.is_finite());
        }
        let _ = config.targets_module(path);
    }
});
