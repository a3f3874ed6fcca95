//! One request over one connection.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
use std::{
    pin::Pin,
    task::{Context, Waker},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf},
    sync::watch,
};

use crate::{
    answer::{AnswerError, AnswerReader},
    definitions::CUT,
    event::RequestRecord,
    options::{ConnectionReuse, LoadOptions},
    plan::Plan,
    target::Target,
    transport::{Clock, OpenedConnection, Transport, Wire},
};

/// Bytes read at once: about fifty tokens, so that one read takes all that has come.
const READ_BYTES: usize = 16 << 10;
/// The least and the longest time to wait for a server's sign that it had closed an idle connection.
const RESET_WAIT_S: [f64; 2] = [0.005, 1.0];

/// The context that all requests of a run share.
pub(crate) struct RunContext {
    pub(crate) clock: Clock,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) target: Arc<Target>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) options: LoadOptions,
    /// Whether the run is cut.
    pub(crate) stopped: watch::Receiver<bool>,
    pub(crate) in_flight: AtomicUsize,
    /// The index of the next request that no user of a closed loop has taken.
    pub(crate) next: AtomicUsize,
}

impl RunContext {
    pub(crate) fn build_request(&self, index: usize, scheduled_s: f64) -> Request {
        let keep = self.options.sessions != ConnectionReuse::New;
        Request { index, scheduled_s, bytes: self.target.request_bytes(&self.plan, index, keep) }
    }

    /// The next request of a closed loop; `None` if all are taken.
    pub(crate) fn next_request(&self) -> Option<Request> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.plan.requests.len()).then(|| self.build_request(index, 0.0))
    }

    /// Whether the run has no more requests at this instant, in seconds after its origin.
    pub(crate) fn is_over(&self, scheduled_s: f64) -> bool {
        *self.stopped.borrow() || self.plan.duration_s.is_some_and(|end_s| scheduled_s >= end_s)
    }
}

/// A request that is written out.
pub(crate) struct Request {
    pub(crate) index: usize,
    pub(crate) scheduled_s: f64,
    pub(crate) bytes: Vec<u8>,
}

/// A connection that waits for a request.
struct KeptConnection {
    wire: Box<dyn Wire>,
    /// How long it took to open, in seconds: at least one round trip.
    opening_s: f64,
}

impl KeptConnection {
    /// Whether the server has neither closed the connection nor sent anything on it.
    async fn is_open(&mut self) -> bool {
        // Lets the event loop take in what has come; nothing of it is waited for.
        tokio::task::yield_now().await;
        let mut byte = [0];
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut self.wire).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Whether the server had closed the connection before it could read what was sent on it.
    ///
    /// Such a server's machine answers the request with a reset, after which nothing can be
    /// written. One that has read the request and then closes sends none.
    async fn was_reset(&mut self) -> bool {
        let [least_s, longest_s] = RESET_WAIT_S;
        let wait_s = self.opening_s.clamp(least_s, longest_s);
        tokio::time::sleep(Duration::from_secs_f64(wait_s)).await;
        self.wire.write_all(b"\r\n").await.is_err() || self.wire.flush().await.is_err()
    }
}

/// Connections of one worker that wait for a request.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<Vec<KeptConnection>>>);

impl Connections {
    /// Opens `count` connections, one after the other, each within `deadline`.
    pub(crate) async fn open_first(
        &self,
        transport: &dyn Transport,
        count: u32,
        deadline: Duration,
    ) -> Result<(), String> {
        let clock = Clock::new(std::time::Instant::now());
        for _ in 0..count {
            let began_s = clock.now_s();
            let opened = tokio::time::timeout(deadline, transport.open(clock)).await;
            let wire = opened.map_err(|_| deadline_error(deadline))??.wire;
            self.put(KeptConnection { wire, opening_s: clock.now_s() - began_s });
        }
        Ok(())
    }

    /// Takes a connection that is still open; those that the server has closed are dropped.
    async fn take_open(&self) -> Option<KeptConnection> {
        loop {
            let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut kept = next?;
            if kept.is_open().await {
                return Some(kept);
            }
        }
    }

    fn put(&self, kept: KeptConnection) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    }
}

