//! The client: one thread keeps the schedule, a few hold the streams.
//!
//! ```text
//! dispatcher -- request at its instant --> worker: one event loop, its streams, its connections
//!            -- ping every 5 ms ---------> (when it turns to it: loop delay)
//! workers    -- event, when it ended ----> caller
//! ```

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc as std_mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{mpsc, watch};

use crate::{
    bound::ClientFigures,
    ceiling::{Ceiling, ClientWork},
    definitions::{CUT, LatencyDistribution},
    event::RequestRecord,
    exchange::{Connections, Request, RunContext, exchange},
    options::{ConnectionReuse, LoadOptions},
    plan::Plan,
    resolution::find_unresolved,
    target::Target,
    transport::{Clock, Transport},
};

/// The events of a run and the figures of its client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadOutcome {
    /// The requests in the order of the plan; those that were never dispatched are absent.
    pub events: Vec<RequestRecord>,
    /// The client's own use of time.
    pub client: ClientFigures,
}

/// The reason for which a run has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A thread or its event loop cannot be started.
    #[error("client thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
    /// A connection that was to be kept cannot be opened.
    #[error("connection before the run failed: {0}")]
    Connect(String),
    /// A thread ended before the run did, so its figures are not known.
    #[error("client thread {0} ended during the run, so its figures are not known")]
    Panicked(String),
    /// The client's ceiling cannot be measured.
    #[error("the client's own ceiling cannot be measured: {0}")]
    Ceiling(String),
    /// A figure is out of its range.
    #[error("threads: wanted 1 to {THREADS_MAX}, got {got}")]
    Threads {
        /// The number of threads that was asked for.
        got: u32,
    },
}

/// More threads than this measure the scheduler.
const THREADS_MAX: u32 = 64;
/// The interval of the pings that measure the loop delay of a client thread.
const PING_EVERY: Duration = Duration::from_millis(5);
/// The time between the last thread's readiness and the first instant of the schedule.
const LEAD: Duration = Duration::from_millis(20);
/// The longest time between two looks at `stop`, and between two calls of `on_event`.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The most pings that are kept for each thread: those of an hour and a half.
const PINGS_MAX: usize = 1 << 20;

/// Runs a plan to its end, or until `stop` is set, which cuts the requests in flight. `on_event` is
/// given every event when it has ended, and `None` while no event ends.
///
/// # Errors
/// [`LoadError`] if the run cannot begin or a thread panics; failures of requests are in the
/// events.
pub fn run(
    plan: &Arc<Plan>,
    target: &Arc<Target>,
    transport: &Arc<dyn Transport>,
    options: &LoadOptions,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(Option<&RequestRecord>),
) -> Result<LoadOutcome, LoadError> {
    if !(1..=THREADS_MAX).contains(&options.threads) {
        return Err(LoadError::Threads { got: options.threads });
    }
    let (stopping, stopped) = watch::channel(false);
    let (sender, messages) = std_mpsc::channel();
    let mut workers = Workers::start(options, transport, &sender)?;
    drop(sender);
    let clock = workers.wait_for_ready()?;
    let shared = Arc::new(RunContext {
        clock,
        transport: Arc::clone(transport),
        target: Arc::clone(target),
        plan: Arc::clone(plan),
        options: options.clone(),
        stopped,
        in_flight: AtomicUsize::new(0),
        next: AtomicUsize::new(0),
    });
    workers.begin_all(&shared);
    let ended = Arc::new(AtomicBool::new(false));
    let dispatcher = start_dispatcher(&shared, std::mem::take(&mut workers.senders), &ended)?;
    let mut outcome = LoadOutcome::default();
    // Users of a closed loop, who are fewer than planned where there are not as many requests.
    let begun = plan.requests.iter().filter(|planned| planned.scheduled_s.is_some());
    let mut left = if plan.users.is_some() { begun.count() } else { plan.requests.len() };
    loop {
        match messages.recv_timeout(LOOK_EVERY) {
            Ok(WorkerMessage::Event(mut event)) => {
                if let Some(counter) = &options.token_counter {
                    event.count_tokens(counter);
                }
                on_event(Some(&event));
                outcome.events.push(*event);
                left -= usize::from(plan.users.is_none());
            }
            Ok(WorkerMessage::UserDone) => left -= 1,
            Err(std_mpsc::RecvTimeoutError::Timeout) => on_event(None),
            // Every worker has ended.
            Err(std_mpsc::RecvTimeoutError::Disconnected) => break,
        }
        let cut = stop.load(Ordering::Relaxed);
        if cut {
            let _ = stopping.send(true);
        }
        if cut || left == 0 {
            ended.store(true, Ordering::Relaxed);
        }
    }
    outcome.events.sort_by_key(|event| event.index);
    let dispatcher_cpu_s =
        dispatcher.join().map_err(|_| LoadError::Panicked("dispatcher".into()))?;
    outcome.client = workers.client_figures(&outcome.events, dispatcher_cpu_s, options.ceiling)?;
    Ok(outcome)
}

