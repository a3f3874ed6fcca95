//! Opens connections: TCP or a tunnel, then the channel, then HTTP/1.1.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use confide_appraiser::{PolicyAppraiser, SharedAppraisal};
use confide_channel::{
    Binding, ChannelTimings, Client, ClientEvidence, ClientOptions, EVIDENCE_MEDIA_TYPE,
    EVIDENCE_PATH, FRAME_BYTES_MAX, LivePeer, PlainClient, SessionVersion,
    tunnel::{self, TunnelStream},
};
use confide_http::ExchangeError;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{
    connection::{ConnectTimings, Connection, PeerState},
    endpoint::Endpoint,
    error::ClientError,
    http_proxy::HttpProxy,
    limits::ClientLimits,
    remote_stream::RemoteStream,
    request_body::whole_body,
};

/// Opens connections to one endpoint and appraises each of them.
pub struct Connector {
    endpoint: Endpoint,
    target: String,
    via: Option<String>,
    proxy: Option<HttpProxy>,
    client: ChannelClient,
    limits: ClientLimits,
}

enum ChannelClient {
    Attested { client: Client<PolicyAppraiser>, appraiser: Arc<PolicyAppraiser> },
    Plain(PlainClient),
}

impl Connector {
    /// A connector that accepts a peer only if `appraiser` accepts its evidence; `binding` is `Key`
    /// or `Session`.
    ///
    /// `via` is the `ws://` address of a tunnel that reaches the endpoint.
    ///
    /// # Errors
    /// [`ClientError::Channel`] if the binding is `None`.
    pub fn with_appraiser(
        endpoint: Endpoint,
        via: Option<String>,
        binding: Binding,
        appraiser: Arc<PolicyAppraiser>,
        limits: ClientLimits,
    ) -> Result<Self, ClientError> {
        let target = endpoint.to_string();
        let options = ClientOptions { binding, deadline: limits.channel };
        let client = Client::new(options, appraiser.clone())
            .map_err(|source| ClientError::Channel { target: target.clone(), source })?;
        let client = ChannelClient::Attested { client, appraiser };
        Ok(Self { endpoint, target, via, proxy: None, client, limits })
    }

    /// A connector of ordinary TLS 1.3 that trusts `root_der` and obtains no evidence about the
    /// server: the baseline of comparisons. `clock` returns Unix seconds.
    ///
    /// # Errors
    /// [`ClientError::Channel`] if `root_der` is not a certificate.
    pub fn dangerous_plain_tls(
        endpoint: Endpoint,
        via: Option<String>,
        root_der: &[u8],
        clock: fn() -> u64,
        limits: ClientLimits,
    ) -> Result<Self, ClientError> {
        let target = endpoint.to_string();
        let options = ClientOptions { binding: Binding::None, deadline: limits.channel };
        let client = PlainClient::new(options, root_der, clock)
            .map_err(|source| ClientError::Channel { target: target.clone(), source })?;
        Ok(Self {
            endpoint,
            target,
            via,
            proxy: None,
            client: ChannelClient::Plain(client),
            limits,
        })
    }

    /// A connector of ordinary TLS 1.3 to a proxy that need not be trusted, because bodies are encrypted
    /// to somebody behind it. `roots_der` are the root certificates by which the proxy is verified;
    /// `clock` returns Unix seconds.
    ///
    /// # Errors
    /// [`ClientError::Channel`] if no root is usable.
    pub fn to_proxy(
        endpoint: Endpoint,
        roots_der: impl IntoIterator<Item = Vec<u8>>,
        clock: fn() -> u64,
        limits: ClientLimits,
    ) -> Result<Self, ClientError> {
        let target = endpoint.to_string();
        let options = ClientOptions { binding: Binding::None, deadline: limits.channel };
        let client = PlainClient::with_roots(options, roots_der, clock)
            .map_err(|source| ClientError::Channel { target: target.clone(), source })?;
        Ok(Self {
            endpoint,
            target,
            via: None,
            proxy: None,
            client: ChannelClient::Plain(client),
            limits,
        })
    }

