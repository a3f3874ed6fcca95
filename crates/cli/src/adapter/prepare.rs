//! `confide adapter prepare`: the offline phase with an adapter host, and what it costs.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use confide_lora::{
    AdaptError, Adapter, DeltaProvider,
    holder::{HolderError, KeyHolderOptions, PreparationProgress, RemoteAdapter},
    plain,
};
use confide_verification::hint_for_check;
use serde_json::json;

use super::{
    dial::{self, DialArgs},
    parameters::ParameterArgs,
};
use crate::{
    answer::CommandReport, attest::arguments::AttesterArgs, binding::BindingName, error::CliError,
    files::read_credential, refusal::STATUS_REFUSED,
};

/// Largest accepted error of adapted values, relative to plain LoRA.
const ERROR_MAX: f64 = 1e-3;

/// The arguments of `confide adapter prepare`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The adapter host: HOST:PORT
    #[arg(value_name = "HOST:PORT")]
    host: String,
    /// The adapter's name at the host
    #[arg(long, value_name = "NAME")]
    adapter: String,
    /// Vectors to prepare for each input, rounded up to whole batches
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    tokens: u32,
    /// The policy for the host's evidence, TOML
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// How evidence is bound to the connection
    #[arg(long, value_enum)]
    binding: Option<BindingName>,
    #[command(flatten)]
    attester: AttesterArgs,
    /// The certificate (DER) of a host that shows no evidence but demands this end's
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    host_certificate: Option<PathBuf>,
    /// File with this client's credential at the host
    #[arg(long, value_name = "FILE")]
    credential: Option<PathBuf>,
    #[command(flatten)]
    parameters: ParameterArgs,
    /// Threads that prepare, each with a connection of its own
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=32))]
    threads: u8,
    /// Deadline of the whole command, in seconds
    #[arg(long, value_name = "N", default_value_t = 3600)]
    deadline_s: u64,
    /// For the adapter's owner: compare one answer for each input with the adapter in this folder
    #[arg(long, value_name = "DIR")]
    compare: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Allow plain TCP to hosts beyond loopback
    #[arg(long)]
    dangerous_plain: bool,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let local = args.compare.as_deref().map(load_adapter).transpose()?;
    let connect = dial::build_connector(&DialArgs {
        host: args.host.clone(),
        policy: args.policy.clone(),
        binding: args.binding,
        attester: args.attester.open_attester(None)?,
        certificate: args.host_certificate.clone(),
        dangerous_plain: args.dangerous_plain,
    })?;
    let began = Instant::now();
    let remote =
        RemoteAdapter::connect(connect, holder_options(&args)?).map_err(explain_holder_error)?;
    let hello_s = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let deadline = Duration::from_secs(args.deadline_s);
    let progress = remote
        .wait_until_prepared(args.tokens, deadline, log_progress)
        .map_err(explain_holder_error)?;
    let prepare_s = began.elapsed().as_secs_f64();
    let error =
        local.as_ref().map(|adapter| measure_relative_error(adapter, &remote)).transpose()?;
    let figures = PreparationFigures { hello_s, prepare_s, progress, error };
    figures.to_report(&args, &remote).print(args.json)
}

/// Explains the failure. Refused evidence ends with status 1, any other failure with 2.
fn explain_holder_error(error: HolderError) -> CliError {
    match &error {
        HolderError::EvidenceRefused { check, .. } => {
            let hint = hint_for_check(check, None, false);
            CliError::new(&error).with_hint(hint).with_status(STATUS_REFUSED)
        }
        HolderError::Lost { .. } => {
            CliError::new(&error).with_hint("is `confide adapter host` running there?")
        }
        _ => CliError::new(error),
    }
}

struct PreparationFigures {
    hello_s: f64,
    prepare_s: f64,
    progress: PreparationProgress,
    error: Option<f64>,
}

