//! Figures of a tool's output, by its row: a total function, since no input may end a run by a panic.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    error::ReadError,
    histogram::Histogram,
    tool::{Figure, OutputPlace, Quantiles, Tool, WorkShape},
};

/// A run of any of these tools prints kilobytes; 3 million bins of fio's histograms are 60 MB.
const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// The quantiles that are printed, by their names in metrics.
pub const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// The numbers and texts of one output.
#[derive(Clone, Debug, Default)]
pub struct ToolOutput {
    /// Metrics by name, each in the unit of its name.
    pub figures: BTreeMap<String, f64>,
    /// Numbers that are no metrics, by name, in the tool's units.
    pub values: BTreeMap<String, f64>,
    /// Texts by name; those that the output lacks are absent.
    pub texts: BTreeMap<String, String>,
    /// The whole output where the tool prints JSON, else null.
    pub document: Value,
}

impl ToolOutput {
    /// A number that is not a metric; 0 if it is absent.
    pub fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(0.0)
    }
}

/// Reads one output of a tool that worked on `shape` with `count` threads or processes.
///
/// # Errors
/// When the output is too long or no JSON where that is wanted, states a failure, or when a figure
/// is missing, no number or outside its limits.
pub fn read_output(
    tool: &Tool,
    shape: &WorkShape,
    count: usize,
    text: &str,
) -> Result<ToolOutput, ReadError> {
    let mut reading =
        ToolOutput { document: parse_output_json(tool, text)?, ..ToolOutput::default() };
    let source = OutputSource { text, document: &reading.document };
    if let Some(message) = tool.failure.as_ref().and_then(|place| source.find(place)) {
        return Err(ReadError::Failed { message: excerpt(&message) });
    }
    // Checks first: their failure explains a missing figure.
    for (name, figure) in tool.values.iter().chain(&shape.values) {
        if let Some(number) = source.read_figure(name, figure)? {
            reading.values.insert(name.clone(), number);
        }
    }
    let each = count.max(1) as f64;
    for (name, figure) in tool.figures.iter().chain(&shape.figures) {
        if let Some(number) = source.read_figure(name, figure)? {
            let number = number / figure.divide_by / if figure.per_count { each } else { 1.0 };
            reading.figures.insert(name.clone(), number);
        }
    }
    for (name, place) in &tool.texts {
        if let Some(text) = source.find(place) {
            reading.texts.insert(name.clone(), text);
        }
    }
    if let Some(quantiles) = &shape.quantiles {
        reading.figures.extend(source.quantiles(quantiles)?);
    }
    Ok(reading)
}

/// The first JSON object of a tool's output, since some tools print warnings before it; null if
/// no JSON is wanted.
fn parse_output_json(tool: &Tool, text: &str) -> Result<Value, ReadError> {
    if text.len() > OUTPUT_BYTES_MAX {
        return Err(ReadError::TooLong { got: text.len(), wanted: OUTPUT_BYTES_MAX });
    }
    if !tool.json {
        return Ok(Value::Null);
    }
    // At the start of a line: a warning may hold a brace.
    let start = if text.starts_with('{') { Some(0) } else { text.find("\n{").map(|at| at + 1) };
    let json = start.map_or("", |start| &text[start..]);
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let empty = || ReadError::NotJson { message: "it holds no object".to_owned() };
    let value = values.next().ok_or_else(empty)?;
    value.map_err(|error| ReadError::NotJson { message: error.to_string() })
}

/// An output as text and as JSON.
struct OutputSource<'a> {
    text: &'a str,
    document: &'a Value,
}

impl OutputSource<'_> {
    /// The text at a place: of a JSON array or object the number of its elements.
    fn find(&self, place: &OutputPlace) -> Option<String> {
        match place {
            OutputPlace::Pattern(pattern) => {
                Some(pattern.captures(self.text)?.name("value")?.as_str().to_owned())
            }
            OutputPlace::Pointer(pointer) => match self.document.pointer(pointer)? {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                Value::Array(elements) => Some(elements.len().to_string()),
                Value::Object(fields) => Some(fields.len().to_string()),
                other => Some(other.to_string()),
            },
        }
    }

    fn read_figure(&self, name: &str, figure: &Figure) -> Result<Option<f64>, ReadError> {
        let number = |place: &OutputPlace| {
            self.find(place)
                .map(|text| parse_number(name, &text, figure.min..=figure.max))
                .transpose()
        };
        match number(&figure.at)? {
            None if figure.optional => Ok(None),
            None => Err(ReadError::Missing { what: name.to_owned() }),
            Some(0.0) if figure.positive => {
                Err(ReadError::NoNumber { what: name.to_owned(), got: "0".to_owned() })
            }
            Some(figure_at) => match &figure.over {
                None => Ok(Some(figure_at)),
                Some(over) => {
                    Ok(number(over)?.filter(|over| *over > 0.0).map(|over| figure_at / over))
                }
            },
        }
    }

    fn quantiles(&self, row: &Quantiles) -> Result<BTreeMap<String, f64>, ReadError> {
        let OutputPlace::Pointer(pointer) = &row.at else { return Ok(BTreeMap::new()) };
        let mut histogram = Histogram::default();
        if let Some(bins) = self.document.pointer(pointer) {
            histogram.add_bins(bins)?;
        }
        let quantiles = QUANTILES.into_iter().filter_map(|(name, q)| {
            let value = histogram.quantile(q)? / row.divide_by;
            Some((row.metric.replace("{quantile}", name), value))
        });
        Ok(quantiles.collect())
    }
}

fn parse_number(
    name: &str,
    text: &str,
    limits: std::ops::RangeInclusive<f64>,
) -> Result<f64, ReadError> {
    let number = text.trim().parse::<f64>().ok().filter(|number| limits.contains(number));
    number.ok_or_else(|| ReadError::NoNumber { what: name.to_owned(), got: excerpt(text) })
}

/// Cuts a text to 60 characters, for a message.
fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
