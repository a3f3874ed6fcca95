//! Finds the token counts in a JSON document that passes by in pieces.
//!
//! The document is not stored: of its text only the name being read is kept, within bounds. The
//! position of a name decides, so text that a model writes is never taken for a count.

/// The depth to which positions are followed. The deepest one of interest is
/// `response.usage.input_tokens_details.cached_tokens`.
const DEPTH_MAX: usize = 4;
/// The largest number of bytes of a name of a field, a type of an event, or a model.
const TEXT_BYTES_MAX: usize = 128;
/// The largest count that is believed, far above what one answer can have.
const COUNT_MAX: u64 = 1 << 40;

/// The counts and names of one document. If a field occurs twice, the last one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentUsage {
    /// `prompt_tokens`, or `input_tokens` in newer APIs.
    pub(crate) prompt: Option<u64>,
    /// `completion_tokens`, or `output_tokens`.
    pub(crate) completion: Option<u64>,
    /// `total_tokens`, the only count of some servers that rank documents.
    pub(crate) total: Option<u64>,
    /// `prompt_tokens_details.cached_tokens`, which `prompt` contains.
    pub(crate) cached: Option<u64>,
    /// Anthropic's `cache_read_input_tokens`, which `prompt` does not contain.
    pub(crate) cache_read: Option<u64>,
    /// Anthropic's `cache_creation_input_tokens`, which `prompt` does not contain.
    pub(crate) cache_creation: Option<u64>,
    /// The model, if its name is short and has no escapes.
    pub(crate) model: Option<String>,
    /// The identifier of the answer, if it is short and has no escapes.
    pub(crate) id: Option<String>,
    /// Whether the document is an event with a piece of the answer.
    pub(crate) has_output: bool,
}

impl DocumentUsage {
    /// Takes over what a later document of the same answer states.
    pub(crate) fn update(&mut self, later: Self) {
        self.prompt = later.prompt.or(self.prompt);
        self.completion = later.completion.or(self.completion);
        self.total = later.total.or(self.total);
        self.cached = later.cached.or(self.cached);
        self.cache_read = later.cache_read.or(self.cache_read);
        self.cache_creation = later.cache_creation.or(self.cache_creation);
        if self.model.is_none() {
            self.model = later.model;
        }
        if self.id.is_none() {
            self.id = later.id;
        }
    }
}

/// The place of a value in its object or array, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    OtherField,
    Element,
    CachedTokens,
    CacheCreationTokens,
    CacheReadTokens,
    Choices,
    CompletionTokens,
    Delta,
    Id,
    Message,
    Model,
    PromptDetails,
    PromptTokens,
    Response,
    Role,
    Text,
    TotalTokens,
    Type,
    Usage,
}

impl Place {
    fn of_field(name: &[u8]) -> Self {
        match name {
            b"cached_tokens" => Self::CachedTokens,
            b"cache_creation_input_tokens" => Self::CacheCreationTokens,
            b"cache_read_input_tokens" => Self::CacheReadTokens,
            b"choices" => Self::Choices,
            b"completion_tokens" | b"output_tokens" => Self::CompletionTokens,
            b"delta" => Self::Delta,
            b"id" => Self::Id,
            b"message" => Self::Message,
            b"model" => Self::Model,
            b"prompt_tokens_details" | b"input_tokens_details" => Self::PromptDetails,
            b"prompt_tokens" | b"input_tokens" => Self::PromptTokens,
            b"response" => Self::Response,
            b"role" => Self::Role,
            b"text" => Self::Text,
            b"total_tokens" => Self::TotalTokens,
            b"type" => Self::Type,
            b"usage" => Self::Usage,
            _ => Self::OtherField,
        }
    }
}

/// The use of the string that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringUse {
    FieldName,
    Id,
    Model,
    EventType,
    /// A piece of the answer, of which only matters whether it is empty.
    Output,
    Ignored,
}

#[derive(Clone, Copy, Debug, Default)]
enum ScanState {
    /// Outside of strings.
    #[default]
    Structure,
    InString(StringUse),
    /// After a backslash in a string.
    Escaped(StringUse),
}

