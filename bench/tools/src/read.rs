//! One reader per tool.

pub mod cyclictest;
pub mod fio;
pub mod iperf3;
pub mod openssl;
pub mod seven_zip;
pub mod stress_ng;

use serde_json::Value;

use crate::error::ReadError;

/// A run of any of these tools prints kilobytes; 3 million bins of fio's histograms are 60 MB.
const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// No figure of these tools comes near; sums and products of figures below it stay finite.
const FIGURE_MAX: f64 = 1e18;

/// Refuses what is longer than any honest output.
fn limited<'a>(tool: &'static str, text: &'a str) -> Result<&'a str, ReadError> {
    if text.len() > OUTPUT_BYTES_MAX {
        return Err(ReadError::TooLong { tool, got: text.len(), wanted: OUTPUT_BYTES_MAX });
    }
    Ok(text)
}

/// The first JSON object of a text: some tools print warnings before it.
fn object(tool: &'static str, text: &str) -> Result<Value, ReadError> {
    let text = limited(tool, text)?;
    // At the start of a line: a warning may hold a brace.
    let start = match text.starts_with('{') {
        true => 0,
        false => text.find("\n{").map(|at| at + 1).unwrap_or(text.len()),
    };
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(ReadError::NotJson { tool, message: error.to_string() }),
        None => Err(ReadError::NotJson { tool, message: "it holds no object".to_owned() }),
    }
}

/// A number from 0 to what a tool may say.
fn number(tool: &'static str, what: &'static str, value: &Value) -> Result<f64, ReadError> {
    match value.as_f64() {
        Some(number) if (0.0..FIGURE_MAX).contains(&number) => Ok(number),
        _ if value.is_null() => Err(ReadError::Missing { tool, what }),
        _ => Err(ReadError::NoNumber { tool, what, got: excerpt(&value.to_string()) }),
    }
}

/// The same of a word.
fn word(tool: &'static str, what: &'static str, text: &str) -> Result<f64, ReadError> {
    match text.trim().parse::<f64>() {
        Ok(number) if (0.0..FIGURE_MAX).contains(&number) => Ok(number),
        _ => Err(ReadError::NoNumber { tool, what, got: excerpt(text) }),
    }
}

/// Short enough for a message.
fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
