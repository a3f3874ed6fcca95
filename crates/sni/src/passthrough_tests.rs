//! Connections through real sockets.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use confide_http::{Admission, AdmissionLimits, AnnouncedPeer, DrainOutcome, parse_proxy_header};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

use crate::{
    NamePattern, PassLimits, PassRoute, PassTarget, Passthrough, RouteTable,
    client_hello::tests::hello,
};

const GENEROUS: Duration = Duration::from_secs(20);

struct Running {
    passthrough: Arc<Passthrough>,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<DrainOutcome>,
}

fn route(name: &str, targets: &[SocketAddr]) -> PassRoute {
    PassRoute {
        names: vec![NamePattern::parse(name).unwrap()],
        targets: targets
            .iter()
            .map(|target| PassTarget::parse(&target.to_string()).unwrap())
            .collect(),
        send_proxy_header: false,
    }
}

async fn start(routes: Vec<PassRoute>, limits: PassLimits, places: usize) -> Running {
    let passthrough = Arc::new(Passthrough::new(RouteTable::new(routes).unwrap(), limits));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let stopped = async move { drop(stopped.await) };
    let admission = Admission::new(AdmissionLimits::for_one_peer(places));
    let ended = tokio::spawn(passthrough.clone().serve(listener, admission, stopped));
    Running { passthrough, address, stop, ended }
}

/// Listens, and answers each connection with `greeting` and then with everything that it receives.
async fn echo_server(greeting: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(greeting).await.unwrap();
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    address
}

async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// Sends `bytes`, ends the direction, and returns everything that comes back.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
    let bytes = bytes.to_vec();
    let writing = tokio::spawn(async move {
        let _ = write.write_all(&bytes).await;
        let _ = write.shutdown().await;
    });
    let mut got = Vec::new();
    let _ = timeout(GENEROUS, read.read_to_end(&mut got)).await.unwrap();
    writing.await.unwrap();
    got
}

#[tokio::test]
async fn two_machines_behind_one_listener_are_told_apart_by_name() {
    let (one, two) = (echo_server(b"1").await, echo_server(b"2").await);
    let routes = vec![route("one.example", &[one]), route("*.vm.example", &[two])];
    let running = start(routes, PassLimits::default(), 16).await;
    for (name, greeting) in [("one.example", b"1"), ("a.vm.example", b"2"), ("ONE.example", b"1")] {
        let sent = hello(name);
        let got = exchange(running.address, &sent).await;
        assert_eq!(
            got,
            [&greeting[..], &sent].concat(),
            "{name}: the bytes arrive as they were sent"
        );
    }
}

#[tokio::test]
async fn bytes_are_the_same_in_bulk_both_ways_with_and_without_pipes() {
    let target = echo_server(b"").await;
    let mut sent = hello("a.example");
    let mut state = 1_u32;
    sent.extend((0..8 << 20).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    }));
    for pipes in [0, 1, 8] {
        let limits = PassLimits { pipes, ..PassLimits::default() };
        let running = start(vec![route("a.example", &[target])], limits, 16).await;
        let exchanges = [exchange(running.address, &sent), exchange(running.address, &sent)];
        let [one, two] = exchanges;
        let (one, two) = tokio::join!(one, two);
        assert!(one == sent && two == sent, "{pipes} pipes");
    }
}

#[tokio::test]
async fn a_name_without_a_route_gets_an_alert_and_another_protocol_gets_nothing() {
    let target = echo_server(b"x").await;
    let running = start(vec![route("a.example", &[target])], PassLimits::default(), 16).await;
    let unrecognized_name = [21, 3, 3, 0, 2, 2, 112];
    assert_eq!(exchange(running.address, &hello("b.example")).await, unrecognized_name);
    assert_eq!(exchange(running.address, b"GET / HTTP/1.1\r\n\r\n").await, b"");
    assert_eq!(exchange(running.address, &hello("a.example")[..20]).await, b"");
    assert_eq!(exchange(running.address, &hello("192.0.2.1")).await, [21, 3, 3, 0, 2, 2, 50]);
}

