//! An authorization hook in place of a key file.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    api_keys::{clock, post, start_with},
    *,
};
use crate::{ApiKeyDigest, AuthorizationHook, Authorizer};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A hook that sends each question to the receiver and answers with `body`.
async fn hook_with(
    status: &'static str,
    body: &'static str,
) -> (Arc<Authorizer>, mpsc::UnboundedReceiver<String>) {
    let (asked, questions) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream| {
        let asked = asked.clone();
        async move {
            let head = read_until(&mut stream, "\r\n\r\n").await;
            let question = read_until(&mut stream, "}").await;
            asked.send(format!("{head}{question}")).unwrap();
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let hook = AuthorizationHook::new(&format!("http://{address}/authorize")).unwrap();
    (Arc::new(Authorizer::with_hook(hook, clock)), questions)
}

fn cancel_with(key: &str) -> String {
    post("/v1/responses/resp_1/cancel", &format!("authorization: Bearer {key}\r\n"))
}

#[tokio::test]
async fn a_hook_learns_digest_and_route_and_its_answer_is_remembered() {
    let allow = r#"{"allow":true,"name":"a","max_age_s":60,"requests_per_minute":2}"#;
    let (authorizer, mut questions) = hook_with("200 OK", allow).await;
    let gateway = start_with(&authorizer, upstream_saying(OK).await).await;
    for wanted in [" 200 ", " 200 ", " 429 "] {
        let got = exchange(gateway.address, &cancel_with("secret-key")).await;
        assert!(got.contains(wanted), "{got}");
    }
    let question = questions.recv().await.unwrap();
    let (head, body) = question.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /authorize HTTP/1.1\r\n"), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let wanted = serde_json::json!({
        "key_sha256": ApiKeyDigest::of_key(b"secret-key").to_hex(),
        "method": "POST",
        "path": "/v1/responses/*/cancel",
    });
    assert_eq!(body, wanted);
    assert!(questions.try_recv().is_err(), "the answer was not remembered");
}

#[tokio::test]
async fn a_refusal_of_the_hook_is_a_401_and_guesses_are_not_passed_on_for_ever() {
    let (authorizer, mut questions) = hook_with("200 OK", r#"{"allow":false}"#).await;
    let gateway = start_with(&authorizer, upstream_saying(OK).await).await;
    for _ in 0..20 {
        let got = exchange(gateway.address, &cancel_with("k")).await;
        assert!(got.starts_with("HTTP/1.1 401 "), "{got}");
        questions.recv().await.unwrap();
    }
    let got = exchange(gateway.address, &cancel_with("k")).await;
    assert!(got.starts_with("HTTP/1.1 429 "), "{got}");
    assert!(questions.try_recv().is_err(), "a guess was passed on");
}

#[tokio::test]
async fn a_guesser_does_not_lock_out_a_key_that_the_hook_allowed_before() {
    let valid = ApiKeyDigest::of_key(b"valid").to_hex();
    let revoked = Arc::new(AtomicBool::new(false));
    let is_revoked = revoked.clone();
    let address = upstream(move |mut stream| {
        let (valid, is_revoked) = (valid.clone(), is_revoked.load(Ordering::Relaxed));
        async move {
            let question = read_until(&mut stream, "}").await;
            let body = match question.contains(&valid) && !is_revoked {
                // Without `max_age_s`: each request is asked about.
                true => r#"{"allow":true,"name":"a"}"#,
                false => r#"{"allow":false}"#,
            };
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let hook = AuthorizationHook::new(&format!("http://{address}/authorize")).unwrap();
    let authorizer = Arc::new(Authorizer::with_hook(hook, clock));
    let gateway = start_with(&authorizer, upstream_saying(OK).await).await;
    assert!(exchange(gateway.address, &cancel_with("valid")).await.contains(" 200 "));
    for _ in 0..20 {
        assert!(exchange(gateway.address, &cancel_with("wrong")).await.contains(" 401 "));
    }
    assert!(exchange(gateway.address, &cancel_with("wrong")).await.contains(" 429 "));
    let got = exchange(gateway.address, &cancel_with("valid")).await;
    assert!(got.contains(" 200 "), "{got}");
    revoked.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        // The hook's refusal makes the key a wrong one, of which the network has sent too many.
        let got = exchange(gateway.address, &cancel_with("valid")).await;
        assert!(got.contains(" 429 "), "{got}");
    }
}

#[tokio::test]
async fn a_hook_that_fails_lets_nobody_in() {
    let (broken, _questions) = hook_with("500 Internal Server Error", "{}").await;
    let (vague, _more) = hook_with("200 OK", r#"{"allow":true,"name":"a","limit":1}"#).await;
    let (_closed, address) = closed_address();
    let url = format!("http://{address}");
    let absent = Authorizer::with_hook(AuthorizationHook::new(&url).unwrap(), clock);
    for authorizer in [broken, vague, Arc::new(absent)] {
        let gateway = start_with(&authorizer, upstream_saying(OK).await).await;
        let got = exchange(gateway.address, &cancel_with("k")).await;
        assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
        assert!(got.contains("authorization_unavailable"), "{got}");
        assert!(got.contains("retry-after: 1\r\n"), "{got}");
    }
}
