//! Receipts with the real program: a chat through `serve`, `gateway --receipts` and `connect`, then
//! `verify receipt` on what the client kept; and the forms for verifiers of other projects.
//!
//! All evidence here is simulated.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use confide_tests::{ANY_PORT, CommandOutput, Folder, Process, Program, text};
use sha2::{Digest, Sha256};

const CONFIDE: Program = Program(env!("CARGO_BIN_EXE_confide"));
/// Nothing here takes this long unless it hangs.
const GENEROUS: Duration = Duration::from_secs(60);
const NONCE: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const REQUEST: &str = r#"{"model":"sim","stream":true,"max_tokens":16,"temperature":0,
    "messages":[{"role":"user","content":"Tell me of the house."}]}"#;

/// A model server, a gateway that signs receipts, and an attested client in front of it.
struct Chain {
    folder: Folder,
    policy: PathBuf,
    gateway: Process,
    connect: Process,
    _serve: Process,
}

impl Chain {
    fn start(name: &str, binding: &str) -> Self {
        Self::start_with(name, binding, &[])
    }

    /// Starts a gateway with further options.
    fn start_with(name: &str, binding: &str, more: &[&str]) -> Self {
        let folder = Folder::new(name);
        let attester = PathBuf::from(folder.argument("attester"));
        run_well(&["attest", "--simulate", "tdx", "--out", text(&attester)]);
        let serve = CONFIDE.start(&["serve", "--engine", "sim", "--listen", ANY_PORT]);
        let upstream = format!("http://{}", serve.address());
        let arguments = [
            "gateway",
            "--listen",
            ANY_PORT,
            "--upstream",
            &upstream,
            "--binding",
            binding,
            "--simulate",
            text(&attester),
            "--receipts",
        ];
        let gateway = CONFIDE.start(&[&arguments[..], more].concat());
        let policy = attester.join("policy.toml");
        let digest = gateway.ready["config_digest"].as_str().unwrap().to_owned();
        run_well(&["policy", "pin", text(&policy), "--digest", &digest]);
        let url = format!("https://{}", gateway.address());
        let connect = CONFIDE.start(&[
            "connect",
            &url,
            "--policy",
            text(&policy),
            "--binding",
            binding,
            "--listen",
            ANY_PORT,
        ]);
        Self { folder, policy, gateway, connect, _serve: serve }
    }

    /// Asks the model, and returns the identifier of the receipt and the body of the answer.
    fn chat(&self) -> (String, String) {
        let (head, body) = self.ask_model();
        (field(&head, "x-receipt-id").to_owned(), body)
    }

    fn ask_model(&self) -> (String, String) {
        self.ask_model_with("")
    }

    /// Asks the model with further fields in the head.
    fn ask_model_with(&self, fields: &str) -> (String, String) {
        let length = REQUEST.len();
        self.exchange(&format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             {fields}content-length: {length}\r\nconnection: close\r\n\r\n{REQUEST}"
        ))
    }

    fn get(&self, path: &str, fields: &str) -> (String, String) {
        self.exchange(&format!(
            "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{fields}connection: close\r\n\r\n"
        ))
    }

    fn fetch_json(&self, path: &str, fields: &str) -> serde_json::Value {
        serde_json::from_str(&self.fetch_text(path, fields)).unwrap()
    }

    /// Fetches a document, once this network may have a report again.
    fn fetch_text(&self, path: &str, fields: &str) -> String {
        let until = Instant::now() + GENEROUS;
        loop {
            let (head, body) = self.get(path, fields);
            if head.starts_with("HTTP/1.1 200 ") {
                return body;
            }
            let is_early = head.starts_with("HTTP/1.1 429 ") && Instant::now() < until;
            assert!(is_early, "{path}: {head}\n{body}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Writes what a path returns to a file of this name.
    fn save(&self, path: &str, name: &str) -> PathBuf {
        let (head, body) = self.get(path, "");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}\n{body}");
        self.folder.write(name, &body).into()
    }

    fn save_receipt(&self, id: &str) -> PathBuf {
        self.save(&format!("/v1/aci/receipts/{id}"), "receipt.json")
    }

    fn exchange(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.connect.address()).unwrap();
        stream.set_read_timeout(Some(GENEROUS)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        (head.to_owned(), if is_chunked { decode_chunks(body) } else { body.to_owned() })
    }

    fn verify(&self, receipt: &Path, report: &Path, more: &[&str]) -> CommandOutput {
        let arguments = ["verify", "receipt", text(receipt), "--report", text(report)];
        let policy = ["--policy", text(&self.policy)];
        CONFIDE.run(&[&arguments[..], &policy, more].concat())
    }
}

/// The value of a field of a head.
fn field<'a>(head: &'a str, name: &str) -> &'a str {
    let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.unwrap_or_else(|| panic!("no {name}: {head}"))
}

