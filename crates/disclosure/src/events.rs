//! Assembles the document of a streamed answer: deltas are concatenated, and `usage` is taken from
//! the last chunk, as `docs/disclosure.md`, "A stream of events", defines.

use std::collections::BTreeMap;

use crate::json::{Json, JsonError};

/// The greatest number of events in one stream.
pub const EVENTS_MAX: usize = 65_536;

/// The greatest number of choices of an answer, and of tool calls of a choice.
const PLACES_MAX: usize = 128;

/// The greatest number of different top-level members of all chunks together.
const MEMBERS_MAX: usize = 256;

/// The members of a delta whose strings are concatenated.
const CONCATENATED: [&str; 4] = ["content", "reasoning", "reasoning_content", "refusal"];

/// The reason why a stream has no document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventsError {
    /// The data of an event is not JSON within the limits.
    #[error("data of event {event} is not valid JSON: {source}")]
    Json {
        /// The index of the event, from 0.
        event: usize,
        /// The error of the JSON reader.
        source: JsonError,
    },
    /// The stream is not UTF-8.
    #[error("stream of events is not UTF-8")]
    Encoding,
    /// The events are not chunks of a chat or completion.
    #[error("event {event} is not a chunk of a chat or completion: {what}")]
    Unknown {
        /// The index of the event, from 0.
        event: usize,
        /// The part of the event that is wrong.
        what: &'static str,
    },
    /// There are more events, choices or members than the limit.
    #[error("stream has more than {limit} {what}")]
    Limit {
        /// The things that are counted.
        what: &'static str,
        /// The greatest number that is allowed.
        limit: usize,
    },
}

/// A stream assembled to the document that a client without streaming would have received.
#[derive(Debug)]
pub struct AssembledStream {
    /// The document, with the members that `docs/disclosure.md` defines.
    pub json: Json,
    /// Whether the stream ended with `[DONE]`.
    pub finished: bool,
}

/// Assembles a whole stream of events.
///
/// # Errors
///
/// [`EventsError::Encoding`] if the stream is not UTF-8; [`EventsError::Json`] if the data of an
/// event is not JSON within the limits; [`EventsError::Unknown`] if an event is not a chunk of a
/// chat or completion, or follows `[DONE]`; [`EventsError::Limit`] beyond [`EVENTS_MAX`] events or
/// the limits of choices and members.
pub fn assemble_stream(stream: &[u8]) -> Result<AssembledStream, EventsError> {
    let text = std::str::from_utf8(stream).map_err(|_| EventsError::Encoding)?;
    let mut answer = AssembledAnswer::default();
    let mut finished = false;
    let mut count = 0;
    for (event, data) in split_events(text).enumerate() {
        count = event + 1;
        if event == EVENTS_MAX {
            return Err(EventsError::Limit { what: "events", limit: EVENTS_MAX });
        }
        if finished {
            return Err(EventsError::Unknown { event, what: "it follows [DONE]" });
        }
        if data == "[DONE]" { finished = true } else { answer.add_event(event, &data)? }
    }
    Ok(AssembledStream { json: answer.finish(count)?, finished })
}

/// Splits a stream into the data of its events (WHATWG HTML standard, section 9.2.6).
fn split_events(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut lines = EventLines(text.strip_prefix('\u{feff}').unwrap_or(text));
    std::iter::from_fn(move || {
        let mut data: Option<String> = None;
        loop {
            // An event without its final empty line was not sent.
            let line = lines.next()?;
            if line.is_empty() {
                match data.take() {
                    Some(data) => return Some(data),
                    None => continue,
                }
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            if name == "data" {
                let value = value.strip_prefix(' ').unwrap_or(value);
                match &mut data {
                    None => data = Some(value.into()),
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                }
            }
        }
    })
}

/// The terminated lines of a text; a line ends with CR LF, LF or CR.
struct EventLines<'a>(&'a str);

impl<'a> Iterator for EventLines<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let end = self.0.find(['\r', '\n'])?;
        let (line, rest) = self.0.split_at(end);
        self.0 = rest.strip_prefix("\r\n").unwrap_or(&rest[1..]);
        Some(line)
    }
}

#[derive(Default)]
struct AssembledAnswer {
    /// The other top-level members; `None` for a member that differs between chunks.
    members: BTreeMap<String, Option<Json>>,
    choices: BTreeMap<usize, AssembledChoice>,
    usage: Option<Json>,
    has_choices: bool,
}

#[derive(Default)]
struct AssembledChoice {
    text: Option<String>,
    message: BTreeMap<&'static str, String>,
    role: Option<Json>,
    calls: BTreeMap<usize, AssembledCall>,
    finish_reason: Option<Json>,
}

#[derive(Default)]
struct AssembledCall {
    members: BTreeMap<&'static str, Json>,
    name: Option<Json>,
    arguments: Option<String>,
}

