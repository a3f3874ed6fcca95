//! cyclictest's `--json` with a histogram (`-h`).

use serde_json::Value;

use super::{number, object};
use crate::{error::ReadError, tail::Counted};

const TOOL: &str = "cyclictest";

/// Wake-up latency of all its threads together.
#[derive(Clone, Debug, PartialEq)]
pub struct Wakeups {
    /// Version of rt-tests.
    pub version: String,
    /// Threads.
    pub threads: usize,
    /// Whether the kernel is a real-time one (PREEMPT_RT).
    pub realtime_kernel: bool,
    /// Wake-ups, weighted over threads, in microseconds.
    pub mean_us: f64,
    /// The greatest of all.
    pub max_us: f64,
    /// How often each latency in microseconds; what lay beyond the histogram is known as beyond.
    pub times_us: Counted,
}

/// Reads the output file of one run.
///
/// # Errors
/// When it is no JSON of cyclictest or lacks a figure.
pub fn read(text: &str) -> Result<Wakeups, ReadError> {
    let whole = object(TOOL, text)?;
    let threads = whole["thread"].as_object().filter(|threads| !threads.is_empty());
    let threads = threads.ok_or(ReadError::Missing { tool: TOOL, what: "thread" })?;
    let (mut times_us, mut sum_us, mut cycles, mut max_us) = (Counted::default(), 0.0, 0.0, 0.0);
    for thread in threads.values() {
        let woken = number(TOOL, "cycles", &thread["cycles"])?;
        sum_us += number(TOOL, "avg", &thread["avg"])? * woken;
        cycles += woken;
        max_us = f64::max(max_us, number(TOOL, "max", &thread["max"])?);
        let counted = counts(&thread["histogram"], &mut times_us)?;
        times_us.add_beyond((woken as u64).saturating_sub(counted));
    }
    if cycles == 0.0 {
        return Err(ReadError::Missing { tool: TOOL, what: "wake-up" });
    }
    let version = whole["rt_test_version:"].as_str().or(whole["rt_test_version"].as_str());
    Ok(Wakeups {
        version: version.unwrap_or_default().to_owned(),
        threads: threads.len(),
        realtime_kernel: whole["sysinfo"]["realtime"].as_u64().unwrap_or(0) > 0,
        mean_us: sum_us / cycles,
        max_us,
        times_us,
    })
}

/// Adds a thread's histogram; returns how many wake-ups it holds.
fn counts(histogram: &Value, times_us: &mut Counted) -> Result<u64, ReadError> {
    let missing = ReadError::Missing { tool: TOOL, what: "histogram" };
    let mut counted = 0_u64;
    for (value, count) in histogram.as_object().ok_or(missing)? {
        let wrong = || ReadError::NoNumber {
            tool: TOOL,
            what: "a bin",
            got: super::excerpt(&format!("{value}: {count}")),
        };
        let count = count.as_u64().ok_or_else(wrong)?;
        times_us.add(value.parse().map_err(|_| wrong())?, count);
        counted = counted.saturating_add(count);
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_pooled_and_what_the_histogram_lost_lies_beyond() {
        let wakeups = read(include_str!("../../recorded/cyclictest.json")).expect("recorded");
        assert_eq!((wakeups.threads, wakeups.realtime_kernel), (2, false));
        assert_eq!(wakeups.max_us, 2675.0);
        assert!((14.0..17.0).contains(&wakeups.mean_us), "{}", wakeups.mean_us);
        assert_eq!(wakeups.times_us.total(), 4998 + 4968);
        assert!(wakeups.times_us.quantile(0.99).is_some_and(|us| us < 50.0));
        // 9,966 wake-ups leave 9.966 beyond p99.9: not ten.
        assert_eq!(wakeups.times_us.quantile(0.999), None);
    }

    #[test]
    fn no_threads_and_no_histogram_are_errors() {
        assert!(matches!(read("{}"), Err(ReadError::Missing { .. })));
        let bare = r#"{"thread":{"0":{"cycles":1,"avg":2.0,"max":3}}}"#;
        assert!(matches!(read(bare), Err(ReadError::Missing { what: "histogram", .. })));
        let none = r#"{"thread":{"0":{"cycles":0,"avg":0,"max":0,"histogram":{}}}}"#;
        assert!(matches!(read(none), Err(ReadError::Missing { what: "wake-up", .. })));
    }
}