fn run_well(arguments: &[&str]) {
    let done = CONFIDE.run(arguments);
    assert_eq!(done.status, Some(0), "{arguments:?}: {}", done.stderr);
}

fn decode_chunks(mut rest: &str) -> String {
    let mut whole = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&after[..length]);
        rest = &after[length + 2..];
    }
    whole
}

#[test]
fn an_answer_is_shown_to_be_the_gateways_and_anything_else_is_refused() {
    for binding in ["key", "session"] {
        let chain = Chain::start("receipts", binding);
        let (id, answer) = chain.chat();
        let report = chain.save(&format!("/v1/aci/attestation?nonce={NONCE}"), "report.json");
        let receipt = chain.save_receipt(&id);
        let request = chain.folder.write("request", REQUEST);
        let response = chain.folder.write("response", &answer);
        let nonce = ["--nonce", NONCE];
        let bodies = ["--request", &request, "--response", &response];
        let all = [&nonce[..], &bodies].concat();
        let accepted = chain.verify(&receipt, &report, &all);
        assert_eq!(accepted.status, Some(0), "{}{}", accepted.stdout, accepted.stderr);
        // Without the texts, too.
        let accepted = chain.verify(&receipt, &report, &nonce);
        assert_eq!(accepted.status, Some(0), "{}{}", accepted.stdout, accepted.stderr);
        assert!(accepted.stdout.contains("not evaluated"), "{}", accepted.stdout);
        let changed = |path: &Path, from: &str, to: &str| -> PathBuf {
            let text = std::fs::read_to_string(path).unwrap();
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            chain.folder.write("changed", &changed).into()
        };
        for (refused, what) in [
            (chain.verify(&receipt, &report, &bodies), "a nonce that is not the client's"),
            (
                chain.verify(&changed(&receipt, "POST", "PUT"), &report, &all),
                "a receipt with another method",
            ),
            (
                chain.verify(
                    &receipt,
                    &changed(&report, "\"not_after\":1", "\"not_after\":2"),
                    &all,
                ),
                "a keyset with another time",
            ),
            (
                {
                    let response = changed(response.as_ref(), "data: [DONE]", "data: [done]");
                    let bodies = ["--request", &request, "--response", text(&response)];
                    chain.verify(&receipt, &report, &[&nonce[..], &bodies].concat())
                },
                "another answer",
            ),
        ] {
            assert_eq!(refused.status, Some(1), "{what}: {}{}", refused.stdout, refused.stderr);
        }
        // Of another gateway of the same program, policy and configuration.
        let other = Chain::start("other-receipts", binding);
        let (other_id, _) = other.chat();
        let foreign = other.save_receipt(&other_id);
        let refused = chain.verify(&foreign, &report, &nonce);
        assert_eq!(refused.status, Some(1), "{}{}", refused.stdout, refused.stderr);
        assert!(refused.stdout.contains("another keyset"), "{}", refused.stdout);
    }
}