/// Reads one document byte by byte. Documents that are not JSON give arbitrary counts.
#[derive(Debug, Default)]
pub(crate) struct JsonUsageScanner {
    state: ScanState,
    /// The number of open objects and arrays.
    depth: usize,
    /// The place of the value that is being read in each open object or array.
    places: [Place; DEPTH_MAX],
    /// Whether each of them is an object.
    are_objects: [bool; DEPTH_MAX],
    /// Whether the next string is the name of a field.
    expects_name: bool,
    /// The beginning of the string that is being read; `None` if it is too long or has escapes.
    text: Option<Vec<u8>>,
    /// The digits of the count that is being read so far.
    count: Option<u64>,
    found: DocumentUsage,
}

impl JsonUsageScanner {
    /// Reads the next piece.
    pub(crate) fn read_piece(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while !rest.is_empty() {
            rest = match self.state {
                ScanState::Structure => self.read_structure(rest),
                ScanState::InString(purpose) => self.read_string(purpose, rest),
                ScanState::Escaped(purpose) => {
                    self.state = ScanState::InString(purpose);
                    &rest[1..]
                }
            };
        }
    }

    /// The identifier, if it was read already.
    pub(crate) fn found_id(&self) -> Option<&str> {
        self.found.id.as_deref()
    }

    /// Ends the document; the scanner is then ready for the next one.
    pub(crate) fn end_document(&mut self) -> DocumentUsage {
        self.end_count();
        // The buffer of the text is used again.
        let text = self.text.take();
        std::mem::replace(self, Self { text, ..Self::default() }).found
    }

