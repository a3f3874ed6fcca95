//! Result files of other load generators, as [`ToolView`]s with those tools' own figures.
//!
//! A reader takes figures from where `definitions.toml` says that a file holds them, and computes nothing: units become
//! milliseconds, and a figure over no value, which some tools write as 0, is left out.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use crate::figure::{DEFINITIONS, Definition, Figure, FileFormat, Quantiles, Tool, ToolView};

/// The longest file that is read: GuideLLM keeps every request, some 5 KB each.
pub const FILE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The most runs that one GuideLLM file may hold: a sweep has ten.
pub const RUNS_MAX: usize = 256;

/// Counts beyond 2^53 are no longer exact in the files.
const COUNT_MAX: f64 = 9.0e15;

/// The reason for which a result file cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The file is longer than any of these tools writes.
    #[error("result file: wanted at most {FILE_BYTES_MAX} bytes, got {got}")]
    TooLong {
        /// Bytes of the file.
        got: u64,
    },
    /// The file is not a JSON object.
    #[error("result file is not a JSON object: {message}")]
    Json {
        /// What was wrong with it.
        message: String,
    },
    /// An object without the marks of any tool known here.
    #[error(
        "result file: wanted one of vllm bench serve, GuideLLM, AIPerf or inference-perf, got \
         fields that none of them writes"
    )]
    UnknownTool,
    /// A tool's file in which a field has another type than that tool's.
    #[error("result file of {tool}: {message}")]
    Shape {
        /// The tool whose marks it has.
        tool: Tool,
        /// What was wrong with it.
        message: String,
    },
    /// The file holds too many runs.
    #[error("result file: wanted at most {RUNS_MAX} runs, got {got}")]
    TooManyRuns {
        /// Runs of the file.
        got: usize,
    },
}

/// Reads the runs in a result file, by the tool whose marks it has. GuideLLM writes several into one.
///
/// # Errors
/// [`ReadError`] if the file is too long, not JSON, of no tool known here, or unlike its tool's.
pub fn read_results(bytes: &[u8]) -> Result<Vec<ToolView>, ReadError> {
    let got = bytes.len() as u64;
    if got > FILE_BYTES_MAX {
        return Err(ReadError::TooLong { got });
    }
    let file: ResultFile = serde_json::from_slice(bytes)
        .map_err(|error| ReadError::Json { message: error.to_string() })?;
    let top = JsonObject(file.fields);
    let is_of = |format: &&FileFormat| match &file.benchmarks {
        Some(_) => format.name == Tool::GuideLlm,
        None => format.marks.iter().any(|fields| fields.iter().all(|field| top.has(field))),
    };
    let format = DEFINITIONS.tool.iter().find(is_of).ok_or(ReadError::UnknownTool)?;
    let wrong = |message| ReadError::Shape { tool: format.name, message };
    let version = format.version.as_ref().map_or(Ok(None), |path| top.text(path)).map_err(wrong)?;
    let runs = match file.benchmarks {
        None => vec![top],
        Some(runs) if runs.len() > RUNS_MAX => {
            return Err(ReadError::TooManyRuns { got: runs.len() });
        }
        Some(runs) => runs,
    };
    let views = runs.iter().map(|run| format.view(run, version.clone()));
    views.collect::<Result<_, _>>().map_err(wrong)
}

impl FileFormat {
    /// The view of one run; an error names the field that has another type.
    fn view(&self, run: &JsonObject, version: Option<String>) -> Result<ToolView, String> {
        let (completed, failed) = (run.count(&self.completed)?, run.count(&self.failed)?);
        let mut view =
            ToolView { tool: self.name, version, completed, failed, figures: Vec::new() };
        if completed == Some(0) {
            return Ok(view);
        }
        for definition in Definition::of_tool(self.name) {
            let figure = self.figure(run, definition, completed)?;
            view.figures.extend(figure.map(|figure| (definition, figure)));
        }
        Ok(view)
    }

    fn figure(
        &self,
        run: &JsonObject,
        definition: &Definition,
        completed: Option<u64>,
    ) -> Result<Option<Figure>, String> {
        let names = &self.statistics;
        let path = |name: &str| definition.at.replace("{}", name);
        let own_count = match &names.count {
            Some(name) => run.count(&path(name))?,
            None => None,
        };
        // A summary over no request is all zeros.
        if own_count == Some(0) {
            return Ok(None);
        }
        let scale = match &names.unit {
            _ if definition.quantity.is_rate() => 1.0,
            None => {
                if definition.seconds {
                    1e3
                } else {
                    1.0
                }
            }
            Some(name) => match scale_of_unit(run.text(&path(name))?.as_deref()) {
                Some(scale) => scale,
                None => return Ok(None),
            },
        };
        let value = |name: &Option<String>| {
            let Some(name) = name else { return Ok(None) };
            match run.number(&path(name)) {
                Err(_) if self.skips_other_types => Ok(None),
                value => value.map(|value| value.map(|value| value * scale)),
            }
        };
        let mean = value(&names.mean)?;
        if definition.quantity.is_rate() {
            return Ok(mean.map(Figure::Rate));
        }
        let found = Quantiles {
            count: None,
            mean,
            min: value(&names.min)?,
            p50: value(&names.p50)?,
            p90: value(&names.p90)?,
            p95: value(&names.p95)?,
            p99: value(&names.p99)?,
            max: value(&names.max)?,
        };
        if found == Quantiles::default() {
            return Ok(None);
        }
        let count = if definition.counts_requests { completed } else { own_count };
        Ok(Some(Figure::Spread(Quantiles { count, ..found })))
    }
}

