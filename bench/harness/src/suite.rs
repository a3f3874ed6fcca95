//! A suite: what is measured, as data. Unknown keys are errors.

pub(crate) mod bench;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    error::BenchError,
    needs::{ArmNeeds, MissingProgram},
    published::{QuotedRate, QuotedTable},
};

use self::bench::{Bench, CommandValue, Params, ensure};

/// The most seconds that a service may take to be ready; a slower one is broken.
const READY_S_MAX: u32 = 900;

/// A parsed and checked suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    pub(crate) suite: SuiteHeader,
    #[serde(default)]
    pub(crate) vars: BTreeMap<String, CommandValue>,
    #[serde(default, rename = "prepare")]
    pub(crate) prepares: Vec<NamedCommand>,
    #[serde(default, rename = "service")]
    pub(crate) services: Vec<NamedCommand>,
    #[serde(rename = "arm")]
    pub(crate) arms: Vec<Arm>,
    #[serde(default, rename = "subject")]
    pub(crate) subjects: Vec<SentenceSubject>,
    #[serde(default, rename = "gate")]
    pub(crate) gates: Vec<Gate>,
    #[serde(rename = "bench")]
    pub(crate) benches: Vec<Bench>,
    #[serde(default, rename = "seed_figure")]
    pub(crate) seed_figures: Vec<PublishedFigure>,
    #[serde(default, rename = "answer")]
    pub(crate) answers: Vec<QuotedTable>,
    #[serde(default, rename = "quoted")]
    pub(crate) quoted: Vec<QuotedRate>,
}

/// `[suite]`: the name of a suite, and its words for the page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuiteHeader {
    pub(crate) name: String,
    pub(crate) title: String,
    /// The layer of the report page where the suite's rows stand (`bench/suites/layers.toml`).
    pub(crate) layer: Option<String>,
    /// Names of programs: a sentence that begins with one keeps its lower case.
    #[serde(default)]
    pub(crate) names: Vec<String>,
    pub(crate) about: String,
    pub(crate) seed: u64,
}

/// `[[subject]]`: what a reader calls some arms, as the subject of a sentence about their rows. Rows
/// of the subject that stands first in the suite answer first for their layer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SentenceSubject {
    pub(crate) words: String,
    pub(crate) benches: Vec<String>,
    pub(crate) arms: Vec<String>,
}

/// `[[gate]]`: a limit that `check` holds rows to. Where a suite has gates, rows without one are not checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gate {
    pub(crate) benches: Vec<String>,
    pub(crate) metric: String,
    pub(crate) arms: Vec<String>,
    /// The most that the cost may be as a ratio: 1.25 is a quarter dearer.
    pub(crate) ratio_at_most: Option<f64>,
    /// The most that the arm may add, in the metric's unit.
    pub(crate) adds_at_most: Option<f64>,
}

impl Gate {
    /// True where the gate is about the row.
    pub(crate) fn covers(&self, bench: &str, metric: &str, arm: &str) -> bool {
        let is = |names: &[String], name: &str| names.iter().any(|known| known == name);
        self.metric == metric && is(&self.benches, bench) && is(&self.arms, arm)
    }

    /// True where a row lies in both gates.
    fn overlaps(&self, other: &Self) -> bool {
        let mut rows =
            self.benches.iter().flat_map(|bench| self.arms.iter().map(move |arm| (bench, arm)));
        rows.any(|(bench, arm)| other.covers(bench, &self.metric, arm))
    }
}

/// `[[prepare]]` or `[[service]]`: a command under a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedCommand {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    /// A service whose delay or evidence is simulated taints every arm that uses it.
    #[serde(default)]
    pub(crate) simulated: bool,
    /// Seconds within which a service says that it is ready, where 30 are too few: it loads a model.
    #[serde(default = "default_ready_s")]
    pub(crate) ready_s: u32,
}

/// `[[arm]]`: a command that is measured, and what it protects.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arm {
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) command: Vec<String>,
    pub(crate) description: String,
    /// The parties: who is protected from whom.
    pub(crate) protects: String,
    /// The conditions that the machine must meet; without one the arm is left out by name.
    #[serde(default)]
    pub(crate) needs: ArmNeeds,
}

impl Arm {
    /// Returns the reason why it cannot run here, if there is one.
    pub(crate) fn unavailable_reason(&self) -> Option<String> {
        self.needs.unmet_reason()
    }
}

