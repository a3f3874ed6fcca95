//! The client against a server whose every answer is known.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    thread,
    time::Duration,
};

use confide_load::{
    Arrivals, CUT, Clock, ConnectStages, ConnectionReuse, GoodputLimits, LoadOptions, LoadOutcome,
    OpenedConnection, Opening, Plan, Summary, Target, TcpTransport, TokenCounter, TokenLengths,
    Transport, Workload, run,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The behaviour of a test's server.
#[derive(Clone, Copy)]
enum Manner {
    /// It sends three tokens, chunked, and takes the next request.
    Well,
    /// It answers well, but names no number of tokens.
    Uncounted,
    /// It answers well, but closes the connection after each answer without announcing it.
    Closes,
    /// It answers with status 503.
    Refuses,
    /// It breaks off after the first token.
    Breaks,
    /// It reads every fourth request and closes the connection without an answer.
    Drops,
    /// It closes the connection at every fourth request, before it has read the body.
    Aborts,
    /// It never answers.
    Sleeps,
}

const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":3}}\n\n";

struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
    /// The requests whose head was read.
    requests: Arc<AtomicUsize>,
}

fn server(manner: Manner) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let requests = Arc::new(AtomicUsize::new(0));
    let read = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            let read = Arc::clone(&read);
            thread::spawn(move || serve(stream, manner, &read));
        }
    });
    Server { port, connections, requests }
}

fn serve(stream: TcpStream, manner: Manner, requests: &AtomicUsize) -> Option<()> {
    let mut out = stream.try_clone().ok()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let number = requests.fetch_add(1, Ordering::SeqCst) + 1;
        // An unread byte in the socket is what makes the machine answer with a reset.
        let fails = number.is_multiple_of(4);
        if fails && matches!(manner, Manner::Aborts) {
            return None;
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body).ok()?;
        if fails && matches!(manner, Manner::Drops) {
            return None;
        }
        match manner {
            Manner::Sleeps => thread::sleep(Duration::from_secs(60)),
            Manner::Refuses => {
                out.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy").ok()?
            }
            _ => {
                out.write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                      server-timing: queue;dur=1.5\r\ntransfer-encoding: chunked\r\n\r\n",
                )
                .ok()?;
                for word in ["a", " b", " c"] {
                    let data = format!(
                        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{word}\"}}}}]}}\n\n"
                    );
                    chunk(&mut out, &data)?;
                    if matches!(manner, Manner::Breaks) {
                        return None;
                    }
                    thread::sleep(Duration::from_millis(2));
                }
                if !matches!(manner, Manner::Uncounted) {
                    chunk(&mut out, USAGE)?;
                }
                chunk(&mut out, "data: [DONE]\n\n")?;
                out.write_all(b"0\r\n\r\n").ok()?;
                if matches!(manner, Manner::Closes) {
                    return None;
                }
            }
        }
    }
}

fn chunk(out: &mut TcpStream, data: &str) -> Option<()> {
    out.write_all(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes()).ok()
}

fn load(
    server: &Server,
    arrivals: Arrivals,
    requests: usize,
    options: &LoadOptions,
) -> LoadOutcome {
    load_until(server, arrivals, requests, options, &AtomicBool::new(false), &mut |_| {})
}

fn load_until(
    server: &Server,
    arrivals: Arrivals,
    requests: usize,
    options: &LoadOptions,
    stop: &AtomicBool,
    each: &mut dyn FnMut(Option<&confide_load::RequestRecord>),
) -> LoadOutcome {
    let transport: Arc<dyn Transport> = Arc::new(TcpTransport::new("127.0.0.1", server.port));
    let (plan, target) = (plan(arrivals, requests), target(server));
    run(&plan, &target, &transport, options, stop, each).unwrap()
}

