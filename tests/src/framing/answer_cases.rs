//! Answers that programs could read differently, and what a client behind a proxy sees of each.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{message::read_request, read_cases, request_cases::RawClient, wire_bytes};

/// What the targets begin with whose answer is that of a case, by its index; all others are answered
/// well.
const CASE_TARGETS: &str = "/v1/models/case/";
/// `{smuggled}` in a case: an answer that a client may see only where the case says so.
const SMUGGLED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nsmuggled";
/// The body of that answer.
const SMUGGLED_BODY: &str = "smuggled";

/// The bytes that a server answers with, and what a client behind the proxy sees.
#[derive(Clone, Debug)]
pub struct AnswerCase {
    /// The name of the case, unique in the table.
    pub name: String,
    /// The method of the client's request.
    pub method: String,
    /// The bytes that the server writes at once.
    pub bytes: Vec<u8>,
    /// Whether the server then closes the connection.
    pub ends: bool,
    /// The status that the client sees.
    pub status: String,
    /// The body that the client sees; `None` if it may be any that holds nothing smuggled.
    pub body: Option<String>,
    /// Whether the client's connection breaks before the answer is whole.
    pub is_cut: bool,
}

/// The cases of `vectors/http/answers.toml`, at least one.
///
/// # Panics
/// If the table cannot be read or has no case.
pub fn answer_cases() -> Vec<AnswerCase> {
    read_cases("answers.toml").iter().map(parse_case).collect()
}

fn parse_case(case: &toml::Table) -> AnswerCase {
    let text = |key: &str| case.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let flag = |key: &str| case.get(key).and_then(toml::Value::as_bool).unwrap_or_default();
    let raw = text("raw").expect("the bytes of the answer");
    let repeated = case.get("repeat").and_then(toml::Value::as_table).map(|repeat| {
        let times = repeat["times"].as_integer().and_then(|times| usize::try_from(times).ok());
        repeat["text"].as_str().expect("a text").repeat(times.expect("a number"))
    });
    AnswerCase {
        name: text("name").expect("a name"),
        method: text("method").unwrap_or_else(|| "GET".into()),
        bytes: wire_bytes(&(repeated.unwrap_or_default() + &raw.replace("{smuggled}", SMUGGLED))),
        ends: flag("ends"),
        status: case["status"].as_integer().expect("a status").to_string(),
        body: text("body"),
        is_cut: flag("cut"),
    }
}

impl AnswerCase {
    /// Whether a client may see this body.
    fn allows_body(&self, body: &str) -> bool {
        self.body.as_ref().map_or(!body.contains(SMUGGLED_BODY), |wanted| wanted == body)
    }
}

/// Requests the answer of each of `cases` through the proxy at `address`, then others on the same
/// and on another connection, and checks that each is answered with its own.
///
/// # Panics
/// With the difference from each case that failed.
pub async fn check_answers(address: SocketAddr, cases: &[AnswerCase]) {
    let mut differences = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        if let Err(difference) = check_answer(address, index, case).await {
            differences.push(format!("{}: {difference}", case.name));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

async fn check_answer(address: SocketAddr, index: usize, case: &AnswerCase) -> Result<(), String> {
    let mut client = RawClient::connect(address).await;
    client.send(request(&case.method, &format!("{CASE_TARGETS}{index}")).as_bytes()).await;
    let first = client.next_answer(&case.method).await;
    let is_open = match (&first, case.is_cut) {
        (Err(cut), true)
            if cut.starts_with(&format!("cut: HTTP/1.1 {} ", case.status))
                && !cut.contains(SMUGGLED_BODY) =>
        {
            false
        }
        // The connection may break before the head is sent.
        (Ok(None), true) => false,
        (Ok(Some(answer)), false)
            if answer.start == case.status && case.allows_body(&answer.body) =>
        {
            true
        }
        _ => return Err(format!("wanted {} {:?}, got {first:?}", case.status, case.body)),
    };
    if is_open {
        client.send(request("GET", "/v1/models/probe").as_bytes()).await;
        client.expect_own_answer("GET /v1/models/probe").await?;
    }
    let mut victim = RawClient::connect(address).await;
    for _ in 0..2 {
        victim.send(request("GET", "/v1/models/victim").as_bytes()).await;
        victim.expect_own_answer("GET /v1/models/victim").await?;
    }
    Ok(())
}

fn request(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// Serves one connection of a server that answers the target of a case with its bytes, and every
/// other one with its request line.
pub async fn serve_answers<S>(mut stream: S, cases: &[AnswerCase])
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut bytes = Vec::new();
    loop {
        let request = match read_request(&bytes) {
            Ok(Some(request)) => request,
            Ok(None) => match stream.read_buf(&mut bytes).await {
                Ok(1..) => continue,
                _ => return,
            },
            Err(_) => return,
        };
        bytes.drain(..request.length);
        let line = request.start;
        let case = line.split_once(CASE_TARGETS).and_then(|(_, index)| index.parse().ok());
        let case = case.and_then(|index: usize| cases.get(index));
        let answer = case.map_or_else(
            || format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{line}", line.len()).into(),
            |case| case.bytes.clone(),
        );
        if stream.write_all(&answer).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if case.is_some_and(|case| case.ends) {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_without_a_body_allows_any_body_but_a_smuggled_one() {
        let table = "name = \"a\"\nraw = \"b\"\nstatus = 200";
        let case = parse_case(&table.parse().unwrap());
        assert!(case.allows_body("ok") && !case.allows_body(SMUGGLED_BODY));
        let case = parse_case(&format!("{table}\nbody = \"{SMUGGLED_BODY}\"").parse().unwrap());
        assert!(!case.allows_body("ok") && case.allows_body(SMUGGLED_BODY));
    }
}
