//! Errors of adapters as exceptions of the package.

use std::fmt::Display;

use pyo3::prelude::*;

/// The exception for an adapter that is not one, or is beyond a limit.
pub(crate) fn adapter_error(py: Python<'_>, error: &dyn Display) -> PyErr {
    // It is the interpreter's own one if the package is damaged.
    make_adapter_error(py, error).map_or_else(|error| error, PyErr::from_value)
}

fn make_adapter_error<'py>(py: Python<'py>, error: &dyn Display) -> PyResult<Bound<'py, PyAny>> {
    py.import("confide.adapter_error")?.getattr("AdapterRefused")?.call1((error.to_string(),))
}
