//! The parts of an answer: one JSON object, or chunks of a stream of server-sent events.

use confide_engine::{AdapterReport, FinishReason, Usage};
use confide_lora::AdaptError;
use serde_json::{Value, json};

use crate::{
    error::ApiError,
    label::{adapter_loss_json, adapter_report_json},
};

/// The kind of completion, which determines the format of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionRoute {
    Chat,
    Completion,
}

/// The fields that all chunks of an answer share.
#[derive(Clone, Debug)]
pub(crate) struct AnswerHeading {
    pub(crate) route: CompletionRoute,
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    /// For an adapter, the model that it changes.
    pub(crate) parent: Option<String>,
}

/// The ending of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerEnding {
    /// Why the generation ended.
    pub reason: FinishReason,
    /// Numbers of tokens.
    pub usage: Usage,
    /// The report of the adapter, if the answer used one.
    pub adapter: Option<AdapterReport>,
}

impl AnswerEnding {
    /// The `finish_reason` of the answer. An answer that the base model completed after the adapter
    /// was lost has a special reason, so that any client can recognise it.
    pub fn finish_reason(&self) -> &'static str {
        match &self.adapter {
            Some(adapter) if adapter.lost.is_some() => "adapter_lost",
            _ => finish_reason_name(self.reason),
        }
    }

    fn report_json(&self, name: &str) -> Option<Value> {
        let mut label = adapter_report_json(name, self.adapter.as_ref()?);
        label["finish_reason"] = finish_reason_name(self.reason).into();
        Some(label)
    }
}

impl AnswerHeading {
    /// The name of the model that answers after the adapter is lost.
    fn model_after_loss(&self) -> &str {
        self.parent.as_deref().unwrap_or(&self.model)
    }

    /// The object of an answer that is not streamed.
    pub(crate) fn completion_object(&self, text: &str, ending: &AnswerEnding) -> Value {
        let reason = ending.finish_reason();
        let mut choice = json!({ "index": 0, "logprobs": null, "finish_reason": reason });
        let object = match self.route {
            CompletionRoute::Chat => {
                choice["message"] =
                    json!({ "role": "assistant", "content": text, "refusal": null });
                "chat.completion"
            }
            CompletionRoute::Completion => {
                choice["text"] = text.into();
                "text_completion"
            }
        };
        let lost = ending.adapter.as_ref().is_some_and(|adapter| adapter.lost.is_some());
        let model = if lost { self.model_after_loss() } else { &self.model };
        let mut whole = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": model,
            "choices": [choice],
            "usage": usage_object(ending.usage),
        });
        if let Some(label) = ending.report_json(&self.model) {
            whole["confide"] = label;
        }
        whole
    }
}

/// Writes the chunks of one answer as server-sent events.
///
/// Everything except the token's text is formatted once per answer, so a chunk costs two copies and
/// one escaping.
pub(crate) struct ChunkWriter {
    heading: AnswerHeading,
    /// The model of the chunks that are written now.
    model: String,
    include_usage: bool,
    before_text: String,
    after_text: String,
}

impl ChunkWriter {
    pub(crate) fn new(heading: AnswerHeading, include_usage: bool) -> Self {
        let (model, before_text) = (heading.model.clone(), String::new());
        let mut chunks =
            Self { heading, model, include_usage, before_text, after_text: String::new() };
        chunks.prepare_text_chunk();
        chunks
    }

    fn prepare_text_chunk(&mut self) {
        self.before_text = self.chunk_opening();
        self.before_text.push_str(match self.heading.route {
            CompletionRoute::Chat => "[{\"index\":0,\"delta\":{\"content\":",
            CompletionRoute::Completion => "[{\"index\":0,\"text\":",
        });
        self.after_text = match self.heading.route {
            CompletionRoute::Chat => "},\"logprobs\":null,\"finish_reason\":null}]".into(),
            CompletionRoute::Completion => ",\"logprobs\":null,\"finish_reason\":null}]".into(),
        };
        self.after_text.push_str(self.chunk_closing());
    }

