//! Streams to an adapter host: over an attested channel, or over plain TCP on request.

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use confide_channel::{ChannelError, Client, ClientOptions, PlainClient};
use confide_client::{AppraisalError, PolicyAppraiser, error_chain, failed_check};
use confide_evidence::Attest;
use confide_lora::holder::{EvidenceRefused, HostConnector, HostStream, StreamFuture};
use tokio::{io::BufReader, net::TcpStream};

use crate::{
    attest::arguments::client_evidence, binding::BindingName, error::CliError, files::read_file,
    policy, process,
};

/// Deadline of the handshake and the evidence of one connection, at either end; `lora` keeps another
/// one over the whole dial.
pub(super) const CHANNEL_DEADLINE: Duration = Duration::from_secs(15);
/// Bytes of the read buffer: ciphertexts come by the megabyte, and TLS asks for 4 KiB at a time.
pub(super) const READ_BUFFER_BYTES: usize = 64 * 1024;
/// The longest certificate, in bytes: it is a single self-signed one.
const CERTIFICATE_BYTES_MAX: u64 = 64 * 1024;
/// The claim of a key holder that attests.
const HOLDER_CLAIM: &str = "key holder of private adapters";

/// How an adapter host is reached, and what its evidence must satisfy.
#[derive(Clone, Default)]
pub(crate) struct DialArgs {
    /// Address of the host, `HOST:PORT`.
    pub(crate) host: String,
    /// The policy for the host's evidence; without one, none is demanded.
    pub(crate) policy: Option<PathBuf>,
    /// How evidence is bound to the connection; by default `key`, or `session` where this end attests.
    pub(crate) binding: Option<BindingName>,
    /// The evidence of this end.
    pub(crate) attester: Option<Arc<dyn Attest>>,
    /// The certificate (DER) by which a host without evidence is authenticated, where this end attests.
    pub(crate) certificate: Option<PathBuf>,
    /// Whether plain TCP is allowed to hosts beyond loopback.
    pub(crate) dangerous_plain: bool,
}

/// Makes the connector that opens streams as `dial` says.
pub(crate) fn build_connector(dial: &DialArgs) -> Result<Arc<dyn HostConnector>, CliError> {
    let evidence = dial.attester.clone();
    let transport = match (&dial.policy, &dial.certificate) {
        (Some(path), _) => attested_transport(path, dial, evidence.clone())?,
        (None, Some(path)) => certified_transport(path, evidence.clone())?,
        (None, None) => plain_transport(dial)?,
    };
    let simulated = evidence.is_some_and(|attester| attester.is_simulated());
    let name = server_name(&dial.host).to_owned();
    Ok(Arc::new(HostDialler { host: dial.host.clone(), name, transport, simulated }))
}

struct HostDialler {
    host: String,
    name: String,
    transport: Transport,
    /// Whether the evidence of this end is simulated.
    simulated: bool,
}

enum Transport {
    Attested(Client<PolicyAppraiser>),
    Certified(PlainClient),
    Plain,
}

impl HostConnector for HostDialler {
    fn connect(&self) -> StreamFuture<'_> {
        Box::pin(async {
            let stream = TcpStream::connect(&self.host).await?;
            // Each vector is a small write that the next layer waits for.
            stream.set_nodelay(true)?;
            let stream = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
            match &self.transport {
                Transport::Attested(client) => {
                    let attested = client.connect(&self.name, stream).await;
                    let attested = attested.map_err(to_io_error)?;
                    let (stream, appraised, _) = attested.into_parts();
                    let simulated = self.simulated || appraised.is_simulated();
                    Ok(HostStream { stream: Box::new(stream), simulated })
                }
                Transport::Certified(client) => {
                    let connected = client.connect(&self.name, stream).await;
                    let connected = connected.map_err(to_io_error)?;
                    let stream = Box::new(connected.stream);
                    Ok(HostStream { stream, simulated: self.simulated })
                }
                Transport::Plain => {
                    Ok(HostStream { stream: Box::new(stream), simulated: self.simulated })
                }
            }
        })
    }

    fn host(&self) -> String {
        self.host.clone()
    }
}

