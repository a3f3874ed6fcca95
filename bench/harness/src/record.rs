//! `record.json`: everything that is needed to judge a run, but for its samples.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    BenchError, Effort,
    host::Machine,
    published::{AnswerTable, Quoted},
    rows::{Figure, Row},
    suite::SeedFigure,
};

/// The layout of this version.
pub(crate) const SCHEMA: u32 = 1;
/// Names of the files in an output folder.
pub(crate) const RECORD_FILE: &str = "record.json";
pub(crate) const SAMPLES_FILE: &str = "samples.jsonl";
pub(crate) const PAGE_FILE: &str = "report.html";

/// One run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub(crate) schema: u32,
    pub(crate) version: String,
    pub(crate) commit: String,
    pub(crate) command: Vec<String>,
    pub(crate) suite: SuiteRecord,
    pub(crate) effort: Effort,
    pub(crate) seed: u64,
    pub(crate) blocks_asked: Option<u32>,
    pub(crate) started_unix_s: u64,
    pub(crate) wall_s: f64,
    /// Why the run stopped before its plan was done.
    pub(crate) partial: Option<String>,
    pub(crate) machine: Machine,
    pub(crate) arms: Vec<ArmRecord>,
    pub(crate) services: Vec<ServiceRecord>,
    pub(crate) not_run: Vec<NotRun>,
    pub(crate) voids: Vec<Void>,
    pub(crate) validity: Validity,
    pub(crate) rows: Vec<Row>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) seed_figures: Vec<SeedFigure>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answers: Vec<AnswerTable>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) quoted: Vec<Quoted>,
}

/// The suite, whole, so that the record needs no other file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct SuiteRecord {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) sha256: String,
    pub(crate) text: String,
}

/// One arm of one bench, as started.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct ArmRecord {
    pub(crate) bench: String,
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) twin: bool,
    pub(crate) command: Vec<String>,
    pub(crate) description: String,
    pub(crate) protects: String,
    /// What the arm says of itself.
    pub(crate) says: String,
    pub(crate) version: String,
    pub(crate) guarantee: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) simulated: bool,
    /// Why it was left out.
    pub(crate) given_up: Option<String>,
}

/// One service and its ready line.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct ServiceRecord {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    pub(crate) simulated: bool,
    pub(crate) ready: BTreeMap<String, Value>,
}

/// A bench that could not be run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct NotRun {
    pub(crate) bench: String,
    pub(crate) reason: String,
}

/// A pair or block that counts nowhere, and why.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Void {
    pub(crate) bench: String,
    pub(crate) case: String,
    pub(crate) block: u32,
    pub(crate) arm: String,
    pub(crate) reason: String,
}

/// What the A/A rows say of the run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Validity {
    /// Every headline A/A row was judged, and no more failed than chance allows.
    Valid {
        /// How many.
        judged: usize,
        /// How many of them lie outside their margin; the rows beside them are marked invalid.
        failed: usize,
    },
    /// The A/A rows found differences where there are none.
    Invalid {
        /// Which, and how.
        reasons: Vec<String>,
    },
    /// Nothing was found, but at least one row had too few blocks to be judged.
    NotJudged {
        /// What was missing.
        reason: String,
    },
}

impl Record {
    /// Whether the A/A rows allow the run to be believed.
    pub fn validity(&self) -> &Validity {
        &self.validity
    }

    /// Why the run is partial, if it is.
    pub fn partial(&self) -> Option<&str> {
        self.partial.as_deref()
    }

    /// Benches that could not be run, each with its reason.
    pub fn not_run(&self) -> Vec<String> {
        self.not_run.iter().map(|not| format!("{}: {}", not.bench, not.reason)).collect()
    }

    /// A record of nothing but these rows.
    #[cfg(test)]
    pub(crate) fn for_test(judged: crate::rows::Judged) -> Self {
        Self {
            schema: SCHEMA,
            version: String::new(),
            commit: String::new(),
            command: Vec::new(),
            suite: SuiteRecord {
                name: String::new(),
                title: String::new(),
                about: String::new(),
                sha256: String::new(),
                text: String::new(),
            },
            effort: Effort::Quick,
            seed: 0,
            blocks_asked: None,
            started_unix_s: 0,
            wall_s: 0.0,
            partial: None,
            machine: Machine::default(),
            arms: Vec::new(),
            services: Vec::new(),
            not_run: Vec::new(),
            voids: judged.voids,
            validity: judged.validity,
            rows: judged.rows,
            figures: judged.figures,
            seed_figures: Vec::new(),
            answers: Vec::new(),
            quoted: Vec::new(),
        }
    }

    /// Writes beside and renames, so that an interruption leaves a whole record or none.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), BenchError> {
        let path = folder.join(RECORD_FILE);
        let beside = folder.join("record.json.new");
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| BenchError::io("write", &path)(error.into()))?;
        std::fs::write(&beside, text + "\n").map_err(BenchError::io("write", &beside))?;
        std::fs::rename(&beside, &path).map_err(BenchError::io("write", &path))
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256_hex(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// The commit of the working folder, `-dirty` where files differ; `unknown` outside a repository.
pub(crate) fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else { return "unknown".into() };
    let clean =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| s.is_empty());
    if clean { commit } else { format!("{commit}-dirty") }
}
