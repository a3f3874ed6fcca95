//! Parses the request bodies of OpenAI's completion routes.

use confide_engine::{Message, Prompt, Request, Role, Sampling};
use serde_json::{Value, json};

use crate::{error::ApiError, fields::JsonFields};

/// A parsed request.
#[derive(Debug, PartialEq)]
pub struct ParsedRequest {
    /// The request to the engine.
    pub request: Request,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether a streamed answer ends with its token counts.
    pub include_usage: bool,
}

/// The accepted value in an error about tools.
const NO_TOOLS: &str = "none, since tool calls are not supported by `confide serve` (an upstream \
    behind `confide gateway` may support them)";

/// Parses the body of `/v1/chat/completions`. An unsupported field is an error.
///
/// # Errors
/// [`ApiError`] for the first unsupported field, or for a malformed body.
pub fn parse_chat(body: &[u8], prompt_tokens_max: u32) -> Result<ParsedRequest, ApiError> {
    let mut fields = JsonFields::parse(body)?;
    fields.refuse_field("tools", NO_TOOLS)?;
    let prompt = Prompt::Chat(parse_messages(fields.require("messages")?)?);
    for (name, neutral) in [
        ("audio", vec![]),
        ("function_call", vec![json!("none"), json!("auto")]),
        ("functions", vec![json!([])]),
        ("logprobs", vec![json!(false)]),
        ("modalities", vec![json!(["text"])]),
        ("prediction", vec![]),
        ("tool_choice", vec![json!("none"), json!("auto")]),
        ("top_logprobs", vec![json!(0)]),
    ] {
        fields.allow_only_neutral(name, &neutral)?;
    }
    let max_tokens = parse_max_tokens(&mut fields)?;
    parse_shared_fields(fields, prompt, max_tokens, prompt_tokens_max)
}

/// Parses the body of `/v1/completions`. An unsupported field is an error.
///
/// # Errors
/// [`ApiError`] for the first unsupported field, or for a malformed body.
pub fn parse_completion(body: &[u8], prompt_tokens_max: u32) -> Result<ParsedRequest, ApiError> {
    let mut fields = JsonFields::parse(body)?;
    let prompt = match fields.require("prompt")? {
        Value::String(text) => text,
        other => match other.as_array().map(Vec::as_slice) {
            Some([Value::String(text)]) => text.clone(),
            _ => {
                let wanted = "a string, or a list of one string";
                return Err(ApiError::invalid_field("prompt", wanted, &other));
            }
        },
    };
    for (name, neutral) in [
        ("best_of", vec![json!(1)]),
        ("echo", vec![json!(false)]),
        ("logprobs", vec![]),
        ("suffix", vec![json!("")]),
    ] {
        fields.allow_only_neutral(name, &neutral)?;
    }
    // The default of this route is 16 (OpenAI's API reference).
    let max_tokens = parse_max_tokens(&mut fields)?.or(Some(16));
    parse_shared_fields(fields, Prompt::Text(prompt), max_tokens, prompt_tokens_max)
}

/// Parses the fields that both routes share, and refuses the remaining ones.
fn parse_shared_fields(
    mut fields: JsonFields,
    prompt: Prompt,
    max_tokens: Option<u32>,
    prompt_tokens_max: u32,
) -> Result<ParsedRequest, ApiError> {
    let model = fields.require_text("model")?;
    for (name, neutral) in [
        ("frequency_penalty", json!(0)),
        ("logit_bias", json!({})),
        ("n", json!(1)),
        ("presence_penalty", json!(0)),
        ("response_format", json!({ "type": "text" })),
    ] {
        fields.allow_only_neutral(name, &[neutral])?;
    }
    let stream = fields.take_flag("stream")?;
    let include_usage = parse_stream_options(&mut fields, stream)?;
    let sampling = Sampling {
        // Both default to 1 (OpenAI's API reference).
        temperature: fields.take_number("temperature", 0.0..=2.0)?.unwrap_or(1.0) as f32,
        top_p: fields.take_number("top_p", 0.0..=1.0)?.unwrap_or(1.0) as f32,
        // The default seed is 0, so that the same request always has the same answer.
        seed: fields.take_integer("seed", i64::MIN..=i64::MAX)?.unwrap_or(0).cast_unsigned(),
    };
    let stop = parse_stop(&mut fields)?;
    let ignore_eos = fields.take_flag("ignore_eos")?;
    fields.finish(&IGNORED)?;
    let request =
        Request { model, prompt, sampling, max_tokens, prompt_tokens_max, stop, ignore_eos };
    Ok(ParsedRequest { request, stream, include_usage })
}

/// Fields that do not change a completion, and are ignored.
const IGNORED: [&str; 7] = [
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
];

