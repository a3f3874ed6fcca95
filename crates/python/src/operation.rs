//! Work that runs in the background and calls Python when it has ended.

use std::future::Future;

use pyo3::prelude::*;
use tokio::task::AbortHandle;

use crate::{failure::Failure, runtime::find_runtime};

/// Work in the background.
#[pyclass(frozen, module = "confide._native")]
pub(crate) struct Operation {
    task: AbortHandle,
}

#[pymethods]
impl Operation {
    /// Stops the work and drops what it holds. It does nothing if the work has ended.
    fn cancel(&self) {
        self.task.abort();
    }
}

/// Starts `work`, which calls `on_end` with its value and `None`, or with `None` and an exception. The
/// call comes from a thread of the event loop's.
pub(crate) fn start<T: Send + 'static>(
    py: Python<'_>,
    on_end: Py<PyAny>,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    to_python: fn(Python<'_>, T) -> PyResult<Py<PyAny>>,
) -> PyResult<Operation> {
    let runtime = find_runtime().map_err(|failure| failure.into_exception(py))?;
    let task = runtime.spawn(async move {
        let outcome = work.await;
        // The interpreter may be busy for long: no thread of the event loop waits for it.
        let delivered = tokio::task::spawn_blocking(move || {
            // `None` while the interpreter ends: nobody waits any more.
            Python::try_attach(|py| deliver(py, &on_end, outcome, to_python))
        });
        let _ = delivered.await;
    });
    Ok(Operation { task: task.abort_handle() })
}

fn deliver<T>(
    py: Python<'_>,
    on_end: &Py<PyAny>,
    outcome: Result<T, Failure>,
    to_python: fn(Python<'_>, T) -> PyResult<Py<PyAny>>,
) {
    let outcome = outcome.map_err(|failure| failure.into_exception(py));
    let called = match outcome.and_then(|value| to_python(py, value)) {
        Ok(value) => on_end.call1(py, (value, py.None())),
        Err(error) => on_end.call1(py, (py.None(), error.into_value(py))),
    };
    // It fails if the loop was closed, and then nobody waits any more.
    drop(called);
}
