//! The keys for encrypted bodies over their life, and the limits of what they open.

use super::*;
use crate::{Gateway, GatewayError, GatewayOptions};

#[tokio::test]
async fn a_request_for_another_key_tells_the_client_to_fetch_the_key() {
    let (upstream, _received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let gateway = running.address;
    let other_running = gateway_for_clients(upstream, GatewayLimits::default()).await;
    let other = other_running.address;
    for kem in BodyKem::ALL {
        let key = fetch_key(other, kem).await;
        let answer =
            EncryptedRequest::seal(&key, BodyEnd::Unmarked, &[REQUEST]).send(gateway).await;
        assert_eq!(answer.clear_error(), ("422", KEY_CONFIG_PROBLEM.into()));
        assert_eq!(field(&answer.head, "content-type"), Some("application/problem+json"));
    }
}

#[tokio::test]
async fn a_key_stays_usable_until_its_keyset_ends() {
    let number = Arc::new(AtomicU64::new(0));
    let source = number.clone();
    let identity = Arc::new(move || {
        let number = source.load(Ordering::SeqCst);
        // The third keyset has ended.
        let not_after = if number == 2 { NOW - 1 } else { NOW + 3600 };
        KeyIdentity { spki_sha256: [number as u8; 32], not_after }
    });
    let (upstream, _received) = recording_upstream().await;
    let running = gateway_with_identity(upstream, GatewayLimits::default(), identity).await;
    let gateway = running.address;
    let mut keys = Vec::new();
    for next in 1..=3 {
        keys.push(fetch_key(gateway, BodyKem::X25519).await);
        number.store(next, Ordering::SeqCst);
    }
    fetch_key(gateway, BodyKem::X25519).await;
    for (key, is_usable) in keys.iter().zip([true, true, false]) {
        let request = EncryptedRequest::seal(key, BodyEnd::FinalFrame, &[REQUEST]);
        let answer = request.send(gateway).await;
        match is_usable {
            true => assert_eq!(request.open(&answer).unwrap(), ANSWER),
            false => assert_eq!(answer.clear_error().0, "422"),
        }
    }
}

#[tokio::test]
async fn a_key_that_has_opened_many_requests_is_renewed() {
    let encrypted_bodies = EncryptedBodyLimits { per_key: 8, ..EncryptedBodyLimits::default() };
    let limits = GatewayLimits { encrypted_bodies, ..GatewayLimits::default() };
    let (upstream, _received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, limits).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let send = || EncryptedRequest::seal(&key, BodyEnd::FinalFrame, &[REQUEST]);
    for number in 0..8 {
        let current = fetch_key(gateway, BodyKem::X25519).await;
        assert_eq!(current == key, number < 6, "{number}");
        let request = send();
        assert_eq!(request.open(&request.send(gateway).await).unwrap(), ANSWER);
    }
    assert_eq!(send().send(gateway).await.clear_error(), ("422", KEY_CONFIG_PROBLEM.into()));
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let request = EncryptedRequest::seal(&key, BodyEnd::FinalFrame, &[REQUEST]);
    assert_eq!(request.open(&request.send(gateway).await).unwrap(), ANSWER);
}

#[tokio::test]
async fn one_network_cannot_use_up_the_keys_at_once() {
    let encrypted_bodies =
        EncryptedBodyLimits { per_minute_per_peer: 3, ..EncryptedBodyLimits::default() };
    let limits = GatewayLimits { encrypted_bodies, ..GatewayLimits::default() };
    let (upstream, _received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, limits).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    for number in 0..4 {
        let request = EncryptedRequest::seal(&key, BodyEnd::FinalFrame, &[REQUEST]);
        let answer = request.send(gateway).await;
        if number < 3 {
            assert_eq!(request.open(&answer).unwrap(), ANSWER);
        } else {
            assert_eq!(answer.clear_error(), ("429", "encrypted_body_too_many".into()));
            assert_eq!(field(&answer.head, "retry-after"), Some("1"));
        }
    }
}

#[tokio::test]
async fn a_frame_that_is_longer_than_the_memory_for_it_is_refused() {
    let limits = GatewayLimits {
        buffered_bytes: 4096,
        buffered_bytes_per_peer: 1024,
        ..GatewayLimits::default()
    };
    let (upstream, _received) = recording_upstream().await;
    let running = gateway_for_clients(upstream, limits).await;
    let gateway = running.address;
    let key = fetch_key(gateway, BodyKem::X25519).await;
    let long = "x".repeat(600);
    let answer = EncryptedRequest::seal(&key, BodyEnd::FinalFrame, &[&long]).send(gateway).await;
    assert_eq!(answer.clear_error(), ("413", "request_too_large".into()));
    let request = EncryptedRequest::seal(&key, BodyEnd::FinalFrame, &[REQUEST]);
    assert_eq!(request.open(&request.send(gateway).await).unwrap(), ANSWER);
}

#[test]
fn a_gateway_that_opens_bodies_has_no_route_that_selects_the_server_by_key() {
    let open = |by_key_id: bool| {
        let upstream = Upstream::parse("http://127.0.0.1:1").unwrap();
        let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
        configuration.routes[0].by_key_id = by_key_id;
        let options = GatewayOptions {
            configuration,
            key_validity: Duration::from_secs(3600),
            limits: GatewayLimits::default(),
            names: vec!["localhost".into()],
            session_tickets: false,
        };
        let gateway = Gateway::new(options, Some(Arc::new(FakeAttester)), || NOW).unwrap();
        let gateway = gateway.with_receipts(Arc::new(ReceiptBook::new(|| NOW))).unwrap();
        gateway.with_encrypted_bodies().map(drop)
    };
    assert!(open(false).is_ok());
    let refused = open(true).unwrap_err();
    assert!(matches!(refused, GatewayError::KeyedRoute { .. }), "{refused}");
    assert!(refused.to_string().ends_with("got encrypted bodies of this gateway's"), "{refused}");
}
