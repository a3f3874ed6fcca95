//! Reads a streamed answer, piece by piece, with the instant at which each piece came.

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::{
    event::RequestRecord,
    http1::{HttpError, ResponseParser},
    sse::{EventStreamParser, EventTooLong},
};

/// The most bytes of a refusal that are kept for the event's error.
const REFUSAL_BYTES_MAX: usize = 1 << 10;
/// The most pieces of content in an answer: more than any served context holds.
const CHUNKS_MAX: usize = 4_000_000;

/// The reason for which an answer does not count.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The answer is not HTTP.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// An event is too long.
    #[error(transparent)]
    Event(#[from] EventTooLong),
    /// The status is not 200, or the body is not a stream.
    #[error("wanted status 200 and a stream, got status {status}: {body}")]
    Refused {
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// An event is not JSON, or not the JSON of a completion.
    #[error("event of the stream: {0}")]
    Chunk(String),
    /// The server says that the stream broke.
    #[error("server reports {0}")]
    Server(String),
    /// The answer has more pieces than any context holds.
    #[error("answer has more than {CHUNKS_MAX} pieces")]
    TooManyChunks,
    /// The stream ended without a mark that it is whole.
    #[error("stream ended without [DONE] or a finish reason")]
    NoDone,
    /// The answer has no content.
    #[error("stream had no content")]
    Empty,
}

/// Reads one answer into its event.
#[derive(Debug, Default)]
pub(crate) struct AnswerReader {
    pub(crate) http: ResponseParser,
    sse: EventStreamParser,
    text: AnswerText,
    done: bool,
    refusal: Vec<u8>,
}

/// The text of an answer as it comes: its hash, its length in bytes, and itself where it is kept.
#[derive(Debug, Default)]
struct AnswerText {
    hash: Sha256,
    bytes: u64,
    /// The text itself, where somebody will count its tokens.
    kept: Option<String>,
}

impl AnswerText {
    fn add(&mut self, words: &str) {
        self.hash.update(words);
        self.bytes += words.len() as u64;
        if let Some(kept) = &mut self.kept {
            kept.push_str(words);
        }
    }
}

impl AnswerReader {
    /// A reader that keeps the text for its event if `keeps_text`.
    pub(crate) fn new(keeps_text: bool) -> Self {
        let text = AnswerText { kept: keeps_text.then(String::new), ..AnswerText::default() };
        Self { text, ..Self::default() }
    }

    /// Takes the bytes that came at `now_s`. True when the answer is whole.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        now_s: f64,
        event: &mut RequestRecord,
    ) -> Result<bool, AnswerError> {
        event.first_byte_s.get_or_insert(now_s);
        let Self { http, sse, text, done, refusal } = self;
        let mut body = Vec::new();
        http.feed(bytes, |part| body.extend_from_slice(part))?;
        let streamed = http.status() == 200 && http.is_event_stream();
        let result = if streamed {
            sse.feed(&body, |data| apply_event(data, now_s, text, done, event))
        } else {
            let room = REFUSAL_BYTES_MAX - refusal.len().min(REFUSAL_BYTES_MAX);
            refusal.extend_from_slice(&body[..body.len().min(room)]);
            Ok(())
        };
        event.status = Some(http.status()).filter(|status| *status >= 200);
        result?;
        Ok(http.is_done())
    }

    /// Closes the event of an answer that is whole.
    pub(crate) fn finish(self, now_s: f64, event: &mut RequestRecord) -> Result<(), AnswerError> {
        event.last_s = Some(now_s);
        event.server_queue_s = self.http.queue_s();
        if self.http.status() != 200 || !self.http.is_event_stream() {
            let body = String::from_utf8_lossy(&self.refusal).into_owned();
            return Err(AnswerError::Refused { status: self.http.status(), body });
        }
        if !self.done {
            return Err(AnswerError::NoDone);
        }
        if event.chunks_s.is_empty() {
            return Err(AnswerError::Empty);
        }
        event.text_bytes = Some(self.text.bytes);
        event.text = self.text.kept;
        event.text_sha256 = Some(hex::encode(self.text.hash.finalize()));
        Ok(())
    }
}

