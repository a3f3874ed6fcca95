//! Threads that serve connections, each with an event loop of its own. A listener has one socket for
//! each of them (`SO_REUSEPORT`): the kernel shares new connections out, and a connection stays on
//! the thread that accepted it, with its timers and its connections to other servers.

use std::{
    cell::Cell,
    convert::Infallible,
    fmt, io,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::mpsc,
    thread::{Builder, available_parallelism},
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, TcpSocket},
    runtime::{self, Handle},
    sync::oneshot,
};

use crate::os;

/// Connections that the kernel holds until they are accepted; it takes `net.core.somaxconn` where
/// that is less. A burst of clients should not have to send their first packet again.
const BACKLOG: u32 = 4096;

/// The most threads for blocking work of one thread that serves: parsing long bodies, quotes.
const BLOCKING_THREADS_MAX: usize = 64;

thread_local! {
    static INDEX: Cell<usize> = const { Cell::new(0) };
}

/// The number of cores that this process may use, and of threads that serve unless another number is
/// wanted.
pub fn available_cores() -> usize {
    available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The index of the calling thread among those that serve; 0 on any other thread.
pub fn serving_thread_index() -> usize {
    INDEX.get()
}

/// The threads that serve. They end, and with them what they serve, when this value is dropped, which
/// waits for them for a short time.
#[derive(Debug, Default)]
pub struct ServingThreads(Vec<ServingThread>);

#[derive(Debug)]
struct ServingThread {
    runtime: Handle,
    /// The thread ends when this is dropped.
    running: Option<oneshot::Sender<Infallible>>,
    /// Receives the end of the thread, as an error.
    ended: mpsc::Receiver<Infallible>,
}

/// The longest wait for the end of the threads.
const END_DEADLINE: Duration = Duration::from_secs(2);

impl Drop for ServingThreads {
    fn drop(&mut self) {
        let until = Instant::now() + END_DEADLINE;
        for thread in &mut self.0 {
            thread.running = None;
        }
        for thread in &self.0 {
            let left = until.saturating_duration_since(Instant::now());
            let _ = thread.ended.recv_timeout(left);
        }
    }
}

/// The sockets on which one server accepts connections.
pub struct Listener(pub(crate) ListenerSockets);

pub(crate) enum ListenerSockets {
    /// A socket of the caller's event loop.
    Single(TcpListener),
    /// A socket for each thread, registered with the event loop of that thread.
    PerThread(Vec<(Handle, TcpListener)>),
}

impl ServingThreads {
    /// Starts this number of threads. For one it starts none: the caller's event loop serves, which no
    /// other thread then has to wake. It does so on Windows, too, whatever the number.
    ///
    /// # Errors
    /// The operating system's, if a thread or an event loop cannot be made.
    pub fn start(count: usize) -> io::Result<Self> {
        let indices = if count > 1 && os::CAN_SHARE_ADDRESSES { 0..count } else { 0..0 };
        indices.map(ServingThread::start).collect::<io::Result<_>>().map(Self)
    }

    /// Listens on an address; port 0 takes any free one. Must be called inside a runtime.
    ///
    /// # Errors
    /// The operating system's: the address cannot be used, or a program already listens there.
    pub fn bind(&self, address: SocketAddr) -> io::Result<Listener> {
        let Some((first, others)) = self.0.split_first() else {
            return bind_listener(address).map(Listener::from);
        };
        // It listens before it shares its address, so that a second server on the same address does
        // not start unnoticed.
        let socket = first.listen(bind_socket(address, false)?)?;
        os::share_address(&socket)?;
        let address = socket.local_addr()?;
        let mut sockets = vec![(first.runtime.clone(), socket)];
        for thread in others {
            let socket = thread.listen(bind_socket(address, true)?)?;
            sockets.push((thread.runtime.clone(), socket));
        }
        Ok(Listener(ListenerSockets::PerThread(sockets)))
    }
}

impl ServingThread {
    fn start(index: usize) -> io::Result<Self> {
        let event_loop = runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build()?;
        let runtime = event_loop.handle().clone();
        let (running, stopped) = oneshot::channel::<Infallible>();
        let (ending, ended) = mpsc::channel();
        Builder::new().name(format!("serve-{index}")).spawn(move || {
            INDEX.set(index);
            // Tasks run on this thread meanwhile.
            let _ = event_loop.block_on(stopped);
            event_loop.shutdown_background();
            drop(ending);
        })?;
        Ok(Self { runtime, running: Some(running), ended })
    }

    /// Listens on a bound socket, with this thread's event loop.
    fn listen(&self, socket: TcpSocket) -> io::Result<TcpListener> {
        let _entered = self.runtime.enter();
        socket.listen(BACKLOG)
    }
}

impl Listener {
    /// The address on which the server listens.
    ///
    /// # Errors
    /// The operating system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            ListenerSockets::Single(socket) => socket.local_addr(),
            ListenerSockets::PerThread(sockets) => match sockets.first() {
                Some((_, socket)) => socket.local_addr(),
                None => Err(io::ErrorKind::NotConnected.into()),
            },
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(socket: TcpListener) -> Self {
        Self(ListenerSockets::Single(socket))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.local_addr()).finish()
    }
}