/// `[[seed_figure]]`: a published figure, for a column of its own.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishedFigure {
    pub(crate) bench: String,
    #[serde(default)]
    pub(crate) params: Params,
    pub(crate) metric: String,
    /// The arm of the figure; absent if it is of the reference arm.
    pub(crate) arm: Option<String>,
    pub(crate) value: String,
    pub(crate) source: String,
}

impl Suite {
    /// Parses and checks a suite; `name` is for messages.
    ///
    /// # Errors
    /// When the text is not the TOML of a suite, or names something that it does not define.
    pub fn parse(name: &str, text: &str) -> Result<Self, BenchError> {
        let suite: Self = toml::from_str(text).map_err(|error| BenchError::SuiteSyntax {
            name: name.to_owned(),
            message: error.to_string(),
        })?;
        suite.check().map_err(|(place, message)| BenchError::SuiteMeaning {
            name: name.to_owned(),
            place,
            message,
        })?;
        Ok(suite)
    }

    /// Returns the arm of this name; every name in a checked suite has one.
    pub(crate) fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    /// Lists the programs that its arms need and that are not here, each once.
    pub fn missing_programs(&self) -> Vec<MissingProgram> {
        let mut missing = Vec::new();
        for found in self.arms.iter().flat_map(|arm| arm.needs.missing_programs()) {
            if !missing.contains(&found) {
                missing.push(found);
            }
        }
        missing
    }

    /// Lists what its arms take that a machine may not have to spare, to be said before they start.
    pub fn describe_memory_needs(&self) -> Vec<String> {
        let taken = |arm: &Arm| Some((arm.label.clone(), arm.needs.memory_gib()?));
        let said = |(label, gib)| format!("{label}: needs {gib} GiB, and is left out without them");
        self.arms.iter().filter_map(taken).map(said).collect()
    }

    /// Returns the bench of this name.
    pub(crate) fn bench(&self, name: &str) -> Option<&Bench> {
        self.benches.iter().find(|bench| bench.name == name)
    }

    /// True where the suite says itself where its rows stand on the page: suites of records from
    /// before `layer` existed do not.
    pub(crate) fn names_layers(&self) -> bool {
        self.suite.layer.is_some() || self.benches.iter().any(|bench| bench.layer.is_some())
    }

    /// Returns the layer of a bench, by id.
    pub(crate) fn layer_of<'a>(&'a self, bench: &'a Bench) -> Option<&'a str> {
        bench.layer.as_deref().or(self.suite.layer.as_deref())
    }

    /// Checks what the parser cannot; the error is the table that is wrong, and what is wrong with it.
    fn check(&self) -> Result<(), (String, String)> {
        let at = |place: &str| {
            let place = place.to_owned();
            move |message| (place, message)
        };
        let commands = self.prepares.iter().chain(&self.services).map(|c| (&c.name, &c.command));
        let mut seen = BTreeSet::new();
        for (name, command) in commands.chain(self.arms.iter().map(|a| (&a.name, &a.command))) {
            ensure(seen.insert(name), || "this name is used twice".into()).map_err(at(name))?;
            ensure(!command.is_empty(), || "command is empty".into()).map_err(at(name))?;
        }
        for service in &self.services {
            let is_possible = (1..=READY_S_MAX).contains(&service.ready_s);
            let message = || format!("ready_s must be from 1 to {READY_S_MAX}");
            ensure(is_possible, message).map_err(at(&service.name))?;
        }
        for arm in &self.arms {
            arm.needs.find_key_mistake().map_or(Ok(()), Err).map_err(at(&arm.name))?;
        }
        let mut seen = BTreeSet::new();
        for bench in &self.benches {
            let is_new = seen.insert(&bench.name);
            ensure(is_new, || "this name is used twice".into()).map_err(at(&bench.name))?;
            self.check_bench(bench).map_err(at(&bench.name))?;
        }
        for subject in &self.subjects {
            self.check_subject(subject).map_err(at(&subject.words))?;
        }
        for (index, gate) in self.gates.iter().enumerate() {
            let place = format!("gate of {}", gate.metric);
            self.check_gate(gate).map_err(at(&place))?;
            let is_again = self.gates[..index].iter().any(|other| other.overlaps(gate));
            ensure(!is_again, || "another gate already covers the same rows".into())
                .map_err(at(&place))?;
        }
        for figure in &self.seed_figures {
            self.check_seed_figure(figure).map_err(at("seed_figure"))?;
        }
        for table in &self.answers {
            table.check(&self.benches).map_err(at(&table.title))?;
        }
        self.quoted.iter().try_for_each(|row| row.check(&self.benches)).map_err(at("quoted"))
    }