/// The factor to milliseconds or per second; a unit that is not known here makes no figure.
fn scale_of_unit(unit: Option<&str>) -> Option<f64> {
    match unit? {
        "ms" | "tokens/sec/user" => Some(1.0),
        "ns" => Some(1e-6),
        "us" => Some(1e-3),
        "s" | "sec" => Some(1e3),
        _ => None,
    }
}

/// The content of a result file. Only GuideLLM's has `benchmarks`, which are its runs.
#[derive(Deserialize)]
struct ResultFile {
    benchmarks: Option<Vec<JsonObject>>,
    #[serde(flatten)]
    fields: BTreeMap<String, JsonField>,
}

/// The fields of a JSON object by their names.
#[derive(Deserialize)]
#[serde(transparent)]
struct JsonObject(BTreeMap<String, JsonField>);

/// A JSON value as far as figures need it; lists, which may be long, are passed over.
enum JsonField {
    Null,
    Number(f64),
    Text(String),
    JsonObject(JsonObject),
    Skipped,
}

impl JsonObject {
    fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|field| !matches!(field, JsonField::Null))
    }

    /// The field at a path of names; `None` if it or an object around it is absent.
    fn find(&self, path: &str) -> Result<Option<&JsonField>, String> {
        let (name, rest) = match path.split_once('/') {
            Some((name, rest)) => (name, Some(rest)),
            None => (path, None),
        };
        match (self.0.get(name), rest) {
            (None | Some(JsonField::Null), _) => Ok(None),
            (found, None) => Ok(found),
            (Some(JsonField::JsonObject(inner)), Some(rest)) => inner.find(rest),
            (Some(other), Some(_)) => {
                Err(format!("{name}: wanted an object, got {}", other.kind()))
            }
        }
    }

    fn number(&self, path: &str) -> Result<Option<f64>, String> {
        match self.find(path)? {
            None => Ok(None),
            Some(JsonField::Number(number)) => Ok(Some(*number)),
            Some(other) => Err(format!("{path}: wanted a number, got {}", other.kind())),
        }
    }

    fn count(&self, path: &str) -> Result<Option<u64>, String> {
        match self.number(path)? {
            None => Ok(None),
            Some(count) if (0.0..COUNT_MAX).contains(&count) && count.fract() == 0.0 => {
                Ok(Some(count as u64))
            }
            Some(count) => Err(format!("{path}: wanted a count, got {count}")),
        }
    }

    fn text(&self, path: &str) -> Result<Option<String>, String> {
        match self.find(path)? {
            None => Ok(None),
            Some(JsonField::Text(text)) => Ok(Some(text.clone())),
            Some(other) => Err(format!("{path}: wanted a string, got {}", other.kind())),
        }
    }
}

impl JsonField {
    /// The JSON type of the value, for messages.
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::JsonObject(_) => "an object",
            Self::Skipped => "an array or a boolean",
        }
    }
}

impl<'de> Deserialize<'de> for JsonField {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(JsonFieldVisitor)
    }
}

struct JsonFieldVisitor;