/// A message of a worker to the caller.
pub(crate) enum WorkerMessage {
    Event(Box<RequestRecord>),
    UserDone,
}

/// A message of the dispatcher to a worker.
enum DispatcherMessage {
    Begin(Arc<RunContext>),
    Send(Request),
    User { scheduled_s: f64 },
    Ping(Instant),
}

struct Workers {
    senders: Vec<mpsc::UnboundedSender<DispatcherMessage>>,
    threads: Vec<thread::JoinHandle<WorkerUsage>>,
    ready: std_mpsc::Receiver<Result<(), String>>,
}

/// The CPU time and the loop delays of one worker thread.
#[derive(Default)]
struct WorkerUsage {
    cpu_s: f64,
    delays_s: Vec<f64>,
}

impl Workers {
    fn start(
        options: &LoadOptions,
        transport: &Arc<dyn Transport>,
        messages: &std_mpsc::Sender<WorkerMessage>,
    ) -> Result<Self, LoadError> {
        let (say_ready, ready) = std_mpsc::channel();
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for number in 0..options.threads {
            let (sender, jobs) = mpsc::unbounded_channel();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let first = match options.sessions {
                ConnectionReuse::New => 0,
                ConnectionReuse::Reused { first } => {
                    first / options.threads + u32::from(number < first % options.threads)
                }
            };
            let (messages, say_ready) = (messages.clone(), say_ready.clone());
            let transport = Arc::clone(transport);
            let deadline = options.deadline;
            let thread =
                thread::Builder::new().name(format!("load-{number}")).spawn(move || {
                    let outcome = runtime.block_on(async {
                        let connections = Connections::default();
                        let opened = connections.open_first(&*transport, first, deadline).await;
                        let failed = opened.is_err();
                        let _ = say_ready.send(opened);
                        drop(say_ready);
                        if failed {
                            WorkerUsage::default()
                        } else {
                            run_worker(jobs, connections, messages).await
                        }
                    });
                    // A name that is still being resolved must not keep the thread.
                    runtime.shutdown_background();
                    outcome
                })?;
            senders.push(sender);
            threads.push(thread);
        }
        Ok(Self { senders, threads, ready })
    }

    /// Waits until every worker has its connections; the origin is a little later.
    fn wait_for_ready(&self) -> Result<Clock, LoadError> {
        for _ in &self.threads {
            let died = || Err("a client thread panicked".into());
            self.ready.recv().unwrap_or_else(|_| died()).map_err(LoadError::Connect)?;
        }
        Ok(Clock::new(Instant::now() + LEAD))
    }

    fn begin_all(&self, shared: &Arc<RunContext>) {
        for sender in &self.senders {
            let _ = sender.send(DispatcherMessage::Begin(Arc::clone(shared)));
        }
    }

    fn client_figures(
        self,
        events: &[RequestRecord],
        dispatcher_cpu_s: f64,
        ceiling: Ceiling,
    ) -> Result<ClientFigures, LoadError> {
        let wall_s = events.iter().map(RequestRecord::end_s).fold(0.0, f64::max);
        let mut figures = ClientFigures {
            threads: self.threads.len() as u32,
            wall_s,
            cpu_s: dispatcher_cpu_s,
            ..ClientFigures::default()
        };
        let mut busiest_s = dispatcher_cpu_s;
        let mut delays_s = Vec::new();
        for (number, thread) in self.threads.into_iter().enumerate() {
            let worked = thread.join().map_err(|_| LoadError::Panicked(number.to_string()))?;
            figures.cpu_s += worked.cpu_s;
            busiest_s = busiest_s.max(worked.cpu_s);
            delays_s.extend(worked.delays_s);
        }
        if wall_s > 0.0 {
            figures.busiest_ratio = busiest_s / wall_s;
        }
        figures.loop_delay = LatencyDistribution::from_seconds("llm.loop-delay", &delays_s);
        figures.unresolved = find_unresolved(events, &delays_s);
        figures.add_work(ClientWork::from_events(events), ceiling);
        Ok(figures)
    }
}