/// Takes one event of the stream into `event`. `text` hashes the content; `done` is set at the end mark or at a
/// finish reason.
fn apply_event(
    data: &[u8],
    now_s: f64,
    text: &mut AnswerText,
    done: &mut bool,
    event: &mut RequestRecord,
) -> Result<(), AnswerError> {
    if data.trim_ascii() == b"[DONE]" {
        *done = true;
        return Ok(());
    }
    let chunk: Chunk =
        serde_json::from_slice(data).map_err(|error| AnswerError::Chunk(error.to_string()))?;
    if let Some(error) = chunk.error {
        return Err(AnswerError::Server(error.to_string()));
    }
    if let Some(usage) = chunk.usage {
        event.prompt_tokens = usage.prompt_tokens.or(event.prompt_tokens);
        event.output_tokens = usage.completion_tokens.or(event.output_tokens);
    }
    for choice in chunk.choices {
        // Not every server sends [DONE]: `transformers serve` ends with the reason alone.
        *done |= choice.finish_reason.is_some();
        let delta = choice.delta.unwrap_or_default();
        // What a model thinks aloud takes its time as well, and so does a call of a tool.
        let texts =
            [delta.reasoning_content, delta.reasoning, delta.content, delta.refusal, choice.text];
        let calls = delta.tool_calls.into_iter().flatten().filter_map(|call| call.function);
        let called = calls.flat_map(|function| [function.name, function.arguments]);
        let mut has_text = false;
        for words in texts.into_iter().chain(called).flatten().filter(|words| !words.is_empty()) {
            text.add(&words);
            has_text = true;
        }
        if has_text {
            if event.chunks_s.len() == CHUNKS_MAX {
                return Err(AnswerError::TooManyChunks);
            }
            event.chunks_s.push(now_s);
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Option<Delta>,
    /// The content, on the older route `/v1/completions`.
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Deserialize)]
struct ToolCall {
    #[serde(default)]
    function: Option<CalledFunction>,
}

#[derive(Deserialize)]
struct CalledFunction {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(events: &[&str]) -> Vec<u8> {
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
        format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    /// Reads an answer in pieces of `size` bytes, the n-th of which comes at n seconds.
    fn read(bytes: &[u8], size: usize) -> (RequestRecord, Result<(), AnswerError>) {
        let (mut event, mut reading) = (RequestRecord::default(), AnswerReader::default());
        let mut now_s = 0.0;
        for piece in bytes.chunks(size) {
            now_s += 1.0;
            if let Err(error) = reading.feed(piece, now_s, &mut event) {
                return (event, Err(error));
            }
        }
        let outcome = reading.finish(now_s, &mut event);
        (event, outcome)
    }

    const WHOLE: [&str; 5] = [
        r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"Hm"}}],"usage":null}"#,
        r#"{"choices":[{"delta":{"content":" a \"b\""}}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}}"#,
        "[DONE]",
    ];

    #[test]
    fn content_is_stamped_when_it_comes_and_what_is_empty_is_no_token() {
        let bytes = answer(&WHOLE);
        for size in [1, 7, 64, bytes.len()] {
            let (event, outcome) = read(&bytes, size);
            outcome.unwrap();
            assert_eq!((event.chunks_s.len(), event.tokens()), (2, 7));
            assert_eq!((event.status, event.prompt_tokens), (Some(200), Some(5)));
            assert!(event.chunks_s[0] <= event.chunks_s[1]);
            assert_eq!(event.first_byte_s, Some(1.0));
            assert_eq!(event.text_sha256, Some(hex::encode(Sha256::digest("Hm a \"b\""))));
        }
    }

    #[test]
    fn a_finish_reason_ends_an_answer_as_done_does() {
        // As `transformers serve` ends its streams: role and usage in chunks of their own kind.
        let ending = r#"{"choices":[{"finish_reason":"length"}],"usage":{"completion_tokens":2}}"#;
        let (event, outcome) = read(&answer(&[WHOLE[1], WHOLE[2], ending]), 9);
        outcome.unwrap();
        assert_eq!((event.output_tokens, event.chunks_s.len()), (Some(2), 2));
        let open = r#"{"choices":[{"delta":{},"index":0,"finish_reason":null}]}"#;
        assert!(matches!(read(&answer(&[WHOLE[2], open]), 9).1, Err(AnswerError::NoDone)));
    }

    #[test]
    fn a_call_of_a_tool_and_a_refusal_are_answers() {
        let call =
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"find"}}]}}]}"#;
        let arguments =
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}"#;
        let (event, outcome) = read(&answer(&[call, arguments, "[DONE]"]), 9);
        outcome.unwrap();
        assert_eq!((event.chunks_s.len(), event.text_bytes), (2, Some(6)));
        let refused = r#"{"choices":[{"delta":{"refusal":"I cannot"}}]}"#;
        assert!(read(&answer(&[refused, "[DONE]"]), 9).1.is_ok());
    }

    #[test]
    fn an_answer_that_is_not_whole_is_a_typed_error() {
        let refused = b"HTTP/1.1 429 Busy\r\ncontent-length: 4\r\n\r\nfull";
        let (event, outcome) = read(refused, 5);
        let Err(AnswerError::Refused { status: 429, body }) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((body.as_str(), event.is_complete()), ("full", false));
        assert!(matches!(read(&answer(&WHOLE[..4]), 9).1, Err(AnswerError::NoDone)));
        assert!(matches!(read(&answer(&["[DONE]"]), 9).1, Err(AnswerError::Empty)));
        assert!(matches!(read(&answer(&["{"]), 9).1, Err(AnswerError::Chunk(_))));
        let broke = [r#"{"error":{"message":"gone"}}"#];
        assert!(matches!(read(&answer(&broke), 9).1, Err(AnswerError::Server(_))));
    }
}
