//! Clients that would hold the notary for themselves: those of other addresses are served at once.
//!
//! The holder is 127.0.0.2, the honest client 127.0.0.1.

use std::net::SocketAddr;

use confide_notary::{AdmissionLimits, NotaryLimits};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
    time::timeout,
};

use crate::site::{Ca, Client, GENEROUS, Site, notary_with, now, request_of, server};

/// Eight places, four for one address, two for newcomers.
const FEW: AdmissionLimits =
    AdmissionLimits { connections: 8, connections_per_peer: 4, newcomer_reserve: 2 };

async fn site(ca: &Ca, port: u16) -> Site {
    let policy = format!(
        "hosts = [\"localhost:{port}\"]\nroots = \"-\"\nprivate_addresses = [\"127.0.0.1\"]"
    );
    notary_with(&policy, ca, NotaryLimits::default(), now, FEW).await
}

async fn connect_as_holder(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    timeout(GENEROUS, socket.connect(address)).await.unwrap().unwrap()
}

/// A way to `address` whose connections come from the holder's address.
async fn holders_way_to(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut far = connect_as_holder(address).await;
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    here
}

/// A client that verified the notary and keeps its connection.
async fn holder(site: &mut Site) -> Client {
    let (way, address) = (holders_way_to(site.address).await, site.address);
    site.address = way;
    let client = site.client().await;
    site.address = address;
    client
}

#[tokio::test]
async fn idle_connections_of_one_address_do_not_lock_another_out() {
    let mut site = site(&Ca::new(), 443).await;
    let mut streams = Vec::new();
    for _ in 0..FEW.connections {
        streams.push(holder(&mut site).await);
    }
    for _ in 0..FEW.connections {
        connect_as_holder(site.address).await;
    }
    timeout(GENEROUS, site.client()).await.expect("the honest client is served");
}

#[tokio::test]
async fn requests_that_run_for_one_address_do_not_lock_another_out() {
    let ca = Ca::new();
    let (requested, mut runs) = mpsc::unbounded_channel();
    let port = server(ca.acceptor(&["localhost"], &[]), move |mut stream| {
        let requested = requested.clone();
        async move {
            request_of(&mut stream).await;
            requested.send(()).unwrap();
            std::future::pending::<()>().await;
        }
    })
    .await;
    let mut site = site(&ca, port).await;
    let mut fetches = Vec::new();
    for _ in 0..FEW.connections_per_peer {
        let client = holder(&mut site).await;
        let request = client.get(&format!("https://localhost:{port}/"));
        fetches.push(tokio::spawn(async move { client.fetch(&request).await.map(drop) }));
        timeout(GENEROUS, runs.recv()).await.unwrap().unwrap();
    }
    let mut fifth = connect_as_holder(site.address).await;
    let read = timeout(GENEROUS, fifth.read(&mut [0])).await.unwrap();
    assert_eq!(read.unwrap_or(0), 0, "none of its own is idle");
    timeout(GENEROUS, site.client()).await.expect("the honest client is served");
    for running in &fetches {
        assert!(!running.is_finished(), "a request that runs is not evicted");
    }
}