/// Runs one worker's event loop, from its first job until the dispatcher and every task have ended.
async fn run_worker(
    mut jobs: mpsc::UnboundedReceiver<DispatcherMessage>,
    connections: Connections,
    messages: std_mpsc::Sender<WorkerMessage>,
) -> WorkerUsage {
    let mut tasks = tokio::task::JoinSet::new();
    let (mut shared, mut worked, mut cpu) = (None, WorkerUsage::default(), Duration::ZERO);
    while let Some(job) = jobs.recv().await {
        match (job, &shared) {
            (DispatcherMessage::Begin(begun), _) => {
                cpu = thread_cpu();
                shared = Some(begun);
            }
            (DispatcherMessage::Ping(sent), _) => {
                if worked.delays_s.len() < PINGS_MAX {
                    worked.delays_s.push(sent.elapsed().as_secs_f64());
                }
                while tasks.try_join_next().is_some() {}
            }
            (DispatcherMessage::Send(request), Some(shared)) => {
                let (shared, connections) = (Arc::clone(shared), connections.clone());
                let messages = messages.clone();
                tasks.spawn(async move {
                    let event = exchange(&shared, &connections, request).await;
                    let _ = messages.send(WorkerMessage::Event(Box::new(event)));
                });
            }
            (DispatcherMessage::User { scheduled_s }, Some(shared)) => {
                let (shared, connections) = (Arc::clone(shared), connections.clone());
                tasks.spawn(run_user(shared, connections, messages.clone(), scheduled_s));
            }
            _ => {}
        }
    }
    while tasks.join_next().await.is_some() {}
    worked.cpu_s = thread_cpu().saturating_sub(cpu).as_secs_f64();
    worked
}

/// Runs one user of a closed loop, who sends the next request when the last answer is complete.
async fn run_user(
    shared: Arc<RunContext>,
    connections: Connections,
    messages: std_mpsc::Sender<WorkerMessage>,
    started_s: f64,
) {
    let mut scheduled_s = Some(started_s);
    while let Some(mut request) = shared.next_request() {
        // Writing the request out is not the server's time.
        request.scheduled_s = scheduled_s.take().unwrap_or_else(|| shared.clock.now_s());
        if shared.is_over(request.scheduled_s) {
            break;
        }
        let event = exchange(&shared, &connections, request).await;
        let cut = event.error.as_deref() == Some(CUT);
        let _ = messages.send(WorkerMessage::Event(Box::new(event)));
        if cut {
            break;
        }
    }
    let _ = messages.send(WorkerMessage::UserDone);
}

/// Starts the thread that keeps the schedule. The thread returns its CPU time in seconds.
fn start_dispatcher(
    shared: &Arc<RunContext>,
    senders: Vec<mpsc::UnboundedSender<DispatcherMessage>>,
    ended: &Arc<AtomicBool>,
) -> std::io::Result<thread::JoinHandle<f64>> {
    let (shared, ended) = (Arc::clone(shared), Arc::clone(ended));
    thread::Builder::new().name("load-clock".into()).spawn(move || {
        // The kernel adds 50 us to a sleep by default; 1 us is enough. Where this cannot be set, the dispatch delay
        // shows it.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
        let before = thread_cpu();
        dispatch_on_schedule(&shared, &senders, &ended);
        thread_cpu().saturating_sub(before).as_secs_f64()
    })
}

fn dispatch_on_schedule(
    shared: &RunContext,
    senders: &[mpsc::UnboundedSender<DispatcherMessage>],
    ended: &AtomicBool,
) {
    let closed = shared.plan.users.is_some();
    let mut pings = LoopDelayPings { senders, last: Instant::now() };
    for (index, planned) in shared.plan.requests.iter().enumerate() {
        let Some(scheduled_s) = planned.scheduled_s else { break };
        let job = if closed {
            DispatcherMessage::User { scheduled_s }
        } else {
            // The request is written out ahead of its instant, so that this takes no time then.
            DispatcherMessage::Send(shared.build_request(index, scheduled_s))
        };
        if !pings.wait_until(shared, scheduled_s, ended)
            || senders[index % senders.len()].send(job).is_err()
        {
            return;
        }
    }
    while pings.wait_until(shared, shared.clock.now_s() + 1.0, ended) {}
}

/// Sends pings to every worker, from which it measures its loop delay.
struct LoopDelayPings<'a> {
    senders: &'a [mpsc::UnboundedSender<DispatcherMessage>],
    last: Instant,
}

impl LoopDelayPings<'_> {
    /// Sleeps until `until_s`, with pings on the way; false when the run has ended.
    fn wait_until(&mut self, shared: &RunContext, until_s: f64, ended: &AtomicBool) -> bool {
        loop {
            if self.last.elapsed() >= PING_EVERY {
                self.send_all();
            }
            if ended.load(Ordering::Relaxed) {
                return false;
            }
            let left_s = until_s - shared.clock.now_s();
            if left_s <= 0.0 {
                return true;
            }
            let left = Duration::try_from_secs_f64(left_s).unwrap_or(PING_EVERY);
            thread::sleep(left.min(PING_EVERY));
        }
    }

    fn send_all(&mut self) {
        self.last = Instant::now();
        for sender in self.senders {
            let _ = sender.send(DispatcherMessage::Ping(Instant::now()));
        }
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}
