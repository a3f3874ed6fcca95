//! Frames that a worker may send, and those that are refused.

use super::*;

fn parse(kind: u8, payload: &[u8]) -> Result<WorkerMessage, FrameError> {
    WorkerMessage::parse(Frame { kind, payload })
}

fn parse_json(kind: u8, value: &Value) -> Result<WorkerMessage, FrameError> {
    parse(kind, value.to_string().as_bytes())
}

fn welcome_json() -> Value {
    json!({
        "protocol": 1, "model": "tiny", "context_tokens": 512, "slots": 4, "queue": 8,
        "device": "cpu", "dtype": "f32", "weights": "random from seed 7", "vocabulary": 1024,
        "sites": { "layers": 2, "widths": { "q": [128, 128] } },
        "versions": { "torch": "2.11.0", "device\u{1b}[2J": "" }, "and": ["more"],
    })
}

#[test]
fn a_welcome_is_read_and_what_is_not_known_is_passed_over() {
    let Ok(WorkerMessage::Welcome(welcome)) = parse_json(kind::WELCOME, &welcome_json()) else {
        panic!("no welcome")
    };
    assert_eq!((welcome.context_tokens, welcome.slots, welcome.queue), (512, 4, 8));
    assert_eq!(welcome.weights, "random from seed 7");
    assert!(welcome.versions.contains_key("device [2J"), "{:?}", welcome.versions);
    for (name, value) in [
        ("protocol", json!(2)),
        ("slots", json!(0)),
        ("context_tokens", json!(-1)),
        ("vocabulary", json!(1u64 << 40)),
        ("weights", json!(null)),
        ("sites", json!({ "layers": 2 })),
    ] {
        let mut odd = welcome_json();
        odd[name] = value;
        assert!(parse_json(kind::WELCOME, &odd).is_err(), "{name}");
    }
    assert!(parse(kind::WELCOME, b"[]").is_err());
}

#[test]
fn tokens_are_pairs_and_nothing_else() {
    let mut payload = vec![2, 0];
    for word in [7u32, 70, 8, 80] {
        payload.extend_from_slice(&word.to_le_bytes());
    }
    assert_eq!(parse(kind::TOKENS, &payload), Ok(WorkerMessage::Tokens(vec![(7, 70), (8, 80)])));
    for odd in [&payload[..payload.len() - 1], &[0, 0], &[1], &[]] {
        assert!(parse(kind::TOKENS, odd).is_err());
    }
    payload.push(0);
    assert!(parse(kind::TOKENS, &payload).is_err());
}

#[test]
fn an_end_is_failed_exactly_where_it_has_an_error() {
    let end = |value: Value| parse_json(kind::ENDED, &value);
    let failed = end(json!({ "id": 3, "reason": "failed", "usage": {},
        "error": { "kind": "out_of_memory", "message": "80 GiB\nare not enough" } }));
    let Ok(WorkerMessage::End(failed)) = failed else { panic!("{failed:?}") };
    let EndReason::Failed(fault) = failed.reason else { panic!("it did not fail") };
    assert_eq!(fault.message, "80 GiB are not enough");
    assert!(end(json!({ "id": 3, "reason": "length", "error": null })).is_ok());
    for odd in [
        json!({ "id": 3, "reason": "failed" }),
        json!({ "id": 3, "reason": "stop", "error": { "kind": "internal" } }),
        json!({ "id": 3, "reason": "tired" }),
        json!({ "id": -3, "reason": "stop" }),
        json!({ "reason": "stop" }),
    ] {
        assert!(end(odd.clone()).is_err(), "{odd}");
    }
}

fn need_bytes(rows: u32, width: u32, outputs: &[u8], floats: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend_from_slice(&9u32.to_le_bytes());
    payload.extend_from_slice(&1u32.to_le_bytes());
    payload.push(0);
    payload.extend_from_slice(&rows.to_le_bytes());
    payload.extend_from_slice(&width.to_le_bytes());
    payload.push(outputs.len() as u8);
    payload.extend_from_slice(outputs);
    (0..floats).for_each(|index| payload.extend_from_slice(&(index as f32).to_le_bytes()));
    payload
}

#[test]
fn a_need_has_its_rows_first_and_its_outputs_after_them() {
    let Ok(WorkerMessage::DeltaRequest(need)) =
        parse(kind::NEED, &need_bytes(2, 3, &[0, 2], 6 + 8))
    else {
        panic!("no need")
    };
    assert_eq!((need.id, need.layer, need.source, need.width), (9, 1, LayerInput::Attention, 3));
    assert_eq!(need.outputs, [Projection::Query, Projection::Value]);
    assert_eq!((need.rows.len(), need.values[0], need.values.len()), (6, 6.0, 8));
    for odd in [
        need_bytes(0, 3, &[0], 8),
        need_bytes(2, 3, &[], 8),
        need_bytes(2, 3, &[8], 14),
        need_bytes(2, 3, &[0], 6),
        need_bytes(u32::MAX, u32::MAX, &[0], 6),
        need_bytes(2, 3, &[0; 9], 20),
        need_bytes(2, 3, &[0], 8)[..20].to_vec(),
        [need_bytes(2, 3, &[0], 8), vec![0]].concat(),
    ] {
        assert!(parse(kind::NEED, &odd).is_err());
    }
}

#[test]
fn deltas_are_an_error_or_as_many_floats_as_were_asked_for() {
    let Ok(WorkerMessage::DeltaRequest(need)) = parse(kind::NEED, &need_bytes(1, 3, &[0], 5))
    else {
        panic!("no need")
    };
    let bytes = encode_deltas(&need, Ok(&[1.0, 2.0]));
    assert_eq!(bytes.len(), 4 + 1 + 10 + 8);
    assert_eq!(bytes[14], 0);
    let bytes = encode_deltas(&need, Err(&AdaptError::Budget { limit: 4 }));
    assert_eq!((bytes[4], bytes[14]), (kind::DELTAS, 3));
    let length = u32::from_le_bytes([bytes[15], bytes[16], bytes[17], bytes[18]]);
    assert_eq!(bytes.len() - 19, length as usize);
}

#[test]
fn what_is_sent_is_json_that_says_what_was_ordered() {
    let order = GenerateMessage {
        id: 4,
        ids: &[1, 2],
        max_tokens: 3,
        sampling: Sampling { temperature: 0.5, top_p: 1.0, seed: u64::MAX },
        stop_ids: &[2],
        banned_ids: &[],
        adapter: Some("a"),
    };
    let bytes = encode_generate(&order).expect("it fits");
    let value: Value = serde_json::from_slice(&bytes[5..]).expect("JSON");
    assert_eq!(value["ids"], json!([1, 2]));
    assert_eq!(value["seed"], json!(u64::MAX));
    assert_eq!((value["temperature"].as_f64(), value["adapter"].as_str()), (Some(0.5), Some("a")));
    let long = vec![1_000_000; 3 << 20];
    assert!(encode_generate(&GenerateMessage { ids: &long, ..order }).is_none());
}
