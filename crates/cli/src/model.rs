//! `confide model`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Subcommand, ValueEnum, builder::PossibleValuesParser};
use confide_native::{
    NativeError,
    make::{Order, Shape, make, make_without_weights},
    manifest,
};

use crate::{
    error::{CliError, read_file},
    meter::Meter,
    threads,
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
    /// `none` leaves them out: the folder is for `confide serve --engine worker --random-weights`,
    /// which draws them on the device
    #[arg(long, value_enum, default_value_t = WeightsName::Made)]
    weights: WeightsName,
    /// Folder to make; it must not be there, or be empty.
    dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WeightsName {
    Made,
    None,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.command {
        Command::Make(args) => run_make(args),
    }
}

fn run_make(args: MakeArgs) -> Result<ExitCode, CliError> {
    let named = Shape::ALL.into_iter().find(|shape| shape.name() == args.shape);
    let shape = named.ok_or_else(|| CliError::new(format!("no shape {}", args.shape)))?;
    if args.weights == WeightsName::None {
        return run_without_weights(shape, &args.dir);
    }
    let order = Order { shape, seed: args.seed, dir: args.dir, steps: None };
    // The training runs on one thread, so that the seed decides the outcome.
    threads::settle(1);
    let mut meter = Meter::start()?;
    let made = make(&order, &mut |progress| meter.show(progress));
    meter.end();
    let dir = order.dir.display();
    let manifest = made.map_err(not_made)?;
    println!(
        "{dir}: {} weights of shape {}, {}",
        manifest.parameters, manifest.shape, manifest.weights
    );
    println!("manifest sha256 {}", digest(&order.dir.join(manifest::FILE_NAME))?);
    println!("serve it: confide serve --engine native --model {dir}");
    Ok(ExitCode::SUCCESS)
}

fn run_without_weights(shape: Shape, dir: &Path) -> Result<ExitCode, CliError> {
    let manifest = make_without_weights(shape, dir).map_err(not_made)?;
    let shown = dir.display();
    println!("{shown}: shape {} without its {} weights", manifest.shape, manifest.parameters);
    println!("manifest sha256 {}", digest(&dir.join(manifest::FILE_NAME))?);
    println!("serve it: confide serve --engine worker --model {shown} --random-weights 7");
    Ok(ExitCode::SUCCESS)
}

fn not_made(error: NativeError) -> CliError {
    match error {
        NativeError::Cancelled => CliError::new("stopped; nothing was left behind").status(130),
        NativeError::Exists { .. } => CliError::new(error).hint("take another folder"),
        other => CliError::new(other),
    }
}

fn digest(path: &Path) -> Result<String, CliError> {
    use sha2::Digest;
    const MANIFEST_BYTES_MAX: u64 = 1 << 20;
    Ok(hex::encode(sha2::Sha256::digest(read_file(path, MANIFEST_BYTES_MAX)?)))
}
