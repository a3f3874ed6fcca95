//! A configuration is replaced while connections are open.

use super::*;

/// An upstream that answers each request on a connection with `name`.
async fn named_upstream(name: &'static str) -> SocketAddr {
    upstream(move |mut stream| async move {
        while !read_until(&mut stream, "\r\n\r\n").await.is_empty() {
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await
}

fn proxy_to(upstream: SocketAddr) -> Proxy {
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    Proxy::new(&configuration, true, GatewayLimits::default()).unwrap()
}

fn replace(gateway: &RunningGateway, upstream: SocketAddr) {
    gateway.slot.replace(configuration_version(proxy_to(upstream), GatewayLimits::default()));
}

async fn serve_upstream(upstream: SocketAddr) -> RunningGateway {
    serve_proxy(proxy_to(upstream), GatewayLimits::default(), AdmissionLimits::default()).await
}

#[tokio::test]
async fn new_connections_follow_the_new_configuration_and_an_open_one_ends_after_its_next_answer() {
    let gateway = serve_upstream(named_upstream("old").await).await;
    let mut open = ask(gateway.address, GET).await;
    let first = read_until(&mut open, "old").await;
    assert!(!first.contains("connection: close"), "{first}");
    replace(&gateway, named_upstream("new").await);
    assert!(exchange(gateway.address, GET_CLOSE).await.ends_with("new"));
    open.write_all(GET.as_bytes()).await.unwrap();
    let last = read_to_end(&mut open).await;
    assert!(last.contains("connection: close") && last.ends_with("old"), "{last}");
}

#[tokio::test]
async fn an_answer_that_runs_during_a_reload_is_not_cut() {
    let (go_on, gone_on) = oneshot::channel::<()>();
    let gone_on = Arc::new(tokio::sync::Mutex::new(Some(gone_on)));
    let slow = upstream(move |mut stream| {
        let gone_on = gone_on.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            stream.write_all(format!("{CHUNKED}3\r\none\r\n").as_bytes()).await.unwrap();
            let gone_on = gone_on.lock().await.take();
            gone_on.expect("one request").await.unwrap();
            stream.write_all(format!("3\r\ntwo\r\n{LAST_CHUNK}").as_bytes()).await.unwrap();
        }
    })
    .await;
    let gateway = serve_upstream(slow).await;
    let mut running = ask(gateway.address, GET_CLOSE).await;
    read_until(&mut running, "one").await;
    for _ in 0..3 {
        replace(&gateway, named_upstream("new").await);
    }
    go_on.send(()).unwrap();
    let rest = read_to_end(&mut running).await;
    assert!(rest.contains("two") && rest.ends_with(LAST_CHUNK), "{rest}");
}

#[tokio::test]
async fn a_replaced_configuration_is_dropped_with_its_last_connection_and_a_stop_ends_the_rest() {
    let gateway = serve_upstream(named_upstream("old").await).await;
    let mut open = ask(gateway.address, GET).await;
    read_until(&mut open, "old").await;
    let (proxy, next) = (proxy_to(named_upstream("new").await), named_upstream("newest").await);
    let proxy = Arc::new(proxy);
    let kept = Arc::downgrade(&proxy);
    gateway.slot.replace(ConfigurationVersion::new(
        Arc::new(Plain(HttpVersion::Http1)),
        proxy,
        GatewayLimits::default(),
    ));
    let mut idle = ask(gateway.address, GET).await;
    read_until(&mut idle, "new").await;
    replace(&gateway, next);
    assert!(kept.upgrade().is_some(), "a connection uses it");
    drop(idle);
    let dropped = async {
        while kept.upgrade().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    finish_in_time(dropped).await;
    gateway.stop.send(()).unwrap();
    assert_eq!(finish_in_time(gateway.ended).await.unwrap(), DrainOutcome::Completely);
}
