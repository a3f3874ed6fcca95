//! A timer thread that wakes tasks at exact instants. The runtime's timer rounds up to whole
//! milliseconds, in which several tokens are due. A thread that waits on a condition variable is
//! late only by the kernel's timer slack, some 50 µs.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::Waker,
    thread,
    time::Instant,
};

/// A handle to the timer thread, which ends with the last handle.
#[derive(Clone, Debug)]
pub(crate) struct Timer(Arc<TimerHandle>);

impl Timer {
    /// Starts the thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let shared = Arc::new(TimerThread::default());
        let thread_shared = Arc::clone(&shared);
        thread::Builder::new().name("sim-timer".into()).spawn(move || thread_shared.run())?;
        Ok(Self(Arc::new(TimerHandle(shared))))
    }

    /// Wakes `waker` once, at `due` or as soon after it as the kernel allows.
    pub(crate) fn wake_at(&self, due: Instant, waker: Waker) {
        let shared = &self.0.0;
        let mut state = shared.lock();
        let soonest = state.alarms.peek().is_none_or(|alarm| due < alarm.0.due);
        let number = state.number;
        state.number += 1;
        state.alarms.push(Reverse(Alarm { due, number, waker }));
        drop(state);
        if soonest {
            shared.changed.notify_one();
        }
    }
}

#[derive(Debug)]
struct TimerHandle(Arc<TimerThread>);

impl Drop for TimerHandle {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_one();
    }
}

#[derive(Debug, Default)]
struct TimerThread {
    state: Mutex<AlarmQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AlarmQueue {
    alarms: BinaryHeap<Reverse<Alarm>>,
    number: u64,
    ended: bool,
}

impl TimerThread {
    fn lock(&self) -> MutexGuard<'_, AlarmQueue> {
        // A panic while the lock was held leaves a valid heap.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.ended {
            let now = Instant::now();
            let wait = match state.alarms.peek() {
                None => None,
                Some(Reverse(alarm)) if alarm.due > now => Some(alarm.due - now),
                Some(_) => {
                    if let Some(Reverse(alarm)) = state.alarms.pop() {
                        drop(state);
                        alarm.waker.wake();
                        state = self.lock();
                    }
                    continue;
                }
            };
            state = match wait {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    let woken = self.changed.wait_timeout(state, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

#[derive(Debug)]
struct Alarm {
    due: Instant,
    number: u64,
    waker: Waker,
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Alarm {}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        task::{Wake, Waker},
        time::Duration,
    };

    use super::*;

    struct Ring(mpsc::Sender<u32>, u32);

    impl Wake for Ring {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(self.1);
        }
    }

    #[test]
    fn alarms_ring_in_the_order_of_their_instants_and_never_early() {
        let timer = Timer::start().expect("a thread");
        let (sender, rung) = mpsc::channel();
        let start = Instant::now();
        for ms in [30u32, 10, 20] {
            let waker = Waker::from(Arc::new(Ring(sender.clone(), ms)));
            timer.wake_at(start + Duration::from_millis(ms.into()), waker);
        }
        for ms in [10u32, 20, 30] {
            assert_eq!(rung.recv(), Ok(ms));
            assert!(start.elapsed() >= Duration::from_millis(ms.into()));
        }
    }
}
