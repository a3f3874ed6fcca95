//! The model of a request body: another reader of the same JSON finds the same one, and no other.
#![no_main]

use confide_gateway::{MODEL_BYTES_MAX, parse_model_field};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(name) = parse_model_field(bytes) else { return };
    assert!((1..=MODEL_BYTES_MAX).contains(&name.len()));
    let object: Value = serde_json::from_slice(bytes).expect("a body with a model is JSON");
    let names: Vec<&Value> = object
        .as_object()
        .expect("a body with a model is an object")
        .iter()
        .filter(|(key, _)| key.eq_ignore_ascii_case("model"))
        .map(|(_, value)| value)
        .collect();
    assert_eq!(names, [&Value::String(name.clone())]);
    let alone = serde_json::json!({ "model": name }).to_string();
    assert_eq!(parse_model_field(alone.as_bytes()), Ok(name.clone()));
    // Two are never taken for one.
    let text = std::str::from_utf8(bytes).expect("a body with a model is UTF-8").trim_end();
    let again = format!("{},\"MODEL\":1}}", &text[..text.len() - 1]);
    assert!(parse_model_field(again.as_bytes()).is_err());
});
