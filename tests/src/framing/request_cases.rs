//! Requests that programs could read differently, and what a proxy does with each.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    GENEROUS,
    message::{WireMessage, read_answer, read_request},
    read_cases, wire_bytes,
};

/// What every case that gives only its fields begins with.
const DEFAULT_START: &str = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n";
/// `{smuggled}` in a case: a request that no proxy may let through as a part of another one.
const SMUGGLED: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// The request that tells whether the connection is still in step.
const PROBE: &str = "GET /v1/models/probe HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// The request of another client, which must get its own answer.
const VICTIM: &str = "GET /v1/models/victim HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The bytes that a client sends, and the wanted outcomes.
#[derive(Clone, Debug)]
pub struct RequestCase {
    /// The name of the case, unique in the table.
    pub name: String,
    /// The bytes that the client writes at once.
    pub bytes: Vec<u8>,
    /// Whether the client then ends its direction of the connection.
    pub ends: bool,
    /// What the gateway does.
    pub gateway: RequestOutcome,
    /// What the loopback proxy of `confide connect` does.
    pub connect: RequestOutcome,
}

/// What a proxy does with the bytes of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestOutcome {
    /// The statuses of its answers, in order.
    pub answers: Vec<u16>,
    /// Whether it closes the connection after them. Otherwise the connection takes one more request.
    pub closes: bool,
    /// The requests that the server behind it receives whole, each as `METHOD TARGET BODY`.
    pub upstream: Vec<String>,
}

/// The cases of `vectors/http/requests.toml`, at least one.
///
/// # Panics
/// If the table cannot be read or has no case.
pub fn request_cases() -> Vec<RequestCase> {
    read_cases("requests.toml").iter().map(parse_case).collect()
}

fn parse_case(case: &toml::Table) -> RequestCase {
    let text = |key: &str| case.get(key).and_then(toml::Value::as_str);
    let raw = match (text("raw"), text("fields")) {
        (Some(raw), None) => raw.to_owned(),
        (None, Some(fields)) => format!("{DEFAULT_START}{fields}"),
        _ => panic!("{case:?}: wanted either raw or fields"),
    };
    let gateway = parse_outcome(case);
    let connect = case.get("connect").and_then(toml::Value::as_table).map(parse_outcome);
    RequestCase {
        name: text("name").expect("a name").to_owned(),
        ends: case.get("ends").and_then(toml::Value::as_bool).unwrap_or_default(),
        bytes: wire_bytes(&raw.replace("{smuggled}", SMUGGLED)),
        connect: connect.unwrap_or_else(|| gateway.clone()),
        gateway,
    }
}

fn parse_outcome(table: &toml::Table) -> RequestOutcome {
    let list =
        |key: &str| table.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let status =
        |value: &toml::Value| u16::try_from(value.as_integer().expect("a status")).unwrap();
    let request =
        |value: &toml::Value| value.as_str().expect("a request").replace("{smuggled}", SMUGGLED);
    RequestOutcome {
        answers: list("answers").iter().map(status).collect(),
        closes: table.get("closes").and_then(toml::Value::as_bool).unwrap_or_default(),
        upstream: list("upstream").iter().map(request).collect(),
    }
}