/// Listens on an address with one socket; port 0 takes any free one. Must be called inside a
/// runtime.
///
/// # Errors
/// The operating system's: the address cannot be used, or a program already listens there.
pub fn bind_listener(address: SocketAddr) -> io::Result<TcpListener> {
    bind_socket(address, false)?.listen(BACKLOG)
}

fn bind_socket(address: SocketAddr, is_shared: bool) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    os::prepare_to_bind(&socket, is_shared)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        io::{ErrorKind, Read, Write},
        net::TcpStream,
        sync::{Arc, Mutex},
    };

    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::{
        Admission, AdmissionLimits, ClosingSignal, ConnectionPlace, DrainOutcome, PeerStream,
        accept_on_threads, wait_until_closing,
    };

    const ANY_PORT: SocketAddr =
        SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0));
    const GENEROUS: Duration = Duration::from_secs(20);

    /// Serves with three threads: a connection is told its thread's index and kept until the end.
    struct Running {
        address: SocketAddr,
        stop: oneshot::Sender<()>,
        ended: tokio::task::JoinHandle<DrainOutcome>,
        places: Admission,
        seen: Arc<Mutex<HashSet<usize>>>,
        _threads: ServingThreads,
    }

    fn serve(drain: Duration, is_deaf: bool) -> Running {
        let threads = ServingThreads::start(3).unwrap();
        let listener = threads.bind(ANY_PORT).unwrap();
        let address = listener.local_addr().unwrap();
        let places = Admission::new(AdmissionLimits::for_one_peer(64));
        let seen = Arc::new(Mutex::new(HashSet::new()));
        let noted = seen.clone();
        let one = move |mut stream: PeerStream, place: ConnectionPlace, closing: ClosingSignal| {
            let noted = noted.clone();
            async move {
                let index = serving_thread_index();
                noted.lock().unwrap().insert(index);
                stream.write_all(&[index as u8]).await.unwrap();
                match is_deaf {
                    true => std::future::pending().await,
                    false => wait_until_closing(closing).await,
                }
                assert_eq!(serving_thread_index(), index, "a connection stays on its thread");
                drop(place);
            }
        };
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { drop(stopped.await) };
        let ended = accept_on_threads(listener, places.clone(), drain, stopped, one);
        Running { address, stop, ended: tokio::spawn(ended), places, seen, _threads: threads }
    }

    /// Connects, and waits until the connection is served.
    fn connect(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(GENEROUS)).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    }

    #[tokio::test]
    async fn all_threads_serve_and_share_the_limits() {
        let running = serve(GENEROUS, false);
        let address = running.address;
        let connect_all = move || -> Vec<_> { (0..64).map(|_| connect(address)).collect() };
        let held = tokio::task::spawn_blocking(connect_all).await.unwrap();
        assert_eq!(running.places.count_connections(), 64);
        assert_eq!(running.seen.lock().unwrap().len(), 3, "64 connections reach all of 3 threads");
        running.stop.send(()).unwrap();
        let ended = tokio::time::timeout(GENEROUS, running.ended).await.unwrap().unwrap();
        assert_eq!(ended, DrainOutcome::Completely);
        assert_eq!(running.places.count_connections(), 0);
        drop(held);
    }

    #[tokio::test]
    async fn connections_that_do_not_end_are_cut_and_counted_once() {
        let running = serve(Duration::from_millis(50), true);
        let address = running.address;
        let connect_all = move || -> Vec<_> { (0..9).map(|_| connect(address)).collect() };
        let held = tokio::task::spawn_blocking(connect_all).await.unwrap();
        running.stop.send(()).unwrap();
        let ended = tokio::time::timeout(GENEROUS, running.ended).await.unwrap().unwrap();
        assert_eq!(ended, DrainOutcome::Cut(9));
        for mut stream in held {
            let _ = stream.write_all(b"x");
            assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        }
    }

    #[tokio::test]
    async fn a_second_server_on_the_address_is_refused() {
        let threads = ServingThreads::start(2).unwrap();
        let listener = threads.bind(ANY_PORT).unwrap();
        let address = listener.local_addr().unwrap();
        let others = ServingThreads::start(2).unwrap();
        let refused = |outcome: io::Result<Listener>| match outcome {
            Err(error) => error.kind() == ErrorKind::AddrInUse,
            Ok(_) => false,
        };
        assert!(refused(others.bind(address)));
        assert!(refused(ServingThreads::default().bind(address)));
        drop(listener);
        // Sockets of another event loop are closed by that loop.
        let wait = async {
            while others.bind(address).is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(GENEROUS, wait).await.unwrap();
    }

    #[tokio::test]
    async fn without_threads_the_callers_event_loop_serves() {
        let listener = ServingThreads::default().bind(ANY_PORT).unwrap();
        assert!(matches!(listener.0, ListenerSockets::Single(_)));
    }
}