/// Sends a request and reads its answer; failures are in the event.
pub(crate) async fn exchange(
    shared: &RunContext,
    connections: &Connections,
    request: Request,
) -> RequestRecord {
    let planned = &shared.plan.requests[request.index];
    let mut event = RequestRecord {
        index: request.index as u64,
        prompt: request.index as u64,
        scheduled_s: request.scheduled_s,
        dispatched_s: shared.clock.now_s(),
        wanted_tokens: planned.output_tokens,
        chunks_s: Vec::with_capacity(planned.output_tokens.min(4096) as usize),
        ..RequestRecord::default()
    };
    let limit = shared.options.streams_max;
    let slot = StreamSlot::enter(&shared.in_flight);
    if slot.number > limit {
        event.error = Some(format!("more than {limit} streams at once"));
        event.ended_s = Some(event.dispatched_s);
        return event;
    }
    let mut stopped = shared.stopped.clone();
    let deadline = shared.options.deadline;
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(deadline, send(shared, connections, &request, &mut event)) => {
            outcome.unwrap_or_else(|_| {
                event.timed_out = true;
                Err(deadline_error(deadline))
            })
        }
        _ = stopped.wait_for(|stopped| *stopped) => Err(CUT.into()),
    };
    event.error = outcome.err();
    event.ended_s = event.last_s.filter(|_| event.error.is_none()).or(Some(shared.clock.now_s()));
    event
}

async fn send(
    shared: &RunContext,
    connections: &Connections,
    request: &Request,
    event: &mut RequestRecord,
) -> Result<(), String> {
    while let Some(mut kept) = connections.take_open().await {
        match send_over(shared, &mut kept.wire, request, event).await {
            Ok(is_kept) => {
                if is_kept {
                    connections.put(kept);
                }
                return Ok(());
            }
            Err(SendError::Unread) => {}
            Err(SendError::Closed) if kept.was_reset().await => {}
            Err(error) => return Err(error.to_string()),
        }
        // The server closed it while nobody used it, and has not read the request: it is sent
        // again, and the time counts.
        event.sent_s = None;
        event.repeats += 1;
    }
    let began_s = shared.clock.now_s();
    let OpenedConnection { mut wire, stages } = shared.transport.open(shared.clock).await?;
    let opening_s = shared.clock.now_s() - began_s;
    stages.write_to(event);
    let sent = send_over(shared, &mut wire, request, event).await;
    let is_kept = sent.map_err(|error| error.to_string())?;
    if is_kept && shared.options.sessions != ConnectionReuse::New {
        connections.put(KeptConnection { wire, opening_s });
    }
    Ok(())
}

/// The reason for which a request has no whole answer.
#[derive(Debug, thiserror::Error)]
enum SendError {
    /// The connection broke before all of the request was written.
    #[error("connection broke before the request was sent")]
    Unread,
    /// The server closed the connection before the first byte of an answer.
    #[error("the server closed the connection before it answered")]
    Closed,
    /// The connection broke afterwards.
    #[error("connection broke: {0}")]
    Broke(std::io::Error),
    /// The answer is not one, or not whole.
    #[error("{0}")]
    Answer(String),
}

/// Sends one request over `wire` and reads its answer; gives whether the connection takes another request.
async fn send_over(
    shared: &RunContext,
    wire: &mut Box<dyn Wire>,
    request: &Request,
    event: &mut RequestRecord,
) -> Result<bool, SendError> {
    wire.write_all(&request.bytes).await.map_err(|_| SendError::Unread)?;
    wire.flush().await.map_err(|_| SendError::Unread)?;
    event.sent_s = Some(shared.clock.now_s());
    let mut reading = AnswerReader::new(shared.options.token_counter.is_some());
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let count = wire.read(&mut bytes).await.map_err(SendError::Broke)?;
        let now_s = shared.clock.now_s();
        let is_whole = if count == 0 {
            if event.first_byte_s.is_none() {
                return Err(SendError::Closed);
            }
            reading.http.end_of_input().map_err(|error| SendError::Answer(error.to_string()))?;
            true
        } else {
            let taken = reading.feed(&bytes[..count], now_s, event);
            taken.map_err(|error| SendError::Answer(error.to_string()))?
        };
        if is_whole {
            let keep = reading.http.keeps_alive() && count > 0;
            let finished = reading.finish(now_s, event);
            return finished
                .map(|()| keep)
                .map_err(|error: AnswerError| SendError::Answer(error.to_string()));
        }
    }
}

/// One of the streams in flight; dropping it ends the count of it.
struct StreamSlot<'a> {
    count: &'a AtomicUsize,
    number: usize,
}

impl<'a> StreamSlot<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        Self { count, number: count.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for StreamSlot<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn deadline_error(deadline: Duration) -> String {
    format!("no complete answer within {} s", deadline.as_secs_f64())
}
