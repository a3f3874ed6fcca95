//! The way in which hardware makes quotes: one at a time, and slowly.
//!
//! On real machines the quote path is serial: the kernel holds one read-write semaphore around
//! a report (configfs-tsm), and the quoting enclave answers one request at a time. The project
//! flashbots/attested-tls-benchmarks measured a mean of 39.078 ms and a 99th percentile of
//! 40.748 ms per quote on TDX hardware (early 2026). Those figures are theirs; this is a model.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// The time for which one quote occupies the simulated device, signing included.
pub const SERVICE_TIME: Duration = Duration::from_millis(39);

static DEVICE: DeviceQueue = DeviceQueue::new();

/// Runs `work` as the only user of the process-wide device, for `service_time` at least.
///
/// Callers are served in the order in which they came.
pub(crate) fn run_in_queue<T>(service_time: Duration, work: impl FnOnce() -> T) -> T {
    let turn = DEVICE.wait();
    let begun = Instant::now();
    let done = work();
    thread::sleep(service_time.saturating_sub(begun.elapsed()));
    drop(turn);
    done
}

/// The number of callers that wait for the device now.
#[cfg(test)]
pub(crate) fn waiting_count() -> u64 {
    let tickets = DEVICE.lock();
    (tickets.drawn - tickets.served).saturating_sub(1)
}

/// A lock that is fair, which `Mutex` is not: an unfair one would starve callers and so make
/// the tail of the latency longer than the device's.
struct DeviceQueue {
    tickets: Mutex<QueueTickets>,
    next: Condvar,
}

struct QueueTickets {
    drawn: u64,
    served: u64,
}

struct QueuePermit<'a>(&'a DeviceQueue);

impl DeviceQueue {
    const fn new() -> Self {
        Self { tickets: Mutex::new(QueueTickets { drawn: 0, served: 0 }), next: Condvar::new() }
    }

    fn wait(&self) -> QueuePermit<'_> {
        let mut tickets = self.lock();
        let mine = tickets.drawn;
        tickets.drawn += 1;
        while tickets.served != mine {
            tickets = self.next.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
        QueuePermit(self)
    }

    fn lock(&self) -> MutexGuard<'_, QueueTickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QueuePermit<'_> {
    fn drop(&mut self) {
        self.0.lock().served += 1;
        self.0.next.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic,
        sync::{Arc, atomic},
    };

    use atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_caller_at_a_time_is_served() {
        let inside = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let inside = Arc::clone(&inside);
                thread::spawn(move || {
                    run_in_queue(Duration::ZERO, || {
                        let before = inside.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        before
                    })
                })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.join().unwrap(), 0);
        }
    }

    #[test]
    fn callers_are_served_in_the_order_in_which_they_came() {
        let queue = Arc::new(DeviceQueue::new());
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = queue.wait();
        let mut callers = Vec::new();
        for number in 0..6 {
            let (queue, order) = (Arc::clone(&queue), Arc::clone(&order));
            let seen = Arc::clone(&queue);
            callers.push(thread::spawn(move || {
                let _turn = queue.wait();
                order.lock().unwrap().push(number);
            }));
            while seen.lock().drawn < number + 2 {
                thread::yield_now();
            }
        }
        drop(first);
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_panicking_caller_leaves_the_device_usable() {
        let fallen = panic::catch_unwind(|| run_in_queue(Duration::ZERO, || panic!("expected")));
        assert!(fallen.is_err());
        assert_eq!(run_in_queue(Duration::ZERO, || 7), 7);
    }
}
