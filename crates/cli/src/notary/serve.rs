//! `confide notary serve`: the notary itself.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
};

use confide_channel::Binding;
use confide_client::error_chain;
use confide_notary::{
    GUARANTEE, KeyError, Notary, NotaryError, NotaryOptions, NotaryPolicy, POLICY_BYTES_MAX,
    RootsSource, ServerRoots,
};
use serde_json::json;

use crate::{
    adapter::clients::read_clients,
    address::parse_listen_address,
    binding::EvidenceBinding,
    connections::ConnectionArgs,
    error::CliError,
    files::{read_file, read_text},
    policy, process,
    server_flags::{AttestedServerArgs, certificate_names, print_configuration_digest},
    time::NOTARY_CLOCK,
};

/// The longest file of roots, in bytes: a system's whole store has about 200 KiB.
const ROOTS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The arguments of `confide notary serve`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address for clients; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address,
          required_unless_present = "print_config_digest")]
    listen: Option<SocketAddr>,
    /// The notary's own policy, TOML: the hosts to fetch from, roots, addresses, limits
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// How evidence is bound to connections
    #[arg(long, value_enum, default_value_t = EvidenceBinding::Key)]
    binding: EvidenceBinding,
    #[command(flatten)]
    server: AttestedServerArgs,
    #[command(flatten)]
    connections: ConnectionArgs,
    /// Print the digest of the effective configuration and exit
    #[arg(long)]
    print_config_digest: bool,
    /// Admit only clients whose own evidence this policy accepts; needs --binding session
    #[arg(long, value_name = "FILE")]
    client_policy: Option<PathBuf>,
    /// Serve only these clients: one line per client, with its name and the SHA-256 of its credential.
    /// Without this option or --client-policy, any client that reaches --listen is served: clients verify
    /// the notary, but the notary does not verify them
    #[arg(long, value_name = "FILE")]
    clients: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let policy = read_policy(&args.policy)?;
    let roots = read_roots(&args.policy, policy.roots())?;
    let binding: Binding = args.binding.into();
    if args.print_config_digest {
        return print_configuration_digest(
            policy.digest(binding.name(), &roots).map_err(CliError::new)?,
        );
    }
    let Some(listen) = args.listen else {
        return Err(CliError::new("there is no address to listen on").with_hint("give --listen"));
    };
    process::block_on(serve(args, listen, policy, roots))?
}

async fn serve(
    args: Args,
    listen: SocketAddr,
    policy: NotaryPolicy,
    roots: ServerRoots,
) -> Result<ExitCode, CliError> {
    let stop = pin!(process::stop_signal());
    let attester = args.server.evidence.open_attester("this notary", "")?;
    let admission = args.connections.admission()?;
    let hosts = policy.hosts();
    let binding: Binding = args.binding.into();
    let (listener, address) = process::listen(listen).await?;
    let options = NotaryOptions {
        binding,
        key_validity: args.server.evidence.key_validity(),
        names: certificate_names(listen, &args.server.name),
        policy,
        roots,
    };
    let mut notary = Notary::new(options, attester, process::unix_now)
        .map_err(explain_error)?
        .with_admission(admission);
    if let Some(path) = &args.clients {
        let clients = read_clients(path)?;
        let find = move |credential: &[u8]| clients.name_of(credential).map(str::to_owned);
        notary = notary.with_client_lookup(Box::new(find));
    }
    if let Some(path) = &args.client_policy {
        let appraiser = policy::file::read_appraiser(path)?;
        notary = notary.with_client_appraiser(appraiser).map_err(explain_error)?;
    }
    let guarantee = if notary.is_simulated() { "none (simulated)" } else { GUARANTEE };
    let fields = json!({
        "binding": binding.name(),
        "claimed_guarantee": GUARANTEE,
        "clients": describe_clients(&args),
        "clock": NOTARY_CLOCK,
        "config_digest": hex::encode(notary.config_digest()),
        "hosts": hosts,
        "simulated": notary.is_simulated(),
    });
    process::print_ready(address, guarantee, fields);
    process::warn_of_cut_connections(notary.serve(listener, stop).await);
    Ok(ExitCode::SUCCESS)
}

/// Which clients the notary serves, for the ready line.
fn describe_clients(args: &Args) -> &'static str {
    match (&args.client_policy, &args.clients) {
        (None, None) => "any",
        (None, Some(_)) => "listed",
        (Some(_), None) => "attested",
        (Some(_), Some(_)) => "attested and listed",
    }
}

fn explain_error(error: NotaryError) -> CliError {
    let failure = CliError::new(error_chain(&error));
    match error {
        NotaryError::Key(KeyError::NoEndorsements) => {
            failure.with_hint("give --collateral FILE, or fetch them with --collateral-service URL")
        }
        NotaryError::Key(KeyError::Validity { .. }) => failure
            .with_hint("give a longer --key-validity-s, or lower limits.exchange_s in the policy"),
        NotaryError::ClientBinding => failure.with_hint("add --binding session"),
        _ => failure,
    }
}

fn read_policy(path: &Path) -> Result<NotaryPolicy, CliError> {
    let text = read_text(path, POLICY_BYTES_MAX as u64, "TOML")?;
    NotaryPolicy::from_toml(&text).map_err(|error| {
        CliError::in_file(path)(error.to_string().trim_end())
            .with_hint("docs/notary.md lists every key of a notary's policy")
    })
}

/// Reads the roots for hosts. The path of a PEM file is relative to the policy, so that both can be moved together.
fn read_roots(policy: &Path, from: &RootsSource) -> Result<ServerRoots, CliError> {
    match from {
        RootsSource::System => ServerRoots::system()
            .map_err(|error| CliError::new(error).with_hint("give `roots` a PEM file instead")),
        RootsSource::File(name) => {
            let path = policy.parent().unwrap_or(Path::new("")).join(name);
            let pem = read_file(&path, ROOTS_BYTES_MAX)?;
            ServerRoots::from_pem(&pem).map_err(CliError::in_file(&path))
        }
    }
}
