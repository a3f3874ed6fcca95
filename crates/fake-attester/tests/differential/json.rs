//! Changes to a signed document that its readers should notice or agree to ignore.

use serde_json::{Map, Value};

use crate::draw::Draw;

const STATUSES: [&str; 10] = [
    "UpToDate",
    "SWHardeningNeeded",
    "ConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded",
    "OutOfDate",
    "OutOfDateConfigurationNeeded",
    "Revoked",
    "TDRelaunchAdvised",
    "uptodate",
    "",
];
const DATES: [&str; 9] = [
    "2026-06-01T00:00:00Z",
    "2026-06-01T00:01:00Z",
    "2026-06-01T00:01:01Z",
    "2026-05-31T23:59:59Z",
    "2027-01-01T00:00:00Z",
    "2026-06-01T02:00:30+02:00",
    "2026-06-01T00:00:00.5Z",
    "2026-06-01",
    "2026-02-30T00:00:00Z",
];

/// Makes one change; returns it in words.
pub(crate) fn change(document: &str, draw: &mut Draw) -> Option<(String, String)> {
    if draw.chance(8) {
        return text(document, draw);
    }
    let mut value: Value = serde_json::from_str(document).ok()?;
    let mut path = String::new();
    let said = walk(&mut value, &mut path, draw);
    Some((value.to_string(), format!("{path} {said}")))
}

/// Descends to a random place and changes the value there.
fn walk(value: &mut Value, path: &mut String, draw: &mut Draw) -> String {
    match value {
        Value::Object(fields) if !fields.is_empty() && !draw.chance(12) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = draw.pick(&names).clone();
            path.push('/');
            path.push_str(&name);
            walk(&mut fields[&name], path, draw)
        }
        Value::Array(items) if !items.is_empty() && !draw.chance(6) => {
            // The first levels are those that match.
            let index = if draw.chance(2) { 0 } else { draw.number_below(items.len()) };
            path.push_str(&format!("/{index}"));
            walk(&mut items[index], path, draw)
        }
        Value::Object(fields) => object(fields, draw),
        Value::Array(items) => array(items, draw),
        Value::Number(number) => {
            let old = number.as_u64().unwrap_or(0);
            let new = [0, 1, 2, 3, old + 1, old.saturating_sub(1), 255, 256, 65_535, 65_536];
            *value = (*draw.pick(&new)).into();
            format!("= {value}")
        }
        Value::String(old) => {
            let new = string(old, path, draw);
            *value = new.into();
            format!("= {value}")
        }
        Value::Bool(_) | Value::Null => {
            *value = Value::from(draw.number_below(2));
            format!("= {value}")
        }
    }
}

fn object(fields: &mut Map<String, Value>, draw: &mut Draw) -> String {
    let names: Vec<String> = fields.keys().cloned().collect();
    let name = draw.pick(&names).clone();
    match draw.number_below(3) {
        0 => {
            fields.remove(&name);
            format!("without {name}")
        }
        1 => {
            fields.insert("unheardOf".into(), Value::from(1));
            "with a field that nobody knows".into()
        }
        _ => {
            fields[&name] = Value::Null;
            format!("{name} = null")
        }
    }
}

fn array(items: &mut Vec<Value>, draw: &mut Draw) -> String {
    match draw.number_below(4) {
        0 => {
            items.clear();
            "emptied".into()
        }
        1 => {
            items.reverse();
            "reversed".into()
        }
        2 if !items.is_empty() => {
            items.remove(0);
            "without its first".into()
        }
        _ => {
            if let Some(last) = items.last().cloned() {
                items.push(last);
            }
            "with its last twice".into()
        }
    }
}

fn string(old: &str, path: &str, draw: &mut Draw) -> String {
    if path.ends_with("tcbStatus") {
        return (*draw.pick(&STATUSES)).into();
    }
    if path.ends_with("Date") || path.ends_with("nextUpdate") {
        return (*draw.pick(&DATES)).into();
    }
    match draw.number_below(7) {
        0 => String::new(),
        1 => old.to_lowercase(),
        2 => old.to_uppercase(),
        3 => format!("{old}00"),
        4 => old.chars().skip(2).collect(),
        5 => (*draw.pick(&["SGX", "TDX", "QE", "TD_QE", "TDX_01", "TDX_03", "TDX_1"])).into(),
        _ => {
            let mut bytes = old.as_bytes().to_vec();
            if bytes.is_empty() {
                return "0".into();
            }
            let at = draw.number_below(bytes.len());
            bytes[at] = *draw.pick(b"0123456789ABCDEFabcdefZ ");
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}

/// Makes a change that a JSON value cannot show: the same field twice, white space, bytes after the
/// end.
fn text(document: &str, draw: &mut Draw) -> Option<(String, String)> {
    let inner = document.strip_prefix('{')?;
    Some(match draw.number_below(6) {
        0 => (format!("{{\"version\":3,{inner}"), "version twice".into()),
        1 => (format!("{{\"id\":\"TDX\",{inner}"), "id twice".into()),
        2 => (format!("{{\"tcbLevels\":[],{inner}"), "tcbLevels twice".into()),
        3 => (format!(" {document}\n"), "white space around".into()),
        4 => (format!("{document} {{}}"), "something after the end".into()),
        _ => (document.replace(':', " : "), "white space inside".into()),
    })
}
