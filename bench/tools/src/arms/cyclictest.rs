//! cyclictest: how late a timer wakes a thread, alone or next to a load.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use confide_arm_line::{Hello, Outcome, Report, Run, serve_runs};
use confide_tools::{QUANTILES, ToolOutput, cyclictest};

use super::{process::Threads, tool::ToolArm};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Load memory meanwhile, with as many threads as there are CPUs
    #[arg(long)]
    load: bool,
    /// Folder in which its results are written for a moment
    #[arg(long)]
    folder: PathBuf,
}

/// A loading thread's memory: beyond the second cache.
const LOAD_BYTES: usize = 8 << 20;

pub(crate) fn run(args: &Args) -> Outcome {
    let threads = Threads::All.count();
    let (beside, load) = if args.load {
        (" beside a load", format!("{threads} threads walk through memory"))
    } else {
        ("", "nothing".to_owned())
    };
    let (priority, class) = if has_sys_nice() {
        ("real-time", "real-time priority 80")
    } else {
        ("usual", "usual priority: CAP_SYS_NICE is missing")
    };
    let arm = ToolArm::new("cyclictest", threads)?
        .with_setting("beside", beside)
        .with_setting("priority", priority);
    let arm = arm.with_folder(args.folder.clone());
    let note = format!("{threads} threads, {class}; beside them {load}; the system as it is");
    serve_runs(&Hello { note: Some(note), ..arm.hello()? }, |run| {
        if args.load { run_under_load(threads, || measure(&arm, run)) } else { measure(&arm, run) }
    })
}

fn measure(arm: &ToolArm, run: &Run) -> Outcome<Report> {
    let (mut report, readings) = arm.measure(&arm.prepare_run(run)?)?;
    for reading in &readings {
        fill_report(&mut report, reading)?;
    }
    Ok(report)
}

fn fill_report(report: &mut Report, reading: &ToolOutput) -> Outcome {
    let wakeups = cyclictest::read_wakeups(&reading.document)
        .map_err(|error| format!("cyclictest: {error}"))?;
    report.set("wakeup_us", wakeups.mean_us);
    for (name, q) in QUANTILES {
        if let Some(time_us) = wakeups.times_us.quantile(q) {
            report.set(&format!("wakeup_{name}_us"), time_us);
        }
    }
    report.set("wakeup_max_us", wakeups.max_us);
    Ok(())
}

/// Does the work while `threads` threads walk through memory.
fn run_under_load<T>(threads: usize, work: impl FnOnce() -> T) -> T {
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
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Whether this process may give its threads real-time priority (CAP_SYS_NICE, bit 23).
fn has_sys_nice() -> bool {
    const CAP_SYS_NICE: u64 = 1 << 23;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits & CAP_SYS_NICE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_without_ten_wakeups_is_left_out() {
        let document = serde_json::from_str(include_str!("../../recorded/cyclictest.json"));
        let reading = ToolOutput { document: document.expect("JSON"), ..ToolOutput::default() };
        let mut report = Report::default();
        fill_report(&mut report, &reading).expect("recorded");
        assert!(report.metrics.contains_key("wakeup_p99_us"));
        assert!(!report.metrics.contains_key("wakeup_p999_us"));
        assert_eq!(report.metrics["wakeup_max_us"], 2675.0);
    }

    #[test]
    fn a_load_ends_with_the_work() {
        assert_eq!(run_under_load(2, || 7), 7);
    }
}
