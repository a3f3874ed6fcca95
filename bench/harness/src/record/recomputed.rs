//! The rows of a record compared with those that its samples give.

use serde::Serialize;
use serde_json::Value;

use super::Record;
use crate::rows::{RunAnalysis, row::Row};

/// The relative distance up to which two numbers are the same: other processors round differently.
const RELATIVE: f64 = 1e-9;

/// Names the first row, figure or verdict of a record that its samples do not give; `None` if there is none. Fields
/// that the record lacks do not count.
pub(crate) fn find_difference(record: &Record, judged: &RunAnalysis) -> Option<String> {
    for row in &record.rows {
        let same = |other: &&Row| (other.twin, other.key()) == (row.twin, row.key());
        let Some(recomputed) = judged.rows.iter().find(same) else {
            return Some(format!("row {} follows from none of its samples", describe_row(row)));
        };
        if let Some(difference) = describe_difference(row, recomputed) {
            return Some(format!("row {}: {difference}", describe_row(row)));
        }
    }
    if record.rows.len() != judged.rows.len() {
        let (got, wanted) = (record.rows.len(), judged.rows.len());
        return Some(format!("{got} rows, its samples give {wanted}"));
    }
    let parts = [
        ("figures", describe_difference(&record.figures, &judged.figures)),
        ("voids", describe_difference(&record.voids, &judged.voids)),
        ("validity", describe_difference(&record.validity, &judged.validity)),
    ];
    parts.into_iter().find_map(|(part, found)| Some(format!("{part}: {}", found?)))
}

fn describe_row(row: &Row) -> String {
    let twin = if row.twin { " (A/A)" } else { "" };
    format!("{}, {}{twin}, {}", row.bench, row.arm, row.metric)
}

fn describe_difference<T: Serialize>(stored: &T, recomputed: &T) -> Option<String> {
    let [stored, recomputed] =
        [stored, recomputed].map(|one| serde_json::to_value(one).unwrap_or_default());
    find_leaf_difference("", &stored, &recomputed)
}

/// Finds the first leaf of `stored` that differs, and says both values.
fn find_leaf_difference(path: &str, stored: &Value, recomputed: &Value) -> Option<String> {
    let tell = || {
        let path = if path.is_empty() { "it" } else { path.trim_start_matches('.') };
        Some(format!("{path} is {}, its samples give {}", shorten(stored), shorten(recomputed)))
    };
    match (stored, recomputed) {
        (Value::Object(members), Value::Object(others)) => {
            members.iter().find_map(|(key, value)| {
                find_leaf_difference(
                    &format!("{path}.{key}"),
                    value,
                    others.get(key).unwrap_or(&Value::Null),
                )
            })
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            items.iter().zip(others).enumerate().find_map(|(index, (value, other))| {
                find_leaf_difference(&format!("{path}[{index}]"), value, other)
            })
        }
        (Value::Number(x), Value::Number(y)) => {
            let (x, y) = (x.as_f64()?, y.as_f64()?);
            let same = x == y || (x - y).abs() <= RELATIVE * x.abs().max(y.abs());
            if same { None } else { tell() }
        }
        (x, y) if x == y => None,
        _ => tell(),
    }
}

fn shorten(value: &Value) -> String {
    let text = value.to_string();
    let short: String = text.chars().take(60).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_that_differs_is_named_with_both_values_and_a_rounding_is_not() {
        let stored = json!({ "ratio": { "value": 0.2928 }, "arm": "x" });
        let recomputed = json!({ "ratio": { "value": 0.8785 }, "arm": "x", "new": 1 });
        let found = find_leaf_difference("", &stored, &recomputed).unwrap();
        assert_eq!(found, "ratio.value is 0.2928, its samples give 0.8785");
        assert_eq!(find_leaf_difference("", &json!([1.0]), &json!([1.0 + 1e-12])), None);
        assert!(find_leaf_difference("", &json!([1.0]), &json!([1.0, 2.0])).is_some());
        assert_eq!(find_leaf_difference("", &json!({ "a": 1 }), &json!({ "a": 1, "b": 2 })), None);
    }
}
