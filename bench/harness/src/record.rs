//! `record.json`: one document that holds a whole run, and the source of truth of it.

pub(crate) mod chain;
pub(crate) mod recomputed;
pub(crate) mod schema;

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    error::BenchError,
    host::{
        machine::{Machine, UNKNOWN},
        root::FileTree,
    },
    plan::Effort,
    published::{QuotedRate, QuotedTable},
    record::chain::RecordChain,
    rows::{
        RunAnalysis, analyse_run,
        row::{PooledFigure, Row},
    },
    samples::{
        Sample, Slice,
        columns::{SliceColumns, pack_columns},
    },
    suite::{PublishedFigure, Suite},
    validity::{Exclusion, Validity},
};

/// The layout of this version. In layout 1 the samples are in a file of their own; before layout 3 there is no chain.
pub(crate) const SCHEMA: u32 = 3;
/// The first layout with a chain of hashes.
pub(crate) const CHAINED_SCHEMA: u32 = 3;
/// The number of the method by which rows are computed. It changes when the same samples give other rows.
pub(crate) const METHOD: u32 = 1;
/// Names of the files in an output folder.
pub(crate) const RECORD_FILE: &str = "record.json";
pub(crate) const SAMPLES_FILE: &str = "samples.jsonl";
pub(crate) const INDEX_FILE: &str = "run.json";
pub(crate) const PAGE_FILE: &str = "report.html";

/// The record of one run.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
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
    /// The reason why the run stopped before its plan was done.
    pub(crate) partial: Option<String>,
    pub(crate) machine: Machine,
    pub(crate) arms: Vec<ArmRecord>,
    pub(crate) services: Vec<ServiceRecord>,
    pub(crate) not_run: Vec<BenchNotRun>,
    pub(crate) voids: Vec<Exclusion>,
    pub(crate) validity: Validity,
    pub(crate) rows: Vec<Row>,
    pub(crate) figures: Vec<PooledFigure>,
    pub(crate) seed_figures: Vec<PublishedFigure>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answers: Vec<QuotedTable>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) quoted: Vec<QuotedRate>,
    /// The plan; two records of one plan measured the same.
    #[serde(default)]
    pub(crate) plan: PlanRecord,
    /// One entry for every time that the run was started or resumed.
    #[serde(default)]
    pub(crate) sessions: Vec<Session>,
    /// Benches that ended before their plan, by a budget of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cut: Vec<UnfinishedBench>,
    /// The method by which the rows were computed; 0 in a record that does not say.
    #[serde(default)]
    pub(crate) method: u32,
    /// The chain of hashes over slices and parts; absent before layout 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chain: Option<RecordChain>,
    /// What its reader must know of its origin; found where it is read, and in no file.
    #[serde(skip)]
    pub(crate) remarks: Vec<String>,
    /// Every slice with its samples. It is in the file only, and empty once that is read (see
    /// `LoadedRecord`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) slices: Vec<SliceColumns>,
}

/// The plan of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct PlanRecord {
    /// SHA-256 over the suite's text, the effort, the seed, the blocks asked for and the part.
    pub(crate) sha256: String,
    /// The part of the suite that was asked for.
    #[serde(flatten)]
    pub(crate) part: SuiteSelection,
    /// Values that were given for the suite's variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) vars: BTreeMap<String, String>,
}

impl PlanRecord {
    /// Computes the hash by which a plan is known: two runs of one hash were to measure the same.
    pub(crate) fn hash(
        &self,
        suite_sha256: &str,
        effort: Effort,
        seed: u64,
        blocks: Option<u32>,
    ) -> String {
        let plan = serde_json::json!({
            "plan": 1,
            "suite": suite_sha256,
            "effort": effort,
            "seed": seed,
            "blocks": blocks,
            "benches": self.part.benches,
            "budget_s": self.part.budget_s,
            "vars": self.vars,
        });
        // Keys of a JSON object are sorted here, so that the text is always the same.
        sha256_hex(&plan.to_string())
    }
}

/// The part of a suite that is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
pub struct SuiteSelection {
    /// The benches to run; an empty list means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub benches: Vec<String>,
    /// The seconds that the blocks may take in all, each bench its share; a bench that would take
    /// longer ends at a whole block, and not before its second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_s: Option<u32>,
}

/// A stretch of a run from its start, or its being resumed, to its end. Processes and perhaps the
/// machine's boot differ from one to the next, so that blocks of different sessions are clusters.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Session {
    pub(crate) started_unix_s: u64,
    /// The duration in seconds; of a killed session, up to the end of its last kept slice.
    pub(crate) wall_s: f64,
    /// The kernel's id of this boot; `unknown` where it tells none.
    pub(crate) boot: String,
    pub(crate) ended: SessionEnd,
    /// The exact command line.
    pub(crate) command: Vec<String>,
}

