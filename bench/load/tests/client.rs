//! The client against a server whose every answer is known.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use confide_load::{
    Arrivals, CUT, Lengths, Limits, Options, Outcome, Plan, Sessions, Summary, Target, Tcp,
    Transport, Workload, run,
};

/// The behaviour of a test's server.
#[derive(Clone, Copy)]
enum Manner {
    /// It sends three tokens, chunked, and takes the next request.
    Well,
    /// It answers well, but closes the connection after each answer without announcing it.
    Closes,
    /// It answers with status 503.
    Refuses,
    /// It breaks off after the first token.
    Breaks,
    /// It never answers.
    Sleeps,
}

struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
}

fn server(manner: Manner) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || serve(stream, manner));
        }
    });
    Server { port, connections }
}

fn serve(stream: TcpStream, manner: Manner) -> Option<()> {
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
        let mut body = vec![0; length];
        input.read_exact(&mut body).ok()?;
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
                let usage = "data: {\"choices\":[],\"usage\":\
                             {\"prompt_tokens\":4,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
                chunk(&mut out, usage)?;
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

fn load(server: &Server, arrivals: Arrivals, requests: usize, options: &Options) -> Outcome {
    load_until(server, arrivals, requests, options, &AtomicBool::new(false), &mut |_| {})
}

fn load_until(
    server: &Server,
    arrivals: Arrivals,
    requests: usize,
    options: &Options,
    stop: &AtomicBool,
    each: &mut dyn FnMut(Option<&confide_load::RequestRecord>),
) -> Outcome {
    let workload = Workload {
        arrivals,
        requests,
        duration_s: None,
        prompt_tokens: Lengths::of_tokens(4),
        output_tokens: Lengths::of_tokens(3),
        seed: 1,
    };
    let plan = Arc::new(Plan::new(&workload).unwrap());
    let url = format!("http://127.0.0.1:{}", server.port);
    let target = Arc::new(Target::parse(&url, "m").unwrap());
    let transport: Arc<dyn Transport> = Arc::new(Tcp::new("127.0.0.1", server.port));
    run(&plan, &target, &transport, options, stop, each).unwrap()
}

fn constant() -> Arrivals {
    Arrivals::Constant { rate_per_s: 200.0 }
}

fn reusing_options() -> Options {
    Options { sessions: Sessions::Reused { first: 2 }, ..Options::default() }
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
        let outcome = load(&server, arrivals, 30, &Options { threads: 2, ..Options::default() });
        let summary = Summary::from_events(&outcome.events, Limits::default());
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
    let outcome = load(&closes, one, 10, &reusing_options());
    assert!(outcome.events.iter().all(|event| event.is_complete()), "{:?}", outcome.events);
    assert!(closes.connections.load(Ordering::SeqCst) >= 10);
}

#[test]
fn failures_are_events_and_name_their_reason() {
    let short = || Options { deadline: Duration::from_millis(50), ..Options::default() };
    for (manner, status, options) in [
        (Manner::Refuses, Some(503), Options::default()),
        (Manner::Breaks, Some(200), Options::default()),
        (Manner::Sleeps, None, short()),
    ] {
        let outcome = load(&server(manner), constant(), 3, &options);
        let summary = Summary::from_events(&outcome.events, Limits::default());
        assert_eq!((summary.failed, summary.complete), (3, 0));
        assert!(outcome.events.iter().all(|event| event.status == status && event.error.is_some()));
    }
    let nobody = Server { port: 1, connections: Arc::default() };
    let outcome = load(&nobody, constant(), 3, &Options::default());
    assert!(outcome.events.iter().all(|event| event.error.is_some() && event.sent_s.is_none()));
}

#[test]
fn streams_beyond_the_limit_fail_and_do_not_wait() {
    let few = Options { streams_max: 2, ..Options::default() };
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
    let outcome = load(&server(Manner::Well), users, 3, &Options::default());
    assert_eq!(outcome.events.iter().filter(|event| event.is_complete()).count(), 3);
}

#[test]
fn a_stop_cuts_what_is_in_flight_and_keeps_what_was_complete() {
    let (server, stop) = (server(Manner::Well), AtomicBool::new(false));
    let mut seen = 0;
    let slow = Arrivals::Constant { rate_per_s: 50.0 };
    let outcome = load_until(&server, slow, 100_000, &Options::default(), &stop, &mut |event| {
        seen += usize::from(event.is_some());
        stop.store(seen >= 5, Ordering::Relaxed);
    });
    let complete = outcome.events.iter().filter(|event| event.is_complete()).count();
    assert!(complete >= 5 && outcome.events.len() < 1000);
    let others = outcome.events.iter().filter(|event| !event.is_complete());
    assert!(others.into_iter().all(|event| event.error.as_deref() == Some(CUT)));
    let closed = Arrivals::Closed { users: 4, ramp_s: 0.0 };
    let outcome = load_until(&server, closed, 100_000, &Options::default(), &stop, &mut |_| {});
    assert!(outcome.events.len() < 1000);
}