#[tokio::test]
async fn a_machine_that_is_down_costs_a_connection_nothing_and_is_then_tried_last() {
    let (down, up) = (closed_port().await, echo_server(b"up").await);
    let running = start(vec![route("a.example", &[down, up])], PassLimits::default(), 16).await;
    for _ in 0..4 {
        assert!(exchange(running.address, &hello("a.example")).await.starts_with(b"up"));
    }
    let running = start(vec![route("a.example", &[down])], PassLimits::default(), 16).await;
    assert_eq!(exchange(running.address, &hello("a.example")).await, [21, 3, 3, 0, 2, 2, 80]);
}

#[tokio::test]
async fn a_machine_is_told_the_address_of_the_client() {
    let target = echo_server(b"").await;
    let routes = vec![PassRoute { send_proxy_header: true, ..route("a.example", &[target]) }];
    let running = start(routes, PassLimits::default(), 16).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let local = stream.local_addr().unwrap();
    stream.write_all(&hello("a.example")).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(GENEROUS, stream.read_to_end(&mut got)).await.unwrap().unwrap();
    let (announced, length) = parse_proxy_header(&got).unwrap().unwrap();
    assert_eq!(announced, AnnouncedPeer::Client(local));
    assert_eq!(got[length..], hello("a.example"));
}

#[tokio::test]
async fn new_routes_apply_to_new_connections_and_open_ones_go_on() {
    let (one, two) = (echo_server(b"1").await, echo_server(b"2").await);
    let running = start(vec![route("a.example", &[one])], PassLimits::default(), 16).await;
    let mut open = TcpStream::connect(running.address).await.unwrap();
    open.write_all(&hello("a.example")).await.unwrap();
    let mut greeting = [0; 1];
    timeout(GENEROUS, open.read_exact(&mut greeting)).await.unwrap().unwrap();
    running.passthrough.replace_routes(RouteTable::new(vec![route("a.example", &[two])]).unwrap());
    assert!(exchange(running.address, &hello("a.example")).await.starts_with(b"2"));
    open.write_all(b"more").await.unwrap();
    let mut echoed = vec![0; hello("a.example").len() + 4];
    timeout(GENEROUS, open.read_exact(&mut echoed)).await.unwrap().unwrap();
    assert!(greeting == *b"1" && echoed.ends_with(b"more"));
}

#[tokio::test]
async fn a_silent_client_is_closed_before_and_after_its_hello() {
    let target = echo_server(b"x").await;
    let short = Duration::from_millis(50);
    let limits = PassLimits { hello: short, idle: short, ..PassLimits::default() };
    let running = start(vec![route("a.example", &[target])], limits, 16).await;
    for start in [&b""[..], &hello("a.example")[..9], &hello("a.example")] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(start).await.unwrap();
        let mut got = Vec::new();
        let _ = timeout(GENEROUS, stream.read_to_end(&mut got)).await.expect("it is closed");
    }
}

#[tokio::test]
async fn a_side_that_has_ended_leaves_the_other_a_bounded_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let limits = PassLimits { half_closed: Duration::from_millis(50), ..PassLimits::default() };
    let running = start(vec![route("a.example", &[target])], limits, 16).await;
    let mut client = TcpStream::connect(running.address).await.unwrap();
    client.write_all(&hello("a.example")).await.unwrap();
    client.shutdown().await.unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    let mut got = Vec::new();
    timeout(GENEROUS, upstream.read_to_end(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, hello("a.example"), "the end of the direction is passed on");
    let mut rest = Vec::new();
    let _ =
        timeout(GENEROUS, client.read_to_end(&mut rest)).await.expect("the other is closed too");
}

/// A listener to which a passthrough leads, and that passthrough.
async fn start_before_listener(limits: PassLimits) -> (TcpListener, Running) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    (listener, start(vec![route("a.example", &[target])], limits, 16).await)
}

