//! The attack on the prefix cache of a model server that several tenants share, through the gateway.
//!
//! The server is a small one with a prefix cache by vLLM's rule: the hash of a block covers its tokens,
//! the hash of the block before and, in the first block, the request's salt. It computes only the
//! blocks that it has not cached, and its time to the first token is in proportion to them. The attack
//! reads their number, which is what the time tells.

use std::{collections::HashSet, sync::Mutex};

use confide_receipt::{FORWARDED_EVENT, RECEIVED_EVENT};
use sha2::{Digest, Sha256};

use super::{
    receipts::{REQUEST, body, fetch_receipt, field, gateway_of_configuration, post},
    *,
};
use crate::{ApiKeyDigest, Authorizer, KeySet, ModelServer};

/// The number of tokens of a block; a byte of a prompt is a token.
const BLOCK_TOKENS: usize = 4;
/// The victim's secret is one of so many.
const GUESSES: u32 = 50;
const SECRET: u32 = 37;

/// The cached blocks, by their hashes.
#[derive(Default)]
struct PrefixCache(HashSet<[u8; 32]>);

impl PrefixCache {
    /// Reads a prompt, and returns the number of blocks that had to be computed.
    fn read_prompt(&mut self, prompt: &str, salt: Option<&str>) -> usize {
        let mut parent = Sha256::digest(salt.unwrap_or_default());
        let mut computed = 0;
        for block in prompt.as_bytes().chunks_exact(BLOCK_TOKENS) {
            parent = Sha256::new().chain_update(parent).chain_update(block).finalize();
            computed += usize::from(self.0.insert(parent.into()));
        }
        computed
    }
}