    /// Returns the connector, whose connections now also attest this end if the server demands it
    /// (session binding only).
    ///
    /// # Errors
    /// [`ClientError::Channel`] if the binding is not `Session`, or if no key can be made.
    pub fn with_evidence(self, evidence: ClientEvidence) -> Result<Self, ClientError> {
        let Self { endpoint, target, via, proxy, client, limits } = self;
        let client = match client {
            ChannelClient::Attested { client, appraiser } => client
                .with_evidence(evidence)
                .map(|client| ChannelClient::Attested { client, appraiser }),
            ChannelClient::Plain(client) => {
                client.with_evidence(evidence).map(ChannelClient::Plain)
            }
        };
        match client {
            Ok(client) => Ok(Self { endpoint, target, via, proxy, client, limits }),
            Err(source) => Err(ClientError::Channel { target, source }),
        }
    }

    /// Returns the connector, which offers only this version of the session exchange (session binding
    /// only). By default it offers all, and the server chooses.
    ///
    /// # Errors
    /// [`ClientError::Channel`] if the binding is not `Session`.
    pub fn with_session_version(self, version: SessionVersion) -> Result<Self, ClientError> {
        let Self { endpoint, target, via, proxy, client, limits } = self;
        let client = match client {
            ChannelClient::Attested { client, appraiser } => client
                .with_session_versions(&[version])
                .map(|client| ChannelClient::Attested { client, appraiser }),
            ChannelClient::Plain(_) => {
                let call = "a session version";
                Err(confide_channel::ChannelError::Binding { call, wanted: "session" })
            }
        };
        match client {
            Ok(client) => Ok(Self { endpoint, target, via, proxy, client, limits }),
            Err(source) => Err(ClientError::Channel { target, source }),
        }
    }

    /// Returns the connector, whose connections go through this proxy unless they go through a
    /// tunnel.
    pub fn with_proxy(self, proxy: Option<HttpProxy>) -> Self {
        Self { proxy, ..self }
    }

    /// The attested end.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Opens one connection, appraises the peer and starts HTTP on it.
    ///
    /// # Errors
    /// An error if the address cannot be reached, the evidence is not accepted, or HTTP does not
    /// start.
    pub async fn connect(&self) -> Result<Connection, ClientError> {
        let started = Instant::now();
        match &self.via {
            None => {
                let (stream, round_trips) = self.within_dial_deadline(self.dial()).await??;
                // A request is a small write, which Nagle's algorithm would delay.
                let _ = stream.set_nodelay(true);
                self.open_channel(stream, started.elapsed(), round_trips).await
            }
            Some(via) => {
                let stream = tunnel::dial(via, &self.target, self.limits.dial)
                    .await
                    .map_err(|source| self.channel_error(source))?;
                self.open_channel(stream, started.elapsed(), TunnelStream::ROUND_TRIPS).await
            }
        }
    }

    /// Opens a TCP connection, directly or through the proxy, and counts its round trips.
    async fn dial(&self) -> Result<(TcpStream, u32), ClientError> {
        match &self.proxy {
            Some(proxy) => Ok((proxy.open(&self.target).await?, PROXY_ROUND_TRIPS)),
            None => match TcpStream::connect(&self.target).await {
                Ok(stream) => Ok((stream, DIRECT_ROUND_TRIPS)),
                Err(source) => Err(ClientError::Dial { target: self.target.clone(), source }),
            },
        }
    }