fn load_over(
    transport: &Arc<dyn Transport>,
    server: &Server,
    arrivals: Arrivals,
    requests: usize,
    options: &LoadOptions,
) -> LoadOutcome {
    let (plan, target) = (plan(arrivals, requests), target(server));
    run(&plan, &target, transport, options, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn plan(arrivals: Arrivals, requests: usize) -> Arc<Plan> {
    let workload = Workload {
        arrivals,
        requests,
        duration_s: None,
        prompt_tokens: TokenLengths::of_tokens(4),
        output_tokens: TokenLengths::of_tokens(3),
        seed: 1,
    };
    Arc::new(Plan::new(&workload).unwrap())
}

fn target(server: &Server) -> Arc<Target> {
    let url = format!("http://127.0.0.1:{}", server.port);
    Arc::new(Target::parse(&url, "m").unwrap())
}

fn constant() -> Arrivals {
    Arrivals::Constant { rate_per_s: 200.0 }
}

fn reusing_options() -> LoadOptions {
    LoadOptions { sessions: ConnectionReuse::Reused { first: 2 }, ..LoadOptions::default() }
}

#[test]
fn every_request_of_the_plan_has_its_event_with_stages_in_order() {
    let server = server(Manner::Well);
    let arrivals = [
        constant(),
        Arrivals::Poisson { rate_per_s: 200.0 },
        Arrivals::Closed { users: 3, ramp_s: 0.01 },
    ];
    for arrivals in arrivals {
        let outcome =
            load(&server, arrivals, 30, &LoadOptions { threads: 2, ..LoadOptions::default() });
        let summary = Summary::from_events(&outcome.events, GoodputLimits::default());
        assert_eq!((summary.requests, summary.complete, summary.other_length), (30, 30, 0));
        for (index, event) in outcome.events.iter().enumerate() {
            assert_eq!((event.index, event.error.as_deref()), (index as u64, None));
            let stages = [
                Some(event.scheduled_s),
                Some(event.dispatched_s),
                event.connected_s,
                event.sent_s,
                event.first_byte_s,
                event.chunks_s.first().copied(),
                event.chunks_s.last().copied(),
                event.last_s,
            ];
            let stages: Vec<f64> = stages.into_iter().map(Option::unwrap).collect();
            assert!(stages.is_sorted(), "{stages:?}");
            assert_eq!((event.resolved_s, event.handshake_s), (None, None));
            assert_eq!((event.tokens(), event.prompt_tokens), (3, Some(4)));
            assert_eq!(event.server_queue_s, Some(0.0015));
        }
        assert!(outcome.events.iter().all(|e| e.text_sha256 == outcome.events[0].text_sha256));
        assert!(outcome.client.cpu_s > 0.0 && outcome.client.loop_delay.count > 0);
    }
}

#[test]
fn a_kept_connection_is_used_again_and_one_that_was_closed_is_opened_anew() {
    let well = server(Manner::Well);
    let one = Arrivals::Closed { users: 1, ramp_s: 0.0 };
    let outcome = load(&well, one.clone(), 10, &reusing_options());
    // Both were opened; the one that was not used may be accepted later than the run ends.
    while well.connections.load(Ordering::SeqCst) < 2 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(well.connections.load(Ordering::SeqCst), 2);
    assert!(outcome.events.iter().all(|event| event.is_complete() && event.connected_s.is_none()));
    let closes = server(Manner::Closes);
    // Far enough apart that each finds the connection closed. One that was sent as the server closed
    // would be a failure: nobody can tell it from one that was read and dropped.
    let apart = Arrivals::Constant { rate_per_s: 20.0 };
    let outcome = load(&closes, apart, 10, &reusing_options());
    assert!(outcome.events.iter().all(|event| event.is_complete()), "{:?}", outcome.events);
    assert!(closes.connections.load(Ordering::SeqCst) >= 10);
    // None was read twice.
    assert_eq!(closes.requests.load(Ordering::SeqCst), 10);
}

#[test]
fn a_request_that_the_server_has_read_is_not_sent_again() {
    let arrivals = [constant(), Arrivals::Closed { users: 2, ramp_s: 0.0 }];
    for (manner, arrivals) in
        [Manner::Drops, Manner::Aborts].into_iter().flat_map(|m| arrivals.clone().map(|a| (m, a)))
    {
        let server = server(manner);
        let outcome = load(&server, arrivals, 40, &reusing_options());
        let summary = Summary::from_events(&outcome.events, GoodputLimits::default());
        assert_eq!(server.requests.load(Ordering::SeqCst), 40, "{:?}", outcome.events);
        assert_eq!((summary.complete, summary.failed), (30, 10));
        assert_eq!(summary.repeated, 0);
    }
}

/// A connection that the server closes as a request is sent; `resets` if it had not read it.
struct ClosingWire {
    resets: bool,
    writes: usize,
}

impl AsyncRead for ClosingWire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.writes == 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl AsyncWrite for ClosingWire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.writes += 1;
        if self.resets && self.writes > 1 {
            return Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Gives a connection that closes first, then those of a server.
struct ClosingFirst {
    tcp: TcpTransport,
    resets: bool,
    opened: AtomicUsize,
}

impl Transport for ClosingFirst {
    fn open(&self, clock: Clock) -> Opening<'_> {
        if self.opened.fetch_add(1, Ordering::SeqCst) > 0 {
            return self.tcp.open(clock);
        }
        let wire = Box::new(ClosingWire { resets: self.resets, writes: 0 });
        Box::pin(async move { Ok(OpenedConnection { wire, stages: ConnectStages::default() }) })
    }

    fn describe(&self) -> String {
        "closing first".into()
    }
}

#[test]
fn a_request_that_a_reset_shows_unread_is_sent_again_and_counted() {
    for (resets, wanted) in [(true, (3, 0, 1)), (false, (2, 1, 0))] {
        let server = server(Manner::Well);
        let transport: Arc<dyn Transport> = Arc::new(ClosingFirst {
            tcp: TcpTransport::new("127.0.0.1", server.port),
            resets,
            opened: AtomicUsize::new(0),
        });
        let options = LoadOptions {
            sessions: ConnectionReuse::Reused { first: 1 },
            ..LoadOptions::default()
        };
        let one = Arrivals::Closed { users: 1, ramp_s: 0.0 };
        let outcome = load_over(&transport, &server, one, 3, &options);
        let summary = Summary::from_events(&outcome.events, GoodputLimits::default());
        assert_eq!((summary.complete, summary.failed, summary.repeated), wanted, "{resets}");
    }
}

#[test]
fn failures_are_events_and_name_their_reason() {
    let short = || LoadOptions { deadline: Duration::from_millis(50), ..LoadOptions::default() };
    for (manner, status, options) in [
        (Manner::Refuses, Some(503), LoadOptions::default()),
        (Manner::Breaks, Some(200), LoadOptions::default()),
        (Manner::Sleeps, None, short()),
    ] {
        let outcome = load(&server(manner), constant(), 3, &options);
        let summary = Summary::from_events(&outcome.events, GoodputLimits::default());
        assert_eq!((summary.failed, summary.complete), (3, 0));
        let times_out = matches!(manner, Manner::Sleeps);
        assert!(outcome.events.iter().all(|event| event.timed_out == times_out));
        assert_eq!(summary.ttft.censored, if times_out { 3 } else { 0 });
        assert!(outcome.events.iter().all(|event| event.status == status && event.error.is_some()));
    }
    let nobody = Server { port: 1, connections: Arc::default(), requests: Arc::default() };
    let outcome = load(&nobody, constant(), 3, &LoadOptions::default());
    assert!(outcome.events.iter().all(|event| event.error.is_some() && event.sent_s.is_none()));
}

#[test]
fn tokens_are_counted_by_the_tokenizer_where_the_server_names_no_number() {
    // Letters: " b" is one token more than a chunk, so that the three counts differ.
    let letters = TokenCounter::new(|text| u32::try_from(text.len()).ok());
    let none = TokenCounter::new(|_| None);
    let [well, uncounted] = [Manner::Well, Manner::Uncounted].map(server);
    for (server, counter, tokens, by_tokenizer, by_chunks) in [
        (&well, Some(&letters), 3, 0, 0),
        (&uncounted, Some(&letters), 5, 4, 0),
        (&uncounted, Some(&none), 3, 0, 4),
        (&uncounted, None, 3, 0, 4),
    ] {
        let options = LoadOptions { token_counter: counter.cloned(), ..LoadOptions::default() };
        let outcome = load(server, constant(), 4, &options);
        let summary = Summary::from_events(&outcome.events, GoodputLimits::default());
        assert!(
            outcome.events.iter().all(|event| event.tokens() == tokens && event.text.is_none())
        );
        let counted = (summary.counted_by_tokenizer, summary.counted_by_chunks);
        assert_eq!((counted, summary.complete), ((by_tokenizer, by_chunks), 4));
    }
}

#[test]
fn streams_beyond_the_limit_fail_and_do_not_wait() {
    let few = LoadOptions { streams_max: 2, ..LoadOptions::default() };
    let (server, stop) = (server(Manner::Sleeps), AtomicBool::new(false));
    let fast = Arrivals::Constant { rate_per_s: 1e3 };
    let mut ended = 0;
    let outcome = load_until(&server, fast, 20, &few, &stop, &mut |event| {
        ended += usize::from(event.is_some());
        stop.store(ended >= 18, Ordering::Relaxed);
    });
    let refused = outcome.events.iter().filter(|event| event.error.as_deref() != Some(CUT));
    assert!(refused.clone().all(|event| event.error.is_some() && event.sent_s.is_none()));
    assert_eq!((outcome.events.len(), refused.count()), (20, 18));
}

#[test]
fn a_closed_loop_of_more_users_than_requests_ends() {
    let users = Arrivals::Closed { users: 6, ramp_s: 0.0 };
    let outcome = load(&server(Manner::Well), users, 3, &LoadOptions::default());
    assert_eq!(outcome.events.iter().filter(|event| event.is_complete()).count(), 3);
}

#[test]
fn a_stop_cuts_what_is_in_flight_and_keeps_what_was_complete() {
    let (server, stop) = (server(Manner::Well), AtomicBool::new(false));
    let mut seen = 0;
    let slow = Arrivals::Constant { rate_per_s: 50.0 };
    let outcome =
        load_until(&server, slow, 100_000, &LoadOptions::default(), &stop, &mut |event| {
            seen += usize::from(event.is_some());
            stop.store(seen >= 5, Ordering::Relaxed);
        });
    let complete = outcome.events.iter().filter(|event| event.is_complete()).count();
    assert!(complete >= 5 && outcome.events.len() < 1000);
    let others = outcome.events.iter().filter(|event| !event.is_complete());
    assert!(others.into_iter().all(|event| event.error.as_deref() == Some(CUT)));
    let closed = Arrivals::Closed { users: 4, ramp_s: 0.0 };
    let outcome = load_until(&server, closed, 100_000, &LoadOptions::default(), &stop, &mut |_| {});
    assert!(outcome.events.len() < 1000);
}
