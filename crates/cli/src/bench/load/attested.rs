//! Attested TLS as a transport of the load generator.

use std::{path::Path, sync::Arc, time::Duration};

use confide_channel::{Binding, ChannelTimings, Client, ClientOptions, tunnel};
use confide_client::{PolicyAppraiser, SharedAppraisal, error_chain};
use confide_load::{
    Attestation, Clock, ConnectStages, OpenedConnection, Opening, Target, TcpTransport, Transport,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{error::CliError, policy::file, process};

/// The longest time for handshake, evidence and appraisal together, and for the upgrade of a tunnel.
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum BindingName {
    /// Evidence in the certificate, bound to the TLS key
    Key,
    /// Evidence after the handshake, bound to this TLS session
    Session,
}

/// Attested TLS, in which the evidence of every connection is appraised again.
pub(super) struct AttestedTransport {
    tcp: TcpTransport,
    host: String,
    authority: String,
    via: Option<String>,
    client: Client<PolicyAppraiser>,
    shown: String,
}

impl AttestedTransport {
    pub(super) fn new(
        target: &Target,
        policy: &Path,
        binding: BindingName,
        via: Option<String>,
    ) -> Result<Self, CliError> {
        let policy = file::read_policy(policy)?;
        let appraiser = PolicyAppraiser::new(policy, None, process::unix_now)
            .map_err(|error| CliError::new(error_chain(&error)))?;
        let (binding, word) = match binding {
            BindingName::Key => (Binding::Key, "key"),
            BindingName::Session => (Binding::Session, "session"),
        };
        let options = ClientOptions { binding, deadline: DEADLINE };
        let client = Client::new(options, Arc::new(appraiser))
            .map_err(|error| CliError::new(error_chain(&error)))?;
        let through = if via.is_some() { ", through a tunnel" } else { "" };
        Ok(Self {
            tcp: TcpTransport::new(&target.host, target.port),
            host: target.host.clone(),
            authority: target.authority(),
            via,
            client,
            shown: format!("attested tls 1.3, {word} binding{through}"),
        })
    }

    async fn open_channel<S>(
        &self,
        io: S,
        mut stages: ConnectStages,
        clock: Clock,
    ) -> Result<OpenedConnection, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let started_s = clock.now_s();
        let attested = self.client.connect(&self.host, io).await;
        let (wire, appraised, timings) =
            attested.map_err(|error| error_chain(&error))?.into_parts();
        stages.handshake_s = Some(started_s + timings.handshake.as_secs_f64());
        stages.attested_s = Some(clock.now_s());
        stages.attestation = Some(to_attestation(&timings, &appraised));
        Ok(OpenedConnection { wire: Box::new(wire), stages })
    }
}

impl Transport for AttestedTransport {
    fn open(&self, clock: Clock) -> Opening<'_> {
        Box::pin(async move {
            let Some(via) = &self.via else {
                let (stream, stages) = self.tcp.dial(clock).await?;
                return self.open_channel(stream, stages, clock).await;
            };
            let stream = tunnel::dial(via, &self.authority, DEADLINE).await;
            let stream = stream.map_err(|error| error_chain(&error))?;
            let stages =
                ConnectStages { connected_s: Some(clock.now_s()), ..ConnectStages::default() };
            self.open_channel(stream, stages, clock).await
        })
    }

    fn describe(&self) -> String {
        self.shown.clone()
    }
}

fn to_attestation(timings: &ChannelTimings, appraised: &SharedAppraisal) -> Attestation {
    let collateral = appraised.collateral_duration();
    Attestation {
        quote_s: timings.quote.as_secs_f64(),
        collateral_s: collateral.as_secs_f64(),
        appraisal_s: timings.appraisal.saturating_sub(collateral).as_secs_f64(),
    }
}
