//! Counts the tokens of an answer while it passes, without keeping or delaying a byte.

use http::HeaderMap;

use crate::{
    json_usage::{DocumentUsage, JsonUsageScanner},
    media_type::{EVENT_STREAM, JSON, is_uncoded, media_type},
};

/// The tokens of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerUsage {
    /// Tokens of the prompt, including cached ones.
    pub prompt_tokens: u64,
    /// Tokens of the prompt that the server had in its cache.
    pub cached_tokens: u64,
    /// Tokens of the answer, as the server counted them.
    pub completion_tokens: u64,
    /// Tokens of the answer that the server did not count: one for each event that carried a piece
    /// of it. They are not contained in `completion_tokens`.
    pub estimated_tokens: u64,
    /// The model that the answer names.
    pub model: Option<String>,
}

impl AnswerUsage {
    /// The tokens that are charged.
    pub(crate) fn total_tokens(&self) -> u64 {
        self.prompt_tokens
            .saturating_add(self.completion_tokens)
            .saturating_add(self.estimated_tokens)
    }
}

/// Reads the body of an answer in pieces.
#[derive(Debug)]
pub struct UsageScanner {
    format: AnswerFormat,
    document: JsonUsageScanner,
    /// What the ended events stated.
    usage: DocumentUsage,
    /// The number of events with a piece of the answer.
    output_events: u64,
}

#[derive(Debug)]
enum AnswerFormat {
    Json,
    Events { line: LineState, after_return: bool, has_data: bool },
}

/// The part of a line of an event stream that is being read.
#[derive(Clone, Copy, Debug)]
enum LineState {
    /// The number of bytes of [`DATA`] that the line begins with so far.
    Name(usize),
    Data,
    Ignored,
}

/// The beginning of a line with data (HTML standard, section 9.2.6).
const DATA: &[u8] = b"data:";

impl UsageScanner {
    /// A scanner for an answer of one JSON document.
    pub fn for_json() -> Self {
        Self::new(AnswerFormat::Json)
    }

    /// A scanner for a stream of server-sent events.
    pub fn for_events() -> Self {
        let line = LineState::Name(0);
        Self::new(AnswerFormat::Events { line, after_return: false, has_data: false })
    }

    /// The scanner for an answer with these fields; `None` if its tokens cannot be counted, because
    /// it is encoded or of another type.
    pub(crate) fn for_answer(headers: &HeaderMap) -> Option<Self> {
        if !is_uncoded(headers) {
            return None;
        }
        let media_type = media_type(headers)?;
        if media_type.eq_ignore_ascii_case(EVENT_STREAM) {
            return Some(Self::for_events());
        }
        media_type.eq_ignore_ascii_case(JSON).then(Self::for_json)
    }

    fn new(format: AnswerFormat) -> Self {
        let (document, usage) = (JsonUsageScanner::default(), DocumentUsage::default());
        Self { format, document, usage, output_events: 0 }
    }

    /// Reads the next piece.
    pub fn read_piece(&mut self, piece: &[u8]) {
        match self.format {
            AnswerFormat::Json => self.document.read_piece(piece),
            AnswerFormat::Events { .. } => self.read_events(piece),
        }
    }

    /// The identifier of the answer, as far as it was read.
    pub(crate) fn answer_id(&self) -> Option<&str> {
        self.usage.id.as_deref().or_else(|| self.document.found_id())
    }

    /// Ends the answer; `is_complete` says whether it came to its own end.
    ///
    /// If the server did not count the answer's tokens, or an incomplete stream has more events than
    /// tokens were counted so far, each event is counted as one token.
    pub fn finish(mut self, is_complete: bool) -> AnswerUsage {
        self.end_event();
        let usage = self.usage;
        let cache_read = usage.cache_read.unwrap_or(0);
        let uncached = match (usage.prompt, usage.total) {
            (Some(prompt), _) => prompt,
            (None, Some(total)) => total.saturating_sub(usage.completion.unwrap_or(0)),
            (None, None) => 0,
        };
        let completion_tokens = usage.completion.unwrap_or(0);
        let is_counted = is_complete && usage.completion.is_some();
        AnswerUsage {
            prompt_tokens: uncached + cache_read + usage.cache_creation.unwrap_or(0),
            cached_tokens: usage.cached.unwrap_or(0) + cache_read,
            completion_tokens,
            estimated_tokens: match is_counted {
                true => 0,
                false => self.output_events.saturating_sub(completion_tokens),
            },
            model: usage.model,
        }
    }

    fn read_events(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while let Some((&byte, after)) = rest.split_first() {
            let AnswerFormat::Events { line, after_return, has_data } = &mut self.format else {
                return;
            };
            if std::mem::take(after_return) && byte == b'\n' {
                rest = after;
                continue;
            }
            let is_end = matches!(byte, b'\n' | b'\r');
            *after_return = byte == b'\r';
            match *line {
                LineState::Name(0) if is_end => {
                    self.end_event();
                    rest = after;
                }
                _ if is_end => {
                    *line = LineState::Name(0);
                    // The lines of one event are joined by line feeds.
                    self.document.read_piece(b"\n");
                    rest = after;
                }
                LineState::Name(length) => {
                    *line = match DATA[length] == byte {
                        false => LineState::Ignored,
                        true if length + 1 < DATA.len() => LineState::Name(length + 1),
                        true => LineState::Data,
                    };
                    *has_data |= matches!(line, LineState::Data);
                    rest = after;
                }
                state @ (LineState::Data | LineState::Ignored) => {
                    let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                    let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
                    if matches!(state, LineState::Data) {
                        self.document.read_piece(part);
                    }
                    rest = after;
                }
            }
        }
    }

