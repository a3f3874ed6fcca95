//! The accept loop of a server, with a bounded number of connections and a graceful shutdown.

use std::{future::Future, net::IpAddr, panic::resume_unwind, pin::pin, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinError, JoinSet},
};

use crate::{
    admission::{Admission, ConnectionPlace, Peer},
    closing::{ClosingSignal, wait_until_closing},
    interrupt::interrupt,
    os::is_out_of_descriptors,
    peer_stream::PeerStream,
    proxy_protocol::{AnnouncedPeer, read_proxy_header},
    serving_threads::{Listener, ListenerSockets},
};

/// The pause after a failed accept (out of file descriptors), which prevents a busy loop.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// The outcome of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainOutcome {
    /// All connections finished in time.
    Completely,
    /// The deadline passed first; this many connections were cut, however many streams each had.
    Cut(usize),
}

/// Accepts connections until `stop` resolves, then allows the running ones the time `drain` to end.
///
/// `admission` decides which connections get a place. A connection without a place is closed at
/// once, and the task of an evicted connection is dropped. Small writes are sent at once
/// (`TCP_NODELAY`), because the peer waits for tokens, frames and handshakes.
pub async fn accept_until<F>(
    listener: TcpListener,
    admission: Admission,
    drain: Duration,
    stop: impl Future<Output = ()>,
    serve: impl Fn(PeerStream, ConnectionPlace, ClosingSignal) -> F,
) -> DrainOutcome
where
    F: Future<Output = ()> + Send + 'static,
{
    let (closing, _) = watch::channel(false);
    let mut running = JoinSet::new();
    let mut announcing = JoinSet::new();
    let mut stop = pin!(stop);
    let begin = |running: &mut JoinSet<()>, arrived: ArrivedConnection| {
        let Some(place) = admission.admit(arrived.peer) else { return };
        // Boxed before it is moved into the task, because it is large.
        let served = Box::pin(serve(arrived.stream, place.clone(), closing.subscribe()));
        running.spawn(async move {
            if interrupt(served, place.wait_for_eviction()).await.is_none() {
                tracing::debug!(peer = %place.peer(), "evicted");
            }
        });
    };
    loop {
        tokio::select! {
            // The order matters: a flood of connections must not hide the signal to stop.
            biased;
            () = &mut stop => break,
            Some(_) = running.join_next(), if !running.is_empty() => {}
            Some(announced) = announcing.join_next(), if !announcing.is_empty() => {
                if let Ok(Some(arrived)) = announced {
                    begin(&mut running, arrived);
                }
            }
            accepted = accept_connection(&listener, &admission) => {
                let Some((tcp, address)) = accepted else { continue };
                let peer = Peer::from(address);
                if !admission.is_proxy(address) {
                    begin(&mut running, ArrivedConnection { stream: tcp.into(), peer });
                } else if let Some(waiting) = admission.begin_announcement() {
                    let deadline = admission.header_deadline;
                    announcing.spawn(async move {
                        let arrived = read_announced_peer(tcp, peer, deadline).await;
                        drop(waiting);
                        arrived
                    });
                } else {
                    admission.record_refused_unknown(peer);
                }
            }
        }
    }
    drop(listener);
    announcing.shutdown().await;
    closing.send_replace(true);
    let finished = async {
        while running.join_next().await.is_some() {}
        // An upgraded connection (a WebSocket) may outlive its task and keep its place.
        admission.wait_until_vacant().await;
    };
    match tokio::time::timeout(drain, finished).await {
        Ok(()) => DrainOutcome::Completely,
        Err(_) => {
            let cut = admission.count_connections().max(running.len());
            running.shutdown().await;
            DrainOutcome::Cut(cut)
        }
    }
}

/// Accepts connections as [`accept_until`] does, on each of the listener's sockets by the thread that
/// the socket belongs to. The threads share the places of `admission`.
pub async fn accept_on_threads<S, F>(
    listener: Listener,
    admission: Admission,
    drain: Duration,
    stop: impl Future<Output = ()>,
    serve: S,
) -> DrainOutcome
where
    S: Fn(PeerStream, ConnectionPlace, ClosingSignal) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let sockets = match listener.0 {
        ListenerSockets::Single(socket) => {
            return accept_until(socket, admission, drain, stop, serve).await;
        }
        ListenerSockets::PerThread(sockets) => sockets,
    };
    let (stopping, stopped) = watch::channel(false);
    let mut accepting = JoinSet::new();
    for (runtime, socket) in sockets {
        let stop = wait_until_closing(stopped.clone());
        let accept = accept_until(socket, admission.clone(), drain, stop, serve.clone());
        accepting.spawn_on(accept, &runtime);
    }
    let outcome_of = |ended: Result<DrainOutcome, JoinError>| {
        ended.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The thread has ended, and its connections with it.
            Err(_) => DrainOutcome::Cut(admission.count_connections()),
        })
    };
    let mut outcome = tokio::select! {
        biased;
        () = stop => DrainOutcome::Completely,
        // No accept loop ends before the stop, unless it has failed.
        Some(ended) = accepting.join_next() => outcome_of(ended),
    };
    stopping.send_replace(true);
    while let Some(ended) = accepting.join_next().await {
        // Each loop has counted the connections of all.
        outcome = outcome.max(outcome_of(ended));
    }
    outcome
}