impl AssembledAnswer {
    fn add_event(&mut self, event: usize, data: &str) -> Result<(), EventsError> {
        let chunk =
            Json::parse(data.as_bytes()).map_err(|source| EventsError::Json { event, source })?;
        let unknown = |what| EventsError::Unknown { event, what };
        let Json::Object(members) = chunk else { return Err(unknown("it is not an object")) };
        for (name, value) in members {
            match (name.as_str(), value) {
                ("choices", Json::Array(choices)) => {
                    self.has_choices = true;
                    for choice in &choices {
                        let index = parse_choice_index(choice, event)?;
                        self.choices
                            .entry(index)
                            .or_default()
                            .merge_delta(choice)
                            .map_err(unknown)?;
                    }
                }
                ("choices", _) => return Err(unknown("choices are not an array")),
                ("usage", Json::Null) => {}
                ("usage", usage) => self.usage = Some(usage),
                (_, value) => {
                    let known = self.members.entry(name).or_insert_with(|| Some(value.clone()));
                    if known.as_ref() != Some(&value) {
                        *known = None;
                    }
                }
            }
        }
        match self.members.len() > MEMBERS_MAX {
            true => Err(EventsError::Limit { what: "members", limit: MEMBERS_MAX }),
            false => Ok(()),
        }
    }

    fn finish(self, event: usize) -> Result<Json, EventsError> {
        if !self.has_choices {
            return Err(EventsError::Unknown { event, what: "no event had choices" });
        }
        if self.choices.keys().enumerate().any(|(place, index)| place != *index) {
            return Err(EventsError::Unknown { event, what: "a choice is missing" });
        }
        let constant = self.members.into_iter();
        let mut members: Vec<(String, Json)> =
            constant.filter_map(|(name, value)| Some((name, value?))).collect();
        let choices = self.choices.into_iter().map(|(index, choice)| choice.finish(index));
        members.push(("choices".into(), Json::Array(choices.collect())));
        members.extend(self.usage.map(|usage| ("usage".into(), usage)));
        Ok(Json::Object(members))
    }
}

impl AssembledChoice {
    fn merge_delta(&mut self, choice: &Json) -> Result<(), &'static str> {
        if let Some(text) = string_member(choice, "text")? {
            self.text.get_or_insert_default().push_str(text);
        }
        if let Some(reason) = choice.member("finish_reason").filter(|it| **it != Json::Null) {
            self.finish_reason = Some(reason.clone());
        }
        let Some(delta) = choice.member("delta") else { return Ok(()) };
        for name in CONCATENATED {
            if let Some(text) = string_member(delta, name)? {
                self.message.entry(name).or_default().push_str(text);
            }
        }
        if let Some(role) = string_member(delta, "role")? {
            keep_first(&mut self.role, role).map_err(|()| "the role changes")?;
        }
        let calls = match delta.member("tool_calls") {
            None | Some(Json::Null) => &[][..],
            Some(Json::Array(calls)) => calls,
            Some(_) => return Err("tool calls are not an array"),
        };
        for call in calls {
            let index = parse_index(call).ok_or("a tool call has no index")?;
            self.calls.entry(index).or_default().merge_delta(call)?;
        }
        Ok(())
    }

    fn finish(self, index: usize) -> Json {
        let mut members = vec![
            ("index".to_string(), Json::Number(index.to_string())),
            ("finish_reason".to_string(), self.finish_reason.unwrap_or(Json::Null)),
        ];
        members.extend(self.text.map(|text| ("text".to_string(), Json::String(text))));
        let mut message: Vec<(String, Json)> = Vec::new();
        message.extend(self.role.map(|role| ("role".into(), role)));
        let texts = self.message.into_iter();
        message.extend(texts.map(|(name, text)| (name.into(), Json::String(text))));
        if !self.calls.is_empty() {
            let calls = self.calls.into_values().map(AssembledCall::finish).collect();
            message.push(("tool_calls".into(), Json::Array(calls)));
        }
        if !message.is_empty() {
            members.push(("message".into(), Json::Object(message)));
        }
        Json::Object(members)
    }
}

impl AssembledCall {
    fn merge_delta(&mut self, call: &Json) -> Result<(), &'static str> {
        for name in ["id", "type"] {
            if let Some(text) = string_member(call, name)? {
                let mut known = self.members.remove(name);
                let kept = keep_first(&mut known, text);
                self.members.extend(known.map(|known| (name, known)));
                kept.map_err(|()| "a tool call changes")?;
            }
        }
        let Some(function) = call.member("function") else { return Ok(()) };
        if let Some(name) = string_member(function, "name")? {
            keep_first(&mut self.name, name).map_err(|()| "a tool call changes")?;
        }
        if let Some(arguments) = string_member(function, "arguments")? {
            self.arguments.get_or_insert_default().push_str(arguments);
        }
        Ok(())
    }

    fn finish(self) -> Json {
        let members = self.members.into_iter();
        let mut members: Vec<(String, Json)> =
            members.map(|(name, value)| (name.into(), value)).collect();
        let mut function: Vec<(String, Json)> = Vec::new();
        function.extend(self.name.map(|name| ("name".into(), name)));
        let arguments = self.arguments.map(Json::String);
        function.extend(arguments.map(|arguments| ("arguments".into(), arguments)));
        members.push(("function".into(), Json::Object(function)));
        Json::Object(members)
    }
}

