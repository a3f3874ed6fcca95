//! `samples.jsonl`: every sample and every slice of a run, one JSON object a line.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{BenchError, host::Quiet, protocol::Floor};

/// Which run of which arm: what pairs are made by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct Place {
    pub(crate) bench: String,
    pub(crate) case: String,
    pub(crate) block: u32,
    pub(crate) arm: String,
    /// The A/A arm: the reference arm's command as a process of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) twin: bool,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Line {
    Sample(Box<Sample>),
    Slice(Box<Slice>),
}

/// One request.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Sample {
    #[serde(flatten)]
    pub(crate) place: Place,
    pub(crate) index: u32,
    pub(crate) metrics: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) round_trips: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_s: Option<f64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) simulated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) warmup: bool,
}

/// One run of one arm within a block.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Slice {
    #[serde(flatten)]
    pub(crate) place: Place,
    /// Position within the block, from 0.
    pub(crate) order: u32,
    /// Since the start of the run.
    pub(crate) started_s: f64,
    pub(crate) wall_s: f64,
    pub(crate) samples: u32,
    pub(crate) metrics: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
    /// CPU seconds of the arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_s: Option<f64>,
    /// CPU seconds of all services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) services_cpu_s: Option<f64>,
    /// Share of the CPU that this client may use which it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_cpu: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) round_trips: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<Floor>,
    /// What a reader of its figures must know, in the arm's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) marks: Vec<String>,
    pub(crate) quiet: Quiet,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) simulated: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) warmup: bool,
    /// Why this slice gives no pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) void: Option<String>,
}

impl Default for Place {
    fn default() -> Self {
        let (bench, case, arm) = (String::new(), String::new(), String::new());
        Self { bench, case, block: 0, arm, twin: false }
    }
}

/// Appends lines as they come, so that an interrupted run keeps what it has.
pub(crate) struct SampleWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl SampleWriter {
    /// A new file; an existing one is an error.
    pub(crate) fn create(path: &Path) -> Result<Self, BenchError> {
        let file = File::create_new(path).map_err(BenchError::io("create", path))?;
        Ok(Self { file: BufWriter::new(file), path: path.to_owned() })
    }

    /// Writes one slice and its samples.
    pub(crate) fn write(&mut self, samples: &[Sample], slice: &Slice) -> Result<(), BenchError> {
        let samples = samples.iter().cloned().map(|sample| Line::Sample(Box::new(sample)));
        for line in samples.chain([Line::Slice(Box::new(slice.clone()))]) {
            let text = serde_json::to_string(&line).map_err(std::io::Error::from);
            text.and_then(|text| writeln!(self.file, "{text}"))
                .map_err(BenchError::io("write", &self.path))?;
        }
        self.file.flush().map_err(BenchError::io("write", &self.path))
    }
}
