//! The line protocol of `bench/PROTOCOL.md`, from the arm's side.
//!
//! An arm says [`Hello`], then answers each [`Run`] with samples and one [`Report`]. Samples are
//! written after the last measured instant, so that printing is not in what is measured.

mod outcome;
mod programs;
mod server;
pub mod veth;

pub use outcome::{ArmError, Outcome, UnmetNeed, exit_code, read_file, separate_unmet_need};
pub use programs::{find_in_path, spawn};
pub use server::ServerProcesses;

use std::{
    io::{self, BufRead, BufWriter, Write},
    ops::RangeInclusive,
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The version of the protocol spoken here.
pub const PROTOCOL: u32 = 1;

/// The first line of an arm, written once when all preparation that is not measured is done.
#[derive(Debug, Serialize)]
pub struct Hello {
    /// The arm's name, for people.
    pub arm: String,
    /// Version of the thing measured.
    pub version: String,
    /// Whether evidence, device or delay in its figures is simulated.
    pub simulated: bool,
    /// Who is protected from whom, as computed from the running configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<String>,
    /// Threads that may work at once: the base of client CPU.
    pub threads: usize,
    /// A note for the reader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether the harness makes an unmeasured run first; false if every run starts a new process.
    pub warming: bool,
    /// The need that this machine does not meet, for which the arm is left out: see [`UnmetNeed`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cannot: Option<String>,
}

impl Hello {
    /// A hello of one thread without guarantee and note, whose figures are not simulated.
    pub fn new(arm: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            arm: arm.into(),
            version: version.into(),
            simulated: false,
            guarantee: None,
            threads: 1,
            note: None,
            warming: true,
            cannot: None,
        }
    }
}

/// One order of the harness: make these requests, measure them and report.
#[derive(Debug, Deserialize)]
pub struct Run {
    /// Identifies the run in every answer.
    pub id: u64,
    /// The random seed, the same for all arms of a block: equal seed and params mean equal work.
    #[serde(default)]
    pub seed: u64,
    /// The number of requests to make.
    #[serde(default = "default_requests")]
    pub requests: u64,
    /// Number of the block in the plan.
    #[serde(default)]
    pub block: u64,
    /// The suite's params and one point of its grid.
    #[serde(default)]
    pub params: Map<String, Value>,
}

fn default_requests() -> u64 {
    1
}

impl Run {
    /// A whole-number param, or `default` when it is absent.
    ///
    /// # Errors
    /// When the param is present and is not a whole number.
    pub fn integer_param(&self, name: &str, default: u64) -> Outcome<u64> {
        let Some(value) = self.params.get(name) else { return Ok(default) };
        let wrong = || format!("param {name}: wanted a whole number, got {value}").into();
        value.as_u64().ok_or_else(wrong)
    }

    /// A whole-number param within `limits`, or `default` when it is absent.
    ///
    /// # Errors
    /// When the param is present and is not a whole number, or lies outside the limits.
    pub fn integer_param_within(
        &self,
        name: &str,
        default: u64,
        limits: RangeInclusive<u64>,
    ) -> Outcome<u64> {
        let number = self.integer_param(name, default)?;
        if limits.contains(&number) {
            return Ok(number);
        }
        let (least, most) = limits.into_inner();
        Err(format!("param {name}: wanted {least} to {most}, got {number}").into())
    }

    /// A text param, or `default` when it is absent.
    ///
    /// # Errors
    /// When the param is present and is not a text.
    pub fn text_param(&self, name: &str, default: &str) -> Outcome<String> {
        match self.params.get(name) {
            None => Ok(default.to_string()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(value) => Err(format!("param {name}: wanted text, got {value}").into()),
        }
    }

    /// Refuses params outside `known`: silence would measure something else than was asked.
    ///
    /// # Errors
    /// When there is an unknown param; the first one is named.
    pub fn refuse_unknown_params(&self, known: &[&str]) -> Outcome {
        match self.params.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(format!("unknown param {name}: wanted one of {known:?}").into()),
        }
    }

    /// Makes the run's samples one after the other, within one stopwatch.
    ///
    /// # Errors
    /// The first failure of a sample.
    pub fn measure_each(&self, mut sample: impl FnMut(u64) -> Outcome<Sample>) -> Outcome<Report> {
        let watch = Stopwatch::start();
        let samples = (0..self.requests).map(&mut sample).collect::<Outcome<_>>()?;
        Ok(Report { samples, ..watch.report() })
    }
}

