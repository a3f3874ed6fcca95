//! Malformed and ambiguous messages (`vectors/http`) at the loopback address: no byte of one becomes
//! a part of another.

mod site;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use confide_client::{
    AllowedOrigins, Binding, ClientLimits, Connector, Endpoint, HttpClient, PolicyAppraiser, serve,
};
use confide_tests::framing::{
    answer_cases, check_answers, check_requests, record_requests, serve_answers,
};
use confide_verifier::Policy;
use site::{attester, now, server, site};
use tokio::net::TcpListener;

/// Opens a loopback address for an attested end. It soon gives up on a body that is not passed on.
async fn loopback(attested: SocketAddr) -> SocketAddr {
    let policy = Policy::from_toml(&attester().policy_toml_pinning(site::CONFIG_DIGEST)).unwrap();
    let appraiser = Arc::new(PolicyAppraiser::new(policy, None, now).unwrap());
    let endpoint = Endpoint::parse(&format!("https://{attested}")).unwrap();
    let limits =
        ClientLimits { local_body_linger: Duration::from_millis(50), ..ClientLimits::default() };
    let connector =
        Connector::with_appraiser(endpoint, None, Binding::Key, appraiser, limits).unwrap();
    let client = Arc::new(HttpClient::new(connector, limits, now));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let never = std::future::pending();
    tokio::spawn(serve(listener, client, AllowedOrigins::default(), limits, never));
    address
}

#[tokio::test]
async fn the_attested_end_receives_only_requests_that_were_sent_as_such() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorder = requests.clone();
    let attested = site(vec![server(Binding::Key, Some(attester()), now)], move |stream| {
        let requests = recorder.clone();
        async move { record_requests(stream, &requests).await }
    })
    .await;
    check_requests(loopback(attested).await, &requests, |case| &case.connect).await;
}

#[tokio::test]
async fn a_client_sees_no_part_of_another_answer() {
    let cases = Arc::new(answer_cases());
    let served = cases.clone();
    let attested = site(vec![server(Binding::Key, Some(attester()), now)], move |stream| {
        let cases = served.clone();
        async move { serve_answers(stream, &cases).await }
    })
    .await;
    check_answers(loopback(attested).await, &cases).await;
}
