//! The arm that drives a tool by its row of `tools.toml`.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::LazyLock,
};

use confide_arm_line::{Hello, Outcome, Report, Run, find_in_path, serve_runs, spawn};
use confide_tools::{Tool, ToolOutput, WorkShape, fill_template, read_output, tool_table};
use serde_json::{Map, Value};

use super::process::{Stopwatch, check_status, read_program_version};

/// A tool with the settings of a command line.
#[derive(Clone)]
pub(crate) struct ToolArm {
    tool: &'static Tool,
    program: &'static str,
    /// Number of threads or processes of the tool.
    count: usize,
    /// Number of processes that are started side by side, whose figures are added up.
    copies: usize,
    /// Folder in which the tool writes its results; they are removed once they are read.
    folder: PathBuf,
    settings: BTreeMap<String, String>,
}

/// The work of one run.
pub(crate) struct ToolRun {
    shape: &'static WorkShape,
    pub(crate) settings: BTreeMap<String, String>,
    /// Arguments after the row's.
    pub(crate) more: Vec<String>,
    marks: Vec<String>,
}

impl ToolRun {
    /// A whole-number param of the run.
    pub(crate) fn integer_param(&self, name: &str) -> Outcome<u64> {
        let text = self.settings.get(name).ok_or_else(|| format!("no param {name}"))?;
        Ok(text.parse()?)
    }
}

static WITHOUT_SHAPE: LazyLock<WorkShape> = LazyLock::new(WorkShape::default);

impl ToolArm {
    pub(crate) fn new(name: &str, count: usize) -> Outcome<Self> {
        let tool = tool_table().get(name).ok_or_else(|| format!("tools.toml has no {name}"))?;
        let found = tool.programs.iter().find(|program| find_in_path(program).is_some());
        let program = found.or(tool.programs.first()).ok_or("a tool without a program")?;
        let settings = [("count".to_owned(), count.to_string())].into();
        Ok(Self { tool, program, count, copies: 1, folder: PathBuf::new(), settings })
    }

