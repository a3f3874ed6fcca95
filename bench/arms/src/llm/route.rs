//! The kinds of channel, as transports of the load generator.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{clock::unix_now, trust::ChannelArgs};
use confide_arm_line::{ArmError, Outcome};
use confide_channel::{
    Binding, Client, ClientOptions, PlainClient,
    tunnel::{self, TunnelStream},
};
use confide_client::{PolicyAppraiser, SharedAppraisal, error_chain};
use confide_load::{
    Attestation, Clock, ConnectStages, OpenedConnection, Opening, TcpTransport, Transport,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// The deadline of handshake, evidence and appraisal together, and that of a tunnel's upgrade.
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct RouteArgs {
    /// `plain`: HTTP in the clear. `tls`: ordinary TLS. `key`, `session`: attested TLS with that
    /// binding.
    #[arg(long)]
    mode: String,
    #[command(flatten)]
    channel: ChannelArgs,
}

impl RouteArgs {
    pub(super) fn server(&self) -> &str {
        &self.channel.server
    }
}

/// How connections are opened.
pub(super) struct Route {
    tcp: TcpTransport,
    host: String,
    server: String,
    via: Option<String>,
    security: Security,
    description: String,
}

enum Security {
    Plain,
    Tls(PlainClient),
    Attested(Client<PolicyAppraiser>),
}

/// Properties of the channel that one connection shows.
pub(super) struct ChannelFacts {
    pub(super) guarantee: String,
    pub(super) simulated: bool,
}

impl Route {
    pub(super) fn new(args: &RouteArgs) -> Outcome<Self> {
        let (host, port) =
            args.channel.server.rsplit_once(':').ok_or("--server: wanted HOST:PORT")?;
        let port = port.parse().map_err(|_| "--server: wanted HOST:PORT")?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let options = |binding| ClientOptions { binding, deadline: DEADLINE };
        let attested = |binding| {
            let client =
                Client::new(options(binding), Arc::new(args.channel.open_appraiser(None)?));
            Ok::<_, ArmError>(Security::Attested(client.map_err(|error| error_chain(&error))?))
        };
        let security = match args.mode.as_str() {
            "plain" => Security::Plain,
            "tls" => {
                let root = args.channel.read_root()?;
                let client = PlainClient::new(options(Binding::None), &root, unix_now);
                Security::Tls(client.map_err(|error| error_chain(&error))?)
            }
            "key" => attested(Binding::Key)?,
            "session" => attested(Binding::Session)?,
            other => {
                return Err(format!("--mode {other}: wanted plain, tls, key or session").into());
            }
        };
        if matches!(security, Security::Plain) && args.channel.via.is_some() {
            return Err(
                "--mode plain cannot be used with --via: the tunnel would read everything".into()
            );
        }
        let through = args.channel.describe_tunnel();
        let description = match &security {
            Security::Plain => "plain HTTP".to_owned(),
            Security::Tls(_) => format!("tls 1.3, every handshake full{through}"),
            Security::Attested(_) => format!("attested tls 1.3, {} binding{through}", args.mode),
        };
        let (host, server) = (host.to_owned(), args.channel.server.clone());
        Ok(Self {
            tcp: TcpTransport::new(&host, port),
            host,
            server,
            via: args.channel.via.clone(),
            security,
            description,
        })
    }

    /// Opens one connection before anything is measured.
    pub(super) fn probe(&self) -> Outcome<ChannelFacts> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime?;
        let (_, appraised) = runtime.block_on(self.connect(Clock::new(Instant::now())))?;
        Ok(ChannelFacts {
            guarantee: appraised.as_ref().map_or("none".into(), |it| it.guarantee().into()),
            simulated: appraised.is_some_and(|it| it.is_simulated()),
        })
    }

    async fn connect(&self, clock: Clock) -> Outcome<(OpenedConnection, Option<SharedAppraisal>)> {
        match &self.via {
            None => {
                let (stream, stages) = self.tcp.dial(clock).await?;
                self.secure_tcp(stream, stages, clock).await
            }
            Some(via) => {
                let stream: TunnelStream = tunnel::dial(via, &self.server, DEADLINE)
                    .await
                    .map_err(|error| error_chain(&error))?;
                let stages =
                    ConnectStages { connected_s: Some(clock.now_s()), ..ConnectStages::default() };
                self.secure_stream(stream, stages, clock).await
            }
        }
    }

    async fn secure_tcp(
        &self,
        stream: TcpStream,
        stages: ConnectStages,
        clock: Clock,
    ) -> Outcome<(OpenedConnection, Option<SharedAppraisal>)> {
        match self.security {
            Security::Plain => Ok((OpenedConnection { wire: Box::new(stream), stages }, None)),
            _ => self.secure_stream(stream, stages, clock).await,
        }
    }

    async fn secure_stream<S>(
        &self,
        io: S,
        mut stages: ConnectStages,
        clock: Clock,
    ) -> Outcome<(OpenedConnection, Option<SharedAppraisal>)>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let started_s = clock.now_s();
        match &self.security {
            Security::Plain => Ok((OpenedConnection { wire: Box::new(io), stages }, None)),
            Security::Tls(client) => {
                let connected = client.connect(&self.host, io).await;
                let connected = connected.map_err(|error| error_chain(&error))?;
                stages.handshake_s = Some(clock.now_s());
                Ok((OpenedConnection { wire: Box::new(connected.stream), stages }, None))
            }
            Security::Attested(client) => {
                let attested = client.connect(&self.host, io).await;
                let (wire, appraised, timings) =
                    attested.map_err(|error| error_chain(&error))?.into_parts();
                let collateral = appraised.collateral_duration();
                stages.handshake_s = Some(started_s + timings.handshake.as_secs_f64());
                stages.attested_s = Some(clock.now_s());
                stages.attestation = Some(Attestation {
                    quote_s: timings.quote.as_secs_f64(),
                    collateral_s: collateral.as_secs_f64(),
                    appraisal_s: timings.appraisal.saturating_sub(collateral).as_secs_f64(),
                });
                Ok((OpenedConnection { wire: Box::new(wire), stages }, Some(appraised)))
            }
        }
    }
}

impl Transport for Route {
    fn open(&self, clock: Clock) -> Opening<'_> {
        Box::pin(async move {
            let (opened, _) = self.connect(clock).await.map_err(|error| error.to_string())?;
            Ok(opened)
        })
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}
