//! The chain of hashes over a record: every slice with its samples, in order, then everything else that was not
//! computed from them.
//!
//! A change to any of them is found and named, unless whoever made it computed the whole chain again. The end of the
//! chain is printed when a run ends, so that it can be kept apart from the record (`check --chain`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The keys of a record that are computed from its samples each time that it is read, and the chain itself.
const COMPUTED: &[&str] = &["rows", "figures", "voids", "validity", "slices", "chain"];
/// The first input of the chain, which names its form.
const DOMAIN: &str = "confide bench chain 1";
/// The number of hexadecimal digits of a link in a slice and of the hash of a part.
const SHORT: usize = 16;

/// The chain of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct RecordChain {
    /// The start of the SHA-256 of each part of the record (`machine`, `commit`, …), so that a change is named.
    pub(crate) parts: BTreeMap<String, String>,
    /// The links of the slices, one each: the first digits of the chain up to and including it.
    pub(crate) links: Vec<String>,
    /// The end of the chain, over all slices and all parts: SHA-256 in hexadecimal.
    pub(crate) end: String,
}

impl RecordChain {
    /// Computes the chain of a record, given as its JSON object and its slices as JSON.
    pub(crate) fn compute(record: &BTreeMap<String, Value>, slices: &[Value]) -> Self {
        let mut link: [u8; 32] = Sha256::digest(DOMAIN).into();
        let mut links = Vec::with_capacity(slices.len());
        for slice in slices {
            link =
                Sha256::new().chain_update(link).chain_update(hash_value(slice)).finalize().into();
            links.push(short_hex(&link));
        }
        let measured = record.iter().filter(|(key, _)| !COMPUTED.contains(&key.as_str()));
        let mut parts = BTreeMap::new();
        for (key, value) in measured {
            let hash = hash_value(value);
            link = Sha256::new()
                .chain_update(link)
                .chain_update(key)
                .chain_update(hash)
                .finalize()
                .into();
            parts.insert(key.clone(), short_hex(&hash));
        }
        Self { parts, links, end: hex::encode(link) }
    }

    /// Names the first thing in which a record differs from the chain that it bears; `actual` is computed from it.
    pub(crate) fn find_difference(&self, actual: &Self, slices: &[Value]) -> Option<String> {
        for (index, link) in actual.links.iter().enumerate() {
            if self.links.get(index) != Some(link) {
                return Some(format!(
                    "samples of slice {index} ({})",
                    describe_slice(&slices[index])
                ));
            }
        }
        if self.links.len() != actual.links.len() {
            let missing = self.links.len() - actual.links.len();
            return Some(format!("samples: slices missing at the end: {missing}"));
        }
        let keys = self.parts.keys().chain(actual.parts.keys());
        let different = keys.into_iter().find(|key| self.parts.get(*key) != actual.parts.get(*key));
        match different {
            Some(key) => Some(key.clone()),
            None => (self.end != actual.end).then(|| "the end of the chain".to_owned()),
        }
    }
}

/// Names a slice by its arm, bench, case and block.
fn describe_slice(slice: &Value) -> String {
    let text = |key: &str| slice[key].as_str().unwrap_or_default().to_owned();
    let block = slice["block"].as_u64().unwrap_or_default();
    let place = [text("bench"), text("case")].into_iter().filter(|part| !part.is_empty());
    format!("{}, block {block}, arm {}", place.collect::<Vec<_>>().join(" "), text("arm"))
}

fn short_hex(hash: &[u8; 32]) -> String {
    hex::encode(&hash[..SHORT / 2])
}

/// Hashes a JSON value in a form that no layout of the text changes.
fn hash_value(value: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    update_hash_with_value(&mut hash, value);
    hash.finalize().into()
}

/// Feeds a value to the hash: a letter for its kind, then its content, with a length where it has no fixed one. Members
/// of objects are in the order of their names' bytes; a number with a fraction or an exponent is given by its 64 bits.
fn update_hash_with_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(true) => hash.update(b"t"),
        Value::Bool(false) => hash.update(b"f"),
        Value::Number(number) if number.is_f64() => {
            hash.update(b"d");
            hash.update(number.as_f64().unwrap_or_default().to_bits().to_be_bytes());
        }
        Value::Number(number) => hash.update(format!("i{number};")),
        Value::String(text) => update_hash_with_text(hash, text),
        Value::Array(items) => {
            hash.update(format!("a{};", items.len()));
            items.iter().for_each(|item| update_hash_with_value(hash, item));
        }
        Value::Object(members) => {
            hash.update(format!("o{};", members.len()));
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            for (name, value) in sorted {
                update_hash_with_text(hash, name);
                update_hash_with_value(hash, value);
            }
        }
    }
}

fn update_hash_with_text(hash: &mut Sha256, text: &str) {
    hash.update(format!("s{};", text.len()));
    hash.update(text);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record() -> BTreeMap<String, Value> {
        let value = json!({ "commit": "abc", "machine": { "cpus": 2, "load": 0.5 }, "rows": [1] });
        serde_json::from_value(value).unwrap()
    }

    fn slices() -> Vec<Value> {
        let slice =
            |block: u32| json!({ "bench": "b", "case": "", "arm": "x", "block": block, "ms": 1.5 });
        (0..3).map(slice).collect()
    }

    fn difference(
        change: impl FnOnce(&mut BTreeMap<String, Value>, &mut Vec<Value>),
    ) -> Option<String> {
        let chain = RecordChain::compute(&record(), &slices());
        let (mut record, mut slices) = (record(), slices());
        change(&mut record, &mut slices);
        chain.find_difference(&RecordChain::compute(&record, &slices), &slices)
    }

    #[test]
    fn an_untouched_record_agrees_with_its_chain_and_computed_parts_do_not_count() {
        assert_eq!(difference(|_, _| {}), None);
        assert_eq!(difference(|record, _| drop(record.insert("rows".into(), json!([2])))), None);
    }

    #[test]
    fn what_was_changed_is_named() {
        let sample = difference(|_, slices| slices[1]["ms"] = json!(1.4));
        assert_eq!(sample.unwrap(), "samples of slice 1 (b, block 1, arm x)");
        let moved = difference(|_, slices| slices.swap(0, 1));
        assert_eq!(moved.unwrap(), "samples of slice 0 (b, block 1, arm x)");
        let cut = difference(|_, slices| drop(slices.pop()));
        assert_eq!(cut.unwrap(), "samples: slices missing at the end: 1");
        let machine =
            difference(|record, _| record.get_mut("machine").unwrap()["cpus"] = json!(64));
        assert_eq!(machine.unwrap(), "machine");
        let commit = difference(|record, _| drop(record.insert("commit".into(), json!("def"))));
        assert_eq!(commit.unwrap(), "commit");
        assert_eq!(difference(|record, _| drop(record.remove("commit"))).unwrap(), "commit");
    }

    #[test]
    fn an_integer_and_the_same_number_with_a_fraction_are_two_values() {
        assert_ne!(hash_value(&json!(1)), hash_value(&json!(1.0)));
        assert_ne!(hash_value(&json!(["a", "b"])), hash_value(&json!(["ab"])));
        let text = "{\"b\": 1e-7, \"a\": [null, true]}";
        let other = "{ \"a\":[null,true],\"b\":0.0000001 }";
        let parse = |text| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(hash_value(&parse(text)), hash_value(&parse(other)));
    }
}
