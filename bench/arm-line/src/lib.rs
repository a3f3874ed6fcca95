//! The line protocol of `bench/PROTOCOL.md`, from the arm's side.
//!
//! An arm says [`Hello`], then answers each [`Run`] with samples and one [`Report`]. Samples are
//! written after the last measured instant, so that printing is not in what is measured.

mod server;

pub use server::ServerSide;

use std::{
    io::{self, BufRead, BufWriter, Write},
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The version of the protocol spoken here.
pub const PROTOCOL: u32 = 1;

/// What an arm says once, when all preparation that is not measured is done.
#[derive(Debug, Serialize)]
pub struct Hello {
    /// What this is, for people.
    pub arm: String,
    /// Version of the thing measured.
    pub version: String,
    /// Whether evidence, device or delay in its figures is simulated.
    pub simulated: bool,
    /// Who is protected from whom, computed from what runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<String>,
    /// Threads that may work at once: the base of client CPU.
    pub threads: usize,
    /// What a reader must know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One order of the harness.
#[derive(Debug, Deserialize)]
pub struct Run {
    /// Identifies the run in every answer.
    pub id: u64,
    /// The same for all arms of a block: the same seed and params mean the same work.
    #[serde(default)]
    pub seed: u64,
    /// How many requests to make.
    #[serde(default = "one")]
    pub requests: u64,
    /// The block of the plan.
    #[serde(default)]
    pub block: u64,
    /// The suite's params and one point of its grid.
    #[serde(default)]
    pub params: Map<String, Value>,
}

fn one() -> u64 {
    1
}

impl Run {
    /// A whole-number param, or `default` when it is absent.
    ///
    /// # Errors
    /// A text for the harness when the param is there and is no whole number.
    pub fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        match self.params.get(name) {
            None => Ok(default),
            Some(value) => value
                .as_u64()
                .ok_or_else(|| format!("param {name}: wanted a whole number, got {value}")),
        }
    }

    /// A text param, or `default` when it is absent.
    ///
    /// # Errors
    /// A text for the harness when the param is there and is no text.
    pub fn text(&self, name: &str, default: &str) -> Result<String, String> {
        match self.params.get(name) {
            None => Ok(default.to_string()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(value) => Err(format!("param {name}: wanted text, got {value}")),
        }
    }

    /// Refuses params outside `known`: silence would measure something else than was asked.
    ///
    /// # Errors
    /// A text that names the first unknown param.
    pub fn knows_only(&self, known: &[&str]) -> Result<(), String> {
        match self.params.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(format!("unknown param {name}: wanted one of {known:?}")),
        }
    }
}

/// One request of a run. Metrics carry their unit last in the name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Named figures.
    pub metrics: Map<String, Value>,
    /// What came out; the harness compares it with the reference arm's.
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

/// What a run gave.
#[derive(Debug, Default)]
pub struct Report {
    /// One per request, or none where only a rate makes sense.
    pub samples: Vec<Sample>,
    /// Figures of the whole run.
    pub metrics: Map<String, Value>,
    /// An answer for the whole run.
    pub answer: Value,
    /// Seconds that the measured part took.
    pub wall_s: f64,
    /// CPU seconds of this process over the measured part.
    pub cpu_s: f64,
    /// A floor measured next to the run: name, metric, value in the unit of that metric.
    pub floor: Option<(String, String, f64)>,
    /// What a reader of these figures must know: stands beside every row that rests on this run.
    pub marks: Vec<String>,
    /// Why the figures of this run may not be used, by a rule of the arm's own.
    pub void: Option<String>,
    /// What a reader must know of the arm, when only known after the work.
    pub note: Option<String>,
    /// Peak memory of a child that has ended: nobody else can tell it.
    pub peak_memory_bytes: Option<u64>,
}

/// Speaks the protocol on standard input and output until the harness ends it.
///
/// `hello` is a [`Hello`], or something that is serialized as one with more fields.
///
/// # Errors
/// When standard input or output fails.
pub fn speak(
    hello: &impl Serialize,
    mut work: impl FnMut(&Run) -> Result<Report, String>,
) -> io::Result<()> {
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
            .map_err(|error| format!("cannot read the order: {error}"))
            .and_then(|run| work(&run));
        match answer {
            Ok(report) => write_report(&mut out, &id, report)?,
            Err(reason) => write_line(&mut out, "error", json!({ "reason": reason }), |line| {
                line.insert("id".into(), id);
            })?,
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
    work: impl Fn() -> Result<T, String> + Sync,
    answer: impl FnOnce(usize, T) -> Value,
) -> Result<Report, String> {
    if workers == 0 || workers > WORKERS_MAX || run.requests == 0 {
        return Err(format!("wanted 1 to {WORKERS_MAX} workers and at least one request"));
    }
    let watch = Stopwatch::start();
    let outcomes: Vec<Outcome<T>> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..workers).map(|_| scope.spawn(|| repeat(run.requests, &work))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a worker died".into())))
            .collect()
    });
    let (wall_s, cpu_s) = watch.stop();
    let (mut times_ms, mut last) = (Vec::new(), None);
    for outcome in outcomes {
        let (times, seen) = outcome?;
        times_ms.extend(times);
        last = seen;
    }
    let count = times_ms.len();
    let mut report = Report { wall_s, cpu_s, ..Report::default() };
    report.answer = last.map_or(Value::Null, |last| answer(count, last));
    let metrics = &mut report.metrics;
    let mean = times_ms.iter().sum::<f64>() / count as f64;
    metrics.insert("rate_per_s".into(), json!(count as f64 / wall_s));
    metrics.insert(format!("{verb}_mean_ms"), json!(mean));
    metrics.insert(format!("{verb}_p50_ms"), json!(nearest_rank(&mut times_ms, 0.5)));
    metrics.insert(format!("cpu_ms_per_{verb}"), json!(cpu_s * 1e3 / count as f64));
    Ok(report)
}

/// More threads than this measure the scheduler of this machine and nothing else.
const WORKERS_MAX: u64 = 1024;

/// One worker's times in ms and what its last repetition gave, or why one failed.
type Outcome<T> = Result<(Vec<f64>, Option<T>), String>;

fn repeat<T>(requests: u64, work: &(impl Fn() -> Result<T, String> + Sync)) -> Outcome<T> {
    let (mut times_ms, mut last) = (Vec::new(), None);
    for _ in 0..requests {
        let start = Instant::now();
        let seen = work()?;
        times_ms.push(start.elapsed().as_secs_f64() * 1e3);
        last = Some(seen);
    }
    Ok((times_ms, last))
}

/// Wall clock and CPU seconds of this process since it was started.
pub struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self { cpu: process_cpu(), wall: Instant::now() }
    }

    /// Wall seconds and CPU seconds (user and system, all threads) since the start.
    pub fn stop(&self) -> (f64, f64) {
        let wall = self.wall.elapsed();
        (wall.as_secs_f64(), process_cpu().saturating_sub(self.cpu).as_secs_f64())
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
        assert!(run.knows_only(&["tokens"]).is_err());
        assert_eq!(run.number("colour", 0), Ok(3));
        assert!(run.text("colour", "").is_err());
    }
}
