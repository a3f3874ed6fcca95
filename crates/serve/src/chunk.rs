use confide_engine::{FinishReason, Usage};
use serde_json::{Value, json};

use crate::error::ApiError;

/// Which of the two routes an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Chat,
    Completion,
}

/// What every piece of one answer has in common.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub(crate) route: Route,
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
}

impl Heading {
    /// The answer in one piece.
    pub(crate) fn whole(&self, text: &str, reason: FinishReason, usage: Usage) -> Value {
        let choice = match self.route {
            Route::Chat => json!({
                "index": 0,
                "message": { "role": "assistant", "content": text, "refusal": null },
                "logprobs": null,
                "finish_reason": reason_word(reason),
            }),
            Route::Completion => json!({
                "index": 0,
                "text": text,
                "logprobs": null,
                "finish_reason": reason_word(reason),
            }),
        };
        let object = match self.route {
            Route::Chat => "chat.completion",
            Route::Completion => "text_completion",
        };
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            "usage": usage_object(usage),
        })
    }
}

/// Writes the chunks of one answer as server-sent events.
///
/// All but the token's text is formatted once per answer: a chunk costs two copies and one escaping.
pub(crate) struct Chunks {
    heading: Heading,
    include_usage: bool,
    before_text: String,
    after_text: String,
}

impl Chunks {
    pub(crate) fn new(heading: Heading, include_usage: bool) -> Self {
        let mut chunks =
            Self { heading, include_usage, before_text: String::new(), after_text: String::new() };
        chunks.before_text = chunks.opening();
        chunks.before_text.push_str(match chunks.heading.route {
            Route::Chat => "[{\"index\":0,\"delta\":{\"content\":",
            Route::Completion => "[{\"index\":0,\"text\":",
        });
        chunks.after_text = match chunks.heading.route {
            Route::Chat => "},\"logprobs\":null,\"finish_reason\":null}]".into(),
            Route::Completion => ",\"logprobs\":null,\"finish_reason\":null}]".into(),
        };
        chunks.after_text.push_str(chunks.closing());
        chunks
    }

    /// What comes before the first token: a chat names the role.
    pub(crate) fn role(&self, out: &mut Vec<u8>) {
        if self.heading.route == Route::Chat {
            let choice = json!([{ "index": 0, "delta": { "role": "assistant", "content": "" },
                "logprobs": null, "finish_reason": null }]);
            self.write(out, &choice);
        }
    }

    /// One chunk of text.
    pub(crate) fn text(&self, out: &mut Vec<u8>, text: &str) {
        out.extend_from_slice(self.before_text.as_bytes());
        // Escaping into memory cannot fail.
        let _ = serde_json::to_writer(&mut *out, text);
        out.extend_from_slice(self.after_text.as_bytes());
    }

    /// The last chunk, the usage where it was asked for, and the end mark.
    pub(crate) fn end(&self, out: &mut Vec<u8>, reason: FinishReason, usage: Usage) {
        let reason = reason_word(reason);
        let choice = match self.heading.route {
            Route::Chat => {
                json!([{ "index": 0, "delta": {}, "logprobs": null, "finish_reason": reason }])
            }
            Route::Completion => {
                json!([{ "index": 0, "text": "", "logprobs": null, "finish_reason": reason }])
            }
        };
        self.write(out, &choice);
        if self.include_usage {
            let opening = self.opening();
            let usage = usage_object(usage);
            out.extend_from_slice(format!("{opening}[],\"usage\":{usage}}}\n\n").as_bytes());
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn write(&self, out: &mut Vec<u8>, choices: &Value) {
        let (opening, closing) = (self.opening(), self.closing());
        out.extend_from_slice(format!("{opening}{choices}{closing}").as_bytes());
    }

    fn opening(&self) -> String {
        let object = match self.heading.route {
            Route::Chat => "chat.completion.chunk",
            Route::Completion => "text_completion",
        };
        format!(
            "data: {{\"id\":{},\"object\":\"{object}\",\"created\":{},\"model\":{},\"choices\":",
            Value::from(self.heading.id.as_str()),
            self.heading.created,
            Value::from(self.heading.model.as_str()),
        )
    }

    /// OpenAI's reference: with `include_usage` every chunk has the field, null but in the last.
    fn closing(&self) -> &'static str {
        if self.include_usage { ",\"usage\":null}\n\n" } else { "}\n\n" }
    }
}

/// The event that says that a stream broke. No `[DONE]` follows.
pub(crate) fn broken(out: &mut Vec<u8>, error: &ApiError) {
    out.extend_from_slice(format!("data: {}\n\n", error.body()).as_bytes());
}

fn reason_word(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::Stop => "stop",
    }
}

fn usage_object(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": u64::from(usage.prompt_tokens) + u64::from(usage.completion_tokens),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(route: Route, include_usage: bool) -> Chunks {
        let model = "a \"b\"".into();
        let heading = Heading { route, id: "chatcmpl-1".into(), created: 7, model };
        Chunks::new(heading, include_usage)
    }

    fn events(bytes: Vec<u8>) -> Vec<Value> {
        let text = String::from_utf8(bytes).expect("text");
        let events = text.split_terminator("\n\n");
        events
            .map(|event| {
                let data = event.strip_prefix("data: ").expect("one data line per event");
                serde_json::from_str(data).unwrap_or(Value::from(data))
            })
            .collect()
    }

    #[test]
    fn any_text_survives_the_preformatted_chunk() {
        for route in [Route::Chat, Route::Completion] {
            for text in ["", " a", "\"\\\n\n\r\u{0}\u{1f}\u{7f}", "é😀\u{2028}", "data: x\n\n"] {
                let mut out = Vec::new();
                chunks(route, true).text(&mut out, text);
                let [event] = &events(out)[..] else { panic!("wanted one event") };
                let choice = &event["choices"][0];
                let got = match route {
                    Route::Chat => &choice["delta"]["content"],
                    Route::Completion => &choice["text"],
                };
                assert_eq!(got, text);
                assert_eq!(event["model"], "a \"b\"");
                assert!(event["usage"].is_null() && event.get("usage").is_some());
            }
        }
    }

    #[test]
    fn the_end_carries_reason_usage_and_mark() {
        let usage = Usage { prompt_tokens: 3, completion_tokens: 4 };
        let mut out = Vec::new();
        chunks(Route::Chat, true).end(&mut out, FinishReason::Length, usage);
        let events = events(out);
        assert_eq!(events[0]["choices"][0]["finish_reason"], "length");
        assert_eq!(events[1]["choices"], json!([]));
        assert_eq!(events[1]["usage"]["total_tokens"], 7);
        assert_eq!(events[2], "[DONE]");
        assert_eq!(events.len(), 3);
    }
}
