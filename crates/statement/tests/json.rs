//! Statements as JSON: there and back, and strictly.

mod samples;

use confide_statement::{Statement, StatementError};
use samples::samples;
use serde_json::{Value, json};

#[test]
fn every_statement_is_read_as_it_was_written() {
    for statement in samples() {
        let text = statement.to_json().to_string();
        assert_eq!(Statement::from_json(text.as_bytes()).as_ref(), Ok(&statement), "{text}");
    }
}

#[test]
fn the_names_are_those_of_the_fields() {
    assert_eq!(samples()[0].to_json(), json!({"claim": "fibonacci", "n": 10, "value": 55}));
    let transcript = samples()[7].to_json();
    let path = "response./usage/total_tokens";
    let wanted = json!({"number_between": {"path": path, "least": -7, "greatest": 4096}});
    assert_eq!(transcript["predicate"], wanted);
    assert_eq!(samples()[8].to_json()["measurements"]["tee"], "tdx");
}

#[test]
fn unknown_fields_missing_fields_and_false_hexadecimal_are_refused() {
    for statement in samples() {
        let whole = statement.to_json();
        let names: Vec<String> = whole.as_object().expect("an object").keys().cloned().collect();
        for name in &names {
            let mut cut = whole.clone();
            cut.as_object_mut().expect("an object").remove(name);
            assert_refused(&cut);
            if whole[name].is_string() {
                let mut broken = whole.clone();
                broken[name] = Value::from("0g");
                if name != "tcb_status" {
                    assert_refused(&broken);
                }
            }
        }
        let mut more = whole.clone();
        more["colour"] = Value::from(1);
        assert_refused(&more);
    }
}

#[test]
fn limits_hold_for_json_too() {
    for (statement, field) in samples::out_of_bounds() {
        let text = statement.to_json().to_string();
        assert!(Statement::from_json(text.as_bytes()).is_err(), "{field}");
    }
}

fn assert_refused(value: &Value) {
    let read = Statement::from_json(value.to_string().as_bytes());
    assert!(matches!(read, Err(StatementError::Json { .. })), "{value}: {read:?}");
}
