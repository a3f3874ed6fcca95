//! Malformed and ambiguous messages (`vectors/http`): no byte of one becomes a part of another.

use std::sync::Mutex;

use confide_tests::framing::{
    answer_cases, check_answers, check_requests, record_requests, serve_answers,
};

use super::*;

/// A gateway with the default routes. It soon gives up on a body that it does not pass on.
async fn default_gateway(upstream: SocketAddr) -> RunningGateway {
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let limits = GatewayLimits {
        request_body_linger: Duration::from_millis(50),
        ..GatewayLimits::default()
    };
    gateway_with(GatewayConfiguration::with_upstream(Binding::Key, upstream), limits).await
}

#[tokio::test]
async fn the_upstream_receives_only_requests_that_were_sent_as_such() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorder = requests.clone();
    let upstream = upstream(move |stream| {
        let requests = recorder.clone();
        async move { record_requests(stream, &requests).await }
    })
    .await;
    let gateway = default_gateway(upstream).await;
    check_requests(gateway.address, &requests, |case| &case.gateway).await;
}

#[tokio::test]
async fn a_client_sees_no_part_of_another_answer() {
    let cases = Arc::new(answer_cases());
    let served = cases.clone();
    let upstream = upstream(move |stream| {
        let cases = served.clone();
        async move { serve_answers(stream, &cases).await }
    })
    .await;
    let gateway = default_gateway(upstream).await;
    check_answers(gateway.address, &cases).await;
}
