//! Result files of other load generators, as [`View`]s with those tools' own figures.
//!
//! A reader takes what the file says and computes nothing: units become milliseconds, and a figure
//! over no value, which some tools write as 0, is left out.

mod aiperf;
mod guidellm;
mod inference_perf;
mod vllm;

use serde::{Deserialize, de::IgnoredAny};

use crate::views::{Tool, View};

/// Longest file that is read: GuideLLM keeps every request, some 5 KB each.
pub const FILE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Runs that one GuideLLM file may hold: a sweep has ten.
pub const RUNS_MAX: usize = 256;

/// Why a result file cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// More bytes than any of these tools writes.
    #[error("result file has {got} bytes, wanted at most {FILE_BYTES_MAX}")]
    TooLong {
        /// How many there are.
        got: u64,
    },
    /// No JSON object.
    #[error("result file is no JSON object: {message}")]
    Json {
        /// What was wrong with it.
        message: String,
    },
    /// An object without the marks of any tool known here.
    #[error("result file is of none of vllm bench serve, GuideLLM, AIPerf and inference-perf")]
    UnknownTool,
    /// A tool's file in which a field has another type than that tool's.
    #[error("result file of {}: {message}", tool.label())]
    Shape {
        /// Whose marks it has.
        tool: Tool,
        /// What was wrong with it.
        message: String,
    },
    /// More runs than a file may hold.
    #[error("result file holds {got} runs, wanted at most {RUNS_MAX}")]
    TooManyRuns {
        /// How many there are.
        got: usize,
    },
}

/// The runs in a result file, by the tool whose marks it has. GuideLLM writes several into one.
///
/// # Errors
/// [`ReadError`] where the file is too long, no JSON, of no tool known here, or unlike its tool's.
pub fn read_results(bytes: &[u8]) -> Result<Vec<View>, ReadError> {
    let got = bytes.len() as u64;
    if got > FILE_BYTES_MAX {
        return Err(ReadError::TooLong { got });
    }
    match tool_of(bytes)? {
        Tool::Vllm => Ok(vec![vllm::view(&parse(Tool::Vllm, bytes)?)]),
        Tool::AiPerf => Ok(vec![aiperf::view(&parse(Tool::AiPerf, bytes)?)]),
        Tool::InferencePerf => Ok(vec![inference_perf::view(&parse(Tool::InferencePerf, bytes)?)]),
        Tool::GuideLlm => guidellm::views(&parse(Tool::GuideLlm, bytes)?),
    }
}

/// Fields that only one tool's file has at its top.
#[derive(Deserialize)]
struct Marks {
    benchmarks: Option<IgnoredAny>,
    time_to_first_token: Option<IgnoredAny>,
    request_latency: Option<IgnoredAny>,
    successes: Option<IgnoredAny>,
    load_summary: Option<IgnoredAny>,
    completed: Option<IgnoredAny>,
    request_throughput: Option<IgnoredAny>,
}

fn tool_of(bytes: &[u8]) -> Result<Tool, ReadError> {
    let marks: Marks = serde_json::from_slice(bytes)
        .map_err(|error| ReadError::Json { message: error.to_string() })?;
    if marks.benchmarks.is_some() {
        Ok(Tool::GuideLlm)
    } else if marks.successes.is_some() && marks.load_summary.is_some() {
        Ok(Tool::InferencePerf)
    } else if marks.completed.is_some() && marks.request_throughput.is_some() {
        Ok(Tool::Vllm)
    } else if marks.time_to_first_token.is_some() || marks.request_latency.is_some() {
        Ok(Tool::AiPerf)
    } else {
        Err(ReadError::UnknownTool)
    }
}

fn parse<'a, T: Deserialize<'a>>(tool: Tool, bytes: &'a [u8]) -> Result<T, ReadError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ReadError::Shape { tool, message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::{Figure, Quantiles, Quantity};

    /// A file of `bench/load/examples`: recorded, but for those whose name says otherwise.
    pub(super) fn example(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/");
        std::fs::read(format!("{folder}{name}")).expect("an example")
    }

    pub(super) fn spread(view: &View, quantity: Quantity) -> Quantiles {
        match view.about(quantity) {
            Some((_, Figure::Spread(spread))) => spread,
            other => panic!("{quantity:?}: {other:?}"),
        }
    }

    #[test]
    fn what_is_of_no_tool_is_refused() {
        assert!(matches!(read_results(b""), Err(ReadError::Json { .. })));
        assert!(matches!(read_results(b"[]"), Err(ReadError::Json { .. })));
        assert_eq!(read_results(b"{}"), Err(ReadError::UnknownTool));
        assert_eq!(read_results(br#"{"benchmarks":null}"#), Err(ReadError::UnknownTool));
        let wrong = read_results(br#"{"benchmarks":[{"metrics":7}]}"#);
        assert!(matches!(wrong, Err(ReadError::Shape { tool: Tool::GuideLlm, .. })));
        let deep = [b"{\"benchmarks\":".as_slice(), &b"[".repeat(10_000)].concat();
        assert!(matches!(read_results(&deep), Err(ReadError::Json { .. })));
    }

    #[test]
    fn a_file_of_too_many_runs_is_refused() {
        let runs = vec!["{}"; RUNS_MAX + 1].join(",");
        let file = format!("{{\"benchmarks\":[{runs}]}}");
        let got = RUNS_MAX + 1;
        assert_eq!(read_results(file.as_bytes()), Err(ReadError::TooManyRuns { got }));
    }
}
