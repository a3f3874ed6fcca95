//! The rows of `tools.toml`: how each tool is driven, and where its figures stand.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::Regex;
use serde::Deserialize;

/// One row of `tools.toml`: a tool, how it is driven and how its output is read.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tool {
    /// Names of the program; the first one in PATH is run.
    pub programs: Vec<String>,
    /// Debian's package that has the program.
    pub package: String,
    /// Arguments by which it prints its version.
    pub version: Vec<String>,
    /// The arm's name, with placeholders.
    pub title: String,
    /// Whether it prints JSON: then every place in its output is a pointer.
    pub json: bool,
    /// Place of a failure in its JSON; where one is given, the exit status is not looked at.
    pub failure: Option<OutputPlace>,
    /// Arguments with placeholders: `{count}`, params, and what the arm adds. With `{file}` among
    /// them the tool writes its results there instead of printing them.
    pub command: Vec<String>,
    /// Further arguments where `{count}` is above 1.
    pub command_of_many: Vec<String>,
    /// The text param or setting that chooses the shape.
    pub choose: Option<String>,
    /// The shape where that param is absent.
    pub default: Option<String>,
    /// Shapes of the tool's work, by name.
    pub shapes: BTreeMap<String, WorkShape>,
    /// Whole-number params, by name.
    pub params: BTreeMap<String, Param>,
    /// Metrics of every run, by name.
    pub figures: BTreeMap<String, Figure>,
    /// Numbers that are read and checked and are no metrics.
    pub values: BTreeMap<String, Figure>,
    /// Texts that are read if the output has them.
    pub texts: BTreeMap<String, OutputPlace>,
    /// The answer: texts with placeholders of params and read numbers.
    pub answer: BTreeMap<String, String>,
}

/// One shape of a tool's work, added to what holds for all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkShape {
    /// Arguments after the tool's.
    pub command: Vec<String>,
    /// Metrics of this shape alone, by name.
    pub figures: BTreeMap<String, Figure>,
    /// Numbers of this shape that are read and checked and are no metrics.
    pub values: BTreeMap<String, Figure>,
    /// Metrics that are quantiles of a histogram.
    pub quantiles: Option<Quantiles>,
    /// Marks that stand next to every run of this shape.
    pub marks: Vec<String>,
}

/// A whole-number param.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// Its value where the suite gives none.
    pub default: u64,
    /// The least that is accepted.
    #[serde(default)]
    pub min: u64,
    /// The most that is accepted.
    #[serde(default = "u64_max")]
    pub max: u64,
    /// Below this the run is marked with `reduced`.
    #[serde(default)]
    pub reduced_below: u64,
    /// The mark of a run below `reduced_below`, with placeholders.
    #[serde(default)]
    pub reduced: String,
}

fn u64_max() -> u64 {
    u64::MAX
}

/// A number in a tool's output.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its place in the output.
    pub at: OutputPlace,
    /// Another number by which it is divided; without that number, or where it is 0, there is no
    /// figure.
    pub over: Option<OutputPlace>,
    /// The metric's unit in the tool's unit: the number is divided by it.
    #[serde(default = "unity")]
    pub divide_by: f64,
    /// Whether the number is also divided by the number of threads or processes.
    #[serde(default)]
    pub per_count: bool,
    /// Whether it may be absent.
    #[serde(default)]
    pub optional: bool,
    /// Whether 0 is a failure.
    #[serde(default)]
    pub positive: bool,
    /// The least that is not a failure, in the tool's unit.
    #[serde(default)]
    pub min: f64,
    /// The most that is not a failure, in the tool's unit. No figure of these tools comes near the
    /// default; sums and products of figures below it stay finite.
    #[serde(default = "figure_max")]
    pub max: f64,
}

fn unity() -> f64 {
    1.0
}

fn figure_max() -> f64 {
    1e18
}

/// Quantiles of a histogram in a tool's JSON: p50, p99 and p99.9.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantiles {
    /// Place of an object from value to count.
    pub at: OutputPlace,
    /// Name of the metrics, with `{quantile}` for `p50`, `p99` and `p999`.
    pub metric: String,
    /// The metric's unit in the histogram's unit: a quantile is divided by it.
    pub divide_by: f64,
}

/// A place in a tool's output.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum OutputPlace {
    /// A JSON pointer (RFC 6901).
    Pointer(String),
    /// The group `value` of a regular expression over the whole output.
    Pattern(Regex),
}

impl TryFrom<String> for OutputPlace {
    type Error = regex::Error;

    fn try_from(text: String) -> Result<Self, regex::Error> {
        Ok(if text.starts_with('/') {
            Self::Pointer(text)
        } else {
            Self::Pattern(Regex::new(&text)?)
        })
    }
}

static TOOLS: LazyLock<BTreeMap<String, Tool>> =
    LazyLock::new(|| toml::from_str(include_str!("../tools.toml")).expect("tools.toml is valid"));

/// The rows of `tools.toml`, by the name of their subcommand.
pub fn tool_table() -> &'static BTreeMap<String, Tool> {
    &TOOLS
}

/// Replaces every `{name}` of a template by the setting of that name.
///
/// # Errors
/// When a name has no setting, or a brace is not closed.
pub fn fill_template(
    template: &str,
    settings: &BTreeMap<String, String>,
) -> Result<String, String> {
    let (mut text, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or("a placeholder without its end")?;
        text += before;
        text += settings.get(name).ok_or_else(|| format!("no setting {name}"))?;
        rest = after;
    }
    Ok(text + rest)
}
