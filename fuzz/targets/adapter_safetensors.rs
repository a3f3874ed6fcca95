//! PEFT's adapter_model.safetensors, read by one of some configurations, which the first byte
//! chooses; one of them folds magnitudes.
#![no_main]

use confide_lora::{Adapter, Matrix, PeftError, ProjectionSite, peft::BaseWeights, plain};

const CONFIGS: [&str; 4] = [
    r#"{"peft_type": "LORA", "r": 1, "target_modules": ["q_proj"]}"#,
    r#"{"peft_type": "LORA", "r": 2, "target_modules": ["q_proj", "down_proj"],
        "rank_pattern": {"down_proj": 1}, "use_rslora": true}"#,
    r#"{"peft_type": "LORA", "r": 1, "target_modules": ["q_proj"], "use_dora": true}"#,
    r#"{"peft_type": "LORA", "r": 1, "target_modules": ".*proj"}"#,
];

struct Base;

impl BaseWeights for Base {
    fn weight(&self, _: ProjectionSite) -> Result<Matrix, PeftError> {
        Ok(Matrix { rows: 3, columns: 2, values: vec![0.5, -1.0, 2.0, 0.0, 0.25, 1.0] })
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let config = CONFIGS[usize::from(*choice) % CONFIGS.len()];
    let Ok(adapter) = Adapter::from_bytes("fuzz", config.as_bytes(), bytes, Some(&Base)) else {
        return;
    };
    for pair in adapter.modules.values() {
        for matrix in [&pair.a, &pair.b] {
            assert_eq!(matrix.values.len(), matrix.rows * matrix.columns);
            assert!(matrix.values.iter().all(|value| value.is_finite()));
        }
        let width = pair.width();
        assert_eq!(plain::delta(pair, &vec![1.0; width.input]).len(), width.output);
    }
});