    fn check_seed_figure(&self, figure: &PublishedFigure) -> Result<(), String> {
        let known = self.bench(&figure.bench);
        let bench = known.ok_or_else(|| format!("no bench named {}", figure.bench))?;
        let is_known = bench.metrics.iter().any(|metric| metric.name == figure.metric);
        ensure(is_known, || format!("no metric named {}", figure.metric))
    }

    fn check_gate(&self, gate: &Gate) -> Result<(), String> {
        let limits = [gate.ratio_at_most, gate.adds_at_most];
        let is_one = matches!(limits, [Some(_), None] | [None, Some(_)]);
        ensure(is_one, || "wanted either ratio_at_most or adds_at_most".into())?;
        ensure(!gate.benches.is_empty() && !gate.arms.is_empty(), || {
            "wanted a bench and an arm".into()
        })?;
        for name in &gate.benches {
            let bench = self.bench(name).ok_or_else(|| format!("no bench named {name}"))?;
            let has_metric =
                bench.metrics.iter().any(|metric| metric.name == gate.metric && metric.compare);
            ensure(has_metric, || format!("bench {name} compares no metric {}", gate.metric))?;
            let is_arm = |arm: &String| bench.arms.iter().skip(1).any(|known| known == arm);
            let wrong = gate.arms.iter().find(|arm| !is_arm(arm));
            wrong.map_or(Ok(()), |arm| {
                Err(format!("{arm} is not compared with the reference of {name}"))
            })?;
        }
        Ok(())
    }

    fn check_subject(&self, subject: &SentenceSubject) -> Result<(), String> {
        for name in &subject.benches {
            let bench = self.bench(name).ok_or_else(|| format!("no bench named {name}"))?;
            let has_arm = bench.arms.iter().any(|arm| subject.arms.contains(arm));
            ensure(has_arm, || format!("bench {name} has none of its arms"))?;
        }
        subject.arms.iter().try_for_each(|name| self.check_arm_name(name))
    }

    fn check_arm_name(&self, name: &str) -> Result<(), String> {
        ensure(self.arm(name).is_some(), || format!("no arm named {name}"))
    }

    fn check_bench(&self, bench: &Bench) -> Result<(), String> {
        let has_both = !bench.arms.is_empty() && !bench.metrics.is_empty();
        ensure(has_both, || "wanted at least one arm and one metric".into())?;
        for (index, name) in bench.arms.iter().enumerate() {
            self.check_arm_name(name)?;
            ensure(!bench.arms[..index].contains(name), || {
                format!("arm {name} is named twice; the A/A arm is added automatically")
            })?;
        }
        let is_work = bench.requests > 0 && bench.deadline_s > 0;
        ensure(is_work, || "requests and deadline_s must be above 0".into())?;
        let is_enough = bench.blocks.quick != 1 && bench.blocks.full >= 2;
        ensure(is_enough, || "an interval needs at least 2 blocks".into())?;
        for name in bench.quick_grid.keys() {
            let is_known = bench.grid.contains_key(name);
            ensure(is_known, || format!("quick_grid names {name}, which is not in grid"))?;
        }
        let is_empty = bench.grid.values().chain(bench.quick_grid.values()).any(Vec::is_empty);
        ensure(!is_empty, || "a list of the grid is empty".into())?;
        if let Some(name) = &bench.requests_times {
            let is_param = bench.grid.contains_key(name) || bench.params.contains_key(name);
            ensure(is_param, || format!("requests_times names {name}, which is not a param"))?;
        }
        bench.fits.iter().try_for_each(|fit| fit.check(bench))?;
        bench.metrics.iter().try_for_each(|metric| metric.check(bench))
    }
}

