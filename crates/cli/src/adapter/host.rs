//! `confide adapter host`: serves adapters that never leave this process to key holders.

mod accept;
pub(crate) mod arguments;
mod budgets;
mod entrance;

use std::{pin::pin, process::ExitCode, sync::Arc};

use confide_lora::{
    Adapter, AnswerAllowance,
    host::{AdapterHost, AuditLog, HostLimits, HostOptions},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::clients::read_clients;
use crate::{
    binding::BindingName,
    error::CliError,
    process::{self, merge_objects},
    server_flags::print_configuration_digest,
};
pub(crate) use arguments::Args;
use entrance::ChannelAcceptor;

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let plain = args.binding == BindingName::None && args.client_policy.is_none();
    if plain && !args.listen.ip().is_loopback() && !args.dangerous_listen_beyond_loopback {
        let text = format!("--listen {} is not loopback, and the channel is plain", args.listen);
        return Err(CliError::new(text)
            .with_hint("use --binding key, or add --dangerous-listen-beyond-loopback"));
    }
    let strangers = args.client_policy.is_none() && args.clients.is_none();
    if strangers && !args.listen.ip().is_loopback() && !args.dangerous_answer_strangers {
        let text = format!(
            "--listen {} is not loopback: wanted --client-policy or --clients, got neither, and \
             anyone who connects could learn the adapter",
            args.listen
        );
        return Err(CliError::new(text).with_hint(
            "--client-policy FILE demands the key holder's evidence, and --clients FILE demands a \
             credential; --dangerous-answer-strangers serves anyone",
        ));
    }
    process::block_on(serve(args))?
}

async fn serve(args: Args) -> Result<ExitCode, CliError> {
    let stop = pin!(process::stop_signal());
    let admission = args.connections.admission()?;
    let host = load_adapters(&args)?;
    let config_digest = config_digest(&args, &host);
    if args.print_config_digest {
        return print_configuration_digest(config_digest);
    }
    let entrance = ChannelAcceptor::from_args(&args, config_digest)?;
    let (listener, address) = process::listen(args.listen).await?;
    let simulated = entrance.is_simulated();
    host.set_simulated(simulated);
    let guarantee = host.guarantee().to_string();
    process::print_ready(
        address,
        &guarantee,
        ready_line_fields(&args, &host, config_digest, simulated),
    );
    accept::serve(listener, Arc::new(entrance), host, admission, stop).await;
    Ok(ExitCode::SUCCESS)
}

fn load_adapters(args: &Args) -> Result<Arc<AdapterHost>, CliError> {
    let clients = args.clients.as_deref().map(read_clients).transpose()?.unwrap_or_default();
    let audit = match &args.audit_log {
        None => AuditLog::in_memory(process::unix_now),
        Some(path) => AuditLog::to_file(path, process::unix_now)
            .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))?,
    };
    let options = HostOptions {
        parameters: args.parameters.parameter_set()?,
        protect: args.protect.into(),
        allowance: args.budget.map_or(AnswerAllowance::BelowWidth, AnswerAllowance::Vectors),
        noise_sigma: args.noise_sigma,
        rank_max: args.max_rank,
        clients,
        budget_file: args.budgets.budget_file(args.client_policy.is_some())?,
        attested_only: args.client_policy.is_some(),
        limits: HostLimits {
            sessions: args.max_sessions,
            sessions_per_peer: args.sessions_per_peer,
            preparations_per_peer: args.preparations_per_peer,
            ..HostLimits::default()
        },
    };
    let host = AdapterHost::new(options, audit).map_err(budgets::explain_error)?;
    for dir in &args.adapters {
        let adapter = Adapter::load(dir).map_err(|error| {
            CliError::new(format!("cannot load the adapter in {}: {error}", dir.display()))
                .with_hint(
                    error
                        .hint()
                        .unwrap_or("`confide adapter inspect` shows what a folder contains"),
                )
        })?;
        host.load(&adapter).map_err(CliError::in_file(dir))?;
    }
    Ok(Arc::new(host))
}

/// The digest that a key holder's policy can pin: it covers everything that decides how the key holder is protected.
fn config_digest(args: &Args, host: &AdapterHost) -> [u8; 32] {
    let configuration = json!({
        "kind": "confide adapter host v1",
        "binding": args.binding_name(),
        "clients_attest": args.client_policy.is_some(),
        "terms": host.describe_adapters(),
    });
    Sha256::digest(configuration.to_string()).into()
}

fn ready_line_fields(
    args: &Args,
    host: &AdapterHost,
    config_digest: [u8; 32],
    simulated: bool,
) -> Value {
    let fields = json!({
        "binding": args.binding_name(),
        "config_digest": hex::encode(config_digest),
        "simulated": simulated,
        "clients_attest": args.client_policy.is_some(),
        "epoch": hex::encode(host.epoch()),
        "budget_file": host.budget_file().map(|path| path.display().to_string()),
        "kept": "masks and keys in memory only: a restart discards them",
    });
    merge_objects(fields, host.describe_adapters())
}
