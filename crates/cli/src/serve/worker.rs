//! The torch worker of `confide serve --engine worker`: how it is found and started.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ValueEnum;
use confide_worker::{
    Welcome, Worker, WorkerDeadlines, WorkerError, WorkerLaunch, WorkerOptions, WorkerProgram,
};
use serde_json::{Value, json};

use crate::error::CliError;

/// The arguments of the worker.
#[derive(clap::Args)]
#[command(next_help_heading = "Worker")]
pub(crate) struct WorkerArgs {
    /// The Python that has torch; by default `python3`
    #[arg(long, value_name = "PATH", conflicts_with = "worker_socket")]
    worker_python: Option<PathBuf>,
    /// Use the worker that listens at this socket instead of starting one
    #[arg(long, value_name = "PATH")]
    worker_socket: Option<PathBuf>,
    /// Device of the model, `cpu` or `cuda:N`; by default `cuda:0`
    #[arg(long, value_name = "DEVICE", conflicts_with = "worker_socket")]
    worker_device: Option<String>,
    /// Type of the weights; by default `f32` on the CPU and `bf16` elsewhere
    #[arg(long, value_enum, value_name = "TYPE", conflicts_with = "worker_socket")]
    worker_dtype: Option<DtypeName>,
    /// Generations made at once; more wait
    #[arg(long, value_name = "N", conflicts_with = "worker_socket")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    worker_slots: Option<u16>,
    /// Deadline for the start in seconds, including the loading of the model
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    worker_start_seconds: Option<u32>,
    /// Draw the weights from this seed on the device, for a folder without weights
    #[arg(long, value_name = "SEED", conflicts_with = "worker_socket")]
    random_weights: Option<u64>,
    /// A further argument of the worker, see `python3 -m confide.worker --help`
    /// (`--worker-arg=--context=8192`); may be given several times
    #[arg(long, value_name = "ARG", conflicts_with = "worker_socket", allow_hyphen_values = true)]
    worker_arg: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DtypeName {
    Bf16,
    F32,
}

impl DtypeName {
    fn name(self) -> &'static str {
        match self {
            DtypeName::Bf16 => "bf16",
            DtypeName::F32 => "f32",
        }
    }
}

impl WorkerArgs {
    /// Refuses the arguments, for engines without a worker.
    pub(crate) fn refuse_worker_options(&self) -> Result<(), CliError> {
        let given = [
            ("--worker-python", self.worker_python.is_some()),
            ("--worker-socket", self.worker_socket.is_some()),
            ("--worker-device", self.worker_device.is_some()),
            ("--worker-dtype", self.worker_dtype.is_some()),
            ("--worker-slots", self.worker_slots.is_some()),
            ("--worker-start-seconds", self.worker_start_seconds.is_some()),
            ("--random-weights", self.random_weights.is_some()),
            ("--worker-arg", !self.worker_arg.is_empty()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((flag, _)) => Err(CliError::new(format!("{flag} is for --engine worker only"))),
        }
    }

    fn to_launch(&self) -> WorkerLaunch {
        if let Some(socket) = &self.worker_socket {
            return WorkerLaunch::Socket(socket.clone());
        }
        let device = self.worker_device.clone().unwrap_or_else(|| "cuda:0".into());
        let usual = if device == "cpu" { DtypeName::F32 } else { DtypeName::Bf16 };
        WorkerLaunch::Program(WorkerProgram {
            python: self.worker_python.clone().unwrap_or_else(|| "python3".into()),
            python_path: python_path(),
            folder: env::temp_dir(),
            device,
            dtype: self.worker_dtype.unwrap_or(usual).name().into(),
            slots: self.worker_slots,
            random_weights: self.random_weights,
            more: self.worker_arg.clone(),
        })
    }
}

/// Starts the worker and waits until its model is loaded.
pub(crate) fn start_worker(
    args: &WorkerArgs,
    model: &Path,
    model_name: Option<String>,
) -> Result<Worker, CliError> {
    let mut deadlines = WorkerDeadlines::default();
    if let Some(seconds) = args.worker_start_seconds {
        deadlines.start = Duration::from_secs(seconds.into());
    }
    let options =
        WorkerOptions { model: model.into(), model_name, launch: args.to_launch(), deadlines };
    Worker::start(options).map_err(|error| explain_error(&error))
}

const INSTALL: &str = "the worker needs Python 3.11 or later with `pip install 'confide[gpu]'`; \
                       --worker-python names the Python that has it";

fn explain_error(error: &WorkerError) -> CliError {
    let failure = CliError::new(error);
    match error {
        WorkerError::Program { .. } => failure.with_hint(INSTALL),
        WorkerError::ProcessEnded { ending } if ending.contains("No module named") => {
            failure.with_hint(INSTALL)
        }
        WorkerError::ProcessEnded { .. } => {
            failure.with_hint("set CONFIDE_LOG=info to see all output of the worker")
        }
        WorkerError::TimedOut { what: "ready line", .. } => failure.with_hint(
            "a large model takes long to load: allow it more time with --worker-start-seconds",
        ),
        _ => failure,
    }
}

/// The fields of the ready line about the worker.
pub(crate) fn ready_line_fields(worker: &Worker) -> Value {
    let Welcome { device, dtype, weights, slots, versions, .. } = worker.welcome();
    json!({
        "device": device, "dtype": dtype, "weights": weights, "slots": slots,
        "versions": versions,
    })
}

/// `PYTHONPATH` for the worker: the package of the checkout that this program was built in, then the environment's. An
/// installed package needs neither. A package that belongs to another user than the program is skipped, since a folder
/// above may be writable by anyone.
fn python_path() -> Option<OsString> {
    let program = env::current_exe().ok()?;
    let owner = fs::metadata(&program).ok()?.uid();
    let is_ours = |path: &Path| fs::metadata(path).is_ok_and(|found| found.uid() == owner);
    let package = program.ancestors().map(|folder| folder.join("python")).find(|folder| {
        let main = folder.join("confide/worker/__main__.py");
        is_ours(folder) && is_ours(&main)
    })?;
    let given = env::var_os("PYTHONPATH").unwrap_or_default();
    let given = env::split_paths(&given).filter(|path| !path.as_os_str().is_empty());
    env::join_paths([package].into_iter().chain(given)).ok()
}
