//! Sessions that arrive at random instants, whether or not earlier ones have their quotes.

use std::{
    future::Future,
    thread,
    time::{Duration, Instant},
};

use confide_arm_line::Outcome;
use confide_channel::{BatchError, BatchedQuote};
use confide_load::{Arrivals, Plan, TokenLengths, Workload};
use tokio::sync::mpsc;

/// One session of a schedule.
pub(super) struct ScheduledBinding {
    /// The instant of its arrival, from the start of the schedule.
    pub(super) due: Duration,
    /// The time from that instant until it was in the queue's hands.
    pub(super) late: Duration,
    /// The time from that instant until it had its quote.
    pub(super) waited: Duration,
    pub(super) share: Result<BatchedQuote, BatchError>,
}

/// The instants of `sessions` arrivals with independent exponential gaps, from the start.
pub(super) fn draw_arrivals(seed: u64, sessions: u64, rate_per_s: f64) -> Outcome<Vec<Duration>> {
    let one = TokenLengths::of_tokens(1);
    let plan = Plan::new(&Workload {
        arrivals: Arrivals::Poisson { rate_per_s },
        requests: usize::try_from(sessions)?,
        duration_s: None,
        prompt_tokens: one,
        output_tokens: one,
        seed,
    })?;
    let instants = plan.requests.iter().filter_map(|request| request.scheduled_s);
    Ok(instants.map(Duration::from_secs_f64).collect())
}

/// Calls `bind` with each session's number at its instant, and waits for all quotes.
pub(super) async fn bind_on_schedule<F>(
    schedule: &[Duration],
    bind: impl Fn(u64) -> F,
) -> Outcome<Vec<ScheduledBinding>>
where
    F: Future<Output = Result<BatchedQuote, BatchError>> + Send + 'static,
{
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    let start = Instant::now();
    let instants = schedule.to_vec();
    // A timer of the event loop may be a millisecond late; a thread that sleeps is not.
    let clock = thread::spawn(move || {
        for due in instants {
            thread::sleep((start + due).saturating_duration_since(Instant::now()));
            if sender.send(due).is_err() {
                return;
            }
        }
    });
    let mut tasks = Vec::with_capacity(schedule.len());
    while let Some(due) = arrivals.recv().await {
        let answer = bind(tasks.len() as u64);
        tasks.push(tokio::spawn(async move {
            let late = (start + due).elapsed();
            let share = answer.await;
            ScheduledBinding { due, late, waited: (start + due).elapsed(), share }
        }));
    }
    clock.join().map_err(|_| "the clock's thread panicked")?;
    let mut bindings = Vec::with_capacity(tasks.len());
    for task in tasks {
        bindings.push(task.await?);
    }
    Ok(bindings)
}