impl<'de> Visitor<'de> for JsonFieldVisitor {
    type Value = JsonField;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonField, E> {
        Ok(JsonField::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<JsonField, E> {
        Ok(JsonField::Skipped)
    }

    fn visit_i64<E>(self, number: i64) -> Result<JsonField, E> {
        Ok(JsonField::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<JsonField, E> {
        Ok(JsonField::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<JsonField, E> {
        Ok(JsonField::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<JsonField, E> {
        Ok(JsonField::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonField, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(JsonField::Skipped)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JsonField, A::Error> {
        JsonObject::deserialize(MapAccessDeserializer::new(map)).map(JsonField::JsonObject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Quantity;

    /// A file of `bench/load/examples`: recorded, but for those whose name says otherwise.
    fn example(name: &str) -> ToolView {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/");
        let bytes = std::fs::read(format!("{folder}{name}")).expect("an example");
        let [view] = read_results(&bytes).expect("a result file").try_into().expect("one run");
        view
    }

    fn spread(view: &ToolView, quantity: Quantity) -> Quantiles {
        match view.figure(quantity) {
            Some((_, Figure::Spread(spread))) => spread,
            other => panic!("{quantity:?}: {other:?}"),
        }
    }

    fn figures(file: &[u8]) -> Vec<(&'static Definition, Figure)> {
        read_results(file).expect("a result file").remove(0).figures
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

    #[test]
    fn a_recorded_file_of_aiperf_is_read_by_its_own_names() {
        let view = example("aiperf-0.13.0.json");
        assert_eq!((view.tool, view.version.as_deref()), (Tool::AiPerf, Some("0.13.0")));
        assert_eq!((view.completed, view.failed), (Some(30), None));
        // The engine was told 40 ms and 100 tokens per second.
        let ttft = spread(&view, Quantity::TimeToFirst);
        assert!((ttft.mean.expect("a mean") - 40.0).abs() < 1.0, "{ttft:?}");
        let icl = spread(&view, Quantity::ChunkGap);
        assert_eq!(icl.count, Some(30 * 15));
        assert!((icl.p50.expect("a median") - 10.0).abs() < 0.1, "{icl:?}");
        let delay = spread(&view, Quantity::DispatchDelay);
        assert!(delay.mean.is_some_and(|mean| mean < 2.0), "{delay:?}");
        let requests = view.figure(Quantity::RequestRate);
        assert!(matches!(requests, Some((_, Figure::Rate(rate))) if rate > 7.0), "{requests:?}");
    }

    #[test]
    fn a_unit_that_is_not_known_makes_no_figure() {
        let file = br#"{"request_latency":{"unit":"fortnights","avg":1.0}}"#;
        assert_eq!(figures(file), []);
    }

    #[test]
    fn a_recorded_file_of_guidellm_is_read_by_its_own_names() {
        let view = example("guidellm-0.8.1.json");
        assert_eq!((view.tool, view.version.as_deref()), (Tool::GuideLlm, Some("0.8.1")));
        assert_eq!((view.completed, view.failed), (Some(29), Some(0)));
        // The engine was told 40 ms and 100 tokens per second.
        let ttft = spread(&view, Quantity::TimeToFirst);
        assert!((ttft.mean.expect("a mean") - 40.0).abs() < 1.0, "{ttft:?}");
        let itl = spread(&view, Quantity::PerTokenAfterFirst);
        assert_eq!(itl.count, Some(29 * 15));
        assert!((itl.p50.expect("a median") - 10.0).abs() < 0.1, "{itl:?}");
        // Written in seconds there, in milliseconds here.
        let latency = spread(&view, Quantity::Latency);
        assert!((latency.mean.expect("a mean") - 191.0).abs() < 1.0, "{latency:?}");
        let tokens = view.figure(Quantity::TokenRate);
        assert!(matches!(tokens, Some((_, Figure::Rate(rate))) if rate > 150.0), "{tokens:?}");
    }

    #[test]
    fn summaries_over_no_request_are_no_figures() {
        let file = br#"{"benchmarks":[{"metrics":{"time_to_first_token_ms":
            {"successful":{"mean":0.0,"median":0.0,"count":0}}}}]}"#;
        assert_eq!(figures(file), []);
    }

    #[test]
    fn a_file_in_the_format_of_inference_perf_is_read_by_its_own_names() {
        let view = example("inference-perf-written-by-hand.json");
        assert_eq!((view.tool, view.completed), (Tool::InferencePerf, Some(30)));
        assert_eq!(view.failed, Some(0));
        let ttft = spread(&view, Quantity::TimeToFirst);
        assert_eq!((ttft.mean, ttft.p50, ttft.count), (Some(41.5), Some(41.0), None));
        assert_eq!(spread(&view, Quantity::DispatchDelay).max, Some(2.0));
    }

    #[test]
    fn a_file_in_the_format_of_vllm_is_read_by_its_own_names() {
        let view = example("vllm-written-by-hand.json");
        assert_eq!((view.tool, view.completed, view.failed), (Tool::Vllm, Some(30), Some(0)));
        let ttft = spread(&view, Quantity::TimeToFirst);
        assert_eq!((ttft.mean, ttft.p50, ttft.p99), (Some(41.5), Some(41.0), Some(44.0)));
        assert_eq!(ttft.count, Some(30));
        assert_eq!(spread(&view, Quantity::ChunkGap).mean, Some(10.0));
        let (definition, figure) = view.figure(Quantity::TokenRate).expect("a rate");
        assert_eq!((definition.id.as_str(), figure), ("vllm.tokens", Figure::Rate(152.0)));
        // Not asked for with --percentile-metrics: absent, not 0.
        assert_eq!(view.figure(Quantity::Latency), None);
    }

    #[test]
    fn zeros_of_a_run_in_which_nothing_came_are_no_figures() {
        let file = br#"{"completed":0,"failed":3,"request_throughput":0.0,"mean_ttft_ms":0.0}"#;
        let views = read_results(file).expect("a result file");
        assert_eq!((views[0].failed, views[0].figures.len()), (Some(3), 0));
    }

    #[test]
    fn a_figure_that_is_no_number_is_absent_from_vllms_flat_fields() {
        let file = br#"{"completed":1,"request_throughput":"fast","mean_ttft_ms":[1,2]}"#;
        assert_eq!(figures(file), []);
    }
}
