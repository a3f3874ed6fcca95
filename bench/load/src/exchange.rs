//! One request over one connection.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
};

use crate::{
    answer::{AnswerError, AnswerReader},
    definitions::CUT,
    event::RequestRecord,
    options::{Options, Sessions},
    plan::Plan,
    target::Target,
    transport::{Clock, Opened, Transport, Wire},
};

/// Bytes read at once: about fifty tokens, so that one read takes all that has come.
const READ_BYTES: usize = 16 << 10;

/// The context that all requests of a run share.
pub(crate) struct RunContext {
    pub(crate) clock: Clock,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) target: Arc<Target>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) options: Options,
    /// Whether the run is cut.
    pub(crate) stopped: watch::Receiver<bool>,
    pub(crate) in_flight: AtomicUsize,
    /// The index of the next request that no user of a closed loop has taken.
    pub(crate) next: AtomicUsize,
}

impl RunContext {
    pub(crate) fn request(&self, index: usize, scheduled_s: f64) -> Request {
        let keep = self.options.sessions != Sessions::New;
        Request { index, scheduled_s, bytes: self.target.request(&self.plan, index, keep) }
    }

    /// The next request of a closed loop; `None` if all are taken.
    pub(crate) fn next_request(&self) -> Option<Request> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.plan.requests.len()).then(|| self.request(index, 0.0))
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

/// Connections of one worker that wait for a request.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<Vec<Box<dyn Wire>>>>);

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
            let opened = tokio::time::timeout(deadline, transport.open(clock)).await;
            self.put(opened.map_err(|_| deadline_error(deadline))??.wire);
        }
        Ok(())
    }

    fn take(&self) -> Option<Box<dyn Wire>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn put(&self, wire: Box<dyn Wire>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(wire);
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
        return event;
    }
    let mut stopped = shared.stopped.clone();
    let deadline = shared.options.deadline;
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(deadline, send(shared, connections, &request, &mut event)) => {
            outcome.unwrap_or_else(|_| Err(deadline_error(deadline)))
        }
        _ = stopped.wait_for(|stopped| *stopped) => Err(CUT.into()),
    };
    event.error = outcome.err();
    event
}

async fn send(
    shared: &RunContext,
    connections: &Connections,
    request: &Request,
    event: &mut RequestRecord,
) -> Result<(), String> {
    if let Some(mut wire) = connections.take() {
        match send_over(shared, &mut wire, request, event).await {
            Ok(keep) => {
                if keep {
                    connections.put(wire);
                }
                return Ok(());
            }
            // The server closed it while nobody used it: a new one is opened, and its time counts.
            Err(_) if event.first_byte_s.is_none() => event.sent_s = None,
            Err(error) => return Err(error),
        }
    }
    let Opened { mut wire, stages } = shared.transport.open(shared.clock).await?;
    stages.write_to(event);
    let keep = send_over(shared, &mut wire, request, event).await?;
    if keep && shared.options.sessions != Sessions::New {
        connections.put(wire);
    }
    Ok(())
}

/// Sends one request over `wire` and reads its answer; gives whether the connection takes another request.
async fn send_over(
    shared: &RunContext,
    wire: &mut Box<dyn Wire>,
    request: &Request,
    event: &mut RequestRecord,
) -> Result<bool, String> {
    let broke = |error: std::io::Error| format!("connection broke: {error}");
    wire.write_all(&request.bytes).await.map_err(broke)?;
    wire.flush().await.map_err(broke)?;
    event.sent_s = Some(shared.clock.now_s());
    let mut reading = AnswerReader::default();
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let count = wire.read(&mut bytes).await.map_err(broke)?;
        let now_s = shared.clock.now_s();
        let is_whole = if count == 0 {
            reading.http.end().map_err(|error| error.to_string())?;
            true
        } else {
            reading.take(&bytes[..count], now_s, event).map_err(|error| error.to_string())?
        };
        if is_whole {
            let keep = reading.http.keeps_alive() && count > 0;
            let finished = reading.finish(now_s, event);
            return finished.map(|()| keep).map_err(|error: AnswerError| error.to_string());
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
    format!("no whole answer within {} s", deadline.as_secs_f64())
}
