//! `confide serve`: a model over OpenAI's routes.

mod adapters;
mod worker;

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use confide_engine::{
    Engine,
    sim::{self, Sim},
};
use confide_serve::{ServeLimits, ServeOptions};
use confide_worker::Worker;
use http::HeaderValue;
use serde_json::{Value, json};

use crate::{
    error::CliError,
    model_folder,
    process::{self, merge_objects},
    report_003,
    server_flags::PlainServerArgs,
};

/// A plain HTTP server without any protection; put `confide gateway` in front of it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    worker: worker::WorkerArgs,
    #[command(flatten)]
    adapters: adapters::arguments::AdapterArgs,
}

#[derive(clap::Args)]
struct ServerArgs {
    #[command(flatten)]
    plain: PlainServerArgs,
    /// The engine: `sim` emits simulated words at known instants, `native` runs a model in this process,
    /// `worker` runs one on torch in a process of its own; by default `native`, which needs --model.
    #[arg(long, value_enum, required_unless_present = "model")]
    engine: Option<EngineKind>,
    /// Folder of the model, for `native` and `worker` (see `confide model make`).
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// The model's name in requests; by default `sim`, or the name of the model's folder.
    #[arg(long, value_name = "NAME")]
    model_name: Option<String>,
    /// Milliseconds from a request to its first token, for `sim`.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    ttft_ms: f64,
    /// Tokens per second after the first, for `sim`; 0 is as fast as possible.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    tokens_per_second: f64,
    /// Answers generated at once, for `sim`; more wait. Throughput saturates at slots / duration of an
    /// answer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    slots: Option<u16>,
    /// Let pages of this web origin send requests and open WebSockets; may be given several times. By
    /// default no web page may.
    #[arg(long, value_name = "SCHEME://HOST[:PORT]")]
    allow_origin: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum EngineKind {
    Native,
    Sim,
    Worker,
}

impl EngineKind {
    fn name(self) -> &'static str {
        match self {
            EngineKind::Native => "native",
            EngineKind::Sim => "sim",
            EngineKind::Worker => "worker",
        }
    }
}

impl ServerArgs {
    fn engine_kind(&self) -> EngineKind {
        self.engine.unwrap_or(EngineKind::Native)
    }
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let Args { server: args, worker, adapters } = args;
    adapters::check_worker_options(&adapters, args.engine_kind() == EngineKind::Worker)?;
    // Open until the server ends, so that a gateway sees which weights it has.
    let _weights = open_weights(&args)?;
    let StartedEngine { engine, worker } = start_engine(&args, &worker)?;
    // Before the event loop starts: reaching a host needs one of its own.
    let adapters = adapters::load_adapters(adapters, args.model.clone(), &engine, worker.clone())?;
    let options = ServeOptions {
        adapters,
        extra_routes: report_003::routes(args.model.as_deref()),
        limits: build_limits(&args),
        origins: parse_origins(&args)?,
        ..ServeOptions::new(engine, process::unix_now)
    };
    // Outlives the event loop: closing sessions with hosts needs one of its own.
    let adapters = Arc::clone(&options.adapters);
    process::block_on(serve(&args, worker, options))??;
    drop(adapters);
    Ok(ExitCode::SUCCESS)
}

/// The limits of the server. A simulated engine with slots of its own bounds the number of answers itself.
fn build_limits(args: &ServerArgs) -> ServeLimits {
    let limits = ServeLimits::default();
    match args.slots {
        None => limits,
        Some(slots) => ServeLimits { concurrent: slots.into(), queued: SIM_QUEUE, ..limits },
    }
}

/// Requests that may wait where --slots is given: a load generator with an open loop above saturation then sees slow
/// answers before refusals.
const SIM_QUEUE: usize = 2048;

async fn serve(
    args: &ServerArgs,
    worker: Option<Arc<Worker>>,
    options: ServeOptions,
) -> Result<(), CliError> {
    let stop = process::stop_signal();
    let (listener, address) = args.plain.listen(Some("prompts and answers")).await?;
    process::print_ready(address, "none", ready_line_fields(args, worker.as_deref(), &options));
    process::warn_of_cut_connections(confide_serve::serve(listener, options, stop).await);
    Ok(())
}

/// The fields of the ready line beyond address and guarantee.
fn ready_line_fields(args: &ServerArgs, worker: Option<&Worker>, options: &ServeOptions) -> Value {
    let mut fields = json!({
        "engine": args.engine_kind().name(),
        "simulated": args.engine_kind() == EngineKind::Sim,
        "adapters": adapters::adapters_json(&options.adapters),
    });
    if let Some(model) = options.engine.models().into_iter().next() {
        fields["model"] = model.name.into();
        if let Some(digest) = model.manifest_sha256 {
            fields["model_manifest_sha256"] = digest.into();
        }
    }
    merge_objects(fields, worker.map_or(Value::Null, worker::ready_line_fields))
}