/// A model server with a prefix cache, and the salts that it was sent.
async fn caching_server() -> (SocketAddr, Arc<Mutex<Vec<Option<String>>>>) {
    let cache = Arc::<Mutex<PrefixCache>>::default();
    let salts = Arc::<Mutex<Vec<Option<String>>>>::default();
    let seen = salts.clone();
    let address = upstream(move |mut stream| {
        let (cache, seen) = (cache.clone(), seen.clone());
        async move {
            let head = read_until(&mut stream, "\r\n\r\n").await.to_ascii_lowercase();
            let length = head.split_once("content-length: ").expect("a length").1;
            let length = length.lines().next().unwrap().parse::<usize>().unwrap();
            let mut request = vec![0; length];
            stream.read_exact(&mut request).await.unwrap();
            let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
            let salt = request["cache_salt"].as_str().map(str::to_owned);
            let prompt = request["messages"][0]["content"].as_str().unwrap();
            let computed = cache.lock().unwrap().read_prompt(prompt, salt.as_deref());
            seen.lock().unwrap().push(salt);
            let answer = format!("{{\"computed_blocks\":{computed}}}");
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    (address, salts)
}

/// A gateway for the keys `victim` and `attacker`.
async fn gateway_of_two_tenants(upstream: SocketAddr, cache_salt: bool) -> RunningGateway {
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream.clone());
    configuration.servers = vec![ModelServer { cache_salt, ..ModelServer::new(upstream) }];
    let table = |name: &str| {
        let sha256 = ApiKeyDigest::of_key(name.as_bytes()).to_hex();
        format!("[[key]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\n")
    };
    let keys = KeySet::parse(&["victim", "attacker"].map(table).concat()).unwrap();
    let authorizer = Arc::new(Authorizer::with_keys(keys, || 1_800_000_000));
    let limits = GatewayLimits::default();
    let proxy = Proxy::new(&configuration, true, limits).unwrap();
    let proxy = proxy.with_authorizer(Some(authorizer));
    serve_proxy(proxy, limits, AdmissionLimits::default()).await
}

async fn count_blocks(gateway: SocketAddr, key: &str, prompt: &str, more: &str) -> u64 {
    let request =
        format!("{{{more}\"messages\":[{{\"role\":\"user\",\"content\":\"{prompt}\"}}]}}");
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
         authorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{request}",
        request.len()
    );
    let answer = exchange(gateway, &request).await;
    let answer: serde_json::Value =
        serde_json::from_str(body(&answer)).unwrap_or_else(|_| panic!("{answer}"));
    answer["computed_blocks"].as_u64().unwrap()
}

/// The victim asks with its secret; the attacker tries every secret and returns the numbers of blocks
/// that its guesses cost.
async fn attack(gateway: SocketAddr, own_salt: &str) -> Vec<u64> {
    let prompt = |number: u32| format!("the code is {number:04}");
    count_blocks(gateway, "victim", &prompt(SECRET), "").await;
    let mut costs = Vec::new();
    for guess in 0..GUESSES {
        // A guess warms the cache for all that share its beginning; the first one costs more.
        costs.push(count_blocks(gateway, "attacker", &prompt(guess), own_salt).await);
    }
    costs
}

#[tokio::test]
async fn without_a_salt_a_tenant_finds_the_prompt_of_another() {
    let (upstream, salts) = caching_server().await;
    let gateway = gateway_of_two_tenants(upstream, false).await;
    let costs = attack(gateway.address, "").await;
    let cheapest: Vec<_> = (0..).zip(&costs).filter(|(_, cost)| **cost == 0).collect();
    assert_eq!(cheapest, [(SECRET, &0)], "{costs:?}");
    assert!(salts.lock().unwrap().iter().all(Option::is_none));
}

#[tokio::test]
async fn with_a_salt_every_guess_costs_as_much_as_any_other() {
    // The attacker may send a salt of its own: it is replaced.
    for own_salt in ["", "\"cache_salt\":\"mine\","] {
        let (upstream, salts) = caching_server().await;
        let gateway = gateway_of_two_tenants(upstream, true).await;
        let costs = attack(gateway.address, own_salt).await;
        assert_eq!(costs[0], 4, "{costs:?}");
        assert!(costs[1..].iter().all(|cost| *cost == 1), "{costs:?}");
        // The tenant's own prompts still share their work.
        assert_eq!(count_blocks(gateway.address, "victim", "the code is 0037", "").await, 0);
        let salts = salts.lock().unwrap();
        let distinct: HashSet<_> = salts.iter().flatten().collect();
        assert_eq!((distinct.len(), salts.iter().all(Option::is_some)), (2, true), "{salts:?}");
    }
}

#[tokio::test]
async fn a_receipt_covers_the_request_as_it_came_and_as_it_was_sent() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let upstream = upstream(move |mut stream| {
        let saw = saw.clone();
        async move {
            read_until(&mut stream, "\r\n\r\n").await;
            saw.send(read_until(&mut stream, "0.5}").await).unwrap();
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    configuration.servers[0].cache_salt = true;
    let gateway = gateway_of_configuration(configuration).await;
    let got = exchange(gateway.address, &post("")).await;
    let sent = seen.recv().await.unwrap();
    assert!(sent.starts_with("{\"cache_salt\":\"") && sent.ends_with(&REQUEST[1..]), "{sent}");
    let receipt = fetch_receipt(gateway.address, field(&got, "x-receipt-id").unwrap()).await;
    receipt.check_body(RECEIVED_EVENT, REQUEST.as_bytes()).unwrap();
    receipt.check_body(FORWARDED_EVENT, sent.as_bytes()).unwrap();
}

#[tokio::test]
async fn a_prompt_on_a_path_that_is_not_known_to_honour_a_salt_goes_nowhere() {
    let (_closed, upstream) = closed_address();
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    configuration.routes = vec![Route::dangerous_everything(DEFAULT_GROUP)];
    for (cache_salt, request, wanted) in [
        (true, "POST /v1/messages", "cache_salt_unsupported"),
        (true, "POST /v1/embeddings", "cache_salt_unsupported"),
        (true, "POST /v1/rerank", "cache_salt_unsupported"),
        (true, "PUT /v1/chat/completions", "cache_salt_unsupported"),
        (true, "POST /v1/messages/count_tokens", "upstream_unreachable"),
        (true, "GET /v1/models", "upstream_unreachable"),
        (false, "POST /v1/messages", "upstream_unreachable"),
    ] {
        configuration.servers[0].cache_salt = cache_salt;
        let gateway = gateway_with(configuration.clone(), GatewayLimits::default()).await;
        let body = if request.starts_with("GET") { "" } else { "content-length: 2\r\n\r\n{}" };
        let end = if body.is_empty() { "\r\n" } else { "" };
        let request = format!("{request} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{body}{end}");
        let got = exchange(gateway.address, &request).await;
        assert!(got.contains(wanted), "{request}: {got}");
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_salted_goes_nowhere() {
    let (_closed, upstream) = closed_address();
    let upstream = Upstream::parse(&format!("http://{upstream}")).unwrap();
    let mut configuration = GatewayConfiguration::with_upstream(Binding::Key, upstream);
    configuration.servers[0].cache_salt = true;
    let gateway = gateway_with(configuration, GatewayLimits::default()).await;
    for (fields, request, wanted) in [
        ("", "[1]", "body_not_json"),
        ("", "", "body_not_json"),
        ("", "\u{feff}{}", "body_not_json"),
        ("content-encoding: gzip\r\n", "{}", "content_coding"),
    ] {
        let request = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{fields}\
             content-length: {}\r\n\r\n{request}",
            request.len()
        );
        let got = exchange(gateway.address, &request).await;
        assert!(got.starts_with("HTTP/1.1 4") && got.contains(wanted), "{got}");
    }
}
