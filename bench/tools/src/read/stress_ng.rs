//! The metrics of `stress-ng --yaml`.

use super::{limited, word};
use crate::error::ReadError;

const TOOL: &str = "stress-ng";

/// What one stressor did, all its workers together. A *bogo-op* is one round of that stressor and
/// comparable with nothing but itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stressor {
    /// Its name.
    pub name: String,
    /// Rounds.
    pub ops: f64,
    /// Rounds in a second of wall time.
    pub per_s: f64,
    /// Rounds in a second of CPU time.
    pub per_cpu_s: f64,
}

/// Reads the stressors of one run, in the order of the file.
///
/// # Errors
/// When there is none, or one lacks a figure.
pub fn read(text: &str) -> Result<Vec<Stressor>, ReadError> {
    let mut stressors: Vec<Stressor> = Vec::new();
    let mut within = false;
    for line in limited(TOOL, text)?.lines() {
        if !line.starts_with(' ') {
            within = line.trim_end() == "metrics:";
            continue;
        }
        let Some((key, value)) = line.trim().split_once(':') else { continue };
        let value = value.trim();
        if within && key == "- stressor" {
            stressors.push(Stressor { name: value.to_owned(), ..Stressor::default() });
        }
        let Some(last) = stressors.last_mut().filter(|_| within) else { continue };
        match key {
            "bogo-ops" => last.ops = word(TOOL, "bogo-ops", value)?,
            "bogo-ops-per-second-real-time" => last.per_s = word(TOOL, "a rate", value)?,
            "bogo-ops-per-second-usr-sys-time" => last.per_cpu_s = word(TOOL, "a rate", value)?,
            _ => {}
        }
    }
    let whole = |one: &Stressor| one.per_s > 0.0 && one.per_cpu_s > 0.0;
    match !stressors.is_empty() && stressors.iter().all(whole) {
        true => Ok(stressors),
        false => Err(ReadError::Missing { tool: TOOL, what: "rate of a stressor" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stressor_has_its_rates_by_wall_and_by_cpu_time() {
        let all = read(include_str!("../../recorded/stress-ng.yaml")).expect("recorded");
        let [matrix] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((matrix.name.as_str(), matrix.ops), ("matrix", 1_106.0));
        assert_eq!(matrix.per_s, 1_105.813_866);
        assert_eq!(matrix.per_cpu_s, 1_106.879_97);
    }

    #[test]
    fn quiet_output_without_metrics_is_an_error() {
        let whole = include_str!("../../recorded/stress-ng.yaml");
        let cut = whole.split_once("metrics:").expect("recorded").0;
        assert!(matches!(read(cut), Err(ReadError::Missing { .. })));
        let odd = whole.replace("1105.813866", "fast");
        assert!(matches!(read(&odd), Err(ReadError::NoNumber { .. })));
    }
}
