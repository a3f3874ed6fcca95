//! `confide notary serve`: the notary itself.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use confide_channel::Binding;
use confide_client::{PolicyAppraiser, with_causes};
use confide_lora::host::Clients;
use confide_notary::{
    Drained, GUARANTEE, KeyError, KnownClients, Notary, NotaryError, NotaryPolicy, Options,
    POLICY_BYTES_MAX, Roots, RootsFrom,
};
use serde_json::{Map, Value, json};

use super::fetch::BindingName;
use crate::{
    adapter::read_clients,
    address::listen_address,
    attest::chosen::AttesterArgs,
    connections::ConnectionArgs,
    error::{CliError, read_file},
    features::NO_ATTESTER_HINT,
    policy, process,
};

/// A system's whole store of roots is about 200 KiB.
const ROOTS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Who sets the clock that stands in statements: said wherever a time is shown.
pub(super) const CLOCK: &str = "the notary's clock, set by its operator";

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where clients connect; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address,
          required_unless_present = "print_config_digest")]
    listen: Option<SocketAddr>,
    /// Which hosts it fetches from, as TOML: hosts, roots, addresses, limits
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// How evidence is tied to connections
    #[arg(long, value_enum, default_value_t = BindingName::Key)]
    binding: BindingName,
    #[command(flatten)]
    attester: AttesterArgs,
    /// Staple these endorsements instead of the attester's own
    #[arg(long, value_name = "FILE")]
    collateral: Option<PathBuf>,
    /// How long the channel's key and the signing key live before new ones take their place, in
    /// seconds
    #[arg(long, value_name = "N", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(60..=604_800))]
    key_validity_s: u64,
    /// A further name in the certificate; may be given several times
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    #[command(flatten)]
    connections: ConnectionArgs,
    /// Let only those clients in whose own evidence this policy accepts; needs --binding session
    #[arg(long, value_name = "FILE")]
    client_policy: Option<PathBuf>,
    /// The clients that it fetches for: lines of a name and the SHA-256 of its credential. Without
    /// it and --client-policy any client that reaches --listen is served: it verifies the notary, not
    /// the reverse
    #[arg(long, value_name = "FILE")]
    clients: Option<PathBuf>,
    /// Print the digest of the effective configuration and end
    #[arg(long)]
    print_config_digest: bool,
}

/// Clients by the list that adapter hosts have too.
struct Listed(Clients);

impl KnownClients for Listed {
    fn name_of(&self, credential: &[u8]) -> Option<String> {
        self.0.name_of(credential).map(str::to_owned)
    }
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let policy = policy(&args.policy)?;
    let roots = roots(&args.policy, policy.roots())?;
    let binding: Binding = args.binding.into();
    if args.print_config_digest {
        let digest = policy.digest(binding.name(), &roots).map_err(CliError::new)?;
        println!("{}", hex::encode(digest));
        return Ok(ExitCode::SUCCESS);
    }
    let Some(listen) = args.listen else {
        return Err(CliError::new("there is no address to listen on").hint("give --listen"));
    };
    process::run_to_end(serve(args, listen, policy, roots))?
}

async fn serve(
    args: Args,
    listen: SocketAddr,
    policy: NotaryPolicy,
    roots: Roots,
) -> Result<ExitCode, CliError> {
    // One for the whole life: a signal that comes between two of them would be seen by neither.
    let stop = pin!(process::asked_to_stop());
    let attester = args
        .attester
        .open(args.collateral.as_deref())?
        .ok_or_else(|| CliError::new("this notary has no attester").hint(NO_ATTESTER_HINT))?;
    let admission = args.connections.admission()?;
    let hosts = policy.hosts();
    let binding: Binding = args.binding.into();
    let (listener, address) = process::listen(listen).await?;
    let options = Options {
        binding,
        key_validity: Duration::from_secs(args.key_validity_s),
        names: process::names(listen, &args.name),
        policy,
        roots,
    };
    let mut notary = Notary::new(options, attester, process::unix_now)
        .map_err(not_started)?
        .with_admission(admission);
    if let Some(path) = &args.clients {
        notary = notary.for_clients(Box::new(Listed(read_clients(path)?)));
    }
    if let Some(path) = &args.client_policy {
        let appraiser = PolicyAppraiser::new(policy::file::read(path)?, None, process::unix_now)
            .map_err(CliError::new)?;
        notary = notary.for_attested_clients(appraiser).map_err(not_started)?;
    }
    let guarantee = if notary.is_simulated() { "none (simulated)" } else { GUARANTEE };
    let fields = json!({
        "binding": binding.name(),
        "claimed_guarantee": GUARANTEE,
        "clients": describe_clients(&args),
        "clock": CLOCK,
        "config_digest": hex::encode(notary.config_digest()),
        "hosts": hosts,
        "simulated": notary.is_simulated(),
    });
    let fields = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    process::print_ready(address, guarantee, fields);
    if let Drained::Cut(connections) = notary.serve(listener, stop).await {
        tracing::warn!(connections, "cut after the drain deadline");
    }
    Ok(ExitCode::SUCCESS)
}

/// The ready line names which clients the notary serves.
fn describe_clients(args: &Args) -> &'static str {
    match (&args.client_policy, &args.clients) {
        (None, None) => "any",
        (None, Some(_)) => "listed",
        (Some(_), None) => "attested",
        (Some(_), Some(_)) => "attested and listed",
    }
}

fn not_started(error: NotaryError) -> CliError {
    let failure = CliError::new(with_causes(&error));
    match error {
        NotaryError::Key(KeyError::NoEndorsements) => failure.hint(
            "give --collateral FILE, or --collateral-service URL from which they are fetched",
        ),
        NotaryError::Key(KeyError::Validity { .. }) => failure
            .hint("give a longer --key-validity-s, or the policy a shorter limits.exchange_s"),
        NotaryError::ClientBinding => failure.hint("add --binding session"),
        _ => failure,
    }
}

fn policy(path: &Path) -> Result<NotaryPolicy, CliError> {
    let shown = path.display();
    let text = String::from_utf8(read_file(path, POLICY_BYTES_MAX as u64)?)
        .map_err(|_| CliError::new(format!("{shown} is not text: wanted TOML in UTF-8")))?;
    NotaryPolicy::from_toml(&text).map_err(|error| {
        CliError::new(format!("{shown}: {}", error.to_string().trim_end()))
            .hint("docs/notary.md lists every key of a notary's policy")
    })
}

/// A PEM file's path is relative to the policy, so that both can be moved together.
fn roots(policy: &Path, from: &RootsFrom) -> Result<Roots, CliError> {
    match from {
        RootsFrom::System => Roots::system()
            .map_err(|error| CliError::new(error).hint("give `roots` a PEM file instead")),
        RootsFrom::File(name) => {
            let path = policy.parent().unwrap_or(Path::new("")).join(name);
            let pem = read_file(&path, ROOTS_BYTES_MAX)?;
            Roots::from_pem(&pem)
                .map_err(|error| CliError::new(format!("{}: {error}", path.display())))
        }
    }
}
