//! Messages of `WS /api/v1/split/stream`: JSON text, or `[u32 LE length][JSON][f32 LE ...]`.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use confide_serve::{ApiError, JsonFields};
use serde_json::{Value, json};

use crate::error::{message_too_large_error, unreadable_message_error};

/// A request of a client in split mode.
#[derive(Clone, Debug, PartialEq)]
pub enum SplitRequest {
    /// Asks whether the server answers.
    Ping,
    /// Asks for the shape of the model.
    Config,
    /// Asks for the tokens of a text. A client with its own tokenizer does not need it.
    Tokenize {
        /// The text.
        text: String,
    },
    /// Asks for a hidden state.
    Forward(ForwardRequest),
}

/// A request to run the model on tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardRequest {
    /// The tokens, by number or by embedding.
    pub input: TokenInput,
    /// The adapter; the active one if `None`.
    pub adapter: Option<String>,
    /// Whether the adapter is applied.
    pub adapted: bool,
    /// Whether the tokens continue the session; otherwise a new session starts.
    pub incremental: bool,
    /// The client's id of the session, which the answer repeats.
    pub session_id: Option<String>,
}

/// Tokens, as a client in split mode sends them. Either form reveals the text to the server.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenInput {
    /// The numbers of the tokens.
    Ids(Vec<u32>),
    /// The embeddings of the tokens, one after the other.
    Embeddings(Vec<f32>),
}

/// The greatest length in bytes of the JSON part of a binary message: room for the token ids of a
/// long context.
const HEAD_BYTES_MAX: usize = 128 << 10;
/// The greatest number of tokens in one message.
const TOKENS_MAX: usize = 16_384;
/// The greatest width of a hidden state: wider than any model that this server loads.
const WIDTH_MAX: i64 = 65_536;

/// Parses a text message.
///
/// # Errors
/// An [`ApiError`] that names the field.
pub fn parse_text_message(bytes: &[u8]) -> Result<SplitRequest, ApiError> {
    let mut fields = JsonFields::parse(bytes)?;
    let kind = fields.take_text("type")?;
    let request = match kind.as_deref() {
        Some("ping") => SplitRequest::Ping,
        Some("config") => SplitRequest::Config,
        Some("tokenize") => {
            let text = fields.take_text("text")?;
            SplitRequest::Tokenize { text: text.ok_or(ApiError::Missing { param: "text".into() })? }
        }
        Some("forward") => return parse_forward(fields, None).map(SplitRequest::Forward),
        other => {
            return Err(ApiError::invalid_field(
                "type",
                "ping, config, tokenize or forward",
                &json!(other),
            ));
        }
    };
    fields.finish(&["session_id"])?;
    Ok(request)
}

/// Parses a binary message, which is always a `forward`.
///
/// # Errors
/// As [`parse_text_message`], and if the lengths do not agree.
pub fn parse_binary_message(bytes: &[u8]) -> Result<SplitRequest, ApiError> {
    let (head, tail) = split_json_part(bytes)?;
    let mut fields = JsonFields::parse(head)?;
    fields.allow_only_neutral("type", &["forward".into()])?;
    let rows = (!tail.is_empty()).then(|| parse_floats(tail)).transpose()?;
    parse_forward(fields, rows).map(SplitRequest::Forward)
}

/// Parses the JSON body of `POST /api/v1/split/forward`.
///
/// # Errors
/// As [`parse_text_message`].
pub fn parse_forward_body(bytes: &[u8]) -> Result<ForwardRequest, ApiError> {
    parse_forward(JsonFields::parse(bytes)?, None)
}

/// Parses the fields of a `forward` after other fields were taken out.
pub(crate) fn parse_forward_fields(fields: JsonFields) -> Result<ForwardRequest, ApiError> {
    parse_forward(fields, None)
}

