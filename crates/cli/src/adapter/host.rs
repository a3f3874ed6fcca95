//! `confide adapter host`: answers key holders about adapters that never leave this process.

mod accept;
mod budgets;
mod evidence;

use std::{net::SocketAddr, path::PathBuf, pin::pin, process::ExitCode, sync::Arc, time::Duration};

use clap::ValueEnum;
use confide_lora::{
    Adapter, Allowance, Protect,
    host::{AdapterHost, AuditLog, CLIENTS_BYTES_MAX, Clients, HostLimits, HostOptions},
};
use confide_rlwe::ParameterSet;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    address::listen_address,
    attest::chosen::AttesterArgs,
    connections::ConnectionArgs,
    error::{CliError, read_file},
    gateway::BindingName,
    process,
};

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folders of adapters as PEFT writes them; an adapter is called as its folder
    #[arg(value_name = "DIR", required = true)]
    adapters: Vec<PathBuf>,
    /// Where key holders connect; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    listen: SocketAddr,
    /// How evidence is tied to connections; `none` is plain TCP
    #[arg(long, value_enum, default_value_t = BindingName::Key)]
    binding: BindingName,
    #[command(flatten)]
    attester: AttesterArgs,
    /// Staple this collateral instead of the attester's own
    #[arg(long, value_name = "FILE")]
    collateral: Option<PathBuf>,
    /// How long a key lives before a new one takes its place, in seconds
    #[arg(long, value_name = "N", default_value_t = 3600,
          value_parser = clap::value_parser!(u64).range(60..=604_800))]
    key_validity_s: u64,
    /// Demand the key holder's evidence, as this policy has it; those that it accepts have no
    /// budget. Session binding, or none
    #[arg(long, value_name = "FILE")]
    client_policy: Option<PathBuf>,
    /// Write the certificate as DER, for key holders that attest to a host without evidence
    #[arg(long, value_name = "FILE", requires = "client_policy")]
    certificate_out: Option<PathBuf>,
    /// The clients that may ask, each with a budget of its own: lines of a name and the SHA-256 of
    /// its credential. Without it all share one budget for each adapter. Clients that collude have
    /// the sum of their budgets
    #[arg(long, value_name = "FILE")]
    clients: Option<PathBuf>,
    /// Answers for each client, adapter and input; else one fewer than the input is wide. No number
    /// keeps the adapter from being learned, see LIMITATIONS.md
    #[arg(long, value_name = "N")]
    budget: Option<u64>,
    #[command(flatten)]
    budgets: budgets::BudgetArgs,
    /// What never leaves: A alone, and B goes to the key holder, or both
    #[arg(long, value_enum, default_value_t = ProtectName::A)]
    protect: ProtectName,
    /// Standard deviation of noise on each answer, in units of its integers
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    noise_sigma: f64,
    /// The parameter set: at least 128 bits, and flooded
    #[arg(long, value_name = "NAME", default_value = confide_lora::host::PARAMETERS_DEFAULT)]
    parameters: String,
    /// Also take a parameter set that is below 128 bits or not flooded
    #[arg(long)]
    dangerous_parameters: bool,
    /// Append who was answered how often to this file; else the last lines stay in memory
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Refuse adapters of a greater rank
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_rank: usize,
    #[command(flatten)]
    connections: ConnectionArgs,
    /// Print the digest of the configuration, for a key holder's policy, and end
    #[arg(long)]
    print_config_digest: bool,
    /// Sessions of key holders at once; the longest idle ones give way to newcomers
    #[arg(long, value_name = "N", default_value_t = HostLimits::default().sessions,
          value_parser = at_least_one)]
    max_sessions: usize,
    /// Sessions of one peer: an IPv4 address, or the /64 network of an IPv6 one
    #[arg(long, value_name = "N", default_value_t = HostLimits::default().sessions_per_peer,
          value_parser = at_least_one)]
    sessions_per_peer: usize,
    /// Batches of masks that are made at once for one peer, of four in all
    #[arg(long, value_name = "N", default_value_t = HostLimits::default().preparations_per_peer,
          value_parser = at_least_one)]
    preparations_per_peer: usize,
    /// Listen beyond loopback without an attested channel: key holders then do not know who answers
    #[arg(long)]
    dangerous_listen_beyond_loopback: bool,
    /// Answer key holders beyond loopback that show neither evidence nor a credential: any of them
    /// can learn the adapter
    #[arg(long)]
    dangerous_answer_strangers: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=65_536).contains(count));
    count.ok_or_else(|| "wanted a number from 1 to 65536".into())
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum ProtectName {
    /// A stays, B is handed over
    A,
    /// A and B stay
    Ba,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let plain = args.binding == BindingName::None && args.client_policy.is_none();
    if plain && !args.listen.ip().is_loopback() && !args.dangerous_listen_beyond_loopback {
        let text = format!("--listen {} is not loopback, and the channel is plain", args.listen);
        return Err(CliError::new(text)
            .hint("take --binding key, or add --dangerous-listen-beyond-loopback"));
    }
    let strangers = args.client_policy.is_none() && args.clients.is_none();
    if strangers && !args.listen.ip().is_loopback() && !args.dangerous_answer_strangers {
        let text = format!(
            "--listen {} is not loopback: wanted --client-policy or --clients, got neither, and \
             whoever connects can learn the adapter",
            args.listen
        );
        return Err(CliError::new(text).hint(
            "--client-policy FILE demands the key holder's evidence, --clients FILE a credential; \
             --dangerous-answer-strangers answers anybody",
        ));
    }
    process::run_to_end(serve(args))?
}

