//! The accept loop of a server: a bounded number of connections, and an end that lets them finish.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};

/// Pause after a failed accept (out of file descriptors), so that the loop does not spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// How the end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Everything that ran was finished.
    Completely,
    /// The deadline came first; this many connections were cut.
    Cut(usize),
}

/// Changes once, when the server stops: what runs may end, and nothing new begins.
pub type Closing = watch::Receiver<bool>;

/// Accepts until `stop` resolves, then gives what runs the time `drain` to end.
///
/// At most `connections` at once; further ones wait in the kernel's backlog. Small writes are sent
/// at once (`TCP_NODELAY`): tokens, frames and handshakes are answers that somebody waits for.
pub async fn accept_until<F>(
    listener: TcpListener,
    connections: usize,
    drain: Duration,
    stop: impl Future<Output = ()>,
    serve: impl Fn(TcpStream, Closing) -> F,
) -> Drained
where
    F: Future<Output = ()> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(connections));
    let (closing, _) = watch::channel(false);
    let mut running = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            // In this order, so that no stream of connections keeps the signal from being seen.
            biased;
            () = &mut stop => break,
            Some(_) = running.join_next(), if !running.is_empty() => {}
            accepted = accept(&listener, &slots) => {
                let Some((stream, slot)) = accepted else { continue };
                let served = serve(stream, closing.subscribe());
                running.spawn(async move {
                    served.await;
                    drop(slot);
                });
            }
        }
    }
    drop(listener);
    closing.send_replace(true);
    let finished = async { while running.join_next().await.is_some() {} };
    match tokio::time::timeout(drain, finished).await {
        Ok(()) => Drained::Completely,
        Err(_) => {
            let cut = running.len();
            running.shutdown().await;
            Drained::Cut(cut)
        }
    }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // A connection that is gone already is found out by whoever reads from it.
            let _ = stream.set_nodelay(true);
            Some((stream, slot))
        }
        Err(error) => {
            tracing::warn!(%error, "no connection could be accepted");
            tokio::time::sleep(ACCEPT_RETRY).await;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::SocketAddr,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::oneshot,
        task::JoinHandle,
        time::timeout,
    };

    use super::*;

    const GENEROUS: Duration = Duration::from_secs(20);

    /// Two places. A connection says that it began, and ends when a byte comes; `deaf` ones do not
    /// heed the signal to stop.
    async fn server(
        drain: Duration,
        deaf: bool,
    ) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<Drained>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { drop(stopped.await) };
        let most = Arc::new(AtomicUsize::new(0));
        let running =
            tokio::spawn(accept_until(listener, 2, drain, stopped, move |mut tcp, mut closing| {
                let most = most.clone();
                async move {
                    assert!(most.fetch_add(1, Ordering::SeqCst) < 2, "more than two at once");
                    assert!(tcp.nodelay().unwrap());
                    tcp.write_all(b"b").await.unwrap();
                    tokio::select! {
                        _ = tcp.read_u8() => {}
                        _ = closing.changed(), if !deaf => {}
                    }
                    most.fetch_sub(1, Ordering::SeqCst);
                }
            }));
        (address, stop, running)
    }

    async fn begun(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        timeout(GENEROUS, stream.read_u8()).await.unwrap().unwrap();
        stream
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_wait_until_one_ends() {
        let (address, _stop, _running) = server(GENEROUS, false).await;
        let (mut first, _second) = (begun(address).await, begun(address).await);
        let mut third = TcpStream::connect(address).await.unwrap();
        assert!(timeout(Duration::from_millis(50), third.read_u8()).await.is_err());
        first.write_all(b"e").await.unwrap();
        timeout(GENEROUS, third.read_u8()).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_runs_is_told_to_end_and_nobody_new_is_let_in() {
        let (address, stop, running) = server(GENEROUS, false).await;
        let _held = begun(address).await;
        stop.send(()).unwrap();
        assert_eq!(timeout(GENEROUS, running).await.unwrap().unwrap(), Drained::Completely);
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn what_does_not_end_is_cut_and_counted() {
        let (address, stop, running) = server(Duration::from_millis(20), true).await;
        let mut held = begun(address).await;
        stop.send(()).unwrap();
        assert_eq!(timeout(GENEROUS, running).await.unwrap().unwrap(), Drained::Cut(1));
        assert_eq!(held.read(&mut [0]).await.unwrap_or(0), 0);
    }
}
