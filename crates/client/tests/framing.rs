//! Malformed and ambiguous messages (`vectors/http`) at the loopback address: no byte of one becomes
//! a part of another.

mod local;
mod site;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use confide_client::{Binding, BodyPace, ClientLimits};
use confide_tests::framing::{
    answer_cases, check_answers, check_requests, record_requests, serve_answers,
};
use local::{Running, loopback};
use site::{attester, now, server, site};

/// Opens a loopback address that soon gives up on a body that is not passed on, or does not come.
async fn impatient_loopback(attested: SocketAddr) -> Running {
    let defaults = ClientLimits::default();
    let pause = Duration::from_secs(2);
    let limits = ClientLimits {
        local_body_linger: Duration::from_millis(50),
        request_body_pace: BodyPace { pause, ..defaults.request_body_pace },
        ..defaults
    };
    loopback(attested, limits).await
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
    let local = impatient_loopback(attested).await;
    check_requests(local.address, &requests, |case| &case.connect).await;
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
    let local = impatient_loopback(attested).await;
    check_answers(local.address, &cases).await;
}
