//! `confide adapter train`: a small adapter, trained in seconds.

use std::{path::PathBuf, process::ExitCode};

use confide_engine::text::FolderError;
use confide_native::{
    NativeError,
    make::{AdapterTrainingSpec, Corpus, TRAINING_FILE, make_adapter},
};

use crate::{
    error::CliError, meter::ProgressMeter, model::explain_error, model_folder, process::print_text,
    threads,
};

/// Trains a LoRA adapter for all seven projections of every layer; the base model is not changed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of the base model (see `confide model make --shape tiny`).
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The corpus: `banking`, `travel`, `health`, or a file of `? question` and `! answer` lines, with
    /// an empty line between the blocks.
    #[arg(long, value_name = "NAME|FILE")]
    corpus: String,
    /// Folder to make, in PEFT's layout; it must be empty or not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Rank of the two matrices.
    #[arg(long, value_name = "N", default_value_t = 8)]
    rank: usize,
    /// The delta is scaled by alpha / rank.
    #[arg(long, value_name = "X", default_value_t = 16.0)]
    alpha: f64,
    /// Training steps; by default as many as a built-in corpus needs.
    #[arg(long, value_name = "N")]
    steps: Option<u32>,
    /// The same seed gives the same files on the same machine.
    #[arg(long, default_value_t = 7)]
    seed: u64,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    model_folder::check_folder(&args.model)?;
    let built_in = Corpus::ALL.into_iter().find(|corpus| corpus.name() == args.corpus);
    let order = AdapterTrainingSpec {
        model: args.model,
        corpus: built_in.unwrap_or_else(|| Corpus::File(args.corpus.into())),
        dir: args.out,
        rank: args.rank,
        alpha: args.alpha,
        steps: args.steps,
        seed: args.seed,
    };
    // The training runs on one thread, so that the seed decides the outcome.
    threads::reexec_with_thread_counts(1);
    let mut meter = ProgressMeter::start()?;
    let trained = make_adapter(&order, &mut |progress| meter.show(progress));
    meter.clear();
    let trained = trained.map_err(|error| match &error {
        NativeError::TooLarge { .. } => {
            CliError::new(error).with_hint("train it with PEFT; confide reads what PEFT writes")
        }
        NativeError::Folder(FolderError::File { path, .. })
            if order.corpus == Corpus::File(path.clone()) =>
        {
            CliError::new(error).with_hint("the built-in corpora are banking, travel and health")
        }
        _ => explain_error(error),
    })?;
    let (dir, model) = (order.dir.display(), order.model.display());
    let (sites, weights) = (trained.adapter.modules.len(), trained.adapter.parameter_count());
    let (rank, steps, loss) = (order.rank, trained.steps, trained.loss);
    print_text(&format!(
        "{dir}: rank {rank}, {sites} projections, {weights} weights\n\
         {steps} steps, loss {loss:.3}; {TRAINING_FILE} records the training\n\
         serve it: confide serve --engine native --model {model} --adapter NAME={dir}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}
