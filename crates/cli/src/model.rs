//! `confide model`.

use std::{
    io::{IsTerminal, Write},
    ops::ControlFlow,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::{Subcommand, builder::PossibleValuesParser};
use confide_native::{
    NativeError,
    make::{Order, Progress, Shape, make},
    manifest,
};

use crate::{
    error::{CliError, read_file},
    process,
};

/// Makes models locally, from a seed.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a model: `tiny` is trained here, the others have random weights of the true shape.
    Make(MakeArgs),
}

#[derive(clap::Args)]
struct MakeArgs {
    /// Which model.
    #[arg(long, value_parser = PossibleValuesParser::new(Shape::ALL.map(Shape::name)))]
    shape: String,
    /// Which weights: the same seed gives the same files on the same machine.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Folder to make; it must not be there, or be empty.
    dir: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Make(args) => run_make(args),
    }
}

fn run_make(args: MakeArgs) -> Result<ExitCode, CliError> {
    let named = Shape::ALL.into_iter().find(|shape| shape.name() == args.shape);
    let shape = named.ok_or_else(|| CliError::new(format!("no shape {}", args.shape)))?;
    let order = Order { shape, seed: args.seed, dir: args.dir, steps: None };
    let stopped = stop_flag()?;
    let mut meter = Meter::new();
    let made = make(&order, &mut |progress| {
        meter.show(progress);
        match stopped.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    meter.end();
    let dir = order.dir.display();
    let manifest = made.map_err(|error| match error {
        NativeError::Cancelled => CliError::new("stopped; nothing was left behind").status(130),
        NativeError::Exists { .. } => CliError::new(error).hint("take another folder"),
        other => CliError::new(other),
    })?;
    println!(
        "{dir}: {} weights of shape {}, {}",
        manifest.parameters, manifest.shape, manifest.weights
    );
    println!("manifest sha256 {}", digest(&order.dir.join(manifest::FILE_NAME))?);
    println!("serve it: confide serve --engine native --model {dir}");
    Ok(ExitCode::SUCCESS)
}

/// A flag that SIGINT and SIGTERM raise; the maker looks at it and cleans up.
fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new(format!("cannot watch for signals: {error}")))?;
    std::thread::spawn(move || {
        runtime.block_on(async { process::asked_to_stop().await });
        raised.store(true, Ordering::Relaxed);
    });
    Ok(flag)
}

fn digest(path: &std::path::Path) -> Result<String, CliError> {
    use sha2::Digest;
    const MANIFEST_BYTES_MAX: u64 = 1 << 20;
    Ok(hex::encode(sha2::Sha256::digest(read_file(path, MANIFEST_BYTES_MAX)?)))
}

/// One line on a terminal that is written over; a line every ten seconds elsewhere.
struct Meter {
    start: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Meter {
    fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { start: Instant::now(), shown: None, terminal }
    }

    fn show(&mut self, progress: Progress) {
        let between = Duration::from_millis(if self.terminal { 100 } else { 10_000 });
        if self.shown.is_some_and(|shown| shown.elapsed() < between) {
            return;
        }
        self.shown = Some(Instant::now());
        let (what, share) = match progress {
            Progress::Training { step, steps, loss } => {
                (format!("training: step {step} of {steps}, loss {loss:.2}"), (step, steps))
            }
            Progress::Writing { done, total } => {
                let (done, total) = ((done >> 20) as u32, (total >> 20).max(1) as u32);
                (format!("writing: {done} of {total} MiB"), (done, total))
            }
        };
        let share = f64::from(share.0) / f64::from(share.1.max(1));
        let left = self.start.elapsed().as_secs_f64() * (1.0 - share) / share.max(1e-6);
        let left = if share < 0.01 { String::new() } else { format!(", {left:.0} s left") };
        let mut out = std::io::stderr().lock();
        // Nobody to show it to is no reason to stop.
        let _ = match self.terminal {
            true => write!(out, "\r\x1b[K{what}{left}"),
            false => writeln!(out, "{what}{left}"),
        };
        let _ = out.flush();
    }

    fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
