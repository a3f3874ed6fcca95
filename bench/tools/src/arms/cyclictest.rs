//! cyclictest: how late a timer wakes a thread, with nothing beside it or with a load.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use confide_arm_line::{Report, Run};
use confide_tools::cyclictest;
use serde_json::json;

use super::{Outcome, Threads, ToolHello, Watch, metric, output, version};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// As many threads as there are CPUs walk through memory meanwhile
    #[arg(long)]
    load: bool,
    /// Where its results are written for a moment
    #[arg(long)]
    folder: PathBuf,
}

/// The histogram ends here, in microseconds; what is later counts as later.
const HISTOGRAM_US: &str = "20000";
/// Priority of its threads where that is allowed, above everything of a usual machine.
const PRIORITY: &str = "80";
/// A loading thread's memory: beyond the second cache.
const LOAD_BYTES: usize = 8 << 20;

pub(crate) fn run(args: &Args) -> Outcome {
    let threads = Threads::All.count();
    let version = version(Command::new("cyclictest").arg("--version"));
    let allowed = may_be_first();
    let (what, beside) = match args.load {
        true => ("cyclictest beside a load", format!("{threads} threads walk through memory")),
        false => ("cyclictest", "nothing".to_owned()),
    };
    let class = match allowed {
        true => "real-time priority 80",
        false => "usual priority: CAP_SYS_NICE is missing",
    };
    let note = format!("{threads} threads, {class}; beside them {beside}; the system as it is");
    ToolHello::new(what.to_owned(), version, threads).note(note).speak(|run| {
        run.knows_only(&["seconds", "interval_us"])?;
        match args.load {
            true => loaded(threads, || woken(args, run, allowed)),
            false => woken(args, run, allowed),
        }
    })
}

fn woken(args: &Args, run: &Run, allowed: bool) -> Outcome<Report> {
    let (seconds, interval_us) = (run.number("seconds", 2)?, run.number("interval_us", 200)?);
    let file = args.folder.join(format!(".cyclictest-{}.json", std::process::id()));
    let mut command = Command::new("cyclictest");
    command
        .args(["--quiet", "--default-system", "--mlockall", "--threads", "--affinity"])
        .args(["--duration", &seconds.to_string(), "--interval", &interval_us.to_string()])
        .args(["--histogram", HISTOGRAM_US])
        .arg(format!("--json={}", file.display()));
    match allowed {
        true => command.args(["--priority", PRIORITY]),
        false => command.args(["--policy", "other"]),
    };
    let watch = Watch::start();
    let ran = output(&mut command);
    let text = fs::read_to_string(&file);
    let _ = fs::remove_file(&file);
    ran?;
    let mut report = watch.report();
    fill_report(
        &mut report,
        &text.map_err(|error| format!("cyclictest wrote no results: {error}"))?,
    )?;
    if !allowed {
        report.marks.push("without real-time priority".to_owned());
    }
    Ok(report)
}

fn fill_report(report: &mut Report, text: &str) -> Outcome {
    let wakeups = cyclictest::read(text).map_err(|error| error.to_string())?;
    metric(report, "wakeup_us", Some(wakeups.mean_us));
    for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let time_us = wakeups.times_us.quantile(q);
        metric(report, &format!("wakeup_{name}_us"), time_us);
    }
    metric(report, "wakeup_max_us", Some(wakeups.max_us));
    report.answer = json!({ "threads": wakeups.threads });
    Ok(())
}

/// Does `work` while so many threads walk through memory.
fn loaded<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut memory = vec![1_u8; LOAD_BYTES];
                while !stop.load(Ordering::Relaxed) {
                    for byte in memory.iter_mut().step_by(64) {
                        *byte = byte.wrapping_mul(5).wrapping_add(1);
                    }
                    std::hint::black_box(&memory);
                }
            });
        }
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

/// Whether this process may give its threads real-time priority (CAP_SYS_NICE, bit 23).
fn may_be_first() -> bool {
    const CAP_SYS_NICE: u64 = 1 << 23;
    let status = fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits & CAP_SYS_NICE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_without_ten_wakeups_is_left_out() {
        let mut report = Report::default();
        fill_report(&mut report, include_str!("../../recorded/cyclictest.json")).expect("recorded");
        assert!(report.metrics.contains_key("wakeup_p99_us"));
        assert!(!report.metrics.contains_key("wakeup_p999_us"));
        assert_eq!(report.metrics["wakeup_max_us"], 2675.0);
        assert_eq!(report.answer["threads"], 2);
    }

    #[test]
    fn a_load_ends_with_the_work() {
        assert_eq!(loaded(2, || 7), 7);
    }
}
