//! The figures that load generators report, and what each tool calls them (`definitions.toml`).

use std::{fmt, sync::LazyLock};

use serde::Deserialize;

/// A load generator whose definitions are known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Tool {
    /// `confide bench load`, by its own definitions.
    #[serde(rename = "confide")]
    Confide,
    /// `vllm bench serve`.
    #[serde(rename = "vllm")]
    Vllm,
    /// GuideLLM.
    #[serde(rename = "guidellm")]
    GuideLlm,
    /// AIPerf, the successor of GenAI-Perf.
    #[serde(rename = "aiperf")]
    AiPerf,
    /// inference-perf of the Kubernetes serving group.
    #[serde(rename = "inference-perf")]
    InferencePerf,
}

impl Tool {
    /// The tools of others, in the order in which tables show them.
    pub const OTHERS: [Self; 4] = [Self::Vllm, Self::GuideLlm, Self::AiPerf, Self::InferencePerf];
}

impl fmt::Display for Tool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Confide => "confide",
            Self::Vllm => "vllm bench serve",
            Self::GuideLlm => "GuideLLM",
            Self::AiPerf => "AIPerf",
            Self::InferencePerf => "inference-perf",
        })
    }
}

/// What a figure measures, across the tools' names for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The time to the first content of an answer.
    TimeToFirst,
    /// The time between one chunk and the next.
    ChunkGap,
    /// The time per token after the first, one value for each request.
    PerTokenAfterFirst,
    /// The time per token, the first included, one value for each request.
    PerToken,
    /// The time of a whole request.
    Latency,
    /// The time of a whole request, from the instant at which the plan wanted it sent.
    ScheduledLatency,
    /// The time from that instant to the request's start.
    DispatchDelay,
    /// Requests per second.
    RequestRate,
    /// Tokens of answers per second, of all requests together.
    TokenRate,
    /// Tokens per second within one answer, the first not counted.
    RequestTokenRate,
}

impl Quantity {
    /// All quantities, in the order in which tables show them.
    pub const ALL: [Self; 10] = [
        Self::TimeToFirst,
        Self::ChunkGap,
        Self::PerTokenAfterFirst,
        Self::PerToken,
        Self::Latency,
        Self::ScheduledLatency,
        Self::DispatchDelay,
        Self::RequestRate,
        Self::TokenRate,
        Self::RequestTokenRate,
    ];

    /// Its name in tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::TimeToFirst => "to the first token",
            Self::ChunkGap => "between chunks",
            Self::PerTokenAfterFirst => "per token after the first",
            Self::PerToken => "per token, the first included",
            Self::Latency => "whole request",
            Self::ScheduledLatency => "whole request, from schedule",
            Self::DispatchDelay => "dispatch delay",
            Self::RequestRate => "requests",
            Self::TokenRate => "output tokens",
            Self::RequestTokenRate => "output tokens of one request",
        }
    }

    /// The unit of its figures.
    pub fn unit(self) -> &'static str {
        match self {
            Self::RequestRate | Self::TokenRate | Self::RequestTokenRate => "/s",
            _ => "ms",
        }
    }

    /// Whether a run has one number of it instead of a distribution.
    pub fn is_rate(self) -> bool {
        matches!(self, Self::RequestRate | Self::TokenRate)
    }
}

/// The definition of one figure by one tool, as `definitions.toml` states it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The tool that reports it.
    pub tool: Tool,
    /// The quantity that the figure measures.
    pub quantity: Quantity,
    /// Its id in `bench/MODELS.md`, which stands next to the number.
    pub id: String,
    /// Its name in the tool's own report.
    pub name: String,
    /// Where a result file holds it, with `{}` for the statistic.
    #[serde(default)]
    pub(crate) at: String,
    /// Whether a result file holds seconds.
    #[serde(default)]
    pub(crate) seconds: bool,
    /// Whether the requests that completed are its count.
    #[serde(default)]
    pub(crate) counts_requests: bool,
}

/// The marks by which a tool's result file is recognised, and the paths of its version, counts and statistics.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileFormat {
    pub(crate) name: Tool,
    /// Groups of fields: a file that has all fields of one group is this tool's.
    pub(crate) marks: Vec<Vec<String>>,
    pub(crate) version: Option<String>,
    pub(crate) completed: String,
    pub(crate) failed: String,
    /// Whether a figure of another type than a number is taken for absent instead of refused.
    #[serde(default)]
    pub(crate) skips_other_types: bool,
    pub(crate) statistics: StatisticNames,
}

/// The names of statistics in a tool's result file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StatisticNames {
    pub(crate) count: Option<String>,
    pub(crate) unit: Option<String>,
    pub(crate) mean: Option<String>,
    pub(crate) min: Option<String>,
    pub(crate) p50: Option<String>,
    pub(crate) p90: Option<String>,
    pub(crate) p95: Option<String>,
    pub(crate) p99: Option<String>,
    pub(crate) max: Option<String>,
}

/// The content of `definitions.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definitions {
    /// Every definition that a view computes or a reader reads.
    pub(crate) figure: Vec<Definition>,
    pub(crate) tool: Vec<FileFormat>,
}

/// The definitions of all tools.
pub(crate) static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(|| {
    toml::from_str(include_str!("../definitions.toml")).expect("definitions.toml is well-formed")
});

/// The distribution of a run's values, as far as the tool tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    /// The number of values: requests, or gaps where they are pooled.
    pub count: Option<u64>,
    /// The arithmetic mean.
    pub mean: Option<f64>,
    /// The least value.
    pub min: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The value below which 90 of 100 lie.
    pub p90: Option<f64>,
    /// The value below which 95 of 100 lie.
    pub p95: Option<f64>,
    /// The value below which 99 of 100 lie.
    pub p99: Option<f64>,
    /// The greatest value.
    pub max: Option<f64>,
}

/// A figure of a view: a distribution, or one number of the whole run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// The distribution of values, in the quantity's unit.
    Spread(Quantiles),
    /// One number of the run, per second.
    Rate(f64),
}

/// What one tool reports, or would report, about one run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolView {
    /// The tool whose definitions these are.
    pub tool: Tool,
    /// The tool's version, where a file tells it.
    pub version: Option<String>,
    /// Requests that count.
    pub completed: Option<u64>,
    /// Requests that failed.
    pub failed: Option<u64>,
    /// Its figures; those that the tool does not report are absent.
    pub figures: Vec<(&'static Definition, Figure)>,
}

impl ToolView {
    /// The figure of `quantity`, where this tool has one.
    pub fn figure(&self, quantity: Quantity) -> Option<(&'static Definition, Figure)> {
        self.figures.iter().find(|(definition, _)| definition.quantity == quantity).copied()
    }
}

impl Definition {
    /// Every figure that this tool reports.
    pub fn of_tool(tool: Tool) -> impl Iterator<Item = &'static Self> {
        DEFINITIONS.figure.iter().filter(move |definition| definition.tool == tool)
    }
}
