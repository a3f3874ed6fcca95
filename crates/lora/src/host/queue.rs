//! A queue for products with the matrices of one adapter, which computes waiting requests together.
//!
//! The first request is computed on its own task, without a switch of threads. Requests that arrive
//! meanwhile wait for the next round, which computes one product for each input and reads the matrix
//! once.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// The number of multiplications above which a round moves from the event loop to a thread that may
/// block: half a millisecond at a billion a second.
const INLINE_MAX: u64 = 4_000_000;

/// A computation that answers several jobs at once.
pub(crate) trait JobComputer: Send + Sync + 'static {
    /// The request.
    type Job: Send + 'static;
    /// The response to a job.
    type Answer: Send + 'static;

    /// Answers all jobs, in their order.
    fn compute(&self, jobs: Vec<Self::Job>) -> Vec<Self::Answer>;

    /// The number of multiplications of one job.
    fn cost(&self, job: &Self::Job) -> u64;
}

/// A queue of jobs that wait for a computation.
pub(crate) struct JobQueue<C: JobComputer> {
    computer: Arc<C>,
    state: Mutex<QueueState<C>>,
}

struct QueueState<C: JobComputer> {
    waiting: Vec<(C::Job, oneshot::Sender<C::Answer>)>,
    working: bool,
    rounds: u64,
    jobs: u64,
}

impl<C: JobComputer> JobQueue<C> {
    pub(crate) fn new(computer: Arc<C>) -> Self {
        let state = QueueState { waiting: Vec::new(), working: false, rounds: 0, jobs: 0 };
        Self { computer, state: Mutex::new(state) }
    }

    /// Computes a job together with all waiting jobs; `None` if the computation failed.
    pub(crate) async fn run_job(self: &Arc<Self>, job: C::Job) -> Option<C::Answer> {
        let (sender, mut receiver) = oneshot::channel();
        let first = {
            let mut state = self.lock();
            state.waiting.push((job, sender));
            !mem::replace(&mut state.working, true)
        };
        if first {
            let queue = self.clone();
            // An inline round ends before this task yields, so it cannot be cancelled in the middle.
            if queue.waiting_jobs_cost() <= INLINE_MAX {
                queue.run_round();
                if let Ok(answer) = receiver.try_recv() {
                    self.dispatch_waiting_jobs();
                    return Some(answer);
                }
            }
            self.dispatch_waiting_jobs();
        }
        receiver.await.ok()
    }

    /// The number of rounds and of jobs so far. There are fewer rounds than jobs if jobs were computed
    /// together.
    pub(crate) fn round_and_job_counts(&self) -> (u64, u64) {
        let state = self.lock();
        (state.rounds, state.jobs)
    }

    /// Passes the waiting jobs to a blocking thread, or marks the queue as idle if none waits.
    fn dispatch_waiting_jobs(self: &Arc<Self>) {
        {
            let mut state = self.lock();
            if state.waiting.is_empty() {
                state.working = false;
                return;
            }
        }
        let queue = self.clone();
        tokio::task::spawn_blocking(move || {
            while !queue.mark_idle_if_empty() {
                queue.run_round();
            }
        });
    }

    fn mark_idle_if_empty(&self) -> bool {
        let mut state = self.lock();
        let done = state.waiting.is_empty();
        state.working = !done;
        done
    }

    fn run_round(&self) {
        let waiting = {
            let mut state = self.lock();
            let waiting = mem::take(&mut state.waiting);
            state.rounds += 1;
            state.jobs += waiting.len() as u64;
            waiting
        };
        let (jobs, senders): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        // A panic must not leave the queue marked as working. Waiting requests then get no answer.
        let computed = catch_unwind(AssertUnwindSafe(|| self.computer.compute(jobs)));
        for (answer, sender) in computed.unwrap_or_default().into_iter().zip(senders) {
            // A connection that closed meanwhile needs no answer; its counters are used up.
            let _ = sender.send(answer);
        }
    }

    fn waiting_jobs_cost(&self) -> u64 {
        self.lock().waiting.iter().map(|(job, _)| self.computer.cost(job)).sum()
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Squares numbers, and returns how many were squared together. A large job waits for the test.
    struct Squares(Mutex<std::sync::mpsc::Receiver<()>>);

    impl JobComputer for Squares {
        type Job = (u64, u64);
        type Answer = (u64, usize);

        fn compute(&self, jobs: Vec<(u64, u64)>) -> Vec<(u64, usize)> {
            let count = jobs.len();
            if jobs.iter().any(|(_, cost)| *cost > INLINE_MAX) {
                self.0.lock().unwrap().recv().unwrap();
            }
            jobs.into_iter().map(|(x, _)| (x * x, count)).collect()
        }

        fn cost(&self, job: &(u64, u64)) -> u64 {
            job.1
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn everyone_gets_their_own_answer_and_those_who_wait_are_computed_together() {
        let (let_go, gate) = std::sync::mpsc::channel();
        let queue = Arc::new(JobQueue::new(Arc::new(Squares(Mutex::new(gate)))));
        assert_eq!(queue.run_job((3, 1)).await, Some((9, 1)));
        // A large job occupies the queue; the jobs that arrive meanwhile are one round.
        let large = tokio::spawn({
            let queue = queue.clone();
            async move { queue.run_job((2, INLINE_MAX + 1)).await }
        });
        while queue.round_and_job_counts().0 < 2 {
            tokio::task::yield_now().await;
        }
        let later: Vec<_> = (10..20u64)
            .map(|x| {
                let queue = queue.clone();
                tokio::spawn(async move { (x, queue.run_job((x, 1)).await) })
            })
            .collect();
        while queue.lock().waiting.len() < later.len() {
            tokio::task::yield_now().await;
        }
        let_go.send(()).unwrap();
        for task in later {
            let (x, answer) = task.await.unwrap();
            assert_eq!(answer.map(|(square, _)| square), Some(x * x));
        }
        assert_eq!(large.await.unwrap(), Some((4, 1)));
        assert_eq!(queue.round_and_job_counts(), (3, 12), "rounds and jobs");
    }
}
