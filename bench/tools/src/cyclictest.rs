//! cyclictest's `--json` with a histogram (`-h`): wake-up latency of all its threads together.

use serde_json::Value;

use crate::{error::ReadError, histogram::Histogram};

/// Wake-up latency, pooled over threads.
#[derive(Clone, Debug, PartialEq)]
pub struct WakeupLatency {
    /// The mean of all wake-ups, in microseconds.
    pub mean_us: f64,
    /// The greatest of all, in microseconds.
    pub max_us: f64,
    /// Wake-ups by latency in microseconds; those beyond the histogram are only known to be greater.
    pub times_us: Histogram,
}

/// Reads the threads of one run.
///
/// # Errors
/// When there are no threads or no wake-ups, or a thread lacks a figure.
pub fn read_wakeups(document: &Value) -> Result<WakeupLatency, ReadError> {
    let missing = |what: &str| ReadError::Missing { what: what.to_owned() };
    let threads = document["thread"].as_object().ok_or_else(|| missing("thread"))?;
    let (mut times_us, mut sum_us, mut cycles, mut max_us) = (Histogram::default(), 0.0, 0.0, 0.0);
    for thread in threads.values() {
        let number = |what: &str| {
            let number = thread[what].as_f64().filter(|number| (0.0..1e18).contains(number));
            number.ok_or_else(|| missing(what))
        };
        let wakeups = number("cycles")?;
        sum_us += number("avg")? * wakeups;
        cycles += wakeups;
        max_us = f64::max(max_us, number("max")?);
        let counted = times_us.add_bins(&thread["histogram"])?;
        times_us.add_overflow((wakeups as u64).saturating_sub(counted));
    }
    if cycles == 0.0 {
        return Err(missing("wake-up"));
    }
    Ok(WakeupLatency { mean_us: sum_us / cycles, max_us, times_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_pooled_and_what_the_histogram_lost_lies_beyond() {
        let text = include_str!("../recorded/cyclictest.json");
        let wakeups = read_wakeups(&serde_json::from_str(text).expect("JSON")).expect("recorded");
        assert_eq!(wakeups.max_us, 2675.0);
        assert!((14.0..17.0).contains(&wakeups.mean_us), "{}", wakeups.mean_us);
        assert_eq!(wakeups.times_us.total(), 4998 + 4968);
        assert!(wakeups.times_us.quantile(0.99).is_some_and(|us| us < 50.0));
        // 9,966 wake-ups leave 9.966 beyond p99.9: not ten.
        assert_eq!(wakeups.times_us.quantile(0.999), None);
    }

    #[test]
    fn no_threads_and_no_histogram_are_errors() {
        let read = |text: &str| read_wakeups(&serde_json::from_str(text).expect("JSON"));
        let missing = |text| match read(text) {
            Err(ReadError::Missing { what }) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(missing("{}"), "thread");
        assert_eq!(missing(r#"{"thread":{"0":{"cycles":1,"avg":2.0,"max":3}}}"#), "histogram");
        let idle = r#"{"thread":{"0":{"cycles":0,"avg":0,"max":0,"histogram":{}}}}"#;
        assert_eq!(missing(idle), "wake-up");
        assert_eq!(missing(r#"{"thread":{}}"#), "wake-up");
    }
}
