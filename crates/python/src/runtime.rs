//! The event loop behind every client of this process, and waits that leave the interpreter to others.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// The time after which a wait looks for signals, such as that of Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);
/// The threads of the event loop; signatures and certificates take milliseconds of one.
const THREADS: usize = 2;

/// The event loop, and the process that started it: the threads of one do not exist in a fork.
static RUNTIME: Mutex<Option<ProcessRuntime>> = Mutex::new(None);

struct ProcessRuntime {
    pid: u32,
    runtime: Arc<Runtime>,
}

/// The event loop of this process, which is started when first used.
pub(crate) fn find_runtime() -> Result<Arc<Runtime>, Failure> {
    let mut kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if let Some(ProcessRuntime { runtime, .. }) = kept.as_ref().filter(|kept| kept.pid == pid) {
        return Ok(runtime.clone());
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("confide")
        .enable_all()
        .build()
        .map_err(|error| Failure::input(format!("cannot start the event loop: {error}")))?;
    let runtime = Arc::new(runtime);
    let old = kept.replace(ProcessRuntime { pid, runtime: runtime.clone() });
    // The parent's threads are not in this process: to stop them would wait for ever.
    std::mem::forget(old);
    Ok(runtime)
}

/// Waits for `work` without the interpreter, and gives it signals meanwhile.
///
/// # Errors
/// What a signal's handler raises, such as `KeyboardInterrupt`; the work is dropped then.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    work: impl Future<Output = Result<T, Failure>> + Send,
) -> PyResult<T> {
    let runtime = find_runtime().map_err(|failure| failure.into_exception(py))?;
    let mut work = pin!(work);
    loop {
        let polled = py.detach(|| {
            let tick = async { tokio::time::timeout(SIGNAL_INTERVAL, work.as_mut()).await };
            runtime.handle().block_on(tick)
        });
        match polled {
            Ok(outcome) => return outcome.map_err(|failure| failure.into_exception(py)),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Unix seconds.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
