//! A client that is overloaded says so before it errs by 2 %.
//!
//! The server writes down when it sent what, so the client's error is known on any machine.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

use confide_load::{
    Arrivals, ClientBound, Clock, GoodputLimits, LoadOptions, OpenedConnection, Opening, Plan,
    Summary, Target, TcpTransport, TokenLengths, Transport, Workload, run,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const TTFT: Duration = Duration::from_millis(40);
const GAP: Duration = Duration::from_millis(8);
const TOKENS: u32 = 8;
const REQUESTS: usize = 60;
/// The number of runs, of which one has to be honest: a dishonest instrument fails them all.
const TRIES: usize = 3;

/// Held by one test at a time, because each takes the whole machine.
static ALONE: Mutex<()> = Mutex::new(());

/// The instant of the first token sent, by the number that each request gives itself.
type SendTimes = Arc<Mutex<Vec<Option<Instant>>>>;

#[test]
fn an_overloaded_client_calls_itself_bound_before_it_errs_by_two_percent() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut marked_at_last = false;
    for spin_us in [0, 100, 300, 1_000, 3_000, 6_000] {
        // What the machine adds in one run's 60 requests may lie just on either side.
        let honest = (0..TRIES).any(|_| {
            let (error, bounds) = measure(Duration::from_micros(spin_us));
            let reason = ClientBound::describe_all(&bounds);
            println!("{spin_us} us a read: error {:.3} %, {reason:?}", error * 1e2);
            marked_at_last = reason.is_some();
            marked_at_last || error < 0.02
        });
        assert!(honest, "{spin_us} us: wrong and not marked, {TRIES} times");
    }
    // 60 requests a second of 8 reads, 6 ms each, are three times what a thread has.
    assert!(marked_at_last);
}

#[test]
fn busy_loops_beside_the_client_are_seen_too() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stop = Arc::new(AtomicBool::new(false));
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let loops: Vec<_> = (0..cores * 4)
        .map(|_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        })
        .collect();
    let honest = (0..TRIES).any(|_| {
        let (error, bounds) = measure(Duration::ZERO);
        println!(
            "busy loops: error {:.3} %, {:?}",
            error * 1e2,
            ClientBound::describe_all(&bounds)
        );
        !bounds.is_empty() || error < 0.02
    });
    stop.store(true, Ordering::Relaxed);
    loops.into_iter().for_each(|one| one.join().unwrap());
    assert!(honest, "wrong and not marked, {TRIES} times");
}

/// The client's own share of the mean time to first token, and the bounds that it reports of itself.
fn measure(spin: Duration) -> (f64, Vec<ClientBound>) {
    let sent: SendTimes = Arc::new(Mutex::new(vec![None; REQUESTS]));
    let port = server(&sent);
    let workload = Workload {
        arrivals: Arrivals::Constant { rate_per_s: 60.0 },
        requests: REQUESTS,
        duration_s: None,
        prompt_tokens: TokenLengths::of_tokens(1),
        output_tokens: TokenLengths::of_tokens(TOKENS),
        seed: 1,
    };
    let plan = Arc::new(Plan::new(&workload).unwrap());
    let target = Arc::new(Target::parse(&format!("http://127.0.0.1:{port}"), "m").unwrap());
    let origin = Arc::new(Mutex::new(None));
    let tcp = TcpTransport::new("127.0.0.1", port);
    let transport: Arc<dyn Transport> = Arc::new(Slow { tcp, spin, origin: Arc::clone(&origin) });
    let stop = AtomicBool::new(false);
    let options = LoadOptions { threads: 1, ..LoadOptions::default() };
    let outcome = run(&plan, &target, &transport, &options, &stop, &mut |_| {}).unwrap();
    let summary = Summary::from_events(&outcome.events, GoodputLimits::default());
    assert_eq!(summary.complete, REQUESTS as u64);
    let clock = origin.lock().unwrap().expect("a connection was opened");
    // Connections are accepted in the order in which they were opened: sort both sides.
    let mut truth: Vec<f64> =
        sent.lock().unwrap().iter().flatten().map(|i| clock.seconds_at(*i)).collect();
    let mut seen: Vec<f64> = outcome.events.iter().map(|event| event.chunks_s[0]).collect();
    truth.sort_by(f64::total_cmp);
    seen.sort_by(f64::total_cmp);
    let late: f64 = seen.iter().zip(&truth).map(|(seen, truth)| seen - truth).sum();
    let dispatch: f64 = outcome.events.iter().map(|event| event.dispatch_delay_s()).sum();
    let own_ms = (late + dispatch) * 1e3 / REQUESTS as f64;
    let ttft_ms = summary.ttft.mean_ms.unwrap();
    (own_ms / (ttft_ms - own_ms), ClientBound::find_all(&summary, &outcome.client))
}

fn server(sent: &SendTimes) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent = Arc::clone(sent);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let sent = Arc::clone(&sent);
            thread::spawn(move || answer(stream, number, &sent));
        }
    });
    port
}

fn answer(mut stream: TcpStream, number: usize, sent: &SendTimes) -> Option<()> {
    let mut input = BufReader::new(stream.try_clone().ok()?);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        input.read_line(&mut line).ok()?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    input.read_exact(&mut vec![0; length]).ok()?;
    let start = Instant::now();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    for token in 0..TOKENS {
        let due = start + TTFT + GAP * token;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
        let first = if token == 0 { head } else { "" };
        if let (0, Some(place)) = (token, sent.lock().ok()?.get_mut(number)) {
            *place = Some(Instant::now());
        }
        stream.write_all(format!("{first}{chunk}").as_bytes()).ok()?;
    }
    stream.write_all(b"data: [DONE]\n\n").ok()
}

/// A transport whose every read costs CPU time, as a slow decryption would.
struct Slow {
    tcp: TcpTransport,
    spin: Duration,
    origin: Arc<Mutex<Option<Clock>>>,
}

impl Transport for Slow {
    fn open(&self, clock: Clock) -> Opening<'_> {
        Box::pin(async move {
            *self.origin.lock().unwrap() = Some(clock);
            let (stream, stages) = self.tcp.dial(clock).await?;
            Ok(OpenedConnection { wire: Box::new(Spinning { stream, spin: self.spin }), stages })
        })
    }

    fn describe(&self) -> String {
        "slow tcp".into()
    }
}

struct Spinning {
    stream: tokio::net::TcpStream,
    spin: Duration,
}

impl AsyncRead for Spinning {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            let since = Instant::now();
            while since.elapsed() < self.spin {
                std::hint::spin_loop();
            }
        }
        read
    }
}

impl AsyncWrite for Spinning {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
