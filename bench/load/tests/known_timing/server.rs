//! A server of known timing, with faults, that writes down when each request came and when it wrote what.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// The time from a request to its first chunk.
pub(crate) const TTFT: Duration = Duration::from_millis(40);
/// The time from chunk to chunk.
pub(crate) const GAP: Duration = Duration::from_millis(8);
/// Chunks of an answer.
pub(crate) const CHUNKS: u32 = 8;
/// Nothing is written in this time after the first request; what was due in it comes at its end.
const FREEZE: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(800)];

/// What is wrong with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// No answer moves for 0.3 s.
    Freeze,
    /// Of eight requests one is never answered and another gets two chunks.
    Hang,
    /// The middle third of the requests is refused, with 429 and 503.
    Refuse,
    /// Of six answers one ends after three chunks with its connection.
    BreakMidStream,
    /// Of six requests one is read and its connection closed.
    DropUnanswered,
    /// Four tokens come in each chunk, and `usage` says so.
    FourTokensCounted,
    /// Four tokens come in each chunk, and nothing says so.
    FourTokensUncounted,
    /// `usage` is ten times too high.
    UsageTimesTen,
    /// After a third of the requests the server is gone.
    Death,
}

impl Fault {
    pub(crate) fn tokens_per_chunk(self) -> u32 {
        if matches!(self, Self::FourTokensCounted | Self::FourTokensUncounted) { 4 } else { 1 }
    }

    /// The number of tokens that `usage` names.
    fn usage(self) -> Option<u32> {
        match self {
            Self::FourTokensUncounted => None,
            Self::UsageTimesTen => Some(10 * CHUNKS),
            _ => Some(CHUNKS * self.tokens_per_chunk()),
        }
    }
}

/// An instant of writing: the bytes were in the client's socket between the two.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    pub(crate) before: Instant,
    pub(crate) after: Instant,
}

/// How an answer ended.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// It goes on, or the server died before it could.
    Open,
    Complete(Written),
    /// It was refused, or its connection closed.
    Failure(Written),
    /// It never comes.
    Hang,
}

/// One request as the server saw it.
pub(crate) struct Served {
    pub(crate) prompt: String,
    pub(crate) arrived: Instant,
    pub(crate) chunks: Vec<Written>,
    pub(crate) end: End,
}