fn default_ready_s() -> u32 {
    30
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The smallest valid suite.
    pub(crate) const SMALL: &str = r#"
        [suite]
        name = "small"
        title = "Small"
        about = "a test"
        seed = 7
        [[arm]]
        name = "a"
        label = "A"
        command = ["arm-a"]
        description = "first"
        protects = "nobody"
        [[arm]]
        name = "b"
        label = "B"
        command = ["arm-b"]
        description = "second"
        protects = "nobody"
        [[bench]]
        name = "one"
        model = "spin"
        load = "closed"
        arms = ["a", "b"]
        requests = 2
        blocks = { quick = 3, full = 6 }
        grid = { size = [1, 2, 3], kind = ["x", "y"] }
        quick_grid = { size = [1] }
        [[bench.metric]]
        name = "work_ms"
        label = "work"
        headline = true
    "#;

    #[test]
    fn a_small_suite_parses() {
        let suite = Suite::parse("small", SMALL).unwrap();
        assert_eq!(suite.benches[0].warmup, 1);
        assert!(suite.benches[0].same_answer);
        assert_eq!(suite.benches[0].metrics[0].margin, 0.02);
    }

    #[test]
    fn two_gates_about_one_row_are_an_error() {
        let gate = |limit: &str| {
            format!(
                "[[gate]]\nbenches = [\"one\"]\nmetric = \"work_ms\"\narms = [\"b\"]\n{limit}\n"
            )
        };
        let with = |gates: &str| Suite::parse("small", &format!("{SMALL}{gates}"));
        assert!(with(&gate("ratio_at_most = 1.5")).is_ok());
        let twice = with(&(gate("ratio_at_most = 1.5") + &gate("adds_at_most = 2.0")));
        let message = twice.unwrap_err().to_string();
        assert!(message.contains("another gate already covers the same rows"), "{message}");
    }

    /// A published table and a quoted rate for the small suite.
    const PUBLISHED: &str = r#"
        [[answer]]
        title = "Theirs"
        source = "a report"
        protects = "nobody"
        [[answer.row]]
        what = "work"
        theirs = "3 ms"
        ours = [{ bench = "one", arm = "b", metric = "work_ms", params = { size = 1 } }]
        [[answer.row]]
        what = "on a device"
        theirs = "1 ms"
        absent = "no device here"
        [[quoted]]
        system = "other"
        model = "large"
        hardware = "much"
        encrypted = "all"
        protects = "the user from the server"
        rate = "0.1 /s"
        source = "a paper"
        [[quoted]]
        system = "small"
        model = "small"
        hardware = "this machine"
        encrypted = "nothing"
        ours = { bench = "one", arm = "a", metric = "work_ms" }
        source = "this run"
    "#;

    #[test]
    fn published_figures_name_rows_that_the_suite_has() {
        let whole = format!("{SMALL}{PUBLISHED}");
        let suite = Suite::parse("small", &whole).unwrap();
        assert_eq!((suite.answers[0].rows.len(), suite.quoted.len()), (2, 2));
        for (from, to) in [
            ("bench = \"one\", arm = \"b\"", "bench = \"two\", arm = \"b\""),
            ("bench = \"one\", arm = \"b\"", "bench = \"one\", arm = \"c\""),
            ("params = { size = 1 }", "params = { colour = 1 }"),
            ("absent = \"no device here\"", ""),
            ("rate = \"0.1 /s\"", ""),
            ("protects = \"the user from the server\"", ""),
        ] {
            let error = Suite::parse("small", &whole.replacen(from, to, 1)).unwrap_err();
            assert!(matches!(error, BenchError::SuiteMeaning { .. }), "{from}: {error}");
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_in_every_table() {
        for (table, line) in [
            ("[suite]", "colour = 1"),
            ("[[arm]]", "colour = 1"),
            ("[[bench]]", "pairs = 3"),
            ("[[bench.metric]]", "unit = \"ms\""),
            ("[[answer]]", "colour = 1"),
            ("[[answer.row]]", "colour = 1"),
            ("[[quoted]]", "colour = 1"),
        ] {
            let whole = format!("{SMALL}{PUBLISHED}");
            let text = whole.replacen(table, &format!("{table}\n{line}"), 1);
            let error = Suite::parse("small", &text).unwrap_err();
            assert!(matches!(error, BenchError::SuiteSyntax { .. }), "{table}: {error}");
        }
    }

    #[test]
    fn a_suite_that_means_nothing_is_an_error() {
        for (from, to) in [
            ("arms = [\"a\", \"b\"]", "arms = [\"a\", \"c\"]"),
            ("arms = [\"a\", \"b\"]", "arms = [\"a\", \"a\"]"),
            ("arms = [\"a\", \"b\"]", "arms = []"),
            ("requests = 2", "requests = 0"),
            ("quick = 3", "quick = 1"),
            ("quick_grid = { size = [1] }", "quick_grid = { colour = [1] }"),
            ("quick_grid = { size = [1] }", "quick_grid = { size = [] }"),
            ("name = \"b\"", "name = \"a\""),
            ("headline = true", "margin = 0.0"),
            ("command = [\"arm-b\"]", "command = []"),
        ] {
            let text = SMALL.replacen(from, to, 1);
            let error = Suite::parse("small", &text).unwrap_err();
            assert!(matches!(error, BenchError::SuiteMeaning { .. }), "{to}: {error}");
        }
    }
}