/// The result of one request of a run. Metrics carry their unit last in the name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Figures of the request, by name.
    pub metrics: Map<String, Value>,
    /// The answer; the harness compares it with the reference arm's.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub answer: Value,
    /// Round trips before the first application byte, TCP's included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<u32>,
    /// Seconds since the run arrived at which the request was scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_s: Option<f64>,
    /// Why the request failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Sample {
    /// A sample with these figures.
    pub fn new<const N: usize>(figures: [(&str, f64); N]) -> Self {
        let mut sample = Self::default();
        figures.into_iter().for_each(|(name, value)| sample.set(name, value));
        sample
    }

    /// Adds a figure.
    pub fn set(&mut self, name: &str, value: f64) {
        self.metrics.insert(name.into(), json!(value));
    }
}

/// The answer to a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Results of the single requests; empty if only a rate makes sense.
    pub samples: Vec<Sample>,
    /// Figures of the whole run, by name.
    pub metrics: Map<String, Value>,
    /// An answer for the whole run.
    pub answer: Value,
    /// Seconds that the measured part took.
    pub wall_s: f64,
    /// CPU seconds of this process over the measured part.
    pub cpu_s: f64,
    /// A floor measured next to the run: name, metric, value in the unit of that metric.
    pub floor: Option<(String, String, f64)>,
    /// Marks that stand next to every row that rests on this run.
    pub marks: Vec<String>,
    /// Why the figures of this run may not be used, by a rule of the arm's own.
    pub void: Option<String>,
    /// A note on the arm that is only known after the work.
    pub note: Option<String>,
    /// Peak memory in bytes of a child that has ended, which the harness cannot measure any more.
    pub peak_memory_bytes: Option<u64>,
}

impl Report {
    /// Adds a figure of the whole run.
    pub fn set(&mut self, name: &str, value: f64) {
        self.metrics.insert(name.into(), json!(value));
    }
}

/// Speaks the protocol on standard input and output until the harness ends it.
///
/// # Errors
/// When standard input or output fails.
pub fn serve_runs(hello: &Hello, mut work: impl FnMut(&Run) -> Outcome<Report>) -> Outcome {
    let mut out = BufWriter::new(io::stdout().lock());
    write_line(&mut out, "hello", serde_json::to_value(hello)?, |line| {
        line.insert("protocol".into(), PROTOCOL.into());
    })?;
    for line in io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        if line["type"] == "end" {
            break;
        }
        let id = line["id"].clone();
        let answer = serde_json::from_value::<Run>(line)
            .map_err(|error| format!("cannot read the order: {error}").into())
            .and_then(|run| work(&run));
        match answer {
            Ok(report) => write_report(&mut out, &id, report)?,
            Err(error) => {
                let reason = json!({ "reason": error.to_string() });
                write_line(&mut out, "error", reason, |line| {
                    line.insert("id".into(), id);
                })?;
            }
        }
    }
    Ok(())
}

fn write_report(out: &mut impl Write, id: &Value, report: Report) -> io::Result<()> {
    for sample in report.samples {
        write_line(out, "sample", serde_json::to_value(sample)?, |line| {
            line.insert("id".into(), id.clone());
        })?;
    }
    let done = json!({
        "metrics": report.metrics, "cpu_s": report.cpu_s, "wall_s": report.wall_s,
    });
    write_line(out, "done", done, |line| {
        line.insert("id".into(), id.clone());
        if !report.answer.is_null() {
            line.insert("answer".into(), report.answer);
        }
        if let Some(void) = report.void {
            line.insert("void".into(), void.into());
        }
        if !report.marks.is_empty() {
            line.insert("marks".into(), report.marks.into());
        }
        if let Some(note) = report.note {
            line.insert("note".into(), note.into());
        }
        if let Some(bytes) = report.peak_memory_bytes {
            line.insert("peak_memory_bytes".into(), bytes.into());
        }
        if let Some((name, metric, value)) = report.floor {
            let floor = json!({ "name": name, "metric": metric, "value": value });
            line.insert("floor".into(), floor);
        }
    })
}

