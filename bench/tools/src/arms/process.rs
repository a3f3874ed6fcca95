//! Programs that are run to their end, and the time that they take.

use std::{
    fs,
    process::{Command, Output, Stdio},
    time::Instant,
};

use confide_arm_line::{Outcome, Report};

/// A number of threads or processes, or as many as there are CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    All,
    Number(usize),
}

impl std::str::FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "all" => Ok(Self::All),
            Ok(count) if count > 0 => Ok(Self::Number(count)),
            _ => Err(format!("wanted all or a number above 0, got {text}")),
        }
    }
}

impl Threads {
    /// The number on this machine; affinity and cgroup limits count.
    pub(crate) fn count(self) -> usize {
        match self {
            Self::All => std::thread::available_parallelism().map_or(1, usize::from),
            Self::Number(count) => count,
        }
    }
}

/// Wall clock and CPU seconds of this process and of the children that it has waited for.
pub(crate) struct Stopwatch {
    wall: Instant,
    cpu_s: f64,
}

impl Stopwatch {
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
    /// `USER_HZ` of Linux on every machine that this runs on.
    const TICKS_PER_S: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold anything; after it the fields are numbers.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(4);
    ticks.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_S
}

/// Fails unless a program ended with status 0; the error quotes the last line that it printed.
pub(crate) fn check_status(name: &str, output: &Output) -> Outcome {
    if output.status.success() {
        return Ok(());
    }
    let last_line = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let line = text.lines().rev().find(|line| !line.trim().is_empty());
        line.map(|line| line.trim().chars().take(200).collect::<String>())
    };
    let words = last_line(&output.stderr).or_else(|| last_line(&output.stdout));
    Err(format!("{name}: {}: {}", output.status, words.unwrap_or("no output".into())).into())
}

/// The first line that a program prints of its version, `-` where it prints none.
pub(crate) fn read_program_version(program: &str, arguments: &[String]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let text = output.map(|output| [output.stdout, b"\n".to_vec(), output.stderr].concat());
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("-");
    line.chars().take(80).collect()
}

/// A mark for figures that our own code makes, where the compiler was told not to optimise.
pub(crate) fn unoptimised_build_mark() -> Option<String> {
    cfg!(debug_assertions).then(|| {
        "built without optimisation: its figures say nothing about this machine".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use confide_arm_line::spawn;

    use super::*;

    fn run_shell(script: &str) -> Outcome {
        let child = spawn(Command::new("sh").stderr(Stdio::piped()).args(["-c", script]))?;
        check_status("sh", &child.wait_with_output()?)
    }

    #[test]
    fn threads_are_a_number_or_all() {
        assert_eq!("all".parse(), Ok(Threads::All));
        assert_eq!("4".parse(), Ok(Threads::Number(4)));
        assert!("0".parse::<Threads>().is_err() && "some".parse::<Threads>().is_err());
        assert!(Threads::All.count() >= 1);
    }

    #[test]
    fn children_that_were_waited_for_count_as_cpu_time() {
        let watch = Stopwatch::start();
        run_shell("i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done").expect("a shell");
        let report = watch.report();
        assert!(report.cpu_s > 0.0 && report.wall_s > 0.0);
    }

    #[test]
    fn a_tool_that_fails_is_quoted() {
        let error = run_shell("echo sorry >&2; exit 3").unwrap_err().to_string();
        assert!(error.contains("sorry") && error.contains('3'), "{error}");
        assert!(spawn(&mut Command::new("no-such-program")).is_err());
        assert_eq!(read_program_version("no-such-program", &[]), "-");
        assert!(read_program_version("sh", &["-c".into(), "echo 1".into()]) == "1");
    }
}