#[test]
fn parts_of_an_answer_are_shown_and_the_rest_stays_hidden() {
    let chain = Chain::start("excerpt", "session");
    let secret = "5a".repeat(32);
    let length = REQUEST.len();
    let (head, answer) = chain.exchange(&format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         x-receipt-secret: {secret}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{REQUEST}"
    ));
    let id = field(&head, "x-receipt-id");
    let openable = chain.save(&format!("/v1/aci/receipts/{id}/openable"), "openable.json");
    let report = chain.save("/v1/aci/attestation", "report.json");
    let document = std::fs::read_to_string(&openable).unwrap();
    for hidden in ["body_hash", "\"sim\"", "chatcmpl", "temperature", id] {
        assert!(!document.contains(hidden), "{hidden}: {document}");
    }
    // A shown part may have the answer's identifier: it does not lead to the digests.
    let chat_id = &answer[answer.find("chatcmpl-").unwrap()..];
    let chat_id = &chat_id[..chat_id.find('"').unwrap()];
    let signature = format!("/v1/signature/{chat_id}?signing_algo=ed25519");
    for path in [format!("/v1/aci/receipts/{chat_id}"), signature] {
        let get = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
        let (head, body) = chain.exchange(&get);
        assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}\n{body}");
    }
    let request = chain.folder.write("request", REQUEST);
    let response = chain.folder.write("response", &answer);
    let secret = chain.folder.write("secret", &secret);
    let place = answer.find("data: [DONE]").unwrap();
    let last = format!("response.bytes:{place}-{}", place + 12);
    let out = chain.folder.argument("excerpt");
    let files = ["--secret", &secret, "--request", &request, "--response", &response];
    let disclose = |wishes: &[&str]| {
        let wishes: Vec<&str> = wishes.iter().flat_map(|wish| ["--show", wish]).collect();
        CONFIDE
            .run(&[&["disclose", text(&openable)], &files[..], &wishes, &["--out", &out]].concat())
    };
    let made = disclose(&[&last, "response.length"]);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    let excerpt = std::fs::read(&out).unwrap();
    let hidden = REQUEST.as_bytes();
    assert!(!excerpt.windows(20).any(|it| it == &hidden[..20]), "the request is hidden");
    let accepted = chain.verify(out.as_ref(), &report, &[]);
    assert_eq!(accepted.status, Some(0), "{}{}", accepted.stdout, accepted.stderr);
    assert!(accepted.stdout.contains("data: [DONE]"), "{}", accepted.stdout);
    let whole = "of     POST /v1/chat/completions, status 200\n";
    assert!(accepted.stdout.contains(whole), "{}", accepted.stdout);
    assert!(accepted.stdout.contains(&format!("response.length  {}", answer.len())));
    assert!(accepted.stdout.contains("nothing of it is shown"), "{}", accepted.stdout);
    // A shown byte that is another.
    let place = excerpt.windows(6).position(|it| it == b"[DONE]").unwrap();
    let changed = [&excerpt[..place + 1], b"G", &excerpt[place + 2..]].concat();
    std::fs::write(&out, changed).unwrap();
    let refused = chain.verify(out.as_ref(), &report, &[]);
    assert_eq!(refused.status, Some(1), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stdout.contains("response: opened response bytes"), "{}", refused.stdout);
    // Whoever does not ask gets no such receipt.
    let (plain, _) = chain.chat();
    let path = format!("/v1/aci/receipts/{plain}/openable");
    let get = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
    let (head, body) = chain.exchange(&get);
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}\n{body}");
}

#[test]
fn receipts_survive_a_reload() {
    let chain = Chain::start("reloaded-receipts", "session");
    let (head, _) = chain.ask_model();
    let (id, keyset) = (field(&head, "x-receipt-id"), field(&head, "x-aci-keyset-digest"));
    let before = std::fs::read_to_string(chain.save_receipt(id)).unwrap();
    let process = chain.gateway.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &process]).status().unwrap().success());
    // A reload makes a new TLS key, and with it a new keyset.
    let until = Instant::now() + GENEROUS;
    loop {
        let (head, _) = chain.ask_model();
        if field(&head, "x-aci-keyset-digest") != keyset {
            chain.save_receipt(field(&head, "x-receipt-id"));
            break;
        }
        assert!(Instant::now() < until, "it does not reload");
    }
    assert_eq!(std::fs::read_to_string(chain.save_receipt(id)).unwrap(), before);
}

/// The report data of a TDX quote of version 4: a head of 48 bytes, then the body (Intel's layout).
fn report_data(quote: &[u8]) -> &[u8] {
    &quote[48 + 520..48 + 584]
}