#[tokio::test]
async fn the_last_words_of_a_machine_that_closes_in_mid_upload_reach_the_client() {
    let (listener, running) = start_before_listener(PassLimits::default()).await;
    for _ in 0..50 {
        let mut client = TcpStream::connect(running.address).await.unwrap();
        client.write_all(&hello("a.example")).await.unwrap();
        let (mut upstream, _) = listener.accept().await.unwrap();
        upstream.read_exact(&mut [0; 9]).await.unwrap();
        upstream.write_all(b"refused").await.unwrap();
        // Bytes are left unread, so the kernel sends a reset.
        drop(upstream);
        for _ in 0..3 {
            let _ = client.write_all(b"more").await;
            tokio::task::yield_now().await;
        }
        let mut got = Vec::new();
        let _ = timeout(GENEROUS, client.read_to_end(&mut got)).await.unwrap();
        assert_eq!(got, b"refused");
    }
}

#[tokio::test]
async fn a_reset_is_passed_on_as_a_reset_both_ways() {
    let (listener, running) = start_before_listener(PassLimits::default()).await;
    for is_client in [true, false] {
        let mut client = TcpStream::connect(running.address).await.unwrap();
        client.write_all(&hello("a.example")).await.unwrap();
        let (mut upstream, _) = listener.accept().await.unwrap();
        upstream.read_exact(&mut vec![0; hello("a.example").len()]).await.unwrap();
        let (cut, mut other) = if is_client { (client, upstream) } else { (upstream, client) };
        rustix::net::sockopt::set_socket_linger(&cut, Some(Duration::ZERO)).unwrap();
        drop(cut);
        let read = timeout(GENEROUS, other.read(&mut [0])).await.unwrap();
        let kind = read.unwrap_err().kind();
        assert_eq!(kind, std::io::ErrorKind::ConnectionReset, "client: {is_client}");
    }
}

#[tokio::test]
async fn a_client_that_resets_is_noticed_while_its_machine_takes_no_bytes() {
    let (listener, running) = start_before_listener(PassLimits::default()).await;
    let mut client = TcpStream::connect(running.address).await.unwrap();
    client.write_all(&hello("a.example")).await.unwrap();
    let (upstream, _) = listener.accept().await.unwrap();
    // The upload fills all buffers on the way.
    let filled = async { while client.write_all(&[0; 65536]).await.is_ok() {} };
    let _ = timeout(Duration::from_millis(500), filled).await;
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    running.stop.send(()).unwrap();
    let drained = timeout(GENEROUS, running.ended).await.unwrap().unwrap();
    assert_eq!(drained, DrainOutcome::Completely);
    drop(upstream);
}

#[tokio::test]
async fn a_flood_of_silent_connections_does_not_keep_an_honest_client_out() {
    let target = echo_server(b"x").await;
    let running = start(vec![route("a.example", &[target])], PassLimits::default(), 8).await;
    let mut flood = Vec::new();
    for _ in 0..32 {
        flood.push(TcpStream::connect(running.address).await.unwrap());
    }
    for _ in 0..4 {
        assert!(exchange(running.address, &hello("a.example")).await.starts_with(b"x"));
    }
}

#[tokio::test]
async fn open_connections_may_end_after_a_stop() {
    let target = echo_server(b"x").await;
    let running = start(vec![route("a.example", &[target])], PassLimits::default(), 16).await;
    let mut open = TcpStream::connect(running.address).await.unwrap();
    open.write_all(&hello("a.example")).await.unwrap();
    open.read_exact(&mut [0]).await.unwrap();
    running.stop.send(()).unwrap();
    open.write_all(b"more").await.unwrap();
    open.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(GENEROUS, open.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got.ends_with(b"more"));
    let drained = timeout(GENEROUS, running.ended).await.unwrap().unwrap();
    assert_eq!(drained, DrainOutcome::Completely);
}
