//! The program `transcript`: what is not under the root, or not so, has no statement.

use confide_guest_programs::{
    ProgramError,
    host::{input_from_json, run, sample_input},
};
use confide_statement::{Direction, Predicate, Statement, Transcript};
use serde_json::{Value, json};

fn json(size: u32, seed: u64) -> Value {
    sample_input("transcript", size, seed).expect("a sample")
}

fn state(json: &Value) -> Result<Transcript, ProgramError> {
    let input = input_from_json("transcript", json.to_string().as_bytes()).expect("an input");
    match run("transcript", &input).expect("a guest")? {
        Statement::Transcript(claim) => Ok(claim),
        other => panic!("{other:?}"),
    }
}

/// Turns one bit of hexadecimal digits.
fn flip(digits: &mut Value) {
    let mut bytes = hex::decode(digits.as_str().expect("text")).expect("digits");
    bytes[0] ^= 1;
    *digits = hex::encode(bytes).into();
}

#[test]
fn a_text_across_two_chunks_is_found_under_the_root() {
    for seed in [0, 2, 4, 6] {
        for (size, depth) in [(1, 4), (1024, 4), (1025, 5), (65536, 10)] {
            let claim = state(&json(size, seed)).expect("a statement");
            assert_eq!(claim.depth, depth);
            let text = "\"total_tokens\": 123".into();
            let direction = Direction::Response;
            assert_eq!(claim.predicate, Predicate::Contains { direction, text });
        }
    }
}

#[test]
fn a_number_of_a_field_is_within_its_range() {
    for seed in [1, 3, 5, 7] {
        let mut json = json(4096, seed);
        let root = state(&json).expect("a statement").root;
        let field = &mut json["number_between"];
        let value: i64 = field["value"].as_str().expect("text").parse().expect("a number");
        for (least, greatest, holds) in [
            (value, value, true),
            (i64::MIN, i64::MAX, true),
            (value + 1, value + 2, false),
            (value - 2, value - 1, false),
        ] {
            (json["number_between"]["least"], json["number_between"]["greatest"]) =
                (least.into(), greatest.into());
            match state(&json) {
                Ok(claim) => assert!(holds && claim.root == root),
                Err(why) => assert!(!holds && matches!(why, ProgramError::Predicate { .. })),
            }
        }
    }
}

#[test]
fn whatever_is_changed_leads_to_another_root() {
    for seed in 0..4 {
        let whole = json(65536, seed);
        let root = state(&whole).expect("a statement").root;
        let kind = if seed % 2 == 0 { "contains" } else { "number_between" };
        let mut changed = Vec::new();
        for at in 0..whole[kind]["nodes"].as_array().expect("nodes").len() {
            let mut json = whole.clone();
            flip(&mut json[kind]["nodes"][at]);
            changed.push(json);
        }
        let mut json = whole.clone();
        match kind {
            "contains" => {
                flip(&mut json[kind]["chunks"][0]["salt"]);
                changed.push(json.clone());
                json = whole.clone();
                json[kind]["direction"] = "request".into();
            }
            _ => {
                for name in ["salt", "commitment"] {
                    flip(&mut json[kind][name]);
                    changed.push(json.clone());
                    json = whole.clone();
                }
                json[kind]["commitment"] = Value::Null;
                changed.push(json.clone());
                json = whole.clone();
                json[kind]["path"] = "response./usage/other_tokens".into();
            }
        }
        changed.push(json);
        for json in changed {
            assert_ne!(state(&json).expect("a statement of another root").root, root);
        }
    }
}

#[test]
fn another_index_has_another_root_or_none() {
    for seed in 0..8 {
        let whole = json(65536, seed);
        let root = state(&whole).expect("a statement").root;
        let kind = if seed % 2 == 0 { "contains" } else { "number_between" };
        let index = whole[kind]["index"].as_u64().expect("a number");
        for other in [index ^ 1, index ^ 2, index ^ 512, index + 1024, u64::from(u32::MAX)] {
            let mut json = whole.clone();
            json[kind]["index"] = other.into();
            assert!(state(&json).map_or(true, |claim| claim.root != root), "{index} {other}");
        }
    }
}

#[test]
fn a_text_that_goes_on_after_the_end_or_lies_elsewhere_is_refused() {
    let whole = json(1024, 0);
    // The first chunk loses its last byte, so that the transcript ends in it.
    let mut ended = whole.clone();
    let chunk = ended["contains"]["chunks"][0]["chunk"].as_str().expect("text");
    let joined = format!("{}{}", &chunk[..126], "22");
    ended["contains"]["chunks"][0]["chunk"] = chunk[..126].into();
    ended["contains"]["text"] = "3".into();
    let made = input_from_json("transcript", ended.to_string().as_bytes()).expect("an input");
    assert_eq!(run("transcript", &made), Some(Err(ProgramError::AfterEnd)), "{joined}");

    let mut input = input_from_json("transcript", whole.to_string().as_bytes()).expect("an input");
    // Predicate, depth, direction, the text's length and the text: then its place.
    let place = 16 + "\"total_tokens\": 123".len().next_multiple_of(4);
    for other in [input[place].wrapping_add(1), 0, 255] {
        input[place] = other;
        let why = run("transcript", &input).expect("a guest").expect_err("another place");
        assert!(matches!(why, ProgramError::Predicate { .. }), "{why:?}");
    }
}

#[test]
fn only_canonical_integers_are_numbers() {
    let whole = json(1024, 1);
    let field = &whole["number_between"];
    let (least, greatest) = (json!(i64::MIN), json!(i64::MAX));
    for (value, holds) in [
        ("0", true),
        ("-1", true),
        ("9223372036854775807", true),
        ("-9223372036854775808", true),
        ("9223372036854775808", false),
        ("00", false),
        ("-0", false),
        ("01", false),
        ("+1", false),
        ("1.0", false),
        ("1e3", false),
        ("-", false),
        ("٣", false),
    ] {
        let mut field = field.clone();
        field["value"] = value.into();
        (field["least"], field["greatest"]) = (least.clone(), greatest.clone());
        let claim = state(&json!({ "number_between": field }));
        assert_eq!(claim.is_ok(), holds, "{value}: {claim:?}");
    }
}