    /// Reads up to the next byte that matters, and that byte. Returns the rest.
    fn read_structure<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let is_counting = self.count_field().is_some();
        let in_object = self.is_in_object();
        let matters = |byte: &u8| match byte {
            b'"' | b'{' | b'}' | b'[' | b']' => true,
            b',' => in_object,
            _ => is_counting,
        };
        let Some(index) = bytes.iter().position(matters) else { return &[] };
        match bytes[index] {
            b'"' => self.begin_string(),
            b'{' => self.open(true),
            b'[' => self.open(false),
            b'}' | b']' => self.close(),
            b',' => {
                self.end_count();
                self.expects_name = true;
            }
            digit => self.read_count(digit),
        }
        &bytes[index + 1..]
    }

    fn open(&mut self, is_object: bool) {
        self.count = None;
        if let Some(place) = self.places.get_mut(self.depth) {
            *place = if is_object { Place::OtherField } else { Place::Element };
            self.are_objects[self.depth] = is_object;
        }
        self.depth += 1;
        self.expects_name = is_object;
    }

    fn close(&mut self) {
        self.end_count();
        self.depth = self.depth.saturating_sub(1);
        self.expects_name = false;
    }

    fn is_in_object(&self) -> bool {
        let innermost = self.depth.checked_sub(1).and_then(|index| self.are_objects.get(index));
        innermost.copied().unwrap_or(false)
    }

    /// The places from the outermost object to the value that is being read; `None` if they are not
    /// followed so deep.
    fn position(&self) -> Option<&[Place]> {
        self.places.get(..self.depth)
    }

    fn begin_string(&mut self) {
        let purpose = self.next_string_use();
        if !matches!(purpose, StringUse::Output | StringUse::Ignored) {
            self.text.get_or_insert_default().clear();
        }
        self.state = ScanState::InString(purpose);
    }

    fn next_string_use(&self) -> StringUse {
        use Place::{Choices, Delta, Element, Id, Message, Model, Response, Role, Text, Type};
        let position = match self.position() {
            Some(_) if self.expects_name && self.is_in_object() => return StringUse::FieldName,
            Some(position) => position,
            // Below the followed depth, names are not told from values: either makes an output.
            None => &self.places[..],
        };
        match position {
            [Model] | [Message | Response, Model] => StringUse::Model,
            [Id] | [Message | Response, Id] => StringUse::Id,
            [Type] => StringUse::EventType,
            [Choices, Element, Text] => StringUse::Output,
            [Choices, Element, Delta, place, ..] if *place != Role => StringUse::Output,
            _ => StringUse::Ignored,
        }
    }

    /// Reads up to the end of the string or its next escape. Returns the rest.
    fn read_string<'a>(&mut self, purpose: StringUse, bytes: &'a [u8]) -> &'a [u8] {
        let end = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        let is_escape = rest.first() == Some(&b'\\');
        match purpose {
            StringUse::Ignored => {}
            StringUse::Output => self.found.has_output |= !part.is_empty() || is_escape,
            _ => {
                let text = self.text.as_mut();
                let fits = text.is_some_and(|text| {
                    let fits = !is_escape && text.len() + part.len() <= TEXT_BYTES_MAX;
                    text.extend_from_slice(if fits { part } else { &[] });
                    fits
                });
                if !fits {
                    self.text = None;
                }
            }
        }
        match rest.split_first() {
            None => rest,
            Some((b'\\', rest)) => {
                self.state = ScanState::Escaped(purpose);
                rest
            }
            Some((_, rest)) => {
                self.end_string(purpose);
                rest
            }
        }
    }

    fn end_string(&mut self, purpose: StringUse) {
        self.state = ScanState::Structure;
        let text = self.text.as_deref();
        match purpose {
            StringUse::FieldName => {
                self.expects_name = false;
                let place = text.map_or(Place::OtherField, Place::of_field);
                if let Some(innermost) = self.places[..self.depth].last_mut() {
                    *innermost = place;
                }
            }
            StringUse::Model => {
                let model = text.and_then(|text| std::str::from_utf8(text).ok());
                self.found.model = model.map(str::to_owned);
            }
            StringUse::Id => {
                let id = text.and_then(|text| std::str::from_utf8(text).ok());
                self.found.id = id.map(str::to_owned);
            }
            StringUse::EventType => {
                let responses =
                    |name: &[u8]| name.starts_with(b"response.") && name.ends_with(b".delta");
                let is_delta = |name: &[u8]| name == b"content_block_delta" || responses(name);
                self.found.has_output |= text.is_some_and(is_delta);
            }
            StringUse::Output | StringUse::Ignored => {}
        }
    }

    fn read_count(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b':' => self.end_count(),
            b'0'..=b'9' => {
                let count = self.count.unwrap_or(0).saturating_mul(10);
                self.count = Some(count.saturating_add(u64::from(byte - b'0')));
            }
            // A sign, a fraction, an exponent or a word is not a count.
            _ => self.count = Some(u64::MAX),
        }
    }

    fn end_count(&mut self) {
        let count = self.count.take().filter(|count| *count <= COUNT_MAX);
        if let (Some(count), Some(field)) = (count, self.count_field()) {
            *field(&mut self.found) = Some(count);
        }
    }

    /// The field of [`DocumentUsage`] for the value that is being read, if it is a count.
    fn count_field(&self) -> Option<fn(&mut DocumentUsage) -> &mut Option<u64>> {
        use Place::{
            CacheCreationTokens, CacheReadTokens, CachedTokens, CompletionTokens, Message,
            PromptDetails, PromptTokens, Response, TotalTokens, Usage,
        };
        let ([Usage, place @ ..] | [Message | Response, Usage, place @ ..]) = self.position()?
        else {
            return None;
        };
        match place {
            [PromptTokens] => Some(|found| &mut found.prompt),
            [CompletionTokens] => Some(|found| &mut found.completion),
            [TotalTokens] => Some(|found| &mut found.total),
            [PromptDetails, CachedTokens] => Some(|found| &mut found.cached),
            [CacheReadTokens] => Some(|found| &mut found.cache_read),
            [CacheCreationTokens] => Some(|found| &mut found.cache_creation),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> DocumentUsage {
        let mut scanner = JsonUsageScanner::default();
        scanner.read_piece(text.as_bytes());
        let whole = scanner.end_document();
        for end in 0..text.len() {
            let (first, second) = text.as_bytes().split_at(end);
            scanner.read_piece(first);
            scanner.read_piece(second);
            assert_eq!(scanner.end_document(), whole, "{end}: {text}");
        }
        text.bytes().for_each(|byte| scanner.read_piece(&[byte]));
        assert_eq!(scanner.end_document(), whole, "{text}");
        whole
    }

    #[test]
    fn the_counts_of_every_api_are_found() {
        let openai = scan(
            r#"{"id":"x","model":"qwen","choices":[{"message":{"content":"hi"}}],"usage":
               {"prompt_tokens": 12,"completion_tokens":34 , "total_tokens":46,
                "prompt_tokens_details":{"cached_tokens":8},
                "completion_tokens_details":{"reasoning_tokens":5}},"other":null}"#,
        );
        assert_eq!((openai.prompt, openai.completion), (Some(12), Some(34)));
        assert_eq!((openai.total, openai.cached), (Some(46), Some(8)));
        assert_eq!(openai.model.as_deref(), Some("qwen"));
        assert!(!openai.has_output);
        let responses = scan(
            r#"{"type":"response.completed","response":{"model":"m","usage":{"input_tokens":1,
               "input_tokens_details":{"cached_tokens":3},"output_tokens":2}}}"#,
        );
        assert_eq!((responses.prompt, responses.completion), (Some(1), Some(2)));
        assert_eq!((responses.cached, responses.model.as_deref()), (Some(3), Some("m")));
        let anthropic = scan(
            r#"{"type":"message_start","message":{"model":"c","usage":{"input_tokens":5,
               "cache_read_input_tokens":6,"cache_creation_input_tokens":7,"output_tokens":1}}}"#,
        );
        assert_eq!((anthropic.prompt, anthropic.completion), (Some(5), Some(1)));
        assert_eq!((anthropic.cache_read, anthropic.cache_creation), (Some(6), Some(7)));
        let rerank = scan(r#"{"usage":{"total_tokens":9},"results":[{"index":0,"score":1e-3}]}"#);
        assert_eq!((rerank.prompt, rerank.total), (None, Some(9)));
    }

    #[test]
    fn only_the_position_decides_and_not_the_text() {
        for text in [
            r#"{"choices":[{"content":"\"usage\":{\"prompt_tokens\":1}}","usage":{"prompt_tokens":1}}]}"#,
            r#"{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":1}}}]}"#,
            r#"{"a":{"usage":{"input_tokens":1},"model":"x"}}"#,
            r#"[{"usage":{"input_tokens":1}}]"#,
            r#"{"usage":[{"input_tokens":1}]}"#,
            r#"{"usage":{"more":{"input_tokens":1}}}"#,
            r#"{"usage":{"prompt_tokens":"7"}}"#,
            r#"{"usage":{"prompt_tokens":-7}}"#,
            r#"{"usage":{"prompt_tokens":1.5}}"#,
            r#"{"usage":{"prompt_tokens":1e3}}"#,
            r#"{"usage":{"prompt_tokens":null}}"#,
            r#"{"usage":{"prompt_tokens":99999999999999999999999}}"#,
            r#"{"usage":null}"#,
            r#""usage":{"prompt_tokens":7}"#,
            "",
            "[DONE]",
        ] {
            assert_eq!(scan(text), DocumentUsage::default(), "{text}");
        }
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        let text = format!(r#"{{"x":{deep},"usage":{{"prompt_tokens":3}}}}"#);
        let mut scanner = JsonUsageScanner::default();
        scanner.read_piece(text.as_bytes());
        assert_eq!(scanner.end_document().prompt, Some(3));
    }

    #[test]
    fn a_piece_of_an_answer_is_told_from_what_surrounds_it() {
        for (text, wanted) in [
            (r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#, false),
            (r#"{"choices":[{"delta":{"role":"assistant","content":"a"}}]}"#, true),
            (r#"{"choices":[{"delta":{"reasoning_content":"\n"}}]}"#, true),
            (r#"{"choices":[{"delta":{"content":null}}]}"#, false),
            (r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}"#, true),
            (r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#, false),
            (r#"{"choices":[{"text":"a"}]}"#, true),
            (r#"{"choices":[{"text":""}]}"#, false),
            (r#"{"type":"content_block_delta","delta":{"text":"a"}}"#, true),
            (r#"{"type":"content_block_stop"}"#, false),
            (r#"{"type":"response.output_text.delta","delta":"a"}"#, true),
            (r#"{"type":"response.created"}"#, false),
        ] {
            assert_eq!(scan(text).has_output, wanted, "{text}");
        }
    }

    #[test]
    fn names_that_are_too_long_or_escaped_are_not_taken() {
        assert_eq!(scan(r#"{"model":"a\u0062"}"#).model, None);
        assert_eq!(scan(r#"{"us\u0061ge":{"prompt_tokens":1}}"#).prompt, None);
        let longest = "m".repeat(TEXT_BYTES_MAX);
        let mut scanner = JsonUsageScanner::default();
        for (name, wanted) in [(longest.clone(), Some(longest.clone())), (longest + "m", None)] {
            scanner.read_piece(format!(r#"{{"model":"{name}"}}"#).as_bytes());
            assert_eq!(scanner.end_document().model, wanted);
        }
    }
}