/// A connection whose peer is known.
struct ArrivedConnection {
    stream: PeerStream,
    peer: Peer,
}

async fn accept_connection(
    listener: &TcpListener,
    admission: &Admission,
) -> Option<(TcpStream, IpAddr)> {
    match listener.accept().await {
        Ok((stream, address)) => {
            // A connection that is already closed fails at its first read.
            let _ = stream.set_nodelay(true);
            Some((stream, address.ip()))
        }
        Err(error) => {
            if is_out_of_descriptors(&error) {
                admission.evict_any_idle();
            } else {
                tracing::warn!(%error, "no connection could be accepted");
            }
            tokio::time::sleep(ACCEPT_RETRY).await;
            None
        }
    }
}

/// Reads the header of a listed proxy. Without a valid header in time the connection is closed,
/// because it would be counted for the proxy, that is, for all of its clients.
async fn read_announced_peer(
    mut tcp: TcpStream,
    proxy: Peer,
    deadline: Duration,
) -> Option<ArrivedConnection> {
    let read = tokio::time::timeout(deadline, read_proxy_header(&mut tcp)).await;
    match read {
        Ok(Ok((announced, early))) => {
            let (peer, client) = match announced {
                AnnouncedPeer::Client(client) => (client.ip().into(), Some(client)),
                AnnouncedPeer::Proxy => (proxy, None),
            };
            Some(ArrivedConnection { stream: PeerStream::new(tcp, early, client), peer })
        }
        Ok(Err(error)) => {
            tracing::info!(%proxy, %error, "a listed proxy's connection was closed");
            None
        }
        Err(_) => {
            tracing::info!(%proxy, ?deadline, "a listed proxy sent no PROXY protocol header");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpSocket,
        sync::oneshot,
        task::JoinHandle,
        time::timeout,
    };

    use super::*;
    use crate::AdmissionLimits;

    const GENEROUS: Duration = Duration::from_secs(20);

    /// Places for all, for one peer and for newcomers.
    fn places(connections: usize, per_peer: usize, reserve: usize) -> Admission {
        Admission::new(AdmissionLimits {
            connections,
            connections_per_peer: per_peer,
            newcomer_reserve: reserve,
        })
    }

    struct Running {
        address: SocketAddr,
        stop: oneshot::Sender<()>,
        ended: JoinHandle<DrainOutcome>,
    }

    /// A connection says that it began, is busy between the bytes `w` and `i`, and ends with any
    /// other byte; `deaf` ones do not heed the signal to stop.
    async fn server(admission: Admission, drain: Duration, deaf: bool) -> Running {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = ([127, 0, 0, 1], listener.local_addr().unwrap().port()).into();
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { drop(stopped.await) };
        let serve = move |mut stream: PeerStream,
                          place: ConnectionPlace,
                          mut closing: ClosingSignal| async move {
            assert!(stream.tcp().nodelay().unwrap());
            let mut busy = None;
            stream.write_all(b"b").await.unwrap();
            loop {
                tokio::select! {
                    byte = stream.read_u8() => match byte {
                        Ok(b'w') => busy = Some(place.mark_busy()),
                        Ok(b'i') => drop(busy.take()),
                        _ => return,
                    },
                    _ = closing.changed(), if !deaf => return,
                }
                stream.write_all(b"k").await.unwrap();
            }
        };
        let ended = tokio::spawn(accept_until(listener, admission, drain, stopped, serve));
        Running { address, stop, ended }
    }

    /// Connects from a loopback address that ends in `from`.
    async fn connect(address: SocketAddr, from: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, from], 0).into()).unwrap();
        timeout(GENEROUS, socket.connect(address)).await.unwrap().unwrap()
    }

    async fn begun(address: SocketAddr, from: u8) -> TcpStream {
        let mut stream = connect(address, from).await;
        assert_eq!(timeout(GENEROUS, stream.read_u8()).await.unwrap().unwrap(), b'b');
        stream
    }

    async fn tell(stream: &mut TcpStream, byte: u8) {
        stream.write_all(&[byte]).await.unwrap();
        assert_eq!(timeout(GENEROUS, stream.read_u8()).await.unwrap().unwrap(), b'k');
    }

    async fn is_closed(stream: &mut TcpStream) -> bool {
        timeout(GENEROUS, stream.read(&mut [0])).await.unwrap().unwrap_or(0) == 0
    }

    #[tokio::test]
    async fn one_address_that_holds_all_its_places_locks_nobody_out() {
        let running = server(places(4, 3, 1), GENEROUS, false).await;
        let mut held = Vec::new();
        for _ in 0..3 {
            let mut stream = begun(running.address, 1).await;
            tell(&mut stream, b'w').await;
            held.push(stream);
        }
        assert!(is_closed(&mut connect(running.address, 1).await).await, "busy ones go on");
        let _newcomer = begun(running.address, 2).await;
        for stream in &mut held {
            tell(stream, b'i').await;
        }
        let _fourth = begun(running.address, 1).await;
        assert!(is_closed(&mut held[0]).await, "the longest idle one gave its place");
        tell(&mut held[2], b'w').await;
    }

    #[tokio::test]
    async fn a_holder_that_keeps_opening_connections_locks_nobody_out() {
        let running = server(places(16, 8, 2), GENEROUS, false).await;
        let address = running.address;
        let flood = tokio::spawn(async move {
            let mut held = Vec::new();
            loop {
                held.push(TcpStream::connect(address).await);
                if held.len() > 64 {
                    drop(held.remove(0));
                }
                tokio::task::yield_now().await;
            }
        });
        let mut honest = begun(running.address, 2).await;
        for _ in 0..20 {
            tell(&mut honest, b'w').await;
            tell(&mut honest, b'i').await;
            begun(running.address, 3).await;
        }
        flood.abort();
    }

    #[tokio::test]
    async fn connections_of_a_listed_proxy_are_counted_by_the_client_that_it_names() {
        let proxies = ["127.0.0.9".parse().unwrap()];
        let admission = places(8, 1, 0).with_trusted_proxies(&proxies);
        let running = server(admission, GENEROUS, false).await;
        let from = |client: &str| format!("PROXY TCP4 {client} 192.0.2.9 1 2\r\nw");
        let mut held = Vec::new();
        for client in ["192.0.2.1", "192.0.2.2"] {
            let mut stream = connect(running.address, 9).await;
            stream.write_all(from(client).as_bytes()).await.unwrap();
            let mut answer = [0; 2];
            timeout(GENEROUS, stream.read_exact(&mut answer)).await.unwrap().unwrap();
            assert_eq!(&answer, b"bk", "what came with the header is not lost");
            held.push(stream);
        }
        let mut again = connect(running.address, 9).await;
        again.write_all(from("192.0.2.1").as_bytes()).await.unwrap();
        assert!(is_closed(&mut again).await, "that client has its one place");
        // Another address is never believed.
        let mut liar = begun(running.address, 1).await;
        liar.write_all(from("192.0.2.3").as_bytes()).await.unwrap();
        assert!(is_closed(&mut liar).await, "its first byte is no word of the server's");
    }

    #[tokio::test]
    async fn a_listed_proxy_without_a_header_in_time_is_closed() {
        let proxies = ["127.0.0.9".parse().unwrap()];
        let mut admission = places(8, 8, 0).with_trusted_proxies(&proxies);
        admission.header_deadline = Duration::from_millis(50);
        let running = server(admission, GENEROUS, false).await;
        for start in ["", "PROXY TCP4 192.0.2.1", "w"] {
            let mut stream = connect(running.address, 9).await;
            stream.write_all(start.as_bytes()).await.unwrap();
            assert!(is_closed(&mut stream).await, "{start}");
        }
        let _other = begun(running.address, 1).await;
    }

    #[tokio::test]
    async fn what_runs_is_told_to_end_and_nobody_new_is_let_in() {
        let Running { address, stop, ended } = server(places(2, 2, 0), GENEROUS, false).await;
        let _held = begun(address, 1).await;
        stop.send(()).unwrap();
        assert_eq!(timeout(GENEROUS, ended).await.unwrap().unwrap(), DrainOutcome::Completely);
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn what_does_not_end_is_cut_and_counted() {
        let drain = Duration::from_millis(20);
        let Running { address, stop, ended } = server(places(2, 2, 0), drain, true).await;
        let mut held = begun(address, 1).await;
        stop.send(()).unwrap();
        assert_eq!(timeout(GENEROUS, ended).await.unwrap().unwrap(), DrainOutcome::Cut(1));
        assert_eq!(held.read(&mut [0]).await.unwrap_or(0), 0);
    }
}