/// Encodes a binary message.
pub fn encode_binary_message(head: &Value, values: &[f32]) -> Vec<u8> {
    let head = head.to_string();
    let length = u32::try_from(head.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(4 + head.len() + 4 * values.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// Parses a binary answer, for the client, into its JSON part and its numbers.
///
/// # Errors
/// If the lengths do not agree, and [`ApiError::NotJson`].
pub fn parse_binary_answer(bytes: &[u8]) -> Result<(Value, Vec<f32>), ApiError> {
    let (head, tail) = split_json_part(bytes)?;
    let head = serde_json::from_slice(head)
        .map_err(|error| ApiError::NotJson { reason: error.to_string() })?;
    Ok((head, parse_floats(tail)?))
}

pub(crate) fn floats_to_base64(values: &[f32]) -> String {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    BASE64_STANDARD.encode(bytes)
}

pub(crate) fn floats_from_base64(text: &str, param: &str) -> Result<Vec<f32>, ApiError> {
    let bytes = BASE64_STANDARD.decode(text);
    let bytes =
        bytes.map_err(|_| ApiError::invalid_field(param, "base64 of f32 numbers", &json!(text)))?;
    parse_floats(&bytes)
}

fn split_json_part(bytes: &[u8]) -> Result<(&[u8], &[u8]), ApiError> {
    let bad = unreadable_message_error;
    let (length, rest) =
        bytes.split_first_chunk().ok_or_else(|| bad("it is shorter than its length field"))?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > HEAD_BYTES_MAX {
        return Err(message_too_large_error(HEAD_BYTES_MAX, length));
    }
    rest.split_at_checked(length).ok_or_else(|| bad("it is shorter than its JSON part"))
}

fn parse_floats(bytes: &[u8]) -> Result<Vec<f32>, ApiError> {
    let (whole, rest) = bytes.as_chunks();
    let numbers: Vec<f32> = whole.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect();
    if !rest.is_empty() || numbers.iter().any(|number| !number.is_finite()) {
        return Err(unreadable_message_error("wanted finite f32 numbers of four bytes each"));
    }
    Ok(numbers)
}

fn parse_forward(
    mut fields: JsonFields,
    rows: Option<Vec<f32>>,
) -> Result<ForwardRequest, ApiError> {
    let rows = match (rows, fields.take_text("hidden_states_b64")?) {
        (Some(rows), None) => Some(rows),
        (None, Some(text)) => Some(floats_from_base64(&text, "hidden_states_b64")?),
        (None, None) => None,
        (Some(_), Some(_)) => {
            let got = json!("both");
            return Err(ApiError::invalid_field(
                "hidden_states_b64",
                "nothing next to binary numbers",
                &got,
            ));
        }
    };
    let input = match (rows, parse_token_ids(&mut fields)?) {
        (Some(rows), None) => {
            check_shape(&mut fields, rows.len())?;
            TokenInput::Embeddings(rows)
        }
        (None, Some(ids)) => TokenInput::Ids(ids),
        (None, None) => return Err(ApiError::Missing { param: "hidden_states_b64".into() }),
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid_field(
                "token_ids",
                "nothing next to hidden states",
                &json!("both"),
            ));
        }
    };
    let adapter = match fields.take_text("adapter")? {
        Some(name) => Some(name),
        None => fields.take_text("expert_name")?,
    };
    let adapted = fields.take("use_he").is_none_or(|value| value != Value::Bool(false));
    let incremental = fields.take_flag("incremental")?;
    let session_id = fields.take_text("session_id")?;
    fields.finish(&["type"])?;
    Ok(ForwardRequest { input, adapter, adapted, incremental, session_id })
}

fn parse_token_ids(fields: &mut JsonFields) -> Result<Option<Vec<u32>>, ApiError> {
    let wanted = format!("1 to {TOKENS_MAX} token numbers");
    let list = match fields.take("token_ids") {
        None => return Ok(None),
        Some(Value::Array(list)) if (1..=TOKENS_MAX).contains(&list.len()) => list,
        Some(other) => return Err(ApiError::invalid_field("token_ids", wanted, &other)),
    };
    let ids = list.iter().map(|value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| ApiError::invalid_field("token_ids", &wanted, value))
    });
    ids.collect::<Result<_, _>>().map(Some)
}

/// Checks that the claimed shape matches the count of numbers.
fn check_shape(fields: &mut JsonFields, numbers: usize) -> Result<(), ApiError> {
    let count = fields.take_integer("seq_len", 1..=TOKENS_MAX as i64)?.unwrap_or(1);
    let width = fields.take_integer("hidden_dim", 1..=WIDTH_MAX)?;
    let width = width.ok_or_else(|| ApiError::Missing { param: "hidden_dim".into() })?;
    if u64::try_from(numbers) != Ok(count.unsigned_abs() * width.unsigned_abs()) {
        let reason = format!("wanted {count} rows of {width} numbers, got {numbers} numbers");
        return Err(unreadable_message_error(&reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_message_is_read_as_it_was_written() {
        let head = json!({ "type": "forward", "seq_len": 2, "hidden_dim": 3, "incremental": true,
            "expert_name": "banking", "session_id": "s" });
        let rows = [1.0, -2.5, 3.0, 0.0, 1e-9, 4.0];
        let request =
            parse_binary_message(&encode_binary_message(&head, &rows)).expect("a message");
        let SplitRequest::Forward(forward) = request else { panic!("wanted a forward") };
        assert_eq!(forward.input, TokenInput::Embeddings(rows.into()));
        assert!(forward.incremental && forward.adapted);
        assert_eq!(forward.adapter.as_deref(), Some("banking"));
        let head = json!({ "token_ids": [1, 2], "use_he": false });
        let request = parse_binary_message(&encode_binary_message(&head, &[])).expect("a message");
        let SplitRequest::Forward(forward) = request else { panic!("wanted a forward") };
        assert_eq!((forward.input, forward.adapted), (TokenInput::Ids(vec![1, 2]), false));
    }

    #[test]
    fn text_and_binary_say_the_same() {
        let rows = [0.5, 0.25];
        let text = json!({ "type": "forward", "hidden_states_b64": floats_to_base64(&rows),
            "seq_len": 1, "hidden_dim": 2 });
        let head = json!({ "type": "forward", "seq_len": 1, "hidden_dim": 2 });
        assert_eq!(
            parse_text_message(text.to_string().as_bytes()),
            parse_binary_message(&encode_binary_message(&head, &rows))
        );
    }

    #[test]
    fn messages_whose_lengths_do_not_agree_are_refused() {
        let head = json!({ "seq_len": 1, "hidden_dim": 2 });
        let good = encode_binary_message(&head, &[1.0, 2.0]);
        assert!(parse_binary_message(&good).is_ok());
        for cut in 0..good.len() {
            assert!(parse_binary_message(&good[..cut]).is_err(), "cut at {cut}");
        }
        for bad in [
            encode_binary_message(&head, &[1.0]),
            encode_binary_message(&head, &[1.0, f32::NAN]),
            encode_binary_message(&json!({ "hidden_dim": 2, "token_ids": [1] }), &[1.0, 2.0]),
            encode_binary_message(&json!({ "token_ids": [] }), &[]),
            encode_binary_message(&json!({ "token_ids": [-1] }), &[]),
            encode_binary_message(&json!({}), &[]),
            u32::MAX.to_le_bytes().to_vec(),
        ] {
            assert!(parse_binary_message(&bad).is_err());
        }
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let bytes = encode_binary_message(&json!({ "type": "result" }), &[1.5]);
        assert_eq!(parse_binary_answer(&bytes), Ok((json!({ "type": "result" }), vec![1.5])));
    }
}