    /// Writes the chunk before the first token, which states the role in a chat.
    pub(crate) fn write_role(&self, out: &mut Vec<u8>) {
        if self.heading.route == CompletionRoute::Chat {
            let choice = json!([{ "index": 0, "delta": { "role": "assistant", "content": "" },
                "logprobs": null, "finish_reason": null }]);
            self.write_chunk(out, &choice, None);
        }
    }

    /// Writes a chunk of text.
    pub(crate) fn write_text(&self, out: &mut Vec<u8>, text: &str) {
        out.extend_from_slice(self.before_text.as_bytes());
        // Escaping into memory cannot fail.
        let _ = serde_json::to_writer(&mut *out, text);
        out.extend_from_slice(self.after_text.as_bytes());
    }

    /// Writes the chunk that marks the loss of the adapter. This chunk and all later ones name the
    /// base model.
    pub(crate) fn write_adapter_loss(&mut self, out: &mut Vec<u8>, reason: &AdaptError) {
        self.model = self.heading.model_after_loss().into();
        self.prepare_text_chunk();
        let label = adapter_loss_json(&self.heading.model, reason);
        self.write_chunk(out, &self.empty_choice(Value::Null), Some(&label));
    }

    /// Writes the last chunk, the usage if requested, and the end mark.
    pub(crate) fn write_end(&self, out: &mut Vec<u8>, ending: &AnswerEnding) {
        let label = ending.report_json(&self.heading.model);
        let choice = self.empty_choice(ending.finish_reason().into());
        self.write_chunk(out, &choice, label.as_ref());
        if self.include_usage {
            let (opening, label) = (self.chunk_opening(), confide_field(label.as_ref()));
            let usage = usage_object(ending.usage);
            let event = format!("{opening}[],\"usage\":{usage}{label}}}\n\n");
            out.extend_from_slice(event.as_bytes());
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn empty_choice(&self, reason: Value) -> Value {
        let mut choice = json!({ "index": 0, "logprobs": null, "finish_reason": reason });
        match self.heading.route {
            CompletionRoute::Chat => choice["delta"] = json!({}),
            CompletionRoute::Completion => choice["text"] = "".into(),
        }
        json!([choice])
    }

    fn write_chunk(&self, out: &mut Vec<u8>, choices: &Value, label: Option<&Value>) {
        let (opening, closing, label) =
            (self.chunk_opening(), self.chunk_closing(), confide_field(label));
        out.extend_from_slice(format!("{opening}{choices}{label}{closing}").as_bytes());
    }

    fn chunk_opening(&self) -> String {
        let object = match self.heading.route {
            CompletionRoute::Chat => "chat.completion.chunk",
            CompletionRoute::Completion => "text_completion",
        };
        format!(
            "data: {{\"id\":{},\"object\":\"{object}\",\"created\":{},\"model\":{},\"choices\":",
            Value::from(self.heading.id.as_str()),
            self.heading.created,
            Value::from(self.model.as_str()),
        )
    }

    /// The end of every chunk. With `include_usage` every chunk has the field `usage`, which is
    /// null except in the last (OpenAI's API reference).
    fn chunk_closing(&self) -> &'static str {
        if self.include_usage { ",\"usage\":null}\n\n" } else { "}\n\n" }
    }
}

fn confide_field(label: Option<&Value>) -> String {
    label.map_or_else(String::new, |label| format!(",\"confide\":{label}"))
}

/// Writes the error event of a failed stream. No `[DONE]` follows.
pub(crate) fn write_error(out: &mut Vec<u8>, error: &ApiError) {
    out.extend_from_slice(format!("data: {}\n\n", error.body()).as_bytes());
}

fn finish_reason_name(reason: FinishReason) -> &'static str {
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
    use confide_lora::{DeltaReport, Guarantee};