    async fn open_channel<S>(
        &self,
        stream: S,
        dial: Duration,
        round_trips: u32,
    ) -> Result<Connection, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match &self.client {
            ChannelClient::Attested { client, .. } => {
                let mut attested = client
                    .connect(self.endpoint.host(), stream)
                    .await
                    .map_err(|source| self.channel_error(source))?;
                let live = attested.take_live_peer();
                let (stream, appraised, channel) = attested.into_parts();
                let channel = channel.with_carrier_round_trips(round_trips);
                Ok(self.start_http(stream, Some((appraised, live)), dial, channel))
            }
            ChannelClient::Plain(client) => {
                let connected = client
                    .connect(self.endpoint.host(), stream)
                    .await
                    .map_err(|source| self.channel_error(source))?;
                let channel = connected.timings.with_carrier_round_trips(round_trips);
                Ok(self.start_http(connected.stream, None, dial, channel))
            }
        }
    }

    fn start_http<S>(
        &self,
        stream: S,
        attested: Option<(SharedAppraisal, Option<LivePeer>)>,
        dial: Duration,
        channel: ChannelTimings,
    ) -> Connection
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (appraised, live) = attested.unzip();
        let peer = PeerState {
            appraised,
            live: live.flatten(),
            fresh_since: Instant::now(),
            timings: ConnectTimings { dial, channel },
        };
        Connection::new(RemoteStream::new(stream), self.limits.head_bytes, peer)
    }

    /// Obtains fresh evidence on an idle connection, and appraises it.
    ///
    /// # Errors
    /// [`ClientError::EvidenceRenewal`] if the server gives none, [`ClientError::Slow`] if it takes
    /// too long, [`ClientError::Http`] if the connection fails, and [`ClientError::Channel`] if the
    /// evidence is not accepted.
    pub(crate) async fn renew_evidence(
        &self,
        connection: Connection,
    ) -> Result<Connection, ClientError> {
        let deadline = self.limits.channel;
        let renewing = self.renew_evidence_untimed(connection);
        match tokio::time::timeout(deadline, renewing).await {
            Ok(renewed) => renewed,
            Err(_) => Err(ClientError::Slow { deadline }),
        }
    }

    async fn renew_evidence_untimed(
        &self,
        connection: Connection,
    ) -> Result<Connection, ClientError> {
        let none = |got: String| ClientError::EvidenceRenewal { target: self.target.clone(), got };
        let ChannelClient::Attested { appraiser, .. } = &self.client else {
            return Err(none("no attested channel".into()));
        };
        let no_session = || none("no session binding".into());
        let live = connection.peer.live.as_ref().ok_or_else(no_session)?;
        let asked = live.request_evidence().map_err(|source| self.channel_error(source))?;
        let request = Request::post(EVIDENCE_PATH)
            .header(header::HOST, self.endpoint.to_string())
            .header(header::CONTENT_TYPE, EVIDENCE_MEDIA_TYPE)
            .body(whole_body(asked.encode()))
            .map_err(|error| none(error.to_string()))?;
        let mut answer = connection.send(request).await?;
        if answer.status() != StatusCode::OK {
            return Err(none(format!("status {}", answer.status())));
        }
        let reply = Limited::new(answer.body_mut(), FRAME_BYTES_MAX).collect().await;
        let reply = reply.map_err(|error| none(error.to_string()))?.to_bytes();
        let closed = || ClientError::Http(ExchangeError::ConnectionClosed);
        let mut connection = answer.into_body().into_idle().ok_or_else(closed)?;
        let live = connection.peer.live.as_ref().ok_or_else(no_session)?;
        let appraised = live
            .appraise_reply(asked, &reply, &**appraiser)
            .map_err(|source| self.channel_error(source))?;
        connection.peer.appraised = Some(appraised);
        connection.peer.fresh_since = Instant::now();
        Ok(connection)
    }

    async fn within_dial_deadline<T>(
        &self,
        dial: impl Future<Output = T>,
    ) -> Result<T, ClientError> {
        let deadline = self.limits.dial;
        tokio::time::timeout(deadline, dial)
            .await
            .map_err(|_| ClientError::DialTimeout { target: self.target.clone(), deadline })
    }

    fn channel_error(&self, source: confide_channel::ChannelError) -> ClientError {
        ClientError::Channel { target: self.target.clone(), source }
    }
}

/// The round trips that opening a TCP connection takes.
const DIRECT_ROUND_TRIPS: u32 = 1;
/// Those of a connection through a proxy, which is asked for the connection to the end.
const PROXY_ROUND_TRIPS: u32 = 2;