fn attested_transport(
    policy: &Path,
    dial: &DialArgs,
    evidence: Option<Arc<dyn Attest>>,
) -> Result<Transport, CliError> {
    let appraiser = policy::file::read_appraiser(policy)?;
    let binding = match dial.binding {
        None if evidence.is_some() => BindingName::Session,
        None => BindingName::Key,
        Some(BindingName::None) => {
            let text = "a policy for the adapter host needs evidence, got binding `none`";
            return Err(
                CliError::new(text).with_hint("remove the policy or choose another binding")
            );
        }
        Some(binding) => binding,
    };
    let options = ClientOptions { binding: binding.into(), deadline: CHANNEL_DEADLINE };
    let client = Client::new(options, Arc::new(appraiser)).map_err(explain_channel_error)?;
    let Some(attester) = evidence else { return Ok(Transport::Attested(client)) };
    let client = client.with_evidence(client_evidence(attester, HOLDER_CLAIM));
    client.map(Transport::Attested).map_err(explain_channel_error)
}

fn certified_transport(
    certificate: &Path,
    evidence: Option<Arc<dyn Attest>>,
) -> Result<Transport, CliError> {
    let Some(attester) = evidence else {
        return Err(CliError::new(
            "the host shows no evidence and demands that of this end, which has none",
        )
        .with_hint("name an attester for this end, or give a policy for the host's evidence"));
    };
    let root = read_file(certificate, CERTIFICATE_BYTES_MAX)?;
    let options =
        ClientOptions { binding: confide_channel::Binding::None, deadline: CHANNEL_DEADLINE };
    let client = PlainClient::new(options, &root, process::unix_now)
        .and_then(|client| client.with_evidence(client_evidence(attester, HOLDER_CLAIM)))
        .map_err(explain_channel_error)?;
    Ok(Transport::Certified(client))
}

fn plain_transport(dial: &DialArgs) -> Result<Transport, CliError> {
    if dial.attester.is_some() {
        return Err(CliError::new("this end's evidence is only sent over an attested channel")
            .with_hint("give a policy for the host's evidence"));
    }
    if !is_loopback(&dial.host) && !dial.dangerous_plain {
        let text = format!("{} is not loopback: nothing would authenticate it", dial.host);
        return Err(CliError::new(text).with_hint(
            "give a policy for its evidence, or allow plain TCP with the dangerous flag",
        ));
    }
    Ok(Transport::Plain)
}

fn server_name(host: &str) -> &str {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.trim_start_matches('[').trim_end_matches(']')
}

pub(crate) fn is_loopback(host: &str) -> bool {
    let name = server_name(host);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Keeps refused evidence apart from a host that is not reachable: the session handles them differently.
fn to_io_error(error: ChannelError) -> io::Error {
    let Some(check) = failed_check(&error) else { return io::Error::other(error_chain(&error)) };
    let rejection = error.rejection::<AppraisalError>().map(ToString::to_string);
    let reason = rejection.unwrap_or_else(|| error_chain(&error));
    io::Error::other(EvidenceRefused { check: check.into(), reason })
}

fn explain_channel_error(error: ChannelError) -> CliError {
    CliError::new(error_chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dial(host: &str) -> DialArgs {
        DialArgs { host: host.into(), ..DialArgs::default() }
    }

    #[test]
    fn plain_tcp_leaves_this_machine_only_where_that_is_asked_for() {
        for host in ["127.0.0.1:7", "localhost:7", "[::1]:7"] {
            assert!(build_connector(&dial(host)).is_ok(), "{host}");
        }
        for host in ["adapters.example:7", "10.0.0.1:7", "localhost.example:7"] {
            assert!(build_connector(&dial(host)).is_err(), "{host}");
            assert!(
                build_connector(&DialArgs { dangerous_plain: true, ..dial(host) }).is_ok(),
                "{host}"
            );
        }
    }

    #[test]
    fn a_policy_without_evidence_is_a_contradiction() {
        let none = DialArgs {
            policy: Some("policy.toml".into()),
            binding: Some(BindingName::None),
            ..dial("127.0.0.1:7")
        };
        assert!(build_connector(&none).is_err());
    }
}
