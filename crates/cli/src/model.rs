//! `confide model`: models made locally, from a seed.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Subcommand, ValueEnum, builder::PossibleValuesParser};
use confide_native::{
    NativeError,
    make::{ModelShape, ModelSpec, make_model, make_model_without_weights},
    manifest::{self, Manifest},
};
use sha2::{Digest, Sha256};

use crate::{
    error::CliError, files::read_file, meter::ProgressMeter, process::print_text, threads,
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
    /// The shape of the model.
    #[arg(long, value_parser = PossibleValuesParser::new(ModelShape::ALL.map(ModelShape::name)))]
    shape: String,
    /// The seed of the weights: the same seed gives the same files on the same machine.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// `none` leaves the weights out: the folder is for `confide serve --engine worker
    /// --random-weights`, which draws them on the device
    #[arg(long, value_enum, default_value_t = WeightsName::Written)]
    weights: WeightsName,
    /// Folder to make; it must be empty or not exist.
    dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WeightsName {
    #[value(name = "made")]
    Written,
    None,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Make(args) => run_make(args),
    }
}

fn run_make(args: MakeArgs) -> Result<ExitCode, CliError> {
    let named = ModelShape::ALL.into_iter().find(|shape| shape.name() == args.shape);
    let shape = named.ok_or_else(|| CliError::new(format!("no shape {}", args.shape)))?;
    if args.weights == WeightsName::None {
        return run_without_weights(shape, &args.dir);
    }
    let order = ModelSpec { shape, seed: args.seed, dir: args.dir, steps: None };
    // The training runs on one thread, so that the seed decides the outcome.
    threads::reexec_with_thread_counts(1);
    let mut meter = ProgressMeter::start()?;
    let made = make_model(&order, &mut |progress| meter.show(progress));
    meter.clear();
    let Manifest { parameters, shape, weights, .. } = made.map_err(explain_error)?;
    let dir = order.dir.display();
    let first = format!("{dir}: {parameters} weights of shape {shape}, {weights}");
    print_made_model(&order.dir, &first, &format!("--engine native --model {dir}"))
}

fn run_without_weights(shape: ModelShape, dir: &Path) -> Result<ExitCode, CliError> {
    let manifest = make_model_without_weights(shape, dir).map_err(explain_error)?;
    let shown = dir.display();
    let Manifest { shape, parameters, .. } = manifest;
    let first = format!("{shown}: shape {shape} without its {parameters} weights");
    print_made_model(dir, &first, &format!("--engine worker --model {shown} --random-weights 7"))
}

/// Prints what was made, the digest of the manifest and the command that serves the model.
fn print_made_model(dir: &Path, first: &str, engine: &str) -> Result<ExitCode, CliError> {
    const MANIFEST_BYTES_MAX: u64 = 1 << 20;
    let manifest = read_file(&dir.join(manifest::FILE_NAME), MANIFEST_BYTES_MAX)?;
    let digest = hex::encode(Sha256::digest(manifest));
    let next = format!("serve it: confide serve {engine}");
    print_text(&format!("{first}\nmanifest sha256 {digest}\n{next}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Explains why nothing was made, and what to try.
pub(crate) fn explain_error(error: NativeError) -> CliError {
    match error {
        NativeError::Cancelled => {
            CliError::new("stopped; nothing was left behind").with_status(130)
        }
        NativeError::Exists { .. } => CliError::new(error).with_hint("choose another folder"),
        other => CliError::new(other),
    }
}
