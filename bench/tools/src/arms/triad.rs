//! Bandwidth of memory: a[i] = b[i] + s * c[i], bytes counted as STREAM counts them.

use std::{hint::black_box, sync::Barrier, thread, time::Instant};

use confide_arm_line::{Hello, Outcome, Report, Sample, serve_runs};
use serde_json::json;

use super::{
    memory::{affordable_bytes, huge_page_mode, last_level_cache_bytes},
    process::{Stopwatch, Threads, unoptimised_build_mark},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Threads, each with a part of the arrays: a number, or all
    #[arg(long, default_value = "1")]
    threads: Threads,
}

/// STREAM's rule: each array at least four times the last cache.
const TIMES_LAST_CACHE: u64 = 4;
/// Bytes of an element of each of the three arrays: two are read, one is written.
const ELEMENT_BYTES: u64 = 8;
const ARRAYS: u64 = 3;
const SCALE: f64 = 3.0;
const B: f64 = 2.0;
const C: f64 = 0.5;
const MIB: f64 = 1_048_576.0;

pub(crate) fn run(args: &Args) -> Outcome {
    let threads = args.threads.count();
    let (cache, is_known) = last_level_cache_bytes();
    let wanted = cache.saturating_mul(TIMES_LAST_CACHE * ARRAYS);
    let bytes = affordable_bytes(wanted);
    let elements = (bytes / ARRAYS / ELEMENT_BYTES) as usize / threads;
    let array_mib = (bytes / ARRAYS) >> 20;
    let from = if is_known { "reported by the kernel" } else { "assumed" };
    let note = format!(
        "three arrays of {array_mib} MiB, last cache {} MiB ({from}); {}; scalar code of the compiler",
        cache >> 20,
        huge_page_mode()
    );
    let mut parts: Vec<ArrayPart> = Vec::new();
    let hello = Hello {
        threads,
        warming: false,
        note: Some(note),
        ..Hello::new(format!("triad, {threads} threads"), env!("CARGO_PKG_VERSION"))
    };
    serve_runs(&hello, |run| {
        run.refuse_unknown_params(&[])?;
        // Each thread touches its own part first, so that it lies near it.
        if parts.is_empty() {
            parts = ArrayPart::allocate(threads, elements)?;
        }
        let mut report = measure_passes(&mut parts, run.requests);
        if bytes < wanted {
            report.marks.push("arrays smaller than four times the last cache".to_owned());
        }
        Ok(report)
    })
}

/// The part of the three arrays that one thread works on.
struct ArrayPart {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl ArrayPart {
    fn allocate(threads: usize, elements: usize) -> Outcome<Vec<Self>> {
        thread::scope(|scope| {
            let all: Vec<_> =
                (0..threads).map(|_| scope.spawn(move || Self::new(elements))).collect();
            let made =
                all.into_iter().map(|part| part.join().map_err(|_| "a thread panicked".into()));
            made.collect()
        })
    }

    fn new(elements: usize) -> Self {
        Self { a: vec![1.0; elements], b: vec![B; elements], c: vec![C; elements] }
    }

    fn triad(&mut self) {
        let scale = black_box(SCALE);
        for ((a, b), c) in self.a.iter_mut().zip(&self.b).zip(&self.c) {
            *a = b + scale * c;
        }
        black_box(&self.a);
    }

    /// Whether every element has its right value; then clears all, so that the next pass proves itself.
    fn check_and_clear(&mut self) -> bool {
        let right = self.a.iter().all(|a| *a == B + SCALE * C);
        self.a.fill(0.0);
        right
    }
}

/// Measures `count` passes: all threads start each together, and it ends with the last of them.
fn measure_passes(parts: &mut [ArrayPart], count: u64) -> Report {
    let watch = Stopwatch::start();
    let elements: usize = parts.iter().map(|part| part.a.len()).sum();
    let bytes = elements as f64 * (ELEMENT_BYTES * ARRAYS) as f64;
    let barrier = Barrier::new(parts.len() + 1);
    let (mut samples, mut checked) = (Vec::new(), true);
    for _ in 0..count {
        let mut began = Instant::now();
        let mut ended = began;
        thread::scope(|scope| {
            for part in parts.iter_mut() {
                scope.spawn(|| {
                    barrier.wait();
                    part.triad();
                    barrier.wait();
                });
            }
            barrier.wait();
            began = Instant::now();
            barrier.wait();
            ended = Instant::now();
        });
        let seconds = (ended - began).as_secs_f64().max(1e-9);
        samples.push(Sample::new([("triad_mib_per_s", bytes / MIB / seconds)]));
        checked &= parts.iter_mut().all(ArrayPart::check_and_clear);
    }
    let mut report = Report { samples, ..watch.report() };
    report.marks.extend(unoptimised_build_mark());
    report.answer = json!({ "checked": checked });
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_is_checked_on_one_thread_and_on_three() {
        for threads in [1, 3] {
            let mut parts: Vec<ArrayPart> = (0..threads).map(|_| ArrayPart::new(1000)).collect();
            let report = measure_passes(&mut parts, 2);
            assert_eq!(report.samples.len(), 2);
            assert_eq!(report.answer["checked"], true);
            let rate = report.samples[0].metrics["triad_mib_per_s"].as_f64();
            assert!(rate.is_some_and(|rate| rate > 0.0));
        }
    }

    #[test]
    fn a_pass_that_left_out_an_element_is_seen() {
        let mut part = ArrayPart::new(10);
        part.triad();
        part.a[9] = 0.0;
        assert!(!part.check_and_clear());
        part.triad();
        assert!(part.check_and_clear() && part.a[0] == 0.0);
    }
}