fn write_line(
    out: &mut impl Write,
    kind: &str,
    mut line: Value,
    more: impl FnOnce(&mut Map<String, Value>),
) -> io::Result<()> {
    if let Value::Object(fields) = &mut line {
        fields.insert("type".into(), kind.into());
        more(fields);
    }
    writeln!(out, "{line}")?;
    out.flush()
}

/// Lets `workers` threads repeat `work` `run.requests` times each and reports rate and times.
///
/// `verb` names the metrics (`verify_mean_ms`, …); `answer` makes the run's answer from the number
/// of repetitions and what the last one gave.
///
/// # Errors
/// The first failure of any repetition: a run with a failed repetition has no figures.
pub fn repeat_in_threads<T: Send>(
    run: &Run,
    verb: &str,
    workers: u64,
    work: impl Fn() -> Outcome<T> + Sync,
    answer: impl FnOnce(usize, T) -> Value,
) -> Outcome<Report> {
    if workers == 0 || workers > WORKERS_MAX || run.requests == 0 {
        return Err(format!("wanted 1 to {WORKERS_MAX} workers and at least one request").into());
    }
    let watch = Stopwatch::start();
    let outcomes: Vec<Outcome<Repetitions<T>>> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..workers).map(|_| scope.spawn(|| repeat(run.requests, &work))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a worker thread panicked".into())))
            .collect()
    });
    let mut report = watch.report();
    let (mut times_ms, mut last) = (Vec::new(), None);
    for outcome in outcomes {
        let done = outcome?;
        times_ms.extend(done.times_ms);
        last = done.last;
    }
    let count = times_ms.len();
    report.answer = last.map_or(Value::Null, |last| answer(count, last));
    let mean_ms = times_ms.iter().sum::<f64>() / count as f64;
    report.set("rate_per_s", count as f64 / report.wall_s);
    report.set(&format!("{verb}_mean_ms"), mean_ms);
    report.set(&format!("{verb}_p50_ms"), nearest_rank(&mut times_ms, 0.5));
    report.set(&format!("cpu_ms_per_{verb}"), report.cpu_s * 1e3 / count as f64);
    Ok(report)
}

/// More threads than this measure the scheduler of this machine and nothing else.
const WORKERS_MAX: u64 = 1024;

/// The repetitions of one worker.
struct Repetitions<T> {
    times_ms: Vec<f64>,
    /// The result of the last repetition.
    last: Option<T>,
}

fn repeat<T>(requests: u64, work: &(impl Fn() -> Outcome<T> + Sync)) -> Outcome<Repetitions<T>> {
    let mut done = Repetitions { times_ms: Vec::new(), last: None };
    for _ in 0..requests {
        let start = Instant::now();
        let result = work()?;
        done.times_ms.push(start.elapsed().as_secs_f64() * 1e3);
        done.last = Some(result);
    }
    Ok(done)
}

/// Wall clock and CPU seconds of this process since it was started.
pub struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    /// Starts the stopwatch.
    pub fn start() -> Self {
        Self { cpu: process_cpu(), wall: Instant::now() }
    }

    /// A report with the wall seconds and the CPU seconds (user and system, all threads) since the
    /// start.
    pub fn report(&self) -> Report {
        let wall = self.wall.elapsed();
        let cpu = process_cpu().saturating_sub(self.cpu);
        Report { wall_s: wall.as_secs_f64(), cpu_s: cpu.as_secs_f64(), ..Report::default() }
    }
}

fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// The `q` quantile (0 to 1) of `values` by the nearest rank; 0 for no values. Sorts in place.
pub fn nearest_rank(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (q * values.len() as f64).ceil() as usize;
    values.get(rank.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rank_is_a_sample() {
        let mut values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(nearest_rank(&mut values, 0.5), 2.0);
        assert_eq!(nearest_rank(&mut values, 1.0), 4.0);
        assert_eq!(nearest_rank(&mut [], 0.5), 0.0);
    }

    #[test]
    fn an_unknown_param_is_named() {
        let run: Run =
            serde_json::from_str(r#"{"type":"run","id":1,"params":{"colour":3}}"#).expect("a run");
        assert!(run.refuse_unknown_params(&["tokens"]).is_err());
        assert_eq!(run.integer_param("colour", 0).ok(), Some(3));
        assert!(run.integer_param_within("colour", 1, 4..=9).is_err());
        assert!(run.text_param("colour", "").is_err());
    }
}