    use super::*;

    fn chunks(route: CompletionRoute, include_usage: bool) -> ChunkWriter {
        let model = "a \"b\"".into();
        let parent = Some("base".into());
        let heading = AnswerHeading { route, id: "chatcmpl-1".into(), created: 7, model, parent };
        ChunkWriter::new(heading, include_usage)
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
        for route in [CompletionRoute::Chat, CompletionRoute::Completion] {
            for text in ["", " a", "\"\\\n\n\r\u{0}\u{1f}\u{7f}", "é😀\u{2028}", "data: x\n\n"] {
                let mut out = Vec::new();
                chunks(route, true).write_text(&mut out, text);
                let [event] = &events(out)[..] else { panic!("wanted one event") };
                let choice = &event["choices"][0];
                let got = match route {
                    CompletionRoute::Chat => &choice["delta"]["content"],
                    CompletionRoute::Completion => &choice["text"],
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
        let ending = AnswerEnding { reason: FinishReason::Length, usage, adapter: None };
        chunks(CompletionRoute::Chat, true).write_end(&mut out, &ending);
        let events = events(out);
        assert!(events[0].get("confide").is_none());
        assert_eq!(events[0]["choices"][0]["finish_reason"], "length");
        assert_eq!(events[1]["choices"], json!([]));
        assert_eq!(events[1]["usage"]["total_tokens"], 7);
        assert_eq!(events[2], "[DONE]");
        assert_eq!(events.len(), 3);
    }

    fn report(lost: Option<AdaptError>) -> AdapterReport {
        let report =
            DeltaReport { he_operations: 9, budget_left: Some(4), ..DeltaReport::default() };
        AdapterReport { report, guarantee: Guarantee::NONE, lost }
    }

    #[test]
    fn an_adapted_end_says_what_ran() {
        let (usage, adapter) = (Usage::default(), Some(report(None)));
        let ending = AnswerEnding { reason: FinishReason::Stop, usage, adapter };
        for route in [CompletionRoute::Chat, CompletionRoute::Completion] {
            let mut out = Vec::new();
            chunks(route, true).write_end(&mut out, &ending);
            let events = events(out);
            for event in &events[..2] {
                assert_eq!(event["confide"]["adapter"], "a \"b\"");
                assert_eq!(event["confide"]["guarantee"], "none");
                assert_eq!(event["confide"]["encrypted"], true);
                assert_eq!(event["confide"]["budget_left"], 4);
            }
            assert_eq!(events[0]["choices"][0]["finish_reason"], "stop");
        }
    }

    #[test]
    fn after_a_loss_every_chunk_names_the_base_model_and_the_end_is_another() {
        let lost = AdaptError::HostLost { reason: "closed".into() };
        let (usage, adapter) = (Usage::default(), Some(report(Some(lost.clone()))));
        let ending = AnswerEnding { reason: FinishReason::Stop, usage, adapter };
        let mut out = Vec::new();
        let mut chunks = chunks(CompletionRoute::Chat, false);
        chunks.write_text(&mut out, "adapted");
        chunks.write_adapter_loss(&mut out, &lost);
        chunks.write_text(&mut out, "base");
        chunks.write_end(&mut out, &ending);
        let events = events(out);
        assert_eq!(events[0]["model"], "a \"b\"");
        assert!(events[1]["confide"]["adapter_lost"]["reason"].is_string());
        assert!(events[1..4].iter().all(|event| event["model"] == "base"));
        assert_eq!(events[3]["choices"][0]["finish_reason"], "adapter_lost");
        assert_eq!(events[3]["confide"]["finish_reason"], "stop");
        let whole = chunks.heading.completion_object("x", &ending);
        assert_eq!(whole["model"], "base");
        assert_eq!(whole["choices"][0]["finish_reason"], "adapter_lost");
        assert!(whole["confide"]["adapter_lost"]["reason"].is_string());
    }
}