    fn end_event(&mut self) {
        let (is_event, has_data) = match &mut self.format {
            AnswerFormat::Json => (false, true),
            AnswerFormat::Events { has_data, .. } => (true, std::mem::take(has_data)),
        };
        if !has_data {
            return;
        }
        let document = self.document.end_document();
        self.output_events += u64::from(is_event && document.has_output);
        self.usage.update(document);
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    fn scan(mut scanner: UsageScanner, pieces: &[&str]) -> AnswerUsage {
        pieces.iter().for_each(|piece| scanner.read_piece(piece.as_bytes()));
        scanner.finish(true)
    }

    /// The usage of a stream, which must not depend on where it is cut.
    fn scan_events(text: &str) -> AnswerUsage {
        let whole = scan(UsageScanner::for_events(), &[text]);
        for end in 0..text.len() {
            let (first, second) = text.split_at(end);
            assert_eq!(scan(UsageScanner::for_events(), &[first, second]), whole, "{end}");
        }
        for (wanted, replacement) in [("\n", "\r"), ("\n", "\r\n")] {
            let other = text.replace(wanted, replacement);
            assert_eq!(scan(UsageScanner::for_events(), &[&other]), whole);
        }
        whole
    }

    const CHAT: &str = "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        : a comment\n\ndata: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\
        data:{\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n";

    #[test]
    fn a_stream_with_usage_is_counted_by_the_server() {
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5,\
                     \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n";
        let counted = scan_events(&format!("{CHAT}{usage}"));
        let wanted = AnswerUsage {
            prompt_tokens: 7,
            cached_tokens: 4,
            completion_tokens: 5,
            estimated_tokens: 0,
            model: Some("m".into()),
        };
        assert_eq!(counted, wanted);
    }

    #[test]
    fn a_stream_without_usage_is_estimated_by_its_events() {
        let counted = scan_events(&format!("{CHAT}data: [DONE]\n\n"));
        assert_eq!((counted.completion_tokens, counted.estimated_tokens), (0, 2));
        assert_eq!(counted.total_tokens(), 2);
    }

    #[test]
    fn the_counts_of_anthropics_stream_are_those_of_its_last_event() {
        let counted = scan_events(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"c\",\"usage\":\
             {\"input_tokens\":5,\"cache_read_input_tokens\":6,\"output_tokens\":1}}}\n\n\
             event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\ndata: \"index\":0}\n\n\
             event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n",
        );
        assert_eq!((counted.prompt_tokens, counted.cached_tokens), (11, 6));
        assert_eq!((counted.completion_tokens, counted.estimated_tokens), (15, 0));
    }

    #[test]
    fn a_stream_that_breaks_off_counts_what_was_sent() {
        let mut scanner = UsageScanner::for_events();
        let start = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\
                     \"output_tokens\":1}}}\n\n";
        let delta = "data: {\"type\":\"content_block_delta\"}\n\n";
        scanner.read_piece(format!("{start}{delta}{delta}{delta}data: {{\"ty").as_bytes());
        let counted = scanner.finish(false);
        assert_eq!((counted.prompt_tokens, counted.total_tokens()), (5, 8));
        assert_eq!(counted.estimated_tokens, 2);
    }

    #[test]
    fn a_total_alone_counts_as_the_prompt() {
        let counted = scan(UsageScanner::for_json(), &["{\"usage\":{\"total_", "tokens\":9}}"]);
        assert_eq!((counted.prompt_tokens, counted.completion_tokens), (9, 0));
        assert_eq!(scan(UsageScanner::for_json(), &["<html>"]), AnswerUsage::default());
    }

    #[test]
    fn only_json_and_events_without_encoding_are_counted() {
        for (content_type, encoding, wanted) in [
            (Some("application/json"), None, true),
            (Some("Application/JSON; charset=utf-8"), Some("identity"), true),
            (Some("text/event-stream;charset=utf-8"), None, true),
            (Some("application/json"), Some("gzip"), false),
            (Some("audio/mpeg"), None, false),
            (Some("application/jsonl"), None, false),
            (None, None, false),
        ] {
            let mut headers = HeaderMap::new();
            let fields =
                [(header::CONTENT_TYPE, content_type), (header::CONTENT_ENCODING, encoding)];
            for (name, value) in fields {
                value.map(|value| headers.insert(name, HeaderValue::from_static(value)));
            }
            let scanner = UsageScanner::for_answer(&headers);
            assert_eq!(scanner.is_some(), wanted, "{content_type:?} {encoding:?}");
        }
    }
}
