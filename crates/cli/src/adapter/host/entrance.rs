//! What admits a connection before the blind protocol begins: an attested channel, or nothing.

use confide_channel::{Binding, Server, ServerOptions};
use confide_client::{PolicyAppraiser, error_chain};
use confide_http::PeerStream;
use confide_lora::{
    holder::ByteStream,
    host::{ChannelPeer, PeerPrefix},
};
use tokio::io::BufReader;

use super::arguments::Args;
use crate::{
    adapter::dial::{CHANNEL_DEADLINE, READ_BUFFER_BYTES},
    binding::BindingName,
    error::CliError,
    files::write_file,
    policy, process,
    server_flags::certificate_names,
};

/// The guarantee in the host's claims.
const CLAIM: &str = "adapter host";

/// The entrance of an adapter host.
pub(super) enum ChannelAcceptor {
    /// Plain TCP.
    Plain,
    /// An attested channel; the key holder's evidence may be demanded too.
    Channel { server: Box<Server>, appraiser: Option<Box<PolicyAppraiser>>, simulated: bool },
}

impl ChannelAcceptor {
    /// Makes the channel's key and, with key binding, the evidence.
    pub(super) fn from_args(args: &Args, config_digest: [u8; 32]) -> Result<Self, CliError> {
        let appraiser = args.client_policy.as_deref().map(policy::file::read_appraiser);
        let appraiser = appraiser.transpose()?.map(Box::new);
        let (attester, binding) = match (args.binding, &appraiser) {
            (BindingName::None, None) => return Ok(Self::Plain),
            (BindingName::None, Some(_)) => (None, Binding::Session),
            (BindingName::Key, Some(_)) => {
                let text = "--client-policy needs session binding, got key binding";
                return Err(CliError::new(text).with_hint("add --binding session"));
            }
            (binding, _) => {
                let alternative = ", or give --binding none for plain TCP";
                (
                    Some(args.evidence.open_attester("this adapter host", alternative)?),
                    binding.into(),
                )
            }
        };
        let simulated = attester.as_ref().is_some_and(|attester| attester.is_simulated());
        let options = server_options(args, binding, config_digest);
        let server = match attester {
            None => Server::without_evidence(options, process::unix_now),
            Some(attester) => Server::new(options, Some(attester), process::unix_now),
        };
        let server = server.map_err(|error| CliError::new(error_chain(&error)))?;
        if let Some(path) = &args.certificate_out {
            write_file(path, server.certificate_der())?;
        }
        Ok(Self::Channel { server: Box::new(server), appraiser, simulated })
    }

    /// Whether the evidence that this end shows is simulated.
    pub(super) fn is_simulated(&self) -> bool {
        matches!(self, ChannelAcceptor::Channel { simulated: true, .. })
    }

    /// Admits a connection; `None` if it was refused, which is logged.
    pub(super) async fn accept(
        &self,
        stream: PeerStream,
        prefix: Option<PeerPrefix>,
    ) -> Option<(Box<dyn ByteStream>, ChannelPeer)> {
        let stream = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
        let ChannelAcceptor::Channel { server, appraiser, simulated } = self else {
            return Some((Box::new(stream), ChannelPeer { prefix, ..ChannelPeer::default() }));
        };
        let admitted = match appraiser {
            None => server.accept(stream).await.map(|accepted| {
                let peer = ChannelPeer { attested: false, simulated: *simulated, prefix };
                (Box::new(accepted.stream) as Box<dyn ByteStream>, peer)
            }),
            Some(appraiser) => server.accept_attested(&**appraiser, stream).await.map(|attested| {
                let (stream, appraised, _) = attested.into_parts();
                let simulated = *simulated || appraised.is_simulated();
                (
                    Box::new(stream) as Box<dyn ByteStream>,
                    ChannelPeer { attested: true, simulated, prefix },
                )
            }),
        };
        admitted
            .inspect_err(|error| {
                tracing::info!(error = %error_chain(error), "a key holder was not admitted");
            })
            .ok()
    }
}

fn server_options(args: &Args, binding: Binding, config_digest: [u8; 32]) -> ServerOptions {
    ServerOptions {
        binding,
        config_digest,
        guarantee: CLAIM.into(),
        key_validity: args.evidence.key_validity(),
        deadline: CHANNEL_DEADLINE,
        names: certificate_names(args.listen, &[]),
        weights: None,
    }
}
