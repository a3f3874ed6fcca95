//! The arms, and what they share: a hello, a tool that is run to its end, how many threads.

pub(crate) mod chase;
pub(crate) mod cyclictest;
pub(crate) mod disk;
pub(crate) mod fio;
pub(crate) mod iperf3;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod openssl;
pub(crate) mod seven_zip;
pub(crate) mod stress_ng;
pub(crate) mod triad;

use std::{
    fs,
    process::{Command, Output, Stdio},
    time::Instant,
};

use confide_arm_line::{Hello, Report, Run, speak};
use serde::Serialize;
use serde_json::json;

/// What these programs fail with: a text for the person who reads the arm's log.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// A hello of an arm that starts its tool anew for every run, so that nothing is to be warmed.
#[derive(Serialize)]
pub(crate) struct ToolHello {
    #[serde(flatten)]
    hello: Hello,
    warming: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cannot: Option<String>,
}

impl ToolHello {
    /// `arm` is what it is for people, `version` that of the tool.
    pub(crate) fn new(arm: String, version: String, threads: usize) -> Self {
        let hello = Hello { arm, version, simulated: false, guarantee: None, threads, note: None };
        Self { hello, warming: false, cannot: None }
    }

    /// With what a reader must know.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.hello.note = Some(note.into());
        self
    }

    /// Says that the arm cannot work here, and why.
    pub(crate) fn cannot(mut self, why: Option<String>) -> Self {
        self.cannot = why;
        self
    }

    /// Speaks the protocol until the harness ends it.
    pub(crate) fn speak(self, work: impl FnMut(&Run) -> Outcome<Report>) -> Outcome {
        speak(&self, work).map_err(|error| error.to_string())
    }
}

/// So many threads, or as many as there are CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    All,
    Some(usize),
}

impl std::str::FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Outcome<Self> {
        match text.parse() {
            _ if text == "all" => Ok(Self::All),
            Ok(count) if count > 0 => Ok(Self::Some(count)),
            _ => Err(format!("wanted all or a number above 0, got {text}")),
        }
    }
}

impl Threads {
    /// The number here. Affinity and cgroup limits count.
    pub(crate) fn count(self) -> usize {
        match self {
            Self::All => std::thread::available_parallelism().map_or(1, usize::from),
            Self::Some(count) => count,
        }
    }
}

/// Wall clock and CPU seconds of this process and of the children that it has waited for.
pub(crate) struct Watch {
    wall: Instant,
    cpu_s: f64,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self { cpu_s: cpu_s(), wall: Instant::now() }
    }

    /// A report with both times since the start.
    pub(crate) fn report(&self) -> Report {
        let wall_s = self.wall.elapsed().as_secs_f64();
        Report { wall_s, cpu_s: (cpu_s() - self.cpu_s).max(0.0), ..Report::default() }
    }
}

/// User and system time of this process and its ended children, from /proc, in steps of 10 ms.
fn cpu_s() -> f64 {
    const TICKS_PER_S: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold anything; after it the fields are numbers.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(4);
    ticks.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_S
}

/// Runs a tool to its end; the error shows its last words.
pub(crate) fn output(command: &mut Command) -> Outcome<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        // Points, commas and words of the reader's language are nothing a parser should see.
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    match output.status.success() {
        true => Ok(output),
        false => Err(format!("{name}: {}: {}", output.status, last_words(&output))),
    }
}

/// What a tool printed on standard output.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The last line of standard error, else of standard output.
fn last_words(output: &Output) -> String {
    let last = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let line = text.lines().rev().find(|line| !line.trim().is_empty());
        line.map(|line| line.trim().chars().take(200).collect::<String>())
    };
    last(&output.stderr).or_else(|| last(&output.stdout)).unwrap_or("no output".to_owned())
}

/// The first line that a tool prints of its version, `-` where it prints none.
pub(crate) fn version(command: &mut Command) -> String {
    let printed = command.stdin(Stdio::null()).output();
    let text = printed.map(|output| {
        let (out, err) = (stdout(&output), String::from_utf8_lossy(&output.stderr).into_owned());
        format!("{out}\n{err}")
    });
    let text = text.unwrap_or_default();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("-");
    line.chars().take(80).collect()
}

/// Of figures that our own code makes: what they are worth where the compiler was told not to try.
pub(crate) fn unoptimised() -> Option<String> {
    cfg!(debug_assertions)
        .then(|| "built without optimisation: no figure of this machine".to_owned())
}

/// Adds a figure; one that cannot be had is left out, never 0.
pub(crate) fn metric(report: &mut Report, name: &str, value: Option<f64>) {
    if let Some(value) = value {
        report.metrics.insert(name.to_owned(), json!(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_a_number_or_all() {
        assert_eq!("all".parse(), Ok(Threads::All));
        assert_eq!("4".parse(), Ok(Threads::Some(4)));
        assert!("0".parse::<Threads>().is_err() && "some".parse::<Threads>().is_err());
        assert!(Threads::All.count() >= 1);
    }

    #[test]
    fn children_that_were_waited_for_count_as_cpu_time() {
        let watch = Watch::start();
        let loop_ = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        output(Command::new("sh").args(["-c", loop_])).expect("a shell");
        let report = watch.report();
        assert!(report.cpu_s > 0.0 && report.wall_s > 0.0);
    }

    #[test]
    fn a_tool_that_fails_is_quoted() {
        let error = output(Command::new("sh").args(["-c", "echo sorry >&2; exit 3"]));
        assert!(error.is_err_and(|text| text.contains("sorry") && text.contains('3')));
        assert!(output(&mut Command::new("no-such-program")).is_err());
        assert_eq!(version(&mut Command::new("no-such-program")), "-");
    }
}
