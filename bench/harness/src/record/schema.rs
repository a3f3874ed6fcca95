//! The published JSON Schema of `record.json`, made from the types that write it.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::{CHAINED_SCHEMA, Record, SCHEMA};

/// Returns the schema (draft 2020-12) of the document that this version writes.
pub fn record_schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Record>().to_value();
    schema["$id"] = format!("urn:confide:record:{SCHEMA}").into();
    schema["title"] = format!("A record of confide bench, layout {SCHEMA}").into();
    schema["properties"]["schema"] = json!({ "enum": [CHAINED_SCHEMA - 1, SCHEMA] });
    // The writer adds them after the rest, one line for each.
    if let Some(required) = schema["required"].as_array_mut() {
        required.push("slices".into());
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_the_one_that_the_types_give() {
        let text = serde_json::to_string_pretty(&record_schema()).unwrap() + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../record.schema.json");
        // `CONFIDE_WRITE=1 cargo test -p confide-bench schema` writes it again.
        if std::env::var_os("CONFIDE_WRITE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap();
        // By value: the order of keys follows what other crates of a build ask of serde_json.
        let [published, made] =
            [published, text].map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap());
        assert!(
            published == made,
            "bench/record.schema.json is old: CONFIDE_WRITE=1 cargo test -p confide-bench schema"
        );
    }
}