/// The string member of an object; `None` if it is `null` or missing.
fn string_member<'a>(object: &'a Json, name: &str) -> Result<Option<&'a str>, &'static str> {
    match object.member(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(_) => Err("a text is not a string"),
    }
}

/// Keeps the first text; a later one must be the same or empty.
fn keep_first(known: &mut Option<Json>, text: &str) -> Result<(), ()> {
    match known {
        None => *known = Some(Json::String(text.into())),
        Some(Json::String(known)) if known == text || text.is_empty() => {}
        Some(_) => return Err(()),
    }
    Ok(())
}

fn parse_choice_index(choice: &Json, event: usize) -> Result<usize, EventsError> {
    parse_index(choice).ok_or(EventsError::Unknown { event, what: "a choice has no index" })
}

fn parse_index(object: &Json) -> Option<usize> {
    match object.member("index") {
        Some(Json::Number(text)) => text.parse().ok().filter(|index| *index < PLACES_MAX),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assemble_text(stream: &str) -> Result<(Json, bool), EventsError> {
        assemble_stream(stream.as_bytes()).map(|it| (it.json, it.finished))
    }

    fn assert_same_fields(json: &Json, wanted: &str) {
        let fields = |json: &Json| {
            let mut fields = crate::message::document_fields("response", json).unwrap();
            fields.sort_by(|a, b| a.path.cmp(&b.path));
            fields
        };
        assert_eq!(fields(json), fields(&Json::parse(wanted.as_bytes()).unwrap()));
    }

    #[test]
    fn deltas_are_concatenated_and_usage_is_the_last_chunks() {
        let stream = concat!(
            ": a comment\r\n",
            "data: {\"id\":\"c1\",\"model\":\"m\",\"x\":1,\"choices\":[{\"index\":0,\"delta\":{\"role\":",
            "\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null}\r\n\r\n",
            "event: message\ndata: {\"id\":\"c1\",\"model\":\"m\",\"x\":2,\"choices\":[{\"index\":0,\ndata:",
            "\"delta\":{\"content\":\"Hel\"}}]}\n\n\n",
            "data:{\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"},",
            "\"finish_reason\":\"stop\"}]}\r\r",
            "data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[],\"usage\":{\"total_tokens\":7}}\n\n",
            "data: [DONE]\n\n",
        );
        let (json, finished) = assemble_text(stream).unwrap();
        assert!(finished);
        assert_same_fields(
            &json,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"finish_reason":"stop",
            "message":{"role":"assistant","content":"Hello"}}],"usage":{"total_tokens":7}}"#,
        );
    }

    #[test]
    fn tool_calls_and_completions_have_a_view() {
        let stream = concat!(
            r#"data: {"choices":[{"index":0,"text":"a"},{"index":1,"delta":{"tool_calls":[{"index":0,"#,
            r#""id":"t","type":"function","function":{"name":"f","arguments":""}}]}}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"text":"b"},{"index":1,"delta":{"tool_calls":[{"index":0,"#,
            r#""function":{"arguments":"{}"}}]}}]}"#,
            "\n\n",
        );
        let (json, finished) = assemble_text(stream).unwrap();
        assert!(!finished);
        assert_same_fields(
            &json,
            r#"{"choices":[{"index":0,"finish_reason":null,"text":"ab"},{"index":1,
            "finish_reason":null,"message":{"tool_calls":[{"id":"t","type":"function",
            "function":{"name":"f","arguments":"{}"}}]}}]}"#,
        );
    }

    #[test]
    fn what_is_no_stream_of_chunks_is_refused() {
        for stream in [
            "",
            "data: [DONE]\n\n",
            "data: 1\n\n",
            "data: {\"type\":\"message_start\"}\n\n",
            "data: {\"choices\":{}}\n\n",
            "data: {\"choices\":[{}]}\n\n",
            "data: {\"choices\":[{\"index\":1}]}\n\n",
            "data: {\"choices\":[{\"index\":128}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":1}}]}\n\n",
            "data: {\"choices\":[]}\n\ndata: [DONE]\n\ndata: {\"choices\":[]}\n\n",
            // An event whose end was not sent.
            "data: {\"choices\":[]}\n",
        ] {
            let refused = assemble_text(stream).unwrap_err();
            assert!(matches!(refused, EventsError::Unknown { .. }), "{stream}: {refused}");
        }
        let twice = assemble_text("data: {\"choices\":[],\"choices\":[]}\n\n").unwrap_err();
        assert!(matches!(
            twice,
            EventsError::Json { event: 0, source: JsonError::Duplicate { .. } }
        ));
    }
}
