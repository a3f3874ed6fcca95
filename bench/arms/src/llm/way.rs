//! The kinds of channel, as transports of the load generator.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use confide_channel::{
    Binding, Client, ClientOptions, PlainClient,
    tunnel::{self, TunnelStream},
};
use confide_client::{PolicyAppraiser, SharedAppraisal, with_causes};
use confide_evidence::pem::decode_chain;
use confide_load::{Attestation, Clock, Opened, Opening, Stages, Tcp, Transport};
use confide_verifier::Policy;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{Outcome, read};

/// Handshake, evidence and appraisal together, and the upgrade of a tunnel.
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct WayArgs {
    /// `plain`: HTTP in the clear. `tls`: ordinary TLS. `key`, `session`: attested TLS with that
    /// binding.
    #[arg(long)]
    mode: String,
    /// The server, HOST:PORT.
    #[arg(long)]
    server: String,
    /// The certificate that `tls` trusts (PEM).
    #[arg(long)]
    root: Option<PathBuf>,
    /// The policy of attested modes.
    #[arg(long)]
    policy: Option<PathBuf>,
    /// A tunnel, ws://HOST:PORT.
    #[arg(long)]
    via: Option<String>,
}

impl WayArgs {
    pub(super) fn server(&self) -> &str {
        &self.server
    }
}

/// How connections are opened.
pub(super) struct Route {
    tcp: Tcp,
    host: String,
    server: String,
    via: Option<String>,
    secure: Secure,
    shown: String,
}

enum Secure {
    No,
    Tls(PlainClient),
    Attested(Client<PolicyAppraiser>),
}

/// What one connection says of the channel.
pub(super) struct ChannelFacts {
    pub(super) guarantee: String,
    pub(super) simulated: bool,
}

impl Route {
    pub(super) fn new(args: &WayArgs) -> Outcome<Self> {
        let (host, port) = args.server.rsplit_once(':').ok_or("--server: wanted HOST:PORT")?;
        let port = port.parse().map_err(|_| "--server: wanted HOST:PORT")?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let options = |binding| ClientOptions { binding, deadline: DEADLINE };
        let attested = |binding| {
            let client = Client::new(options(binding), Arc::new(appraiser(args)?));
            client.map(Secure::Attested).map_err(|error| with_causes(&error))
        };
        let secure = match args.mode.as_str() {
            "plain" => Secure::No,
            "tls" => {
                let path = args.root.as_ref().ok_or("--mode tls needs --root FILE")?;
                let roots =
                    decode_chain("--root", &read(path)?).map_err(|error| error.to_string())?;
                let root = roots.first().ok_or("--root: no certificate in the file")?;
                let client = PlainClient::new(options(Binding::None), root, unix_now);
                Secure::Tls(client.map_err(|error| with_causes(&error))?)
            }
            "key" => attested(Binding::Key)?,
            "session" => attested(Binding::Session)?,
            other => return Err(format!("--mode {other}: wanted plain, tls, key or session")),
        };
        if matches!(secure, Secure::No) && args.via.is_some() {
            return Err("--mode plain goes through no tunnel: it would read everything".into());
        }
        let through = if args.via.is_some() { ", through the tunnel" } else { "" };
        let shown = match &secure {
            Secure::No => "plain HTTP".to_owned(),
            Secure::Tls(_) => format!("tls 1.3, every handshake full{through}"),
            Secure::Attested(_) => format!("attested tls 1.3, {} binding{through}", args.mode),
        };
        let (host, server) = (host.to_owned(), args.server.clone());
        Ok(Self { tcp: Tcp::new(&host, port), host, server, via: args.via.clone(), secure, shown })
    }

    /// Opens one connection before anything is measured.
    pub(super) fn look(&self) -> Outcome<ChannelFacts> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let (_, appraised) = runtime.block_on(self.connect(Clock::new(Instant::now())))?;
        Ok(ChannelFacts {
            guarantee: appraised.as_ref().map_or("none".into(), |it| it.guarantee().into()),
            simulated: appraised.is_some_and(|it| it.is_simulated()),
        })
    }

    async fn connect(&self, clock: Clock) -> Outcome<(Opened, Option<SharedAppraisal>)> {
        match &self.via {
            None => {
                let (stream, stages) = self.tcp.dial(clock).await?;
                self.on_tcp(stream, stages, clock).await
            }
            Some(via) => {
                let stream: TunnelStream = tunnel::dial(via, &self.server, DEADLINE)
                    .await
                    .map_err(|error| with_causes(&error))?;
                let stages = Stages { connected_s: Some(clock.now_s()), ..Stages::default() };
                self.secured(stream, stages, clock).await
            }
        }
    }

    async fn on_tcp(
        &self,
        stream: TcpStream,
        stages: Stages,
        clock: Clock,
    ) -> Outcome<(Opened, Option<SharedAppraisal>)> {
        match self.secure {
            Secure::No => Ok((Opened { wire: Box::new(stream), stages }, None)),
            _ => self.secured(stream, stages, clock).await,
        }
    }

    async fn secured<S>(
        &self,
        io: S,
        mut stages: Stages,
        clock: Clock,
    ) -> Outcome<(Opened, Option<SharedAppraisal>)>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let started_s = clock.now_s();
        match &self.secure {
            Secure::No => Ok((Opened { wire: Box::new(io), stages }, None)),
            Secure::Tls(client) => {
                let connected = client.connect(&self.host, io).await;
                let connected = connected.map_err(|error| with_causes(&error))?;
                stages.handshake_s = Some(clock.now_s());
                Ok((Opened { wire: Box::new(connected.stream), stages }, None))
            }
            Secure::Attested(client) => {
                let attested = client.connect(&self.host, io).await;
                let (wire, appraised, timings) =
                    attested.map_err(|error| with_causes(&error))?.into_parts();
                let collateral = appraised.collateral_time();
                stages.handshake_s = Some(started_s + timings.handshake.as_secs_f64());
                stages.attested_s = Some(clock.now_s());
                stages.attestation = Some(Attestation {
                    quote_s: timings.quote.as_secs_f64(),
                    collateral_s: collateral.as_secs_f64(),
                    appraisal_s: timings.appraisal.saturating_sub(collateral).as_secs_f64(),
                });
                Ok((Opened { wire: Box::new(wire), stages }, Some(appraised)))
            }
        }
    }
}

impl Transport for Route {
    fn open(&self, clock: Clock) -> Opening<'_> {
        Box::pin(async move { self.connect(clock).await.map(|(opened, _)| opened) })
    }

    fn describe(&self) -> String {
        self.shown.clone()
    }
}

/// Endorsements are those that the server staples.
fn appraiser(args: &WayArgs) -> Outcome<PolicyAppraiser> {
    let path = args.policy.as_ref().ok_or("attested modes need --policy FILE")?;
    let text = String::from_utf8(read(path)?).map_err(|error| error.to_string())?;
    let policy = Policy::from_toml(&text).map_err(|error| error.to_string())?;
    PolicyAppraiser::new(policy, None, unix_now).map_err(|error| with_causes(&error))
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
