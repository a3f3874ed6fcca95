//! Quote generation by the *simulated* attester in device mode: one lock, 39 ms a quote.
//!
//! This reproduces the shape of the report `004`, whose real device is serial. The figure says how
//! a serial device behaves under concurrency, not how fast this machine makes quotes.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use confide_arm_line::{Hello, Report, Run, Sample, Stopwatch, speak};
use confide_evidence::ReportData;
use confide_fake_attester::{FakeAttester, Mode, Options, Tee};
use serde_json::json;

use crate::Outcome;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// `device` (one lock, 39 ms a quote) or `raw` (signatures only).
    #[arg(long, default_value = "device")]
    mode: String,
}

pub(crate) fn run(args: Args) -> Outcome {
    let mode = match args.mode.as_str() {
        "device" => Mode::Device,
        "raw" => Mode::Raw,
        other => return Err(format!("--mode {other}: wanted device or raw")),
    };
    let issued_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let options = Options { seed: [7; 32], tee: Tee::Tdx, debug: false, issued_at, mode };
    let attester = FakeAttester::new(options).map_err(|error| error.to_string())?;
    let hello = Hello {
        arm: format!("simulated quoting enclave, {} mode", args.mode),
        version: format!("confide {}", env!("CARGO_PKG_VERSION")),
        simulated: true,
        guarantee: None,
        threads: 128,
        note: Some("simulated: 39 ms a quote is the published figure of one device".into()),
    };
    speak(&hello, |order| generate(&attester, order)).map_err(|error| error.to_string())
}

fn generate(attester: &FakeAttester, order: &Run) -> Outcome<Report> {
    order.knows_only(&["concurrency"])?;
    let concurrency = order.number("concurrency", 1)?;
    if concurrency == 0 || concurrency > CALLERS_MAX {
        return Err(format!("param concurrency: wanted 1 to {CALLERS_MAX}, got {concurrency}"));
    }
    let next = AtomicU64::new(0);
    let watch = Stopwatch::start();
    let start = Instant::now();
    let samples: Outcome<Vec<Vec<Sample>>> = thread::scope(|scope| {
        let callers: Vec<_> =
            (0..concurrency).map(|_| scope.spawn(|| call(attester, order, &next, start))).collect();
        callers
            .into_iter()
            .map(|caller| caller.join().map_err(|_| "a caller died".to_string()))
            .collect()
    });
    let samples = samples?.concat();
    let (wall_s, cpu_s) = watch.stop();
    let mut report = Report { wall_s, cpu_s, ..Report::default() };
    report.answer = json!({ "quotes": samples.len() });
    report.metrics.insert("rate_per_s".into(), json!(samples.len() as f64 / wall_s));
    report.samples = samples;
    Ok(report)
}

/// More callers than this would need more stacks than the seed's table has rows.
const CALLERS_MAX: u64 = 512;

/// One closed-loop caller: asks for a quote as soon as it has the last one.
fn call(attester: &FakeAttester, order: &Run, next: &AtomicU64, start: Instant) -> Vec<Sample> {
    let mut samples = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= order.requests {
            return samples;
        }
        let mut report_data = ReportData::ZERO;
        report_data.0[..8].copy_from_slice(&order.seed.to_le_bytes());
        report_data.0[8..16].copy_from_slice(&number.to_le_bytes());
        let asked = Instant::now();
        let quote = attester.quote(&report_data);
        let mut sample = Sample { at_s: Some((asked - start).as_secs_f64()), ..Sample::default() };
        let quote_ms = asked.elapsed().as_secs_f64() * 1e3;
        sample.metrics.insert("quote_ms".into(), json!(quote_ms));
        if !quote.windows(64).any(|window| window == report_data.0) {
            sample.error = Some("the quote does not hold the report data".into());
        }
        samples.push(sample);
    }
}
