//! What a connection has to come through before a word of the blind protocol is said.

use std::{sync::Arc, time::Duration};

use confide_channel::{Binding, Server, ServerOptions};
use confide_client::{PolicyAppraiser, with_causes};
use confide_evidence::Attest;
use confide_http::PeerStream;
use confide_lora::{
    holder::Stream,
    host::{Peer, PeerPrefix},
};
use tokio::io::BufReader;

use super::{Args, key_validity};
use crate::{error::CliError, features::NO_ATTESTER_HINT, gateway::BindingName, policy, process};

/// Handshake and evidence of one connection.
const CHANNEL_DEADLINE: Duration = Duration::from_secs(15);
/// Ciphertexts come by the megabyte, and TLS asks for 4 KiB at a time.
const READ_BUFFER_BYTES: usize = 64 * 1024;
/// What this end says of itself in its claims.
const CLAIM: &str = "adapter host";

/// The way in.
pub(super) enum Door {
    /// Plain TCP.
    Open,
    /// An attested channel; the key holder's evidence may be demanded too.
    Channel { server: Box<Server>, demand: Option<Box<PolicyAppraiser>>, simulated: bool },
}

/// Makes the key and, with key binding, the evidence.
pub(super) fn door(args: &Args, config_digest: [u8; 32]) -> Result<Door, CliError> {
    let demand = match &args.client_policy {
        None => None,
        Some(path) => Some(
            PolicyAppraiser::new(policy::file::read(path)?, None, process::unix_now)
                .map(Box::new)
                .map_err(CliError::new)?,
        ),
    };
    let server = match (args.binding, &demand) {
        (BindingName::None, None) => return Ok(Door::Open),
        (BindingName::None, Some(_)) => {
            let options = options(args, Binding::Session, config_digest);
            Server::without_evidence(options, process::unix_now).map(|server| (server, false))
        }
        (BindingName::Key, Some(_)) => {
            let text = "evidence of key holders is demanded with session binding only";
            return Err(CliError::new(text).hint("add --binding session"));
        }
        (binding, _) => {
            let attester = attester(args)?;
            let simulated = attester.is_simulated();
            let options = options(args, binding.into(), config_digest);
            Server::new(options, Some(attester), process::unix_now)
                .map(|server| (server, simulated))
        }
    };
    let (server, simulated) = server.map_err(|error| CliError::new(with_causes(&error)))?;
    if let Some(path) = &args.certificate_out {
        std::fs::write(path, server.certificate_der())
            .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(Door::Channel { server: Box::new(server), demand, simulated })
}

impl Door {
    /// Whether the evidence that this end shows is simulated.
    pub(super) fn simulated(&self) -> bool {
        matches!(self, Door::Channel { simulated: true, .. })
    }

    /// Takes a connection through; `None` where it was refused, which the log says.
    pub(super) async fn pass(
        &self,
        stream: PeerStream,
        prefix: Option<PeerPrefix>,
    ) -> Option<(Box<dyn Stream>, Peer)> {
        let stream = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
        let Door::Channel { server, demand, simulated } = self else {
            return Some((Box::new(stream), Peer { prefix, ..Peer::default() }));
        };
        let passed = match demand {
            None => server.accept(stream).await.map(|accepted| {
                let peer = Peer { attested: false, simulated: *simulated, prefix };
                (Box::new(accepted.stream) as Box<dyn Stream>, peer)
            }),
            Some(appraiser) => server.accept_attested(&**appraiser, stream).await.map(|attested| {
                let (stream, appraised, _) = attested.into_parts();
                let simulated = *simulated || appraised.is_simulated();
                (Box::new(stream) as Box<dyn Stream>, Peer { attested: true, simulated, prefix })
            }),
        };
        passed
            .inspect_err(|error| {
                tracing::info!(error = %with_causes(error), "a key holder was not let in");
            })
            .ok()
    }
}

fn options(args: &Args, binding: Binding, config_digest: [u8; 32]) -> ServerOptions {
    let mut names = vec!["localhost".to_owned()];
    if !args.listen.ip().is_unspecified() {
        names.push(args.listen.ip().to_string());
    }
    ServerOptions {
        binding,
        config_digest,
        guarantee: CLAIM.into(),
        key_validity: key_validity(args),
        deadline: CHANNEL_DEADLINE,
        names,
    }
}

fn attester(args: &Args) -> Result<Arc<dyn Attest>, CliError> {
    let attester = args.attester.open(args.collateral.as_deref())?;
    attester.ok_or_else(|| {
        CliError::new("this adapter host has no attester")
            .hint(format!("{NO_ATTESTER_HINT}, or give --binding none for plain TCP"))
    })
}
