//! Quote generation by the *simulated* attester in device mode: one lock, 39 ms a quote.
//!
//! This reproduces the shape of the report `004`, whose real device is serial. The figure says how
//! a serial device behaves under concurrency, not how fast this machine makes quotes.
//!
//! The modes `tsm-raw` and `tsm-device` ask the same simulated attester through the attester for
//! real devices and a simulated configfs-tsm tree (FUSE): the file system's part of a quote.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use crate::clock::unix_now;
use crate::version::VERSION;
use confide_arm_line::{Hello, Outcome, Report, Run, Sample, Stopwatch, serve_runs};
use confide_attester::{Tsm, TsmOptions};
use confide_evidence::ReportData;
use confide_fake_attester::{FakeAttester, FakeAttesterOptions, Mode, MountedTsm, Tee, TsmTree};
use serde_json::json;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// `device` (one lock, 39 ms a quote) or `raw` (signatures only); `tsm-device` and `tsm-raw`:
    /// the same through a configfs-tsm tree.
    #[arg(long, default_value = "device")]
    mode: String,
}

pub(crate) fn run(args: Args) -> Outcome {
    let mode = match args.mode.as_str() {
        "device" | "tsm-device" => Mode::Device,
        "raw" | "tsm-raw" => Mode::Raw,
        other => {
            return Err(format!("--mode {other}: wanted device, raw, tsm-device or tsm-raw").into());
        }
    };
    let through_tree = args.mode.starts_with("tsm");
    if through_tree {
        exec_in_mount_namespace();
    }
    let issued_at = unix_now();
    let options =
        FakeAttesterOptions { seed: [7; 32], tee: Tee::Tdx, debug: false, issued_at, mode };
    let attester = FakeAttester::new(options)?;
    let source = if through_tree {
        QuoteSource::mount(attester)?
    } else {
        QuoteSource::Direct(Box::new(attester))
    };
    let hello = Hello {
        simulated: true,
        threads: 128,
        note: Some("simulated: 39 ms a quote is the published figure of one device".into()),
        ..Hello::new(format!("simulated quoting enclave, {} mode", args.mode), VERSION)
    };
    serve_runs(&hello, |order| measure(&source, order))
}

/// The source of quotes.
enum QuoteSource {
    Direct(Box<FakeAttester>),
    Tree(Box<MountedAttester>),
}

/// The attester for real devices before a tree that is served in this process.
struct MountedAttester {
    tsm: Tsm,
    tree: Option<MountedTsm>,
    folder: PathBuf,
}

impl QuoteSource {
    fn mount(attester: FakeAttester) -> Outcome<Self> {
        let folder = env::temp_dir().join(format!("confide-arm-{}", std::process::id()));
        fs::create_dir(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let mounted = TsmTree::new(Arc::new(attester)).and_then(|tree| tree.mount(&folder));
        let tree = mounted?;
        let options = TsmOptions { root: folder.clone(), ..TsmOptions::default() };
        let tsm = Tsm::open(options)?;
        Ok(Self::Tree(Box::new(MountedAttester { tsm, tree: Some(tree), folder })))
    }

    fn quote(&self, report_data: &ReportData) -> Outcome<Vec<u8>> {
        match self {
            Self::Direct(attester) => Ok(attester.quote(report_data)),
            Self::Tree(attester) => Ok(attester.tsm.report(report_data)?.evidence),
        }
    }
}

impl Drop for MountedAttester {
    fn drop(&mut self) {
        self.tree.take();
        // An empty folder that stays behind costs nothing.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Starts this program again with mounts of its own, where that is allowed: an arm that is killed
/// then leaves no dead tree behind.
fn exec_in_mount_namespace() {
    const HIDDEN: &str = "CONFIDE_ARM_MOUNTS";
    let allowed = || {
        let mut command = Command::new("unshare");
        command.args(["-m", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if env::var_os(HIDDEN).is_none()
        && allowed()
        && let Ok(program) = env::current_exe()
    {
        let mut command = Command::new("unshare");
        command.arg("-m").arg(program).args(env::args_os().skip(1)).env(HIDDEN, "1");
        // Only a failure comes back from here, and then the mounts are seen by all.
        let _ = command.exec();
    }
}

fn measure(source: &QuoteSource, order: &Run) -> Outcome<Report> {
    order.refuse_unknown_params(&["concurrency"])?;
    let concurrency = order.integer_param_within("concurrency", 1, 1..=CALLERS_MAX)?;
    let next = AtomicU64::new(0);
    let watch = Stopwatch::start();
    let start = Instant::now();
    let samples: Outcome<Vec<Vec<Sample>>> = thread::scope(|scope| {
        let callers: Vec<_> = (0..concurrency)
            .map(|_| scope.spawn(|| request_quotes(source, order, &next, start)))
            .collect();
        callers
            .into_iter()
            .map(|caller| caller.join().map_err(|_| "a caller panicked".into()))
            .collect()
    });
    let samples = samples?.concat();
    let mut report = watch.report();
    report.answer = json!({ "quotes": samples.len() });
    report.set("rate_per_s", samples.len() as f64 / report.wall_s);
    report.samples = samples;
    Ok(report)
}

/// The greatest number of callers, each of which is a thread.
const CALLERS_MAX: u64 = 512;

/// One closed-loop caller: asks for a quote as soon as it has the last one.
fn request_quotes(
    source: &QuoteSource,
    order: &Run,
    next: &AtomicU64,
    start: Instant,
) -> Vec<Sample> {
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
        let quote = source.quote(&report_data);
        let mut sample = Sample::new([("quote_ms", asked.elapsed().as_secs_f64() * 1e3)]);
        sample.at_s = Some((asked - start).as_secs_f64());
        sample.error = match quote {
            Ok(quote) if quote.windows(64).any(|window| window == report_data.0) => None,
            Ok(_) => Some("the quote does not hold the report data".into()),
            Err(error) => Some(error.to_string()),
        };
        samples.push(sample);
    }
}
