//! Exchanges are shared among clients: one that leaves its own hanging takes no other's.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use confide_notary::NotaryLimits;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket},
    sync::mpsc,
    time::timeout,
};

use crate::site::{Ca, GENEROUS, notary, request_of, server, small};

/// A way to `address` whose connections come from 127.0.0.2.
async fn way_from_elsewhere(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
                let mut far = socket.connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    here
}

#[tokio::test]
async fn four_hanging_fetches_of_one_address_leave_another_address_its_place() {
    let ca = Ca::new();
    let (hanging, mut hangs) = mpsc::unbounded_channel();
    let port = server(ca.acceptor(&["localhost"], &["http/1.1"]), move |mut stream| {
        let hanging = hanging.clone();
        async move {
            if request_of(&mut stream).await.starts_with(b"GET /hang") {
                hanging.send(()).unwrap();
                std::future::pending::<()>().await;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            let _ = stream.shutdown().await;
        }
    })
    .await;
    let queue = Duration::from_millis(50);
    let limits = NotaryLimits { exchanges: 5, exchanges_per_client: 4, queue, ..small() };
    let mut site = notary(&ca, port, limits).await;
    let greedy = Arc::new(site.client().await);
    let url = |path: &str| format!("https://localhost:{port}/{path}");
    let mut fetches = Vec::new();
    for _ in 0..4 {
        let (client, request) = (greedy.clone(), greedy.get(&url("hang")));
        fetches.push(tokio::spawn(async move { client.fetch(&request).await.map(drop) }));
        timeout(GENEROUS, hangs.recv()).await.unwrap().unwrap();
    }
    assert_eq!(greedy.fetch_refusal(&greedy.get(&url("more"))).await, "client_busy");
    site.address = way_from_elsewhere(site.address).await;
    let other = site.client().await;
    let served = other.fetch(&other.get(&url("other"))).await.unwrap();
    assert!(served.received.ends_with(b"\r\n\r\nok"));
    assert_eq!(greedy.fetch_refusal(&greedy.get(&url("more"))).await, "client_busy");
    fetches.iter().for_each(|fetch| fetch.abort());
}