/// The end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionEnd {
    /// Its plan was done.
    #[serde(rename = "done")]
    Completed,
    /// It was interrupted by Ctrl-C or SIGTERM.
    Interrupted,
    /// It did not say how it ended: it was killed, or still running when this was read.
    Killed,
}

/// A bench that ended before its plan.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct UnfinishedBench {
    pub(crate) bench: String,
    pub(crate) blocks: u32,
    pub(crate) planned: u32,
    pub(crate) reason: String,
}

/// The whole suite, so that the record needs no other file.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub(crate) struct SuiteRecord {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) sha256: String,
    pub(crate) text: String,
}

/// One arm of one bench, as it was started.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct ArmRecord {
    pub(crate) bench: String,
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) twin: bool,
    pub(crate) command: Vec<String>,
    pub(crate) description: String,
    pub(crate) protects: String,
    /// The name that the arm gives itself.
    pub(crate) says: String,
    pub(crate) version: String,
    pub(crate) guarantee: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) simulated: bool,
    /// The reason why it was left out.
    pub(crate) given_up: Option<String>,
}

/// A service with its command and its ready line.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct ServiceRecord {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    pub(crate) simulated: bool,
    pub(crate) ready: BTreeMap<String, Value>,
}

/// A bench that could not be run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "NotRun")]
pub(crate) struct BenchNotRun {
    pub(crate) bench: String,
    pub(crate) reason: String,
}

impl Record {
    /// Returns the judgement of the run by its A/A rows.
    pub fn validity(&self) -> &Validity {
        &self.validity
    }

    /// Returns the reason why the run is partial, if it is.
    pub fn partial(&self) -> Option<&str> {
        self.partial.as_deref()
    }

    /// Lists the benches that could not be run, each with its reason.
    pub fn not_run(&self) -> Vec<String> {
        self.not_run.iter().map(|not| format!("{}: {}", not.bench, not.reason)).collect()
    }

    /// Lists the benches of which no arm could be run: their tools are missing, or every arm failed.
    pub fn benches_without_arms(&self) -> Vec<&str> {
        let mut runs: BTreeMap<&str, bool> = BTreeMap::new();
        for arm in self.arms.iter().filter(|arm| !arm.twin) {
            *runs.entry(&arm.bench).or_default() |= arm.given_up.is_none();
        }
        runs.into_iter().filter(|(_, runs)| !runs).map(|(bench, _)| bench).collect()
    }

    /// Creates a record of nothing but these rows, for tests and for what the self-test makes up.
    pub(crate) fn from_analysis(judged: RunAnalysis) -> Self {
        Self {
            schema: SCHEMA,
            voids: judged.voids,
            validity: judged.validity,
            rows: judged.rows,
            figures: judged.figures,
            ..Self::default()
        }
    }

    /// Returns the share of the headline rows' runs that were disturbed; 0 where no row says.
    pub(crate) fn disturbed_share(&self) -> f64 {
        disturbed_share(self.rows.iter().filter(|row| row.headline))
    }

    /// Returns the end of the chain of hashes; `None` for a record of a layout without one.
    pub fn chain_end(&self) -> Option<&str> {
        self.chain.as_ref().map(|chain| chain.end.as_str())
    }

    /// Chains the slices and everything else that was not computed from them.
    ///
    /// # Errors
    /// When a field cannot be written as JSON.
    pub(crate) fn compute_hash_chain(
        &mut self,
        samples: &[Sample],
        slices: &[Slice],
    ) -> Result<(), serde_json::Error> {
        (self.schema, self.method, self.chain) = (SCHEMA, METHOD, None);
        let slices: Vec<Value> = pack_columns(samples, slices)
            .iter()
            .map(serde_json::to_value)
            .collect::<Result<_, _>>()?;
        let record = serde_json::from_value(serde_json::to_value(&*self)?)?;
        self.chain = Some(RecordChain::compute(&record, &slices));
        Ok(())
    }

    /// Computes everything that follows from the samples.
    pub(crate) fn compute_analysis(&mut self, suite: &Suite, samples: &[Sample], slices: &[Slice]) {
        self.set_analysis(analyse_run(suite, self.effort, samples, slices));
    }

    /// Replaces everything that follows from the samples.
    pub(crate) fn set_analysis(&mut self, judged: RunAnalysis) {
        let RunAnalysis { rows, figures, voids, validity } = judged;
        (self.rows, self.figures, self.voids, self.validity) = (rows, figures, voids, validity);
    }

    /// Parses the suite that the record holds.
    ///
    /// # Errors
    /// When this version cannot read the suite.
    pub(crate) fn parse_suite(&self) -> Result<Suite, BenchError> {
        Suite::parse(&self.suite.name, &self.suite.text)
    }

