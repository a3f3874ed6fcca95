//! A listener that passes TLS connections through.

use std::{
    future::Future,
    io,
    sync::{Arc, PoisonError, RwLock},
};

use confide_http::{
    Admission, ConnectionPlace, DrainOutcome, PeerStream, accept_until, encode_proxy_header,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    activity::Activity,
    client_hello::{HELLO_BYTES_MAX, HelloError, parse_client_hello},
    limits::PassLimits,
    pipe::PipePool,
    relay::{relay, write_all},
    route::RouteTable,
};

/// The bytes that are read at once before the route is known: more than a stream holds back behind a PROXY protocol
/// header, so that nothing is left in it when the relay takes over.
const HELLO_READ_BYTES: usize = 8192;

/// A fatal alert in a record of its own (RFC 8446 section 6), which clients report by name.
const fn alert(description: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description]
}
const DECODE_ERROR: [u8; 7] = alert(50);
const INTERNAL_ERROR: [u8; 7] = alert(80);
const UNRECOGNIZED_NAME: [u8; 7] = alert(112);

/// Passes each connection to a target of the route that its server name selects.
#[derive(Debug)]
pub struct Passthrough {
    routes: RwLock<Arc<RouteTable>>,
    limits: PassLimits,
    pipes: Arc<PipePool>,
}

impl Passthrough {
    /// Makes a listener's state.
    pub fn new(routes: RouteTable, limits: PassLimits) -> Self {
        Self { routes: RwLock::new(Arc::new(routes)), limits, pipes: PipePool::new(limits.pipes) }
    }

    /// Replaces the routes. Open connections go on to their targets.
    pub fn replace_routes(&self, routes: RouteTable) {
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
    }

    /// Accepts connections until `stop` resolves, then allows the open ones [`PassLimits::drain`] to end.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        admission: Admission,
        stop: impl Future<Output = ()>,
    ) -> DrainOutcome {
        let drain = self.limits.drain;
        let serve = |stream, place, _| {
            let this = self.clone();
            async move { this.pass_connection(stream, place).await }
        };
        accept_until(listener, admission, drain, stop, serve).await
    }

    async fn pass_connection(&self, mut stream: PeerStream, place: ConnectionPlace) {
        let peer = place.peer();
        let (client, local) = match (stream.client_address(), stream.tcp().local_addr()) {
            (Ok(client), Ok(local)) => (client, local),
            _ => return tracing::debug!(%peer, "the client has gone"),
        };
        let read = tokio::time::timeout(self.limits.hello, read_hello(&mut stream)).await;
        let (hello, name) = match read {
            Ok(Ok(read)) => read,
            Ok(Err(refusal)) => {
                tracing::info!(%peer, error = %refusal, "connection refused");
                if let Some(alert) = refusal.alert() {
                    refuse(&mut stream, alert).await;
                }
                return;
            }
            Err(_) => return tracing::info!(%peer, "connection refused: no ClientHello in time"),
        };
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(state) = routes.find(&name) else {
            tracing::info!(%peer, %name, "connection refused: no route has this name");
            return refuse(&mut stream, &UNRECOGNIZED_NAME).await;
        };
        let mut connected = None;
        for target in state.order_targets() {
            match target.connect(self.limits.connect, self.limits.retry).await {
                Ok(upstream) => {
                    connected = Some(upstream);
                    break;
                }
                Err(error) => tracing::warn!(%target, %error, "cannot connect to a target"),
            }
        }
        let Some(upstream) = connected else {
            tracing::warn!(%peer, %name, "connection refused: no target of the route accepts connections");
            return refuse(&mut stream, &INTERNAL_ERROR).await;
        };
        let mut first = Vec::new();
        if state.route.send_proxy_header {
            first = encode_proxy_header(client, local);
        }
        first.extend(hello);
        drop(routes);
        let tcp = stream.tcp();
        let activity = Activity::new(&place);
        let moved = async {
            write_all(&upstream, &first, &activity).await?;
            relay(tcp, &upstream, &activity, &self.pipes).await
        };
        tokio::select! {
            ended = moved => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "connection ended");
                }
            }
            () = activity.wait_until_idle(&self.limits) => tracing::info!(%peer, "connection closed: idle"),
        }
    }
}

/// The reason why a connection got no route.
#[derive(Debug, thiserror::Error)]
enum HelloRefusal {
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error("the connection ended before its ClientHello: {0}")]
    Io(#[from] io::Error),
}

impl HelloRefusal {
    /// The alert to send, if the client speaks TLS.
    fn alert(&self) -> Option<&'static [u8; 7]> {
        match self {
            Self::Hello(HelloError::NoName) => Some(&UNRECOGNIZED_NAME),
            Self::Hello(HelloError::NotTls | HelloError::OtherMessage { .. }) | Self::Io(_) => None,
            Self::Hello(_) => Some(&DECODE_ERROR),
        }
    }
}

/// Reads until the server name is known. Returns all bytes that were read, and the name.
async fn read_hello(
    stream: &mut PeerStream,
) -> Result<(Vec<u8>, crate::server_name::ServerName), HelloRefusal> {
    let mut hello = Vec::new();
    loop {
        hello.reserve(HELLO_READ_BYTES);
        let more = stream.read_buf(&mut hello).await?;
        if more == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if let Some(name) = parse_client_hello(&hello)? {
            return Ok((hello, name));
        }
        if hello.len() > HELLO_BYTES_MAX {
            return Err(HelloError::TooLong.into());
        }
    }
}

/// Sends an alert and ends the connection. A client that does not read it gains nothing.
async fn refuse(stream: &mut PeerStream, alert: &[u8; 7]) {
    if stream.write_all(alert).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}