fn decode_hex(value: &serde_json::Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

#[test]
fn a_verifier_of_dstacks_form_checks_report_and_signature() {
    let chain = Chain::start("dstack-form", "session");
    let (head, answer) = chain.ask_model_with("authorization: Bearer one\r\n");
    let id = field(&head, "x-receipt-id");
    let signature = format!("/v1/signature/{id}?signing_algo=ed25519");
    for (fields, status) in [("", "401"), ("authorization: Bearer two\r\n", "404")] {
        let (head, body) = chain.get(&signature, fields);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}\n{body}");
        assert!(!body.contains("signing_address"), "{body}");
    }
    let signed = chain.fetch_json(&signature, "authorization: Bearer one\r\n");
    let digests = [REQUEST, &answer].map(|body| hex::encode(Sha256::digest(body)));
    assert_eq!(signed["text"], digests.join(":"));
    let address = decode_hex(&signed["signing_address"]);
    let public_key = UnparsedPublicKey::new(&ED25519, &address);
    let (text, signature) = (signed["text"].as_str().unwrap(), decode_hex(&signed["signature"]));
    public_key.verify(text.as_bytes(), &signature).unwrap();
    let mut changed = text.as_bytes().to_vec();
    changed[0] ^= 1;
    assert!(public_key.verify(&changed, &signature).is_err());
    let keyset = chain.fetch_json("/v1/aci/attestation", "");
    let keyset = &keyset["attestation"]["workload_keyset"];
    assert_ne!(keyset["receipt_signing_keys"][0]["public_key"], signed["signing_address"]);
    let path = format!(
        "/v1/attestation/report?nonce={NONCE}&signing_algo=ed25519&include_tls_fingerprint=true"
    );
    let report = chain.fetch_json(&path, "");
    assert_eq!(report["signing_address"], signed["signing_address"]);
    assert_eq!(report["tls_cert_fingerprint"], keyset["tls_public_keys"][0]["spki_sha256"]);
    let fingerprint = decode_hex(&report["tls_cert_fingerprint"]);
    let first = Sha256::digest([address, fingerprint].concat());
    let wanted = [&first[..], &hex::decode(NONCE).unwrap()].concat();
    assert_eq!(report_data(&decode_hex(&report["intel_quote"])), wanted);
    for (query, text) in [
        (format!("nonce={NONCE}"), "ecdsa"),
        (format!("nonce={NONCE}&signing_algo=ecdsa"), "ecdsa"),
        ("signing_algo=ed25519".to_owned(), "wanted a nonce"),
    ] {
        let (head, body) = chain.get(&format!("/v1/attestation/report?{query}"), "");
        assert!(head.starts_with("HTTP/1.1 400 ") && body.contains(text), "{head}\n{body}");
    }
    // Without encrypted bodies there is nothing to say in Tinfoil's form.
    let (head, _) = chain.get(&format!("/.well-known/tinfoil-attestation?nonce={NONCE}"), "");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
}

#[test]
fn a_verifier_of_tinfoils_form_checks_the_document() {
    let chain = Chain::start_with("tinfoil-form", "key", &["--encrypted-bodies"]);
    let path = "/.well-known/tinfoil-attestation";
    let (head, body) = chain.get(path, "");
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("wanted a nonce"), "{head}\n{body}");
    let body = chain.fetch_text(&format!("{path}?nonce={NONCE}"), "");
    let document: serde_json::Value = serde_json::from_str(&body).unwrap();
    let bound = &document["report_data"];
    assert_eq!(bound["nonce"], NONCE);
    let parts = ["tls_key_fp", "hpke_key", "nonce"].map(|name| decode_hex(&bound[name]));
    assert!(parts.iter().all(|part| part.len() == 32), "{bound}");
    let decode = |value: &serde_json::Value| STANDARD.decode(value.as_str().unwrap()).unwrap();
    assert_eq!(document["cpu"]["platform"], "tdx");
    let first = Sha256::digest(parts.concat());
    let quote = decode(&document["cpu"]["report"]);
    assert_eq!(report_data(&quote), [&first[..], &[0; 32]].concat());
    // The key of the certificate, whose SubjectPublicKeyInfo begins in one way on P-256.
    let pem = document["certificate"].as_str().unwrap();
    let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let certificate = STANDARD.decode(base64).unwrap();
    let begin = hex::decode("3059301306072a8648ce3d020106082a8648ce3d030107034200").unwrap();
    let at = certificate.windows(begin.len()).position(|part| part == begin).unwrap();
    let spki = &certificate[at..at + 91];
    assert_eq!(Sha256::digest(spki)[..], parts[0]);
    // The body with an empty text in the place of the signature.
    let at = body.rfind("\"signature\":\"").unwrap() + "\"signature\":\"".len();
    let (begin, signature) = body.split_at(at);
    let (signature, end) = signature.split_once('"').unwrap();
    let signature = STANDARD.decode(signature).unwrap();
    let public_key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &spki[26..]);
    let unsigned = format!("{begin}\"{end}");
    public_key.verify(unsigned.as_bytes(), &signature).unwrap();
    let changed = unsigned.replacen("\"nonce\":\"00", "\"nonce\":\"01", 1);
    assert_ne!(changed, unsigned);
    assert!(public_key.verify(changed.as_bytes(), &signature).is_err());
}

#[test]
fn receipts_without_evidence_are_refused() {
    let arguments = ["gateway", "--listen", ANY_PORT, "--upstream", "http://127.0.0.1:9"];
    let plain = ["--binding", "none", "--receipts", "--upstream-wait-s", "0"];
    let refused = CONFIDE.run(&[&arguments[..], &plain].concat());
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("receipts need evidence"), "{}", refused.stderr);
}