    /// Sets the wall clock of the run to that of all its sessions.
    pub(crate) fn update_wall_time(&mut self) {
        self.wall_s = self.sessions.iter().map(|session| session.wall_s).sum();
    }

    /// Finds the entry of an arm.
    pub(crate) fn find_arm(&self, bench: &str, name: &str, twin: bool) -> Option<&ArmRecord> {
        self.arms.iter().find(|arm| (&*arm.bench, &*arm.name, arm.twin) == (bench, name, twin))
    }

    /// Replaces or adds the entry of an arm.
    pub(crate) fn put_arm(&mut self, arm: ArmRecord) {
        let key = |arm: &ArmRecord| (arm.bench.clone(), arm.name.clone(), arm.twin);
        match self.arms.iter_mut().find(|known| key(known) == key(&arm)) {
            Some(known) => *known = arm,
            None => self.arms.push(arm),
        }
    }

    /// Replaces or adds the entry of a service.
    pub(crate) fn put_service(&mut self, service: ServiceRecord) {
        self.services.retain(|known| known.name != service.name);
        self.services.push(service);
    }

    /// Brings a record of layout 1 to this layout; its samples are added where it is written.
    pub(crate) fn upgrade_layout(&mut self) {
        if self.sessions.is_empty() {
            let ended = if self.partial.is_some() {
                SessionEnd::Interrupted
            } else {
                SessionEnd::Completed
            };
            self.sessions.push(Session {
                started_unix_s: self.started_unix_s,
                wall_s: self.wall_s,
                boot: "unknown".into(),
                ended,
                command: self.command.clone(),
            });
        }
        if self.plan.sha256.is_empty() {
            let plan = &self.plan;
            let hash = plan.hash(&self.suite.sha256, self.effort, self.seed, self.blocks_asked);
            self.plan.sha256 = hash;
        }
    }

    /// Writes the whole document: the record, then one line for every slice.
    pub(crate) fn to_json_document(
        &self,
        samples: &[Sample],
        slices: &[Slice],
    ) -> serde_json::Result<String> {
        let mut record = self.clone();
        // Nothing tells that an older record is as its run left it: it gets no chain here either.
        record.schema = if record.chain.is_some() { SCHEMA } else { CHAINED_SCHEMA - 1 };
        record.slices = Vec::new();
        let mut text = serde_json::to_string_pretty(&record)?;
        text.truncate(text.strip_suffix("\n}").unwrap_or(&text).len());
        text.push_str(",\n  \"slices\": [");
        for (index, slice) in pack_columns(samples, slices).iter().enumerate() {
            text.push_str(if index == 0 { "\n    " } else { ",\n    " });
            text.push_str(&serde_json::to_string(slice)?);
        }
        text.push_str("\n  ]\n}\n");
        Ok(text)
    }

    /// Writes to a second file and renames it, so that an interruption leaves a whole record or
    /// none.
    pub(crate) fn write(
        &self,
        folder: &Path,
        samples: &[Sample],
        slices: &[Slice],
    ) -> Result<(), BenchError> {
        let path = folder.join(RECORD_FILE);
        let beside = folder.join("record.json.new");
        let text = self
            .to_json_document(samples, slices)
            .map_err(|error| BenchError::io("write", &path)(error.into()))?;
        let mut file = File::create(&beside).map_err(BenchError::io("create", &beside))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&beside, &path))
            .map_err(BenchError::io("write", &path))
    }
}

/// The share of the rows' runs that were disturbed, by whatever gate; 0 where no row says.
pub(crate) fn disturbed_share<'a>(rows: impl Iterator<Item = &'a Row>) -> f64 {
    let costs = rows.filter_map(|row| row.beside.as_deref());
    let (disturbed, all) =
        costs.fold((0, 0), |(some, all), costs| (some + costs.disturbed, all + costs.slices));
    disturbed as f64 / all.max(1) as f64
}

/// Reads the kernel's id of this boot; `unknown` where it tells none.
pub(crate) fn read_boot_id() -> String {
    let id = FileTree::system().read_value("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_else(|| UNKNOWN.into())
}

/// Returns the SHA-256 in hexadecimal.
pub(crate) fn sha256_hex(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// Reads the commit of the working folder, `-dirty` where files differ; `unknown` outside a
/// repository.
pub(crate) fn read_commit() -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_whose_arms_were_all_left_out_was_not_run() {
        let arm = |bench: &str, twin, reason: Option<&str>| ArmRecord {
            bench: bench.into(),
            twin,
            given_up: reason.map(str::to_owned),
            ..ArmRecord::default()
        };
        let missing = Some("the program fio is missing");
        let arms = vec![
            arm("disk", false, missing),
            arm("disk", true, None),
            arm("mixed", false, missing),
            arm("mixed", false, None),
        ];
        let record = Record { arms, ..Record::default() };
        assert_eq!(record.benches_without_arms(), ["disk"]);
    }
}
