//! fio's `--output-format=json+`, of one job or of one group reported as one.

use serde_json::Value;

use super::{number, object};
use crate::{error::ReadError, tail::Counted};

const TOOL: &str = "fio";

/// What one job did.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// fio's own version, `fio-3.33`.
    pub version: String,
    /// The first error number of the job; 0 is none.
    pub error: i64,
    /// What was read.
    pub read: Side,
    /// What was written.
    pub write: Side,
    /// Whether the asked-for steady state was reached; `None` where none was asked for.
    pub steady: Option<bool>,
    /// Reads and writes that the block devices beneath counted meanwhile, merged ones included.
    pub device: Option<Device>,
}

/// One direction of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// Operations that ended.
    pub ios: u64,
    /// Operations in a second.
    pub per_s: f64,
    /// Bytes in a second.
    pub bytes_per_s: f64,
    /// Mean time from submission to completion, in microseconds; `None` where it was not measured.
    pub mean_us: Option<f64>,
    /// The same times, in nanoseconds; empty where they were not measured.
    pub times_ns: Counted,
}

/// What block devices counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Reads the output of one run.
///
/// # Errors
/// When it is no JSON of fio, holds other than one job, or lacks a figure.
pub fn read(text: &str) -> Result<Job, ReadError> {
    let whole = object(TOOL, text)?;
    let jobs = whole["jobs"].as_array().ok_or(ReadError::Missing { tool: TOOL, what: "jobs" })?;
    let [job] = jobs.as_slice() else {
        let got = jobs.len().to_string();
        return Err(ReadError::NoNumber { tool: TOOL, what: "the number of jobs", got });
    };
    Ok(Job {
        version: whole["fio version"].as_str().unwrap_or_default().to_owned(),
        error: job["error"].as_i64().ok_or(ReadError::Missing { tool: TOOL, what: "error" })?,
        read: side(&job["read"])?,
        write: side(&job["write"])?,
        steady: match &job["steadystate"] {
            Value::Null => None,
            told => Some(number(TOOL, "steadystate.attained", &told["attained"])? > 0.0),
        },
        device: whole["disk_util"].as_array().filter(|all| !all.is_empty()).map(|all| device(all)),
    })
}

fn side(side: &Value) -> Result<Side, ReadError> {
    let lat = &side["lat_ns"];
    let measured = lat["N"].as_u64().unwrap_or(0) > 0;
    let mut times_ns = Counted::default();
    for (value, count) in lat["bins"].as_object().into_iter().flatten() {
        let got = || format!("{value}: {count}");
        let wrong = |got| ReadError::NoNumber { tool: TOOL, what: "a bin", got };
        let value: u64 = value.parse().map_err(|_| wrong(got()))?;
        times_ns.add(value, count.as_u64().ok_or_else(|| wrong(got()))?);
    }
    Ok(Side {
        ios: number(TOOL, "total_ios", &side["total_ios"])? as u64,
        per_s: number(TOOL, "iops", &side["iops"])?,
        bytes_per_s: number(TOOL, "bw_bytes", &side["bw_bytes"])?,
        mean_us: match measured {
            true => Some(number(TOOL, "lat_ns.mean", &lat["mean"])? / 1e3),
            false => None,
        },
        times_ns,
    })
}

/// Devices are stacked (a partition's reads are its disk's), so the greatest count is taken.
fn device(all: &[Value]) -> Device {
    let most = |ios: &str, merges: &str| {
        let of = |device: &Value, name: &str| device[name].as_u64().unwrap_or(0);
        let counts = all.iter().map(|device| of(device, ios).saturating_add(of(device, merges)));
        counts.max().unwrap_or(0)
    };
    Device { reads: most("read_ios", "read_merges"), writes: most("write_ios", "write_merges") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_read_has_operations_bytes_and_no_latency_where_clocks_were_spared() {
        let job = read(include_str!("../../recorded/fio-read_iops.json")).expect("recorded");
        assert_eq!((job.error, job.steady), (0, None));
        assert!(job.version.starts_with("fio-3"));
        assert_eq!((job.read.ios, job.write.ios), (112_958, 0));
        assert!((job.read.per_s - 112_845.154_845).abs() < 1e-6);
        assert_eq!(job.read.bytes_per_s, 462_213_754.0);
        assert_eq!(job.read.mean_us, None);
        assert_eq!(job.device.expect("a disk").reads, 96_119);
    }

    #[test]
    fn latency_keeps_its_unit_and_its_tail() {
        let job = read(include_str!("../../recorded/fio-read_qd1.json")).expect("recorded");
        assert_eq!(job.steady, Some(true));
        let mean_us = job.read.mean_us.expect("measured");
        let p50_us = job.read.times_ns.quantile(0.5).expect("many") / 1e3;
        assert!((5.0..500.0).contains(&p50_us) && (5.0..500.0).contains(&mean_us));
        assert_eq!(job.read.times_ns.total(), job.read.ios);
    }

    #[test]
    fn a_steady_state_that_was_not_reached_is_told_from_one_that_was_not_asked_for() {
        let text = r#"{"jobs":[{"error":0,"steadystate":{"attained":0},
            "read":{"total_ios":1,"iops":1.0,"bw_bytes":4096},
            "write":{"total_ios":0,"iops":0.0,"bw_bytes":0}}]}"#;
        assert_eq!(read(text).expect("enough").steady, Some(false));
    }

    #[test]
    fn what_is_missing_or_no_figure_is_an_error_by_name() {
        let missing = |text| matches!(read(text), Err(ReadError::Missing { .. }));
        assert!(missing("{}") && missing(r#"{"jobs":[{}]}"#));
        assert!(missing(r#"{"jobs":[{"error":0,"read":{}}]}"#));
        assert!(matches!(read("fio: no such file"), Err(ReadError::NotJson { .. })));
        assert!(matches!(read(r#"{"jobs":[]}"#), Err(ReadError::NoNumber { .. })));
        let bins = r#"{"jobs":[{"error":0,"read":{"lat_ns":{"N":1,"bins":{"many":1}}}}]}"#;
        assert!(matches!(read(bins), Err(ReadError::NoNumber { what: "a bin", .. })));
    }
}
