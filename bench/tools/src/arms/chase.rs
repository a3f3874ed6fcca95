//! Latency of memory: a walk along one random cycle through every line of a buffer.

use std::{hint::black_box, time::Instant};

use confide_arm_line::{Hello, Outcome, Report, Sample, serve_runs};
use serde_json::json;

use super::{
    memory::{affordable_bytes, huge_page_mode, last_level_cache_bytes},
    process::{Stopwatch, unoptimised_build_mark},
};

#[derive(clap::Args)]
pub(crate) struct Args {}

/// A cache line, which holds one step of the walk.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct CacheLine {
    next: u32,
}

const LINE_BYTES: u64 = 64;
/// Far beyond the last cache, yet made in a second.
const MEMORY_BYTES_MAX: u64 = 512 << 20;
const TIMES_LAST_CACHE: u64 = 4;
/// Inside the first cache of every machine.
const FIRST_CACHE_BYTES: u64 = 16 << 10;
/// Steps of a sample, about: a short cycle is walked again until they are made.
const STEPS: usize = 1 << 21;

pub(crate) fn run(_: &Args) -> Outcome {
    let (cache, is_known) = last_level_cache_bytes();
    let wanted = cache.saturating_mul(TIMES_LAST_CACHE);
    let memory = affordable_bytes(wanted.min(MEMORY_BYTES_MAX));
    let from = if is_known { "reported by the kernel" } else { "assumed" };
    let note = format!(
        "one random cycle through {} MiB (memory) or 16 KiB (first cache), last cache {} MiB \
         ({from}); {}",
        memory >> 20,
        cache >> 20,
        huge_page_mode()
    );
    let mut current: Option<(String, Vec<CacheLine>)> = None;
    let hello = Hello {
        warming: false,
        note: Some(note),
        ..Hello::new("chase", env!("CARGO_PKG_VERSION"))
    };
    serve_runs(&hello, |run| {
        run.refuse_unknown_params(&["place"])?;
        let place = run.text_param("place", "memory")?;
        let bytes = match place.as_str() {
            "memory" => memory,
            "first cache" => FIRST_CACHE_BYTES,
            other => {
                return Err(
                    format!("param place: wanted memory or first cache, got {other}").into()
                );
            }
        };
        if current.as_ref().is_none_or(|(built, _)| *built != place) {
            current = Some((place.clone(), make_cycle((bytes / LINE_BYTES) as usize, run.seed)));
        }
        let lines = current.as_ref().map_or(&[][..], |(_, lines)| lines);
        let mut report = measure_walks(lines, run.requests);
        if place == "memory" && memory < cache.saturating_mul(2) {
            report.marks.push("buffer smaller than twice the last cache".to_owned());
        }
        Ok(report)
    })
}

/// A permutation of one cycle through all lines (Sattolo 1986).
fn make_cycle(lines: usize, seed: u64) -> Vec<CacheLine> {
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut state = seed;
    for last in (1..lines).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The upper bits: the lower ones of such a generator repeat.
        let other = ((state >> 33) as usize) % last;
        order.swap(last, other);
    }
    order.into_iter().map(|next| CacheLine { next }).collect()
}

/// Measures `count` samples of whole cycles: a walk that skipped a step does not end where it began.
fn measure_walks(lines: &[CacheLine], count: u64) -> Report {
    let watch = Stopwatch::start();
    let rounds = (STEPS / lines.len().max(1)).max(1);
    let steps = rounds * lines.len();
    let (mut samples, mut closed) = (Vec::new(), true);
    for _ in 0..count {
        let began = Instant::now();
        let end = walk(lines, steps);
        let elapsed = began.elapsed();
        closed &= end == 0;
        let step_ns = elapsed.as_secs_f64() * 1e9 / steps.max(1) as f64;
        samples.push(Sample::new([("chase_ns", step_ns)]));
    }
    let mut report = Report { samples, ..watch.report() };
    report.marks.extend(unoptimised_build_mark());
    report.answer = json!({ "closed": closed });
    report
}

/// The line that `steps` steps reach from the first one.
fn walk(lines: &[CacheLine], steps: usize) -> u32 {
    let mut at = 0_u32;
    for _ in 0..steps {
        at = lines.get(at as usize).map_or(0, |line| line.next);
    }
    black_box(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_visits_every_line_once() {
        for lines in [1, 2, 3, 256, 1000] {
            let made = make_cycle(lines, 7);
            let mut seen = vec![false; lines];
            for steps in 0..lines {
                let at = walk(&made, steps) as usize;
                assert!(!seen[at], "{lines} lines, {steps} steps");
                seen[at] = true;
            }
            assert_eq!(walk(&made, lines), 0);
        }
    }

    #[test]
    fn a_walk_is_proved_by_where_it_ends() {
        let report = measure_walks(&make_cycle(64, 3), 2);
        assert_eq!((report.samples.len(), &report.answer["closed"]), (2, &json!(true)));
        let broken: Vec<CacheLine> = (0..64).map(|_| CacheLine { next: 1 }).collect();
        assert_eq!(measure_walks(&broken, 1).answer["closed"], false);
    }

    #[test]
    fn a_line_is_a_line_of_a_cache() {
        assert_eq!(size_of::<CacheLine>() as u64, LINE_BYTES);
    }
}
