//! Traces of arrivals: one JSON object per line, as public ones have them.

use std::io::BufRead;

use serde::Deserialize;

use crate::event::REQUESTS_MAX;

/// The longest line, in bytes. Public traces list cache blocks in a line; those of a prompt of a
/// million tokens fit.
const LINE_BYTES_MAX: usize = 256 << 10;
/// The longest prompt and answer in tokens: beyond every served context.
pub(crate) const TOKENS_MAX: u32 = 4_000_000;

/// One arrival of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceRow {
    /// The instant in seconds after the first row.
    pub at_s: f64,
    /// The number of tokens of the prompt, where the trace has it.
    pub prompt_tokens: Option<u32>,
    /// The number of tokens of the answer, where the trace has it.
    pub output_tokens: Option<u32>,
}

/// The reason for which a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("trace cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// A line is not a row.
    #[error("line {line} of the trace: {message}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What was wrong with it.
        message: String,
    },
    /// The trace has more rows than a run may have requests.
    #[error("trace has more than {REQUESTS_MAX} rows")]
    TooLong,
}

/// Reads lines of `{"timestamp": MILLISECONDS, "input_length": TOKENS, "output_length": TOKENS}`,
/// in order of time; both lengths may be absent, other fields are ignored. The first row is at 0.
///
/// # Errors
/// [`TraceError`] if a line is not such a row, the rows are not in order, or there are too many.
pub fn read_trace(mut input: impl BufRead) -> Result<Vec<TraceRow>, TraceError> {
    let mut rows: Vec<TraceRow> = Vec::new();
    let (mut line, mut number, mut first_ms) = (Vec::new(), 0, None);
    while read_line_into(&mut input, &mut line, number + 1)? {
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let wrong = |message: String| TraceError::Line { line: number, message };
        let read: TraceLine =
            serde_json::from_slice(&line).map_err(|error| wrong(error.to_string()))?;
        if !read.timestamp.is_finite() {
            return Err(wrong("timestamp is not finite".into()));
        }
        let at_s = (read.timestamp - *first_ms.get_or_insert(read.timestamp)) / 1e3;
        if rows.last().is_some_and(|last| at_s < last.at_s) {
            return Err(wrong("timestamp is before that of the line above".into()));
        }
        for tokens in [read.input_length, read.output_length].into_iter().flatten() {
            if tokens == 0 || tokens > TOKENS_MAX {
                return Err(wrong(format!("length: wanted 1 to {TOKENS_MAX}, got {tokens}")));
            }
        }
        if rows.len() == REQUESTS_MAX {
            return Err(TraceError::TooLong);
        }
        let (prompt_tokens, output_tokens) = (read.input_length, read.output_length);
        rows.push(TraceRow { at_s, prompt_tokens, output_tokens });
    }
    Ok(rows)
}

#[derive(Deserialize)]
struct TraceLine {
    /// The instant in milliseconds, from any origin.
    timestamp: f64,
    input_length: Option<u32>,
    output_length: Option<u32>,
}

/// Reads one line of bounded length into `line`; gives false at the end of the input.
fn read_line_into(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
    number: usize,
) -> Result<bool, TraceError> {
    line.clear();
    let mut bounded = std::io::Read::take(&mut *input, LINE_BYTES_MAX as u64 + 1);
    if bounded.read_until(b'\n', line)? > LINE_BYTES_MAX {
        let message = format!("wanted at most {LINE_BYTES_MAX} bytes");
        return Err(TraceError::Line { line: number, message });
    }
    Ok(!line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Result<Vec<TraceRow>, TraceError> {
        read_trace(text.as_bytes())
    }

    #[test]
    fn rows_count_from_the_first_and_lengths_may_be_absent() {
        let text = "{\"timestamp\": 27000, \"input_length\": 6, \"output_length\": 5, \"x\": [1]}\n\
                    \n{\"timestamp\": 30500.5}";
        let [first, second] = rows(text).unwrap()[..] else { panic!("two rows") };
        let (prompt_tokens, output_tokens) = (Some(6), Some(5));
        assert_eq!(first, TraceRow { at_s: 0.0, prompt_tokens, output_tokens });
        let (prompt_tokens, output_tokens) = (None, None);
        assert_eq!(second, TraceRow { at_s: 3.5005, prompt_tokens, output_tokens });
        assert!(rows("").unwrap().is_empty());
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        let long = format!("{{\"timestamp\": 1, \"x\": \"{}\"}}", "y".repeat(LINE_BYTES_MAX));
        for text in [
            "x",
            "{}",
            "{\"timestamp\": 1e999}",
            "{\"timestamp\": 1, \"input_length\": 0}",
            "{\"timestamp\": 1, \"output_length\": 4000001}",
            "{\"timestamp\": 1, \"output_length\": -4}",
            &long,
        ] {
            let first = "{\"timestamp\": 0}\n";
            let error = rows(&format!("{first}{text}")).unwrap_err();
            assert!(matches!(error, TraceError::Line { line: 2, .. }), "{error}");
        }
        let backwards = rows("{\"timestamp\": 2}\n{\"timestamp\": 1}");
        assert!(matches!(backwards, Err(TraceError::Line { line: 2, .. })));
    }
}
