//! Errors of adapters and of the blind protocol as exceptions of the package.

use std::fmt::Display;

use confide_lora::{
    AdaptError,
    protocol::{ProtocolError, Refusal},
};
use pyo3::{call::PyCallArgs, prelude::*};

/// The module with the exceptions of the blind protocol.
const PROTOCOL_MODULE: &str = "confide.blind.errors";

/// The names of all refusals, in the order of their codes, which begin at 1.
#[pyfunction]
pub(crate) fn refusal_names() -> Vec<&'static str> {
    list_refusals().map(Refusal::name).collect()
}

/// Describes a refusal by its name; `detail` is that of docs/blind-protocol.md.
#[pyfunction]
pub(crate) fn describe_refusal(name: &str, detail: u64) -> PyResult<String> {
    Ok(find_refusal(name, detail)?.to_string())
}

/// Describes a budget of `limit` answers that is used up, and what to try.
#[pyfunction]
pub(crate) fn describe_used_budget(limit: u64) -> String {
    AdaptError::Budget { limit }.to_string()
}

/// The refusal of a name and a detail.
pub(crate) fn find_refusal(name: &str, detail: u64) -> PyResult<Refusal> {
    let code = list_refusals().find(|refusal| refusal.name() == name);
    let code = code.map(|refusal| refusal.code_and_detail().0);
    let refusal = code.and_then(|code| Refusal::from_code_and_detail(code, detail));
    refusal.ok_or_else(|| value_error(format!("refusal: {name:?} is unknown")))
}

/// All refusals, in the order of their codes; those with a detail have 0.
fn list_refusals() -> impl Iterator<Item = Refusal> {
    (1u8..).map_while(|code| Refusal::from_code_and_detail(code, 0))
}

/// The exception for a refusal, to be given.
pub(crate) fn make_refusal(py: Python<'_>, refusal: Refusal) -> PyResult<Bound<'_, PyAny>> {
    let (_, detail) = refusal.code_and_detail();
    make_exception(py, PROTOCOL_MODULE, "Refusal", (refusal.name(), detail))
}

/// The exception for a refusal, to be raised.
pub(crate) fn refusal_error(py: Python<'_>, refusal: Refusal) -> PyErr {
    to_error(make_refusal(py, refusal))
}

/// The exception for a frame or a message that cannot be read.
pub(crate) fn protocol_error(py: Python<'_>, error: &ProtocolError) -> PyErr {
    to_error(match error {
        ProtocolError::Refused(refusal) => make_refusal(py, *refusal),
        ProtocolError::Field { message, field, wanted } => {
            make_exception(py, PROTOCOL_MODULE, "FieldError", (*message, *field, *wanted))
        }
        other => make_exception(py, PROTOCOL_MODULE, "ProtocolError", (other.to_string(),)),
    })
}

/// The exception for an adapter, a list or a file that is not one, or is beyond a limit.
pub(crate) fn adapter_error(py: Python<'_>, error: &dyn Display) -> PyErr {
    let module = "confide.adapter_error";
    to_error(make_exception(py, module, "AdapterRefused", (error.to_string(),)))
}

/// The exception for an argument that this package gave wrongly.
pub(crate) fn value_error(text: impl Into<String>) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(text.into())
}

/// The exception; it is the interpreter's own one if the package is damaged.
fn to_error(exception: PyResult<Bound<'_, PyAny>>) -> PyErr {
    exception.map_or_else(|error| error, PyErr::from_value)
}

fn make_exception<'py>(
    py: Python<'py>,
    module: &str,
    class: &str,
    arguments: impl PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import(module)?.getattr(class)?.call1(arguments)
}