impl PreparationFigures {
    fn to_report(&self, args: &Args, remote: &RemoteAdapter) -> CommandReport {
        let PreparationProgress { inputs, vectors_left, batches, .. } = self.progress;
        let (guarantee, bytes) = (remote.guarantee().to_string(), remote.offline_bytes());
        let vectors = batches * remote.vectors_per_batch() as u64;
        let of_token = |all: f64| all * inputs as f64 / vectors.max(1) as f64;
        let (ms_token, bytes_token) = (of_token(self.prepare_s * 1e3), of_token(bytes as f64));
        let json = json!({
            "adapter": args.adapter,
            "guarantee": guarantee,
            "inputs": inputs,
            "batches": batches,
            "vectors_left": vectors_left,
            "hello_s": self.hello_s,
            "prepare_s": self.prepare_s,
            "offline_bytes": bytes,
            "offline_ms_per_token": ms_token,
            "offline_bytes_per_token": bytes_token,
            "budget_left": remote.budget_left(),
            "relative_error": self.error,
            "kept": false,
        });
        let mut text = format!(
            "adapter {}: {guarantee}\n\
             {batches} batches for {inputs} inputs in {:.1} s, {} MB\n\
             preparing a token costs {ms_token:.3} ms and {:.1} KB, over all inputs\n",
            args.adapter,
            self.prepare_s,
            bytes / 1_000_000,
            bytes_token / 1e3,
        );
        if let Some(left) = remote.budget_left() {
            text += &format!("the smallest budget has {left} answers left\n");
        }
        if let Some(error) = self.error {
            let verdict = if error > ERROR_MAX { "too large" } else { "as expected" };
            text += &format!("relative error against plain LoRA {error:.1e}: {verdict}\n");
        }
        text += "masks are kept in memory only: those prepared here are discarded now\n";
        let is_wrong = self.error.is_some_and(|error| error > ERROR_MAX);
        CommandReport { text, json, status: u8::from(is_wrong) }
    }
}

fn holder_options(args: &Args) -> Result<KeyHolderOptions, CliError> {
    let mut options = KeyHolderOptions::new(&args.adapter, args.parameters.parameter_set()?);
    options.low_water = args.tokens;
    options.preparers = args.threads.into();
    if let Some(path) = &args.credential {
        options.credential = read_credential(path)?.to_vec();
    }
    Ok(options)
}

fn log_progress(progress: PreparationProgress) {
    let PreparationProgress { inputs, ready, batches, .. } = progress;
    tracing::info!(ready, inputs, batches, "preparing");
}

fn load_adapter(dir: &Path) -> Result<Adapter, CliError> {
    Adapter::load(dir).map_err(|error| {
        CliError::new(format!("cannot load the adapter in {}: {error}", dir.display()))
    })
}

/// Measures the relative error against plain LoRA, over one vector of each adapted projection.
fn measure_relative_error(adapter: &Adapter, remote: &RemoteAdapter) -> Result<f64, CliError> {
    let explain = |error: AdaptError| CliError::new(error);
    if adapter.sites() != *remote.sites() {
        return Err(CliError::new("the folder holds a different adapter from the host's"));
    }
    let mut deltas = remote.open_session().map_err(explain)?;
    let (mut error, mut size) = (0f64, 0f64);
    for (site, pair) in &adapter.modules {
        let vector: Vec<f32> = (0..pair.a.columns).map(|at| (at as f32 * 0.7).sin()).collect();
        let mut output = vec![0f32; pair.b.rows];
        let outputs = &mut [(site.projection, &mut output[..])];
        deltas
            .add_deltas(site.layer, site.projection.input(), &vector, outputs)
            .map_err(explain)?;
        let wide: Vec<f64> = vector.iter().map(|value| f64::from(*value)).collect();
        for (wanted, got) in plain::delta(pair, &wide).iter().zip(&output) {
            error += (wanted - f64::from(*got)).powi(2);
            size += wanted.powi(2);
        }
    }
    Ok((error / size.max(f64::MIN_POSITIVE)).sqrt())
}
