//! Runs that are made up, with a known truth: for the self-test and for tests.

use std::path::PathBuf;

use confide_estimate::Random;
use serde_json::Value;

use crate::{
    loaded::LoadedRecord,
    plan::Effort,
    record::{ArmRecord, Record, SuiteRecord, sha256_hex},
    rows::analyse_run,
    samples::{Sample, SamplePlace, Slice},
    suite::Suite,
};

/// The one bench of every made-up suite.
const BENCH: &str = "made-up";
/// The metric of the suite where nothing else is said.
pub(crate) const METRIC: &str = "work_ms";

/// A suite with one bench and one metric.
#[derive(Clone, Debug)]
pub(crate) struct SyntheticSuite {
    pub(crate) arms: Vec<&'static str>,
    pub(crate) load: &'static str,
    pub(crate) client: &'static str,
    pub(crate) model: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) stat: &'static str,
    pub(crate) better: &'static str,
    /// The TOML of `params`, without its braces.
    pub(crate) params: &'static str,
    /// Further lines of the metric's TOML.
    pub(crate) more: &'static str,
    /// The limit of a gate on arm `b`.
    pub(crate) gate: Option<String>,
}

impl Default for SyntheticSuite {
    fn default() -> Self {
        Self {
            arms: vec!["a", "b"],
            load: "closed",
            client: "subject",
            model: "spin",
            metric: METRIC,
            stat: "mean",
            better: "lower",
            params: "",
            more: "",
            gate: None,
        }
    }
}

impl SyntheticSuite {
    pub(crate) fn to_toml(&self) -> String {
        let arm = |name: &&str| {
            format!(
                "[[arm]]\nname = \"{name}\"\nlabel = \"{name}\"\ncommand = [\"{name}\"]\n\
                 description = \"made up\"\nprotects = \"nobody\"\n"
            )
        };
        let arms: String = self.arms.iter().map(arm).collect();
        let gate = self.gate.as_ref().map_or_else(String::new, |limit| {
            format!(
                "[[gate]]\nbenches = [\"{BENCH}\"]\nmetric = \"{}\"\narms = [\"b\"]\n{limit}\n",
                self.metric
            )
        });
        let Self { load, client, model, metric, stat, better, params, more, .. } = self;
        format!(
            "[suite]\nname = \"made-up\"\ntitle = \"made up\"\nabout = \"made up\"\nseed = 1\n{arms}{gate}\
             [[bench]]\nname = \"{BENCH}\"\nmodel = \"{model}\"\nload = \"{load}\"\n\
             client = \"{client}\"\narms = {:?}\nrequests = 1\n\
             blocks = {{ quick = 20, full = 20 }}\nparams = {{ {params} }}\n\
             [[bench.metric]]\nname = \"{metric}\"\nlabel = \"work\"\nstat = \"{stat}\"\n\
             better = \"{better}\"\nheadline = true\n{more}\n",
            self.arms
        )
    }

    /// Parses the suite; a made-up one always parses, and a test says so.
    pub(crate) fn parse(&self) -> Result<Suite, crate::error::BenchError> {
        Suite::parse("made-up", &self.to_toml())
    }
}

/// Creates the slice of one run of one arm that gave one number.
pub(crate) fn make_slice(arm: &str, twin: bool, block: u32, metric: &str, value: f64) -> Slice {
    Slice {
        place: SamplePlace {
            bench: BENCH.into(),
            case: String::new(),
            block,
            arm: arm.into(),
            twin,
        },
        metrics: [(metric.to_owned(), value)].into(),
        ..Default::default()
    }
}

/// Creates one request of the run at `place`.
pub(crate) fn make_sample(place: &SamplePlace, index: u32, metric: &str, value: f64) -> Sample {
    Sample {
        place: place.clone(),
        index,
        metrics: [(metric.to_owned(), value)].into(),
        ..Sample::default()
    }
}

/// The distribution of the noise of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Normal noise of the logarithm, with a standard deviation of 2 %.
    Quiet,
    /// The same noise, but one run in ten is up to a third slower.
    Spiked,
    /// Noise of the logarithm with heavy tails: the product of two normal numbers.
    Heavy,
}

impl Noise {
    pub(crate) const ALL: [Self; 3] = [Self::Quiet, Self::Spiked, Self::Heavy];

    /// Draws the factor of one run.
    pub(crate) fn draw_factor(self, random: &mut Random) -> f64 {
        let quiet = 0.02 * random.normal();
        match self {
            Self::Quiet => quiet.exp(),
            Self::Spiked if random.uniform() < 0.1 => quiet.exp() * (1.0 + 0.33 * random.uniform()),
            Self::Spiked => quiet.exp(),
            Self::Heavy => (quiet * random.normal()).exp(),
        }
    }
}

/// Creates the slices of the arms, each delayed by its share, on a machine whose speed is another
/// in each block.
pub(crate) fn make_slices(
    arms: &[(&str, bool, f64)],
    blocks: u32,
    noise: Noise,
    random: &mut Random,
) -> Vec<Slice> {
    let mut slices = Vec::new();
    for block in 0..blocks {
        let machine = 10.0 * (0.2 * random.normal()).exp();
        for (arm, twin, delay) in arms {
            let value = machine * noise.draw_factor(random) * (1.0 + delay);
            slices.push(make_slice(arm, *twin, block, METRIC, value));
        }
    }
    slices
}

/// Creates a record of these samples, as `bench run` would have left it.
pub(crate) fn make_loaded_record(
    shape: &SyntheticSuite,
    started_unix_s: u64,
    samples: Vec<Sample>,
    slices: Vec<Slice>,
) -> Result<LoadedRecord, crate::error::BenchError> {
    let suite = shape.parse()?;
    let mut record = Record::from_analysis(analyse_run(&suite, Effort::Full, &samples, &slices));
    let text = shape.to_toml();
    record.suite = SuiteRecord {
        name: "made-up".into(),
        title: "made up".into(),
        about: "made up".into(),
        sha256: sha256_hex(&text),
        text,
    };
    record.effort = Effort::Full;
    record.seed = 1;
    record.started_unix_s = started_unix_s;
    record.machine.cpu_model = "a made-up processor".into();
    record.machine.cpus_online = 2;
    record.arms = shape.arms.iter().map(|arm| make_arm_record(arm)).collect();
    let sha256 = sha256_hex(&format!("made-up {started_unix_s}"));
    Ok(LoadedRecord { record, samples, slices, path: PathBuf::from("made-up"), sha256 })
}

fn make_arm_record(name: &str) -> ArmRecord {
    ArmRecord {
        bench: BENCH.into(),
        name: name.into(),
        label: name.into(),
        command: vec![name.into()],
        description: "made up".into(),
        protects: "nobody".into(),
        says: name.into(),
        version: "1".into(),
        ..ArmRecord::default()
    }
}

/// Creates an answer of so many tokens.
pub(crate) fn token_count_answer(count: u32) -> Option<Value> {
    Some(serde_json::json!({ "tokens": count }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_up_suite_parses() {
        SyntheticSuite::default().parse().unwrap();
        SyntheticSuite { params: "concurrency = 4", load: "open", ..SyntheticSuite::default() }
            .parse()
            .unwrap();
    }
}