    /// Fills a placeholder of the row.
    pub(crate) fn with_setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.insert(name.to_owned(), value.to_string());
        self
    }

    /// Starts `copies` processes in every run.
    pub(crate) fn with_copies(mut self, copies: usize) -> Self {
        self.copies = copies;
        self
    }

    /// Has the tool write its results in this folder.
    pub(crate) fn with_folder(mut self, folder: PathBuf) -> Self {
        self.folder = folder;
        self
    }

    /// The arm's hello, which says so where the program is missing. Every run starts the tool again,
    /// so that there is nothing to warm.
    pub(crate) fn hello(&self) -> Outcome<Hello> {
        let missing = || format!("no program {} (package {})", self.program, self.tool.package);
        Ok(Hello {
            threads: self.count,
            warming: false,
            cannot: find_in_path(self.program).is_none().then(missing),
            ..Hello::new(
                fill_template(&self.tool.title, &self.settings)?,
                read_program_version(self.program, &self.tool.version),
            )
        })
    }

    /// Speaks the protocol until the harness ends it.
    pub(crate) fn serve_runs(&self) -> Outcome {
        serve_runs(&self.hello()?, |run| Ok(self.measure(&self.prepare_run(run)?)?.0))
    }

    /// Reads the params of a run.
    pub(crate) fn prepare_run(&self, run: &Run) -> Outcome<ToolRun> {
        let chosen = self.tool.choose.as_deref().filter(|name| !self.settings.contains_key(*name));
        let numbers = self.tool.params.keys().map(String::as_str);
        run.refuse_unknown_params(&numbers.chain(chosen).collect::<Vec<_>>())?;
        let mut settings = self.settings.clone();
        settings.insert("seed".to_owned(), run.seed.to_string());
        let mut marks = Vec::new();
        for (name, param) in &self.tool.params {
            let number = run.integer_param_within(name, param.default, param.min..=param.max)?;
            settings.insert(name.clone(), number.to_string());
            if number < param.reduced_below {
                marks.push(fill_template(&param.reduced, &settings)?);
            }
        }
        if let Some(name) = chosen {
            let default = self.tool.default.as_deref().unwrap_or_default();
            settings.insert(name.to_owned(), run.text_param(name, default)?);
        }
        let shape = match &self.tool.choose {
            None => &*WITHOUT_SHAPE,
            Some(name) => {
                let wanted = settings.get(name).map(String::as_str).unwrap_or_default();
                let known = || self.tool.shapes.keys().collect::<Vec<_>>();
                let unknown = || format!("param {name}: wanted one of {:?}, got {wanted}", known());
                self.tool.shapes.get(wanted).ok_or_else(unknown)?
            }
        };
        marks.extend(shape.marks.iter().cloned());
        Ok(ToolRun { shape, settings, more: Vec::new(), marks })
    }

    /// Runs the tool once, or its copies side by side.
    pub(crate) fn measure(&self, job: &ToolRun) -> Outcome<(Report, Vec<ToolOutput>)> {
        let watch = Stopwatch::start();
        let started = (0..self.copies).map(|number| self.spawn_tool(job, number));
        let started = started.collect::<Outcome<Vec<_>>>()?;
        let outputs = started.into_iter().map(|(child, file)| {
            // The standard output of a copy fits into a pipe.
            let output = child.wait_with_output()?;
            let written = fs::read_to_string(&file);
            let _ = fs::remove_file(&file);
            if self.tool.failure.is_none() {
                check_status(self.program, &output)?;
            }
            Ok(if self.writes_file() {
                written.map_err(|error| format!("{} wrote no results: {error}", self.program))?
            } else {
                String::from_utf8_lossy(&output.stdout).into_owned()
            })
        });
        let outputs = outputs.collect::<Outcome<Vec<String>>>()?;
        let report = watch.report();
        let read = |text: &String| read_output(self.tool, job.shape, self.count, text);
        let readings = outputs.iter().map(read).collect::<Result<Vec<_>, _>>();
        let readings = readings.map_err(|error| format!("{}: {error}", self.program))?;
        Ok((self.merge_outputs(report, job, &readings)?, readings))
    }

    fn writes_file(&self) -> bool {
        self.tool.command.iter().any(|argument| argument.contains("{file}"))
    }

    fn spawn_tool(&self, job: &ToolRun, number: usize) -> Outcome<(Child, PathBuf)> {
        let name = format!(".{}-{}-{number}", self.program, std::process::id());
        let file = self.folder.join(name);
        let mut settings = job.settings.clone();
        settings.insert("file".to_owned(), file.display().to_string());
        settings.insert("folder".to_owned(), self.folder.display().to_string());
        let many = if self.count > 1 { &self.tool.command_of_many[..] } else { &[] };
        let arguments = self.tool.command.iter().chain(many).chain(&job.shape.command);
        let arguments = arguments.map(|argument| fill_template(argument, &settings));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let mut command = Command::new(self.program);
        // Points, commas and words of the reader's language are nothing a parser should see.
        command.args(arguments).args(&job.more).env("LC_ALL", "C");
        // A copy whose errors fill a pipe would wait for the copies before it to be read.
        command.stderr(if self.copies > 1 { Stdio::null() } else { Stdio::piped() });
        Ok((spawn(&mut command)?, file))
    }

    /// Adds up the figures of all copies, whose answers must be the same.
    fn merge_outputs(
        &self,
        mut report: Report,
        job: &ToolRun,
        readings: &[ToolOutput],
    ) -> Outcome<Report> {
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, number) in readings.iter().flat_map(|reading| &reading.figures) {
            *sums.entry(name).or_default() += number;
        }
        sums.into_iter().for_each(|(name, sum)| report.set(name, sum));
        let answers = readings.iter().map(|reading| self.parse_answer(job, reading));
        let answers = answers.collect::<Outcome<Vec<Value>>>()?;
        if answers.iter().any(|answer| Some(answer) != answers.first()) {
            return Err(format!("the copies of {} did different work", self.program).into());
        }
        report.answer = answers.into_iter().next().unwrap_or_default();
        report.marks.clone_from(&job.marks);
        Ok(report)
    }

    /// The answer of the row; a text that is a whole number becomes a JSON number.
    fn parse_answer(&self, job: &ToolRun, reading: &ToolOutput) -> Outcome<Value> {
        let mut settings = job.settings.clone();
        settings
            .extend(reading.values.iter().map(|(name, number)| (name.clone(), number.to_string())));
        let mut answer = Map::new();
        for (name, template) in &self.tool.answer {
            let text = fill_template(template, &settings)?;
            let value = text.parse::<u64>().map_or(Value::String(text), Value::from);
            answer.insert(name.clone(), value);
        }
        Ok(if answer.is_empty() { Value::Null } else { answer.into() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(params: Value) -> Run {
        serde_json::from_value(json!({ "id": 1, "params": params })).expect("a run")
    }

    fn report_of(arm: &ToolArm, params: Value, texts: &[&str]) -> Report {
        let job = arm.prepare_run(&run(params)).expect("params of the row");
        let read =
            |text: &&str| read_output(arm.tool, job.shape, arm.count, text).expect("recorded");
        let readings: Vec<ToolOutput> = texts.iter().map(read).collect();
        arm.merge_outputs(Report::default(), &job, &readings).expect("figures")
    }

    #[test]
    fn copies_are_summed_and_a_small_dictionary_is_said() {
        let text = include_str!("../../recorded/7z-1.txt");
        let arm = ToolArm::new("seven-zip", 2).expect("a row");
        let report = report_of(&arm, json!({ "dictionary": 18 }), &[text, text]);
        assert_eq!(report.metrics["rating_mips"], 15_288.0);
        assert_eq!(report.metrics["rating_per_thread_mips"], 7_644.0);
        assert_eq!(report.marks, ["reduced dictionary, 2^18"]);
        assert_eq!(report.answer, json!({ "dictionary": 18, "asked": 18 }));
        assert!(arm.prepare_run(&run(json!({ "dictionary": 17 }))).is_err());
        assert!(arm.prepare_run(&run(json!({ "colour": 1 }))).is_err());
    }

    #[test]
    fn a_figure_of_many_processes_is_of_one_of_them() {
        let arm = ToolArm::new("openssl", 2).expect("a row");
        let text = include_str!("../../recorded/openssl-multi.txt");
        let report = report_of(&arm, json!({ "algorithm": "P-256" }), &[text]);
        assert_eq!(report.metrics["p256_sign_per_s"], 70_603.0);
        assert_eq!(report.metrics["p256_verify_per_s"], 23_876.5);
        assert_eq!(report.answer, json!({ "algorithm": "P-256" }));
        assert!(arm.prepare_run(&run(json!({ "algorithm": "MD5" }))).is_err());
        assert!(arm.prepare_run(&run(json!({}))).is_err());
    }

    #[test]
    fn a_transfer_has_its_rate_its_retransmits_and_both_ends_cores() {
        let arm = ToolArm::new("iperf3", 1).expect("a row");
        let text = include_str!("../../recorded/iperf3-two.json");
        let report = report_of(&arm, json!({ "streams": 2 }), &[text]);
        let figure = |name: &str| report.metrics[name].as_f64().unwrap_or(f64::NAN);
        assert!((figure("received_gbit_per_s") - 13.295).abs() < 1e-3);
        assert!((figure("retransmits_per_gib") - 10.31).abs() < 0.01);
        assert!((figure("client_cores_ratio") - 0.347).abs() < 1e-3);
        assert_eq!(report.answer, json!({ "streams": 2 }));
        assert!(arm.prepare_run(&run(json!({ "streams": 129 }))).is_err());
        assert!(arm.prepare_run(&run(json!({ "direction": "sideways" }))).is_err());
    }

    #[test]
    fn a_row_is_run_as_a_program() {
        let arm = ToolArm::new("openssl", 1).expect("a row");
        if find_in_path("openssl").is_none() {
            println!("skipped: no openssl");
            return;
        }
        let job = arm.prepare_run(&run(json!({ "algorithm": "SHA-256" }))).expect("known");
        let (report, _) = arm.measure(&job).expect("openssl speed");
        assert!(report.metrics["sha256_mib_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
    }
}