struct Shared {
    fault: Fault,
    /// Requests that the client will send.
    planned: usize,
    log: Mutex<Vec<Served>>,
    first: OnceLock<Instant>,
    streams: Mutex<Vec<TcpStream>>,
    is_dead: AtomicBool,
    port: OnceLock<u16>,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

impl Server {
    pub(crate) fn start(fault: Fault, planned: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            fault,
            planned,
            log: Mutex::default(),
            first: OnceLock::new(),
            streams: Mutex::default(),
            is_dead: AtomicBool::new(false),
            port: OnceLock::from(port),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = stream.set_nodelay(true);
                lock(&accepting.streams).push(stream.try_clone().unwrap());
                if accepting.is_dead.load(Ordering::SeqCst) {
                    accepting.close_streams();
                    return;
                }
                let shared = Arc::clone(&accepting);
                thread::spawn(move || serve(&stream, &shared));
            }
        });
        Self { port, shared }
    }

    /// Ends the server; gives its log once every answer in it has its end.
    pub(crate) fn end(self) -> Vec<Served> {
        let is_open = |served: &Served| matches!(served.end, End::Open);
        for _ in 0..200 {
            let is_dead = self.shared.is_dead.load(Ordering::SeqCst);
            if is_dead || !lock(&self.shared.log).iter().any(is_open) {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.shared.die();
        std::mem::take(&mut lock(&self.shared.log))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn close_streams(&self) {
        for stream in lock(&self.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Closes every connection and takes no more.
    fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        self.close_streams();
        // Wakes the thread that accepts.
        let _ = self.port.get().map(|port| TcpStream::connect(("127.0.0.1", *port)));
    }

    /// Writes a request down; gives its number.
    fn take_request(&self, prompt: String) -> (usize, Instant) {
        let arrived = Instant::now();
        self.first.get_or_init(|| arrived);
        let mut log = lock(&self.log);
        log.push(Served { prompt, arrived, chunks: Vec::new(), end: End::Open });
        (log.len() - 1, arrived)
    }

    fn set_end(&self, number: usize, end: End) {
        if let Some(served) = lock(&self.log).get_mut(number) {
            served.end = end;
        }
    }

    /// Sleeps until `due`, and until the end of a freeze that it lies in.
    fn sleep_until(&self, due: Instant) {
        let first = *self.first.get_or_init(Instant::now);
        let [begin, end] = FREEZE.map(|after| first + after);
        let is_frozen = self.fault == Fault::Freeze && due >= begin && due < end;
        let due = if is_frozen { end } else { due };
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, shared: &Shared) -> Option<()> {
    let mut input = BufReader::new(stream);
    loop {
        let prompt = read_prompt(&mut input)?;
        let (number, arrived) = shared.take_request(prompt);
        if shared.fault == Fault::Death && number == shared.planned / 3 {
            shared.die();
        }
        if shared.is_dead.load(Ordering::SeqCst) {
            return None;
        }
        let middle_third = shared.planned / 3..shared.planned * 2 / 3;
        match shared.fault {
            Fault::Refuse if middle_third.contains(&number) => {
                let status = if number.is_multiple_of(2) { "429 Busy" } else { "503 Down" };
                let text = format!("HTTP/1.1 {status}\r\ncontent-length: 4\r\n\r\nfull");
                shared.set_end(number, End::Failure(write(stream, &text)?));
                continue;
            }
            Fault::DropUnanswered if number % 6 == 5 => {
                let before = Instant::now();
                stream.shutdown(Shutdown::Both).ok()?;
                shared.set_end(number, End::Failure(Written { before, after: Instant::now() }));
                return None;
            }
            Fault::Hang if number % 8 == 3 => return hang(&mut input, shared, number),
            _ => {}
        }
        for chunk in 0..CHUNKS {
            if shared.fault == Fault::Hang && number % 8 == 6 && chunk == 2 {
                return hang(&mut input, shared, number);
            }
            shared.sleep_until(arrived + TTFT + GAP * chunk);
            let written = write(stream, &chunk_text(shared.fault, chunk))?;
            lock(&shared.log)[number].chunks.push(written);
            if shared.fault == Fault::BreakMidStream && number % 6 == 5 && chunk == 2 {
                stream.shutdown(Shutdown::Both).ok()?;
                let end = Written { before: written.after, after: Instant::now() };
                shared.set_end(number, End::Failure(end));
                return None;
            }
        }
        shared.set_end(number, End::Complete(write(stream, &end_text(shared.fault))?));
    }
}

/// Waits until the client has closed the connection.
fn hang(input: &mut impl Read, shared: &Shared, number: usize) -> Option<()> {
    shared.set_end(number, End::Hang);
    input.read_to_end(&mut Vec::new()).ok().map(|_| ())
}

/// Reads one request; gives its prompt.
fn read_prompt(input: &mut BufReader<&TcpStream>) -> Option<String> {
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    Some(body["messages"][0]["content"].as_str()?.to_owned())
}

fn chunk_text(fault: Fault, chunk: u32) -> String {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let words = " word".repeat(fault.tokens_per_chunk() as usize);
    let data = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{words}\"}}}}]}}\n\n");
    format!("{}{}", if chunk == 0 { head } else { "" }, to_http_chunk(&data))
}

fn end_text(fault: Fault) -> String {
    let usage = fault.usage().map_or_else(String::new, |tokens| {
        format!("data: {{\"choices\":[],\"usage\":{{\"completion_tokens\":{tokens}}}}}\n\n")
    });
    to_http_chunk(&format!("{usage}data: [DONE]\n\n")) + "0\r\n\r\n"
}

fn to_http_chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

fn write(mut stream: &TcpStream, text: &str) -> Option<Written> {
    let before = Instant::now();
    stream.write_all(text.as_bytes()).ok()?;
    Some(Written { before, after: Instant::now() })
}
