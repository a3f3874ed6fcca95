//! A listener that passes TLS connections through.

use std::{
    future::Future,
    io,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use confide_http::{
    Activity, Admission, ConnectionPlace, DrainOutcome, Listener, PeerStream, accept_on_threads,
    encode_proxy_header,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    client_hello::{HELLO_BYTES_MAX, HelloError, parse_client_hello},
    hang_up::ResetGuard,
    limits::PassLimits,
    pipe::PipePool,
    relay::{relay, write_first},
    route::{RouteState, RouteTable},
    target::is_out_of_descriptors,
};

/// The bytes that are read at once before the route is known: more than a stream holds back behind a PROXY protocol
/// header, so that nothing is left in it when the relay takes over.
const HELLO_READ_BYTES: usize = 8192;

/// The time for all targets of a route, in deadlines of one.
const TARGET_DEADLINES: u32 = 3;
/// How often a connection is tried for which no descriptor is left, and the pause in which an evicted one closes.
const DESCRIPTOR_TRIES: u32 = 3;
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);

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
        listener: impl Into<Listener>,
        admission: Admission,
        stop: impl Future<Output = ()>,
    ) -> DrainOutcome {
        let drain = self.limits.drain;
        let places = admission.clone();
        let serve = move |stream, place, _| {
            let (this, places) = (self.clone(), places.clone());
            async move { this.pass_connection(stream, place, &places).await }
        };
        accept_on_threads(listener.into(), admission, drain, stop, serve).await
    }

    async fn pass_connection(
        &self,
        mut stream: PeerStream,
        place: ConnectionPlace,
        places: &Admission,
    ) {
        let peer = place.peer();
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
        let Some(upstream) = self.connect_to_route(state, places).await else {
            tracing::info!(%peer, %name, "connection refused: no target of the route accepts connections");
            return refuse(&mut stream, &INTERNAL_ERROR).await;
        };
        let mut first = Vec::new();
        if state.route.send_proxy_header {
            let (Ok(client), Ok(local)) = (stream.client_address(), stream.tcp().local_addr())
            else {
                return tracing::debug!(%peer, "the client has gone");
            };
            first = encode_proxy_header(client, local);
        }
        first.extend(hello);
        drop(routes);
        let tcp = stream.tcp();
        let activity = Activity::new(&place);
        let PassLimits { idle, half_closed, .. } = self.limits;
        // Also where the connection is evicted or cut by the end of a drain.
        let guard = ResetGuard::new(tcp, &upstream);
        let moved = async {
            write_first(tcp, &upstream, &first, &activity).await?;
            drop(first);
            relay(tcp, &upstream, &activity, &self.pipes).await
        };
        tokio::select! {
            ended = moved => match ended {
                Ok(()) => guard.disarm(),
                Err(error) => tracing::debug!(%peer, %error, "connection reset"),
            },
            () = activity.wait_until_idle(idle, half_closed) => tracing::info!(%peer, "connection reset: idle"),
        }
    }

    /// Connects to the first target that accepts. Targets are tried for three times the deadline of one.
    async fn connect_to_route(&self, state: &RouteState, places: &Admission) -> Option<TcpStream> {
        let PassLimits { connect, retry, .. } = self.limits;
        let until = Instant::now() + TARGET_DEADLINES * connect;
        for target in state.order_targets(connect) {
            for _ in 0..DESCRIPTOR_TRIES {
                match target.connect(connect, retry).await {
                    Ok(upstream) => return Some(upstream),
                    Err(error) if is_out_of_descriptors(&error) => {
                        places.evict_any_idle();
                        tokio::time::sleep(DESCRIPTOR_PAUSE).await;
                    }
                    Err(_) => break,
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
        None
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
