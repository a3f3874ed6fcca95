//! Requests of one run: in closed loop over some connections, or on a schedule.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use confide_arm_line::Sample;
use futures_util::future::try_join_all;
use serde_json::json;
use tokio::{io::AsyncWriteExt, sync::mpsc};

use super::{
    door::{Route, Stream},
    wire::{exchange, request},
};
use crate::Outcome;

/// What one run asks for.
pub(crate) struct Work {
    pub(crate) requests: u64,
    pub(crate) concurrency: u64,
    /// Whether a connection carries more than one request.
    pub(crate) kept: bool,
    pub(crate) path: String,
}

/// What a run was.
#[derive(Default)]
pub(crate) struct LoadResult {
    /// From the scheduled instant in an open loop, else from the last answer of the same slot.
    pub(crate) times_ms: Vec<f64>,
    /// Open loop: from the scheduled instant to the start of work.
    pub(crate) delays_ms: Vec<f64>,
    pub(crate) handshakes: u64,
    pub(crate) body_sha256: String,
    /// Open loop: one for each request.
    pub(crate) samples: Vec<Sample>,
}

/// `concurrency` slots, each with its next request when its last one is answered.
pub(crate) async fn closed(door: &Route, work: &Work) -> Outcome<LoadResult> {
    let seen = RefCell::new(SharedResult::new(door, work)?);
    let left = Cell::new(work.requests);
    let slot = || async {
        let mut line = Line::default();
        while left.get() > 0 {
            left.set(left.get() - 1);
            let began = Instant::now();
            let request = seen.borrow().request.clone();
            let told = line.ask(door, work.kept, &request).await?;
            seen.borrow_mut().take(told, began.elapsed())?;
        }
        line.close().await
    };
    try_join_all((0..work.concurrency).map(|_| slot())).await?;
    Ok(seen.into_inner().ran)
}

/// Requests start on a fixed schedule whether or not earlier ones have ended; each has a
/// connection of its own, or takes one that is free.
pub(crate) async fn open(door: &Route, work: &Work, rate_per_s: f64) -> Outcome<LoadResult> {
    let seen = RefCell::new(SharedResult::new(door, work)?);
    let free: RefCell<Vec<Line>> = RefCell::default();
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
    let one = |due: Instant| {
        let (seen, free) = (&seen, &free);
        async move {
            let delay = due.elapsed();
            let request = seen.borrow().request.clone();
            let mut line = free.borrow_mut().pop().unwrap_or_default();
            let told = line.ask(door, work.kept, &request).await?;
            let took = due.elapsed();
            if work.kept {
                free.borrow_mut().push(line);
            }
            let mut seen = seen.borrow_mut();
            let mut sample =
                Sample { at_s: Some((due - start).as_secs_f64()), ..Sample::default() };
            sample.metrics.insert("request_ms".into(), json!(took.as_secs_f64() * 1e3));
            seen.ran.samples.push(sample);
            seen.ran.delays_ms.push(delay.as_secs_f64() * 1e3);
            seen.take(told, took)
        }
    };
    let mut running = futures_util::stream::FuturesUnordered::new();
    let mut more = true;
    while more || !running.is_empty() {
        tokio::select! {
            next = due.recv(), if more => match next {
                Some(due) => running.push(one(due)),
                None => more = false,
            },
            Some(ended) = futures_util::StreamExt::next(&mut running) => ended?,
        }
    }
    drop(running);
    clock.join().map_err(|_| "the clock's thread died")?;
    for mut line in free.into_inner() {
        line.close().await?;
    }
    Ok(seen.into_inner().ran)
}

/// What all slots add to.
struct SharedResult {
    request: std::rc::Rc<[u8]>,
    ran: LoadResult,
}

impl SharedResult {
    fn new(door: &Route, work: &Work) -> Outcome<Self> {
        let request = request(&work.path, door.server(), work.kept)?;
        Ok(Self { request: request.into(), ran: LoadResult::default() })
    }

    /// All answers of a run are one: another one is a wrong one.
    fn take(&mut self, told: RequestResult, took: Duration) -> Outcome {
        let sha256 = hex::encode(told.body_sha256);
        if self.ran.body_sha256.is_empty() {
            self.ran.body_sha256 = sha256;
        } else if self.ran.body_sha256 != sha256 {
            return Err("two answers to one request differ".into());
        }
        self.ran.handshakes += u64::from(told.shook);
        self.ran.times_ms.push(took.as_secs_f64() * 1e3);
        Ok(())
    }
}

struct RequestResult {
    body_sha256: [u8; 32],
    shook: bool,
}

/// A connection that is open or not.
#[derive(Default)]
struct Line {
    stream: Option<Stream>,
    buffer: Vec<u8>,
}

impl Line {
    async fn ask(&mut self, door: &Route, kept: bool, request: &[u8]) -> Outcome<RequestResult> {
        let opens = self.stream.is_none();
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => door.open().await?,
        };
        let body_sha256 = exchange(&mut stream, request, &mut self.buffer).await?;
        self.stream = Some(stream);
        if !kept {
            self.close().await?;
        }
        Ok(RequestResult { body_sha256, shook: opens && door.shakes() })
    }

    async fn close(&mut self) -> Outcome {
        if let Some(mut stream) = self.stream.take() {
            // The server closes first and may be gone by now.
            let _ = stream.shutdown().await;
        }
        Ok(())
    }
}
