//! One thread for each kind of device, which runs calls in the order of their arrival, each with a
//! deadline.
//!
//! The kernel holds one lock around a report, so more threads would only wait there, where no
//! deadline reaches. A call that hangs keeps this thread; its caller and those behind it give up
//! when their own time is over, and calls whose caller has gone are not begun. GPUs have a thread
//! of their own: they take a second for a report, and one that hangs must not take the CPU's
//! evidence along.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, SyncSender, TrySendError},
    },
    thread,
    time::{Duration, Instant},
};

use crate::error::AttesterError;

/// The most callers that may wait: a batch of sessions is one call, so more than this is a flood.
pub const WAITING_MAX: usize = 1024;

/// The longest wait for a device; longer ones are shortened to this, as no clock reaches further.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The thread for the CPU's evidence.
pub(crate) static CPU: DeviceThread = DeviceThread::new("cpu device");
/// The thread for the GPUs' evidence.
pub(crate) static GPU: DeviceThread = DeviceThread::new("gpu device");

/// A thread that starts with its first call.
pub(crate) struct DeviceThread {
    name: &'static str,
    queue: Mutex<Option<SyncSender<DeviceCall>>>,
}

struct DeviceCall {
    until: Instant,
    work: Box<dyn FnOnce() + Send>,
}

impl DeviceThread {
    const fn new(name: &'static str) -> Self {
        Self { name, queue: Mutex::new(None) }
    }

    /// Runs `work` on this thread; `work` receives the instant at which its caller gives up.
    pub(crate) fn run_on_device<T: Send + 'static>(
        &self,
        deadline: Duration,
        work: impl FnOnce(Instant) -> Result<T, AttesterError> + Send + 'static,
    ) -> Result<T, AttesterError> {
        let deadline = deadline.min(LONGEST);
        let until = Instant::now() + deadline;
        let (answer, answered) = mpsc::sync_channel(1);
        let work = Box::new(move || {
            // If the caller has given up, nobody needs the answer.
            let _ = answer.send(work(until));
        });
        match self.queue_sender()?.try_send(DeviceCall { until, work }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(AttesterError::QueueFull { limit: WAITING_MAX });
            }
            Err(TrySendError::Disconnected(_)) => return Err(thread_end_error()),
        }
        match answered.recv_timeout(deadline) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => Err(AttesterError::Deadline { deadline }),
            // The call was skipped, or its thread died.
            Err(RecvTimeoutError::Disconnected) if Instant::now() >= until => {
                Err(AttesterError::Deadline { deadline })
            }
            Err(RecvTimeoutError::Disconnected) => Err(thread_end_error()),
        }
    }

    fn queue_sender(&self) -> Result<SyncSender<DeviceCall>, AttesterError> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = &*queue {
            return Ok(queue.clone());
        }
        let (sender, jobs) = mpsc::sync_channel::<DeviceCall>(WAITING_MAX);
        thread::Builder::new()
            .name(self.name.into())
            .spawn(move || {
                for job in jobs {
                    if Instant::now() < job.until {
                        // A panic of one call must not take the device from all others.
                        let _ = panic::catch_unwind(AssertUnwindSafe(job.work));
                    }
                }
            })
            .map_err(|error| AttesterError::Thread(error.to_string()))?;
        Ok(queue.insert(sender).clone())
    }
}

fn thread_end_error() -> AttesterError {
    AttesterError::Thread("a call ended it".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test for all of this: the thread is the process's, and another test would wait for it.
    #[test]
    fn a_hanging_call_costs_its_callers_their_deadline_and_no_more() {
        assert_eq!(CPU.run_on_device(Duration::from_secs(5), |_| Ok(7)).unwrap(), 7);
        let (release, released) = mpsc::channel::<()>();
        let hung = CPU.run_on_device(Duration::from_millis(20), move |_| {
            let _ = released.recv();
            Ok(())
        });
        assert!(matches!(hung, Err(AttesterError::Deadline { .. })));
        let (begun, was_begun) = mpsc::channel();
        let behind = CPU.run_on_device(Duration::from_millis(20), move |_| {
            let _ = begun.send(());
            Ok(())
        });
        assert!(matches!(behind, Err(AttesterError::Deadline { .. })));
        assert_eq!(
            GPU.run_on_device(Duration::MAX, |_| Ok(6)).unwrap(),
            6,
            "the GPU waits for the CPU"
        );
        release.send(()).unwrap();
        assert_eq!(CPU.run_on_device(Duration::from_secs(5), |_| Ok(8)).unwrap(), 8);
        assert!(was_begun.recv().is_err(), "a call was begun that nobody waited for");
        let died = CPU.run_on_device::<()>(Duration::from_secs(5), |_| panic!("expected"));
        assert!(matches!(died, Err(AttesterError::Thread(_))));
        assert_eq!(CPU.run_on_device(Duration::from_secs(5), |_| Ok(9)).unwrap(), 9);
    }
}
