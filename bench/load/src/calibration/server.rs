//! A loopback server that costs the client's threads nothing: every connection has its own.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// One token as OpenAI's servers send it.
const TOKEN: &str = "data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\
    \"created\":1760000000,\"model\":\"ceiling\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\
    \"logprobs\":null,\"finish_reason\":null}]}\n\n";
const END: &str = "data: [DONE]\n\n";
const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";

/// How the server answers.
#[derive(Clone, Copy)]
pub(super) enum ResponsePacing {
    /// At once, with one token.
    OneToken,
    /// When `streams` requests have come: a token to each in turn, one every `gap`, until each has `tokens`.
    InTurn { streams: u32, tokens: u32, gap: Duration },
}

/// A server that ends when it is dropped.
pub(super) struct LoopbackServer {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl LoopbackServer {
    pub(super) fn start(manner: ResponsePacing) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&ended);
        let (sender, streams) = mpsc::channel();
        if let ResponsePacing::InTurn { streams: count, tokens, gap } = manner {
            thread::Builder::new().name("ceiling-pace".into()).spawn(move || {
                let streams: Vec<TcpStream> = streams.iter().take(count as usize).collect();
                write_tokens_in_turn(streams, tokens, gap)
            })?;
        }
        thread::Builder::new().name("ceiling-accept".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_ended.load(Ordering::Relaxed) {
                    break;
                }
                let _ = stream.set_nodelay(true);
                let sender = sender.clone();
                // Without a thread there is no answer, which the client reports.
                let _ = thread::Builder::new().name("ceiling".into()).spawn(move || match manner {
                    ResponsePacing::OneToken => answer_at_once(stream),
                    ResponsePacing::InTurn { .. } => read_request(&mut BufReader::new(&stream))
                        .map(|_| sender.send(stream).unwrap_or_default()),
                });
            }
        })?;
        Ok(Self { address, ended })
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn answer_at_once(stream: TcpStream) -> io::Result<()> {
    let mut input = BufReader::new(&stream);
    let body = format!("{TOKEN}{END}");
    let answer = format!("{HEAD}content-length: {}\r\n\r\n{body}", body.len());
    while read_request(&mut input)? {
        (&stream).write_all(answer.as_bytes())?;
    }
    Ok(())
}

/// Reads one request; false if its sender wants the connection closed afterwards or has closed it.
fn read_request(input: &mut BufReader<&TcpStream>) -> io::Result<bool> {
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line == "\r\n" {
            break;
        }
    }
    io::copy(&mut input.take(length), &mut io::sink())?;
    Ok(true)
}

/// Writes token after token, each to the next stream, each at its instant.
fn write_tokens_in_turn(streams: Vec<TcpStream>, tokens: u32, gap: Duration) -> io::Result<()> {
    for mut stream in &streams {
        write!(stream, "{HEAD}transfer-encoding: chunked\r\n\r\n")?;
    }
    let chunk = format!("{:x}\r\n{TOKEN}\r\n", TOKEN.len());
    let end = format!("{chunk}{:x}\r\n{END}\r\n0\r\n\r\n", END.len());
    let mut due = Instant::now();
    for number in 1..=tokens {
        let text = if number == tokens { &end } else { &chunk };
        for mut stream in &streams {
            due += gap;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            stream.write_all(text.as_bytes())?;
        }
    }
    Ok(())
}