/// The allowed origins as a browser sends them; there is no wildcard.
fn parse_origins(args: &ServerArgs) -> Result<Vec<HeaderValue>, CliError> {
    // The same check as for the loopback proxy.
    let origins = confide_client::AllowedOrigins::new(&args.allow_origin)
        .map_err(|error| CliError::new(format!("--allow-origin: {error}")))?;
    let value = |origin| {
        HeaderValue::from_str(origin)
            .map_err(|error| CliError::new(format!("--allow-origin {origin}: {error}")))
    };
    origins.iter().map(value).collect()
}

/// An engine, and the worker where it is one.
struct StartedEngine {
    engine: Arc<dyn Engine>,
    worker: Option<Arc<Worker>>,
}

fn start_engine(args: &ServerArgs, worker: &worker::WorkerArgs) -> Result<StartedEngine, CliError> {
    if args.engine_kind() != EngineKind::Worker {
        worker.refuse_worker_options()?;
    }
    if args.engine_kind() != EngineKind::Sim {
        refuse_simulation_options(args)?;
    }
    let engine = match args.engine_kind() {
        EngineKind::Native => load_native_engine(args)?,
        EngineKind::Sim => start_simulated_engine(args)?,
        EngineKind::Worker => {
            let worker =
                worker::start_worker(worker, model_folder(args)?, args.model_name.clone())?;
            let worker = Arc::new(worker);
            let engine: Arc<dyn Engine> = worker.clone();
            return Ok(StartedEngine { engine, worker: Some(worker) });
        }
    };
    Ok(StartedEngine { engine, worker: None })
}

fn refuse_simulation_options(args: &ServerArgs) -> Result<(), CliError> {
    if args.ttft_ms != 0.0 || args.tokens_per_second != 0.0 || args.slots.is_some() {
        let message = "--ttft-ms, --tokens-per-second and --slots are for --engine sim only";
        return Err(CliError::new(message));
    }
    Ok(())
}

fn model_folder(args: &ServerArgs) -> Result<&Path, CliError> {
    let dir = args.model.as_deref().ok_or_else(|| {
        let engine = args.engine_kind().name();
        CliError::new(format!("--engine {engine} needs a model: --model DIR is missing"))
            .with_hint("confide model make --shape tiny --seed 7 DIR makes a small one")
    })?;
    model_folder::check_folder(dir)?;
    Ok(dir)
}

/// Opens the weights of the model, if there is one, before the engine reads them.
fn open_weights(args: &ServerArgs) -> Result<Vec<File>, CliError> {
    match args.engine_kind() {
        EngineKind::Sim => Ok(Vec::new()),
        EngineKind::Native | EngineKind::Worker => model_folder::open_weights(model_folder(args)?),
    }
}

fn start_simulated_engine(args: &ServerArgs) -> Result<Arc<dyn Engine>, CliError> {
    if args.model.is_some() {
        return Err(CliError::new("--engine sim has no model to load")
            .with_hint("remove --model, or use --engine native"));
    }
    let ttft = Duration::try_from_secs_f64(args.ttft_ms / 1000.0)
        .map_err(|error| CliError::new(format!("--ttft-ms: {error}")))?;
    let rate = args.tokens_per_second;
    if !rate.is_finite() || rate < 0.0 {
        return Err(CliError::new(format!("--tokens-per-second: wanted at least 0, got {rate}")));
    }
    let plain = sim::SimOptions::default();
    let options = sim::SimOptions {
        model_name: args.model_name.clone().unwrap_or(plain.model_name),
        ttft,
        tokens_per_second: (rate > 0.0).then_some(rate),
        slots: args.slots.map_or(plain.slots, usize::from),
        ..sim::SimOptions::default()
    };
    Ok(Arc::new(Sim::new(options).map_err(CliError::new)?))
}

#[cfg(feature = "native")]
fn load_native_engine(args: &ServerArgs) -> Result<Arc<dyn Engine>, CliError> {
    let dir = model_folder(args)?;
    crate::threads::reexec_with_thread_counts(
        std::thread::available_parallelism().map_or(1, usize::from),
    );
    let options = confide_native::NativeOptions { model_name: args.model_name.clone() };
    let engine = confide_native::NativeEngine::load(dir, options)
        .map_err(|error| model_folder::explain_load_error(dir, &error))?;
    Ok(Arc::new(engine))
}

#[cfg(not(feature = "native"))]
fn load_native_engine(_args: &ServerArgs) -> Result<Arc<dyn Engine>, CliError> {
    Err(CliError::new("this binary was built without the native engine")
        .with_hint("build it with `cargo build --release -p confide-cli` (feature `native` is on)"))
}
