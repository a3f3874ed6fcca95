//! The arguments of `confide adapter host`.

use std::{net::SocketAddr, path::PathBuf};

use confide_lora::host::HostLimits;

use super::budgets::BudgetArgs;
use crate::{
    adapter::parameters::{ParameterArgs, ProtectedMatricesName},
    address::parse_listen_address,
    binding::BindingName,
    connections::ConnectionArgs,
    server_flags::ServerEvidenceArgs,
};

/// The arguments of `confide adapter host`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Adapter folders as PEFT writes them; each adapter takes the name of its folder
    #[arg(value_name = "DIR", required = true)]
    pub(super) adapters: Vec<PathBuf>,
    /// Address for key holders; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen_address)]
    pub(super) listen: SocketAddr,
    /// How evidence is bound to connections; `none` is plain TCP
    #[arg(long, value_enum, default_value_t = BindingName::Key)]
    pub(super) binding: BindingName,
    #[command(flatten)]
    pub(super) evidence: ServerEvidenceArgs,
    /// Demand evidence from key holders and appraise it by this policy; accepted key holders have no
    /// budget. Needs --binding session or none
    #[arg(long, value_name = "FILE")]
    pub(super) client_policy: Option<PathBuf>,
    /// Write the certificate (DER) to this file: key holders need it if the host demands evidence
    /// and shows none
    #[arg(long, value_name = "FILE", requires = "client_policy")]
    pub(super) certificate_out: Option<PathBuf>,
    /// Serve only the clients in this file, each with a budget of its own: one line per client, with its
    /// name and the SHA-256 of its credential. Without this option, all clients share one budget for each
    /// adapter. Colluding clients can use the sum of their budgets
    #[arg(long, value_name = "FILE")]
    pub(super) clients: Option<PathBuf>,
    /// Largest number of answers for each client, adapter and input; by default one fewer than the input's
    /// width. A budget cannot prevent a client from learning the adapter: see LIMITATIONS.md
    #[arg(long, value_name = "N")]
    pub(super) budget: Option<u64>,
    #[command(flatten)]
    pub(super) budgets: BudgetArgs,
    /// The matrices that never leave the host: `a` keeps A and hands B to the key holder, `ba`
    /// keeps both
    #[arg(long, value_enum, default_value_t = ProtectedMatricesName::A)]
    pub(super) protect: ProtectedMatricesName,
    /// Standard deviation of the noise added to each answer, in the answer's integer units
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    pub(super) noise_sigma: f64,
    #[command(flatten)]
    pub(super) parameters: ParameterArgs,
    /// Append the count of answers for each client to this file; by default only the last lines are kept,
    /// in memory
    #[arg(long, value_name = "FILE")]
    pub(super) audit_log: Option<PathBuf>,
    /// Largest rank of an adapter
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(super) max_rank: usize,
    #[command(flatten)]
    pub(super) connections: ConnectionArgs,
    /// Print the digest of the configuration, for a key holder's policy, and exit
    #[arg(long)]
    pub(super) print_config_digest: bool,
    /// Largest number of open sessions; when it is reached, a new session evicts the one that was
    /// idle longest
    #[arg(long, value_name = "N", default_value_t = HostLimits::default().sessions,
          value_parser = parse_count)]
    pub(super) max_sessions: usize,
    /// Largest number of open sessions of one peer: an IPv4 address, or the /64 network of an IPv6 address
    #[arg(long, value_name = "N", default_value_t = HostLimits::default().sessions_per_peer,
          value_parser = parse_count)]
    pub(super) sessions_per_peer: usize,
    /// Mask batches prepared at once for one peer; the host prepares at most four in all
    #[arg(long, value_name = "N", default_value_t = HostLimits::default().preparations_per_peer,
          value_parser = parse_count)]
    pub(super) preparations_per_peer: usize,
    /// Listen beyond loopback without an attested channel: nothing authenticates the host to key holders
    #[arg(long)]
    pub(super) dangerous_listen_beyond_loopback: bool,
    /// Serve key holders beyond loopback without evidence or a credential: any of them can learn the
    /// adapter
    #[arg(long)]
    pub(super) dangerous_answer_strangers: bool,
}

fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=65_536).contains(count));
    count.ok_or_else(|| "wanted a number from 1 to 65536".into())
}

impl Args {
    /// The binding as it stands in the ready line and in the configuration's digest.
    pub(super) fn binding_name(&self) -> &'static str {
        match self.binding {
            BindingName::None if self.client_policy.is_some() => "session, without evidence",
            BindingName::None => "none",
            BindingName::Key => "key",
            BindingName::Session => "session",
        }
    }
}
