//! Requests of one run: in closed loop over some connections, or on a schedule.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use confide_arm_line::{Outcome, Sample};
use futures_util::future::try_join_all;
use tokio::{io::AsyncWriteExt, sync::mpsc};

use super::{
    route::Route,
    wire::{encode_request, exchange},
};
use crate::stream::Stream;

/// The load of one run.
pub(crate) struct LoadPlan {
    pub(crate) requests: u64,
    pub(crate) concurrency: u64,
    /// Whether connections are kept for further requests.
    pub(crate) kept: bool,
    pub(crate) path: String,
}

/// Times and counts of a run.
#[derive(Default)]
pub(crate) struct LoadResult {
    /// Time to each answer: from the scheduled instant in an open loop, else from the last answer of
    /// the same slot.
    pub(crate) times_ms: Vec<f64>,
    /// Times from the scheduled instants to the starts of work; empty in a closed loop.
    pub(crate) delays_ms: Vec<f64>,
    pub(crate) handshakes: u64,
    pub(crate) body_sha256: String,
    /// One for each request; empty in a closed loop.
    pub(crate) samples: Vec<Sample>,
}

/// Runs `concurrency` slots, each of which sends its next request when its last one is answered.
pub(crate) async fn run_closed_loop(route: &Route, work: &LoadPlan) -> Outcome<LoadResult> {
    let shared = RefCell::new(SharedResult::new(route, work)?);
    let left = Cell::new(work.requests);
    let slot = || async {
        let mut line = ClientSlot::default();
        while left.get() > 0 {
            left.set(left.get() - 1);
            let began = Instant::now();
            let request = shared.borrow().request.clone();
            let answer = line.request(route, work.kept, &request).await?;
            shared.borrow_mut().add(answer, began.elapsed())?;
        }
        line.close().await
    };
    try_join_all((0..work.concurrency).map(|_| slot())).await?;
    Ok(shared.into_inner().result)
}

/// Starts requests on a fixed schedule whether or not earlier ones have ended; each opens a
/// connection, or takes one that is free.
pub(crate) async fn run_open_loop(
    route: &Route,
    work: &LoadPlan,
    rate_per_s: f64,
) -> Outcome<LoadResult> {
    let shared = RefCell::new(SharedResult::new(route, work)?);
    let free: RefCell<Vec<ClientSlot>> = RefCell::default();
    let (sender, mut due) = mpsc::unbounded_channel::<Instant>();
    let start = Instant::now();
    let requests = work.requests;
    // A timer of the event loop may be a millisecond late; a thread that sleeps is not.
    let clock = std::thread::spawn(move || {
        for number in 0..requests {
            let due = start + Duration::from_secs_f64(number as f64 / rate_per_s);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if sender.send(due).is_err() {
                return;
            }
        }
    });
    let send = |due: Instant| {
        let (shared, free) = (&shared, &free);
        async move {
            let delay = due.elapsed();
            let request = shared.borrow().request.clone();
            let mut line = free.borrow_mut().pop().unwrap_or_default();
            let answer = line.request(route, work.kept, &request).await?;
            let took = due.elapsed();
            if work.kept {
                free.borrow_mut().push(line);
            }
            let mut shared = shared.borrow_mut();
            let mut sample = Sample::new([("request_ms", took.as_secs_f64() * 1e3)]);
            sample.at_s = Some((due - start).as_secs_f64());
            shared.result.samples.push(sample);
            shared.result.delays_ms.push(delay.as_secs_f64() * 1e3);
            shared.add(answer, took)
        }
    };
    let mut running = futures_util::stream::FuturesUnordered::new();
    let mut more = true;
    while more || !running.is_empty() {
        tokio::select! {
            next = due.recv(), if more => match next {
                Some(due) => running.push(send(due)),
                None => more = false,
            },
            Some(ended) = futures_util::StreamExt::next(&mut running) => ended?,
        }
    }
    drop(running);
    clock.join().map_err(|_| "the clock's thread panicked")?;
    for mut line in free.into_inner() {
        line.close().await?;
    }
    Ok(shared.into_inner().result)
}

/// The result that all slots add to.
struct SharedResult {
    request: std::rc::Rc<[u8]>,
    result: LoadResult,
}

impl SharedResult {
    fn new(route: &Route, work: &LoadPlan) -> Outcome<Self> {
        let request = encode_request(&work.path, route.server(), work.kept)?;
        Ok(Self { request: request.into(), result: LoadResult::default() })
    }

    /// Adds an answer. All answers of a run must be equal: one that differs is an error.
    fn add(&mut self, answer: RequestResult, took: Duration) -> Outcome {
        let sha256 = hex::encode(answer.body_sha256);
        if self.result.body_sha256.is_empty() {
            self.result.body_sha256 = sha256;
        } else if self.result.body_sha256 != sha256 {
            return Err("two answers to one request differ".into());
        }
        self.result.handshakes += u64::from(answer.is_handshake);
        self.result.times_ms.push(took.as_secs_f64() * 1e3);
        Ok(())
    }
}

struct RequestResult {
    body_sha256: [u8; 32],
    is_handshake: bool,
}

/// A connection that is open or not.
#[derive(Default)]
struct ClientSlot {
    stream: Option<Stream>,
    buffer: Vec<u8>,
}

impl ClientSlot {
    async fn request(
        &mut self,
        route: &Route,
        kept: bool,
        request: &[u8],
    ) -> Outcome<RequestResult> {
        let opens = self.stream.is_none();
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => route.open().await?,
        };
        let body_sha256 = exchange(&mut stream, request, &mut self.buffer).await?;
        self.stream = Some(stream);
        if !kept {
            self.close().await?;
        }
        Ok(RequestResult { body_sha256, is_handshake: opens && route.has_tls() })
    }

    async fn close(&mut self) -> Outcome {
        if let Some(mut stream) = self.stream.take() {
            // The server closes first and may be gone by now.
            let _ = stream.shutdown().await;
        }
        Ok(())
    }
}
