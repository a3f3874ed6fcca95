//! The zkVM's program `transcript` reads the leaves and nodes that this crate makes.

use confide_disclosure::{
    CommittedDirection, CommittedFields, Direction, Field, FieldKind, OpenedValue, Reveal, Seed,
    TranscriptOpening,
};
use confide_guest_programs::host::{input_from_json, run};
use serde_json::{Value, json};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n\
    {\"model\": \"small-1\", \"usage\": {\"total_tokens\": 1234}, \"balance\": -5}";

/// The root and depth in the statement that the program makes from this input.
fn run_guest(input: &Value) -> (Vec<u8>, u64) {
    let input = input_from_json("transcript", input.to_string().as_bytes()).expect("an input");
    let statement = run("transcript", &input).expect("a guest").expect("a statement").to_json();
    let root = hex::decode(statement["root"].as_str().expect("text")).expect("hexadecimal");
    (root, statement["depth"].as_u64().expect("a number"))
}

fn nodes(siblings: &[[u8; 32]]) -> Vec<String> {
    siblings.iter().map(hex::encode).collect()
}

#[test]
fn a_text_in_either_direction_is_proved_under_the_signed_root() {
    for (direction, name) in [(Direction::Request, "request"), (Direction::Response, "response")] {
        for (text, copies) in [("\"model\": \"small-1\"", 1), ("total_tokens\": 1234", 20)] {
            let bytes = ANSWER.repeat(copies);
            let seed = Seed::from_bytes([7; 32]);
            let committed =
                CommittedDirection::new(&seed, direction, bytes.as_bytes()).expect("committed");
            let start = bytes.rfind(text).expect("the text") as u64;
            let range = start..start + text.len() as u64;
            let TranscriptOpening { leaves, siblings } =
                committed.open(std::slice::from_ref(&range)).expect("opened");
            let chunks: Vec<Value> = leaves
                .iter()
                .map(|leaf| json!({ "chunk": hex::encode(&leaf.chunk), "salt": hex::encode(leaf.salt) }))
                .collect();
            let signed = committed.commitment();
            let input = json!({ "contains": {
                "depth": signed.depth, "direction": name, "text": text, "index": leaves[0].index,
                "chunks": chunks, "nodes": nodes(&siblings),
            } });
            assert_eq!(run_guest(&input), (signed.root.to_vec(), signed.depth.into()), "{text}");
        }
    }
}

#[test]
fn a_number_of_a_field_is_proved_under_the_signed_root() {
    let fields: Vec<Field> = [
        ("response./usage/total_tokens", FieldKind::Number, "1234"),
        ("response./balance", FieldKind::Number, "-5"),
        ("response./model", FieldKind::String, "small-1"),
    ]
    .map(|(path, kind, value)| Field { path: path.into(), kind, value: value.into() })
    .into();
    let seed = Seed::from_bytes([9; 32]);
    let committed = CommittedFields::new(&seed, &fields).expect("committed");
    for (index, least, greatest) in [(0, 0, 4096), (1, -5, -5)] {
        let opening = committed.open(vec![(index, Reveal::Value)]);
        let field = &opening.fields[0];
        let OpenedValue::Revealed { salt, value } = &field.value else { panic!("hidden") };
        let signed = committed.root();
        let input = json!({ "number_between": {
            "depth": signed.depth, "path": field.path, "least": least, "greatest": greatest,
            "index": field.place, "value": String::from_utf8_lossy(value),
            "salt": hex::encode(salt), "commitment": field.commitment.map(hex::encode),
            "nodes": nodes(&opening.siblings),
        } });
        assert_eq!(run_guest(&input), (signed.root.to_vec(), signed.depth.into()), "{index}");
    }
}