fn parse_messages(value: Value) -> Result<Vec<Message>, ApiError> {
    match value {
        Value::Array(list) if !list.is_empty() => {
            list.into_iter().enumerate().map(|(index, value)| parse_message(index, value)).collect()
        }
        other => Err(ApiError::invalid_field("messages", "a list of at least one message", &other)),
    }
}

fn parse_message(index: usize, value: Value) -> Result<Message, ApiError> {
    let path = format!("messages[{index}]");
    let mut fields = JsonFields::from_value(&path, value)?;
    let role = fields.require("role")?;
    // Messages with these fields have `content: null`, so these fields are refused first.
    for name in ["tool_calls", "function_call"] {
        fields.refuse_field(name, NO_TOOLS)?;
    }
    if matches!(role.as_str(), Some("tool" | "function")) {
        return Err(ApiError::invalid_field(&format!("{path}.role"), NO_TOOLS, &role));
    }
    let known = role.as_str().and_then(Role::parse);
    let role = known.ok_or_else(|| {
        ApiError::invalid_field(
            &format!("{path}.role"),
            "system, developer, user or assistant",
            &role,
        )
    })?;
    let content = parse_content(&format!("{path}.content"), fields.require_present("content")?)?;
    fields.finish(&["name"])?;
    Ok(Message { role, content })
}

/// Parses the content of a message: a string, or a list of text parts.
fn parse_content(path: &str, value: Value) -> Result<String, ApiError> {
    let parts = match value {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        other => {
            return Err(ApiError::invalid_field(path, "a string or a list of text parts", &other));
        }
    };
    let mut whole = String::new();
    for (index, part) in parts.into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut fields = JsonFields::from_value(&path, part)?;
        fields.allow_only_neutral("type", &[json!("text")])?;
        whole.push_str(&fields.require_text("text")?);
        fields.finish(&[])?;
    }
    Ok(whole)
}

fn parse_max_tokens(fields: &mut JsonFields) -> Result<Option<u32>, ApiError> {
    let range = 1..=i64::from(u32::MAX);
    let old = fields.take_integer("max_tokens", range.clone())?;
    let new = fields.take_integer("max_completion_tokens", range)?;
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        return Err(ApiError::invalid_field(
            "max_tokens",
            "the value of max_completion_tokens",
            &json!(old),
        ));
    }
    Ok(new.or(old).and_then(|tokens| u32::try_from(tokens).ok()))
}

fn parse_stream_options(fields: &mut JsonFields, stream: bool) -> Result<bool, ApiError> {
    let Some(value) = fields.take("stream_options") else { return Ok(false) };
    if !stream {
        return Err(ApiError::invalid_field(
            "stream_options",
            "nothing unless stream is true",
            &value,
        ));
    }
    let mut options = JsonFields::from_value("stream_options", value)?;
    let include_usage = options.take_flag("include_usage")?;
    options.finish(&["include_obfuscation"])?;
    Ok(include_usage)
}

/// The largest number of stop strings; each costs time for every token.
const STOP_STRINGS_MAX: usize = 16;
const STOP_BYTES_MAX: usize = 256;