/// Sends every case to the proxy at `address` and checks what comes back, and what the server behind
/// it has received: `requests`, which [`record_requests`] fills. The cases share the proxy's
/// connections to the server.
///
/// # Panics
/// With the difference from the wanted outcome of each case that failed.
pub async fn check_requests(
    address: SocketAddr,
    requests: &Mutex<Vec<String>>,
    outcome: fn(&RequestCase) -> &RequestOutcome,
) {
    let mut differences = Vec::new();
    for case in request_cases() {
        requests.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let checked = check_answers(address, &case, outcome(&case)).await;
        let received = requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let difference = match checked {
            Ok(wanted) if wanted == received => continue,
            Ok(wanted) => format!("the server received {received:?}, wanted {wanted:?}"),
            Err(difference) => difference,
        };
        differences.push(format!("{}: {difference}", case.name));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Sends the bytes of a case, then a request on the same connection and one as another client.
/// Returns the requests that the server must have received.
async fn check_answers(
    address: SocketAddr,
    case: &RequestCase,
    wanted: &RequestOutcome,
) -> Result<Vec<String>, String> {
    let mut client = RawClient::connect(address).await;
    client.send(&case.bytes).await;
    if case.ends {
        client.end().await;
    }
    let mut requests = wanted.upstream.clone();
    let mut next = wanted.upstream.iter();
    for (index, status) in wanted.answers.iter().enumerate() {
        let is_head = index == 0 && case.bytes.starts_with(b"HEAD ");
        let answer = client.next_answer(if is_head { "HEAD" } else { "GET" }).await?;
        let own = next.next().filter(|_| !is_head && *status == 200);
        match answer {
            Some(answer)
                if answer.start == status.to_string()
                    && own.is_none_or(|own| *own == answer.body) => {}
            got => {
                return Err(format!("answer {}: wanted {status} {own:?}, got {got:?}", index + 1));
            }
        }
    }
    if wanted.closes {
        if let Some(more) = client.next_answer("GET").await? {
            return Err(format!("wanted a closed connection, got {more:?}"));
        }
    } else {
        client.send(PROBE.as_bytes()).await;
        client.expect_own_answer("GET /v1/models/probe ").await?;
        requests.push("GET /v1/models/probe ".into());
    }
    let mut victim = RawClient::connect(address).await;
    victim.send(VICTIM.as_bytes()).await;
    victim.expect_own_answer("GET /v1/models/victim ").await?;
    requests.push("GET /v1/models/victim ".into());
    Ok(requests)
}

/// A client that writes bytes as they are, and reads answers strictly.
pub(super) struct RawClient {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl RawClient {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.expect("a listener"), bytes: Vec::new() }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        // The proxy may already have closed the connection; the answer says so.
        let _ = self.stream.write_all(bytes).await;
    }

    async fn end(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// The next final answer; `None` at the end of the connection.
    pub(super) async fn next_answer(
        &mut self,
        method: &str,
    ) -> Result<Option<WireMessage>, String> {
        loop {
            if let Some(answer) = read_answer(&self.bytes, method)? {
                self.bytes.drain(..answer.length);
                if answer.start != "100" {
                    return Ok(Some(answer));
                }
                continue;
            }
            let read = timeout(GENEROUS, self.stream.read_buf(&mut self.bytes)).await;
            match read.map_err(|_| "no answer: this hangs")? {
                Ok(0) | Err(_) if self.bytes.is_empty() => return Ok(None),
                Ok(0) | Err(_) => {
                    return Err(format!("cut: {}", String::from_utf8_lossy(&self.bytes)));
                }
                Ok(_) => {}
            }
        }
    }

    pub(super) async fn expect_own_answer(&mut self, wanted: &str) -> Result<(), String> {
        match self.next_answer("GET").await? {
            Some(answer) if answer.start == "200" && answer.body == wanted => Ok(()),
            got => Err(format!("wanted the answer to {wanted:?}, got {got:?}")),
        }
    }
}

/// Serves one connection of a server that records each whole request and answers with its record.
/// The first request that two programs could read differently is recorded as `ambiguous`, and ends
/// the connection.
pub async fn record_requests<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    requests: &Mutex<Vec<String>>,
) {
    let mut bytes = Vec::new();
    let record = |text: String| requests.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    loop {
        let request = match read_request(&bytes) {
            Ok(Some(request)) => request,
            Ok(None) => match stream.read_buf(&mut bytes).await {
                Ok(1..) => continue,
                _ => return,
            },
            Err(reason) => return record(format!("ambiguous: {reason}")),
        };
        bytes.drain(..request.length);
        let text = format!("{} {}", request.start, request.body);
        record(text.clone());
        let body = if text.starts_with("HEAD ") { "" } else { &text };
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", text.len());
        if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}