async fn serve(args: Args) -> Result<ExitCode, CliError> {
    let stop = pin!(process::asked_to_stop());
    let admission = args.connections.admission()?;
    let host = load(&args)?;
    let config_digest = config_digest(&args, &host);
    if args.print_config_digest {
        process::print_whole(&format!("{}\n", hex::encode(config_digest)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let door = evidence::door(&args, config_digest)?;
    let (listener, address) = process::listen(args.listen).await?;
    let simulated = door.simulated();
    host.set_simulated(simulated);
    let guarantee = host.guarantee().to_string();
    process::print_ready(address, &guarantee, ready_fields(&args, &host, config_digest, simulated));
    accept::serve(listener, Arc::new(door), host, admission, stop).await;
    Ok(ExitCode::SUCCESS)
}

fn load(args: &Args) -> Result<Arc<AdapterHost>, CliError> {
    let parameters = match args.dangerous_parameters {
        false => ParameterSet::from_name(&args.parameters),
        true => ParameterSet::dangerous_from_name(&args.parameters),
    };
    let parameters = parameters
        .map_err(|error| CliError::new(error).hint("docs/blind-protocol.md names the sets"))?;
    let clients = match &args.clients {
        None => Clients::default(),
        Some(path) => clients(path)?,
    };
    let audit = match &args.audit_log {
        None => AuditLog::in_memory(process::unix_now),
        Some(path) => AuditLog::to_file(path, process::unix_now)
            .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))?,
    };
    let options = HostOptions {
        parameters,
        protect: match args.protect {
            ProtectName::A => Protect::A,
            ProtectName::Ba => Protect::Ba,
        },
        allowance: args.budget.map_or(Allowance::BelowWidth, Allowance::Vectors),
        noise_sigma: args.noise_sigma,
        rank_max: args.max_rank,
        clients,
        budget_file: args.budgets.file(args.client_policy.is_some())?,
        attested_only: args.client_policy.is_some(),
        limits: HostLimits {
            sessions: args.max_sessions,
            sessions_per_peer: args.sessions_per_peer,
            preparations_per_peer: args.preparations_per_peer,
            ..HostLimits::default()
        },
    };
    let host = AdapterHost::new(options, audit).map_err(budgets::explained)?;
    for dir in &args.adapters {
        let shown = dir.display();
        let adapter = Adapter::load(dir).map_err(|error| {
            CliError::new(format!("cannot load the adapter in {shown}: {error}"))
                .hint("`confide adapter inspect` says what is in a folder")
        })?;
        host.load(&adapter).map_err(|error| CliError::new(format!("{shown}: {error}")))?;
    }
    Ok(Arc::new(host))
}

/// Reads a list of clients: names, each with the SHA-256 of its credential.
pub(crate) fn clients(path: &std::path::Path) -> Result<Clients, CliError> {
    let shown = path.display();
    let text = read_file(path, CLIENTS_BYTES_MAX)?;
    let text = String::from_utf8(text)
        .map_err(|_| CliError::new(format!("{shown} is not text: wanted UTF-8")))?;
    let clients =
        Clients::parse(&text).map_err(|error| CliError::new(format!("{shown}: {error}")))?;
    match clients.is_empty() {
        true => Err(CliError::new(format!("{shown} names no client"))),
        false => Ok(clients),
    }
}

/// What a key holder's policy can pin: everything that decides what it is protected from.
fn config_digest(args: &Args, host: &AdapterHost) -> [u8; 32] {
    let configuration = json!({
        "kind": "confide adapter host v1",
        "binding": binding_word(args),
        "clients_attest": args.client_policy.is_some(),
        "terms": host.describe(),
    });
    Sha256::digest(configuration.to_string()).into()
}

fn ready_fields(
    args: &Args,
    host: &AdapterHost,
    config_digest: [u8; 32],
    simulated: bool,
) -> Map<String, Value> {
    let mut fields = json!({
        "binding": binding_word(args),
        "config_digest": hex::encode(config_digest),
        "simulated": simulated,
        "clients_attest": args.client_policy.is_some(),
        "epoch": hex::encode(host.epoch()),
        "budget_file": host.budget_file().map(|path| path.display().to_string()),
        "kept": "masks and keys in memory only: a restart discards them",
    });
    if let (Value::Object(fields), Value::Object(terms)) = (&mut fields, host.describe()) {
        fields.extend(terms);
    }
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn binding_word(args: &Args) -> &'static str {
    match args.binding {
        BindingName::None if args.client_policy.is_some() => "session, without evidence",
        BindingName::None => "none",
        BindingName::Key => "key",
        BindingName::Session => "session",
    }
}

pub(super) fn key_validity(args: &Args) -> Duration {
    Duration::from_secs(args.key_validity_s)
}