fn parse_stop(fields: &mut JsonFields) -> Result<Vec<String>, ApiError> {
    let wanted = format!("up to {STOP_STRINGS_MAX} strings of 1 to {STOP_BYTES_MAX} bytes each");
    let list = match fields.take("stop") {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= STOP_STRINGS_MAX => list,
        Some(one @ Value::String(_)) => vec![one],
        Some(other) => return Err(ApiError::invalid_field("stop", wanted, &other)),
    };
    list.into_iter()
        .map(|value| match value {
            Value::String(text) if (1..=STOP_BYTES_MAX).contains(&text.len()) => Ok(text),
            other => Err(ApiError::invalid_field("stop", &wanted, &other)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_chat_with(extra: Value) -> Result<ParsedRequest, ApiError> {
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        if let (Value::Object(body), Value::Object(extra)) = (&mut body, extra) {
            body.extend(extra);
        }
        parse_chat(body.to_string().as_bytes(), 100)
    }

    fn refused_param(extra: Value) -> String {
        match parse_chat_with(extra) {
            Err(ApiError::Field { param, .. } | ApiError::UnknownField { param }) => param,
            other => panic!("wanted a refusal of a field, got {other:?}"),
        }
    }

    #[test]
    fn a_plain_chat_gets_openai_defaults() {
        let parsed = parse_chat_with(json!({})).expect("a request");
        assert!(!parsed.stream && !parsed.include_usage && !parsed.request.ignore_eos);
        assert_eq!(parsed.request.max_tokens, None);
        assert_eq!(parsed.request.sampling, Sampling { temperature: 1.0, top_p: 1.0, seed: 0 });
        assert_eq!(parsed.request.prompt_tokens_max, 100);
    }

    #[test]
    fn what_it_cannot_do_is_refused_by_name() {
        for (param, value) in [
            ("n", json!(2)),
            ("tools", json!([{}])),
            ("logprobs", json!(true)),
            ("presence_penalty", json!(0.5)),
            ("response_format", json!({ "type": "json_object" })),
            ("top_k", json!(5)),
            ("nonsense", json!("x")),
        ] {
            assert_eq!(refused_param(json!({ param: value })), param);
        }
    }

    #[test]
    fn a_message_with_tool_calls_is_refused_for_them_and_not_for_its_null_content() {
        let call = json!([{ "id": "1", "type": "function", "function": { "name": "f" } }]);
        for (param, message) in [
            (
                "messages[1].tool_calls",
                json!({ "role": "assistant", "content": null, "tool_calls": call }),
            ),
            ("messages[1].role", json!({ "role": "tool", "content": "x", "tool_call_id": "1" })),
            ("messages[1].content", json!({ "role": "assistant", "content": null })),
        ] {
            let body = json!({ "messages": [{ "role": "user", "content": "hi" }, message] });
            match parse_chat_with(body) {
                Err(ApiError::Field { param: named, wanted, .. }) => {
                    assert_eq!(named, param);
                    let about_tools = wanted.contains("tool calls are not supported");
                    assert_eq!(about_tools, param != "messages[1].content", "{wanted}");
                }
                other => panic!("{param}: {other:?}"),
            }
        }
        let missing = json!({ "messages": [{ "role": "user" }] });
        assert!(matches!(parse_chat_with(missing), Err(ApiError::Missing { .. })));
    }

    #[test]
    fn values_of_the_wrong_kind_are_refused_by_name() {
        for (param, value) in [
            ("temperature", json!(2.5)),
            ("temperature", json!("hot")),
            ("top_p", json!(-0.1)),
            ("max_tokens", json!(0)),
            ("max_tokens", json!(1.5)),
            ("max_completion_tokens", json!(-1)),
            ("seed", json!("one")),
            ("stop", json!([""])),
            ("stop", json!(vec!["x"; 17])),
            ("stop", json!({})),
            ("stream", json!("yes")),
            ("stream_options", json!({ "include_usage": true })),
            ("messages", json!([])),
        ] {
            assert_eq!(refused_param(json!({ param: value })), param, "{value}");
        }
        assert_eq!(
            refused_param(json!({ "messages": [{ "role": "cat", "content": "" }] })),
            "messages[0].role"
        );
        assert_eq!(
            refused_param(
                json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url" }] }] })
            ),
            "messages[0].content[0].type"
        );
    }

    #[test]
    fn neutral_values_null_and_idle_fields_pass() {
        let parsed = parse_chat_with(json!({
            "n": 1, "presence_penalty": 0.0, "tools": null, "user": "u", "nonsense": null,
            "response_format": { "type": "text" }, "stop": "x", "seed": -1, "ignore_eos": true,
            "max_tokens": 5, "max_completion_tokens": 5,
            "stream": true, "stream_options": { "include_usage": true },
            "messages": [{ "role": "developer", "content": [
                { "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }],
        }))
        .expect("a request");
        let message = Message { role: Role::System, content: "ab".into() };
        assert_eq!(parsed.request.prompt, Prompt::Chat(vec![message]));
        assert_eq!(parsed.request.sampling.seed, u64::MAX);
        assert_eq!((parsed.request.max_tokens, parsed.request.stop.len()), (Some(5), 1));
        assert!(parsed.stream && parsed.include_usage && parsed.request.ignore_eos);
    }

    #[test]
    fn a_completion_has_one_prompt_and_sixteen_tokens() {
        for prompt in [json!("hi"), json!(["hi"])] {
            let body = json!({ "model": "m", "prompt": prompt }).to_string();
            let parsed = parse_completion(body.as_bytes(), 1).expect("a request");
            assert_eq!(parsed.request.prompt, Prompt::Text("hi".into()));
            assert_eq!(parsed.request.max_tokens, Some(16));
        }
        for prompt in [json!(["a", "b"]), json!([1, 2]), json!(3)] {
            let body = json!({ "model": "m", "prompt": prompt }).to_string();
            assert!(matches!(parse_completion(body.as_bytes(), 1), Err(ApiError::Field { .. })));
        }
    }

    #[test]
    fn bodies_that_are_no_object_are_refused() {
        for body in [&b""[..], b"[]", b"{", b"\"x\"", b"\xff", b"{}x"] {
            assert!(matches!(parse_chat(body, 1), Err(ApiError::NotJson { .. })));
        }
        assert!(matches!(parse_chat(b"{}", 1), Err(ApiError::Missing { .. })));
        let deep = format!("{{\"messages\":{}", "[".repeat(100_000));
        assert!(matches!(parse_chat(deep.as_bytes(), 1), Err(ApiError::NotJson { .. })));
    }
}
