//! The audit log of a host in Python.

use std::path::PathBuf;

use confide_lora::{
    host::{self, AuditSubject},
    protocol::Refusal,
};
use pyo3::prelude::*;
use serde_json::{Map, Value};

use super::{
    errors::{refusal_error, value_error},
    messages::parse_input,
};
use crate::runtime::unix_now;

/// The log of who was answered how often: JSON lines, which are appended to a file. Without a path, the newest ones are
/// kept in memory. Raises `OSError`.
#[pyclass(frozen, module = "confide._native")]
pub(crate) struct AuditLog {
    log: host::AuditLog,
}

/// The answers and refusals of a session since its last line, until the session ends.
#[pyclass(frozen, module = "confide._native")]
pub(crate) struct AuditTally {
    tally: host::AuditTally,
}

#[pymethods]
impl AuditLog {
    #[new]
    fn new(py: Python<'_>, path: Option<PathBuf>) -> PyResult<Self> {
        let log = match path {
            None => host::AuditLog::in_memory(unix_now),
            Some(path) => py.detach(|| host::AuditLog::to_file(&path, unix_now))?,
        };
        Ok(Self { log })
    }

    /// Writes one line: an event, whom it concerns as far as they are given, and further fields, a JSON object. Raises
    /// `OSError`; the next line that is written has the number of lost ones.
    fn write(
        &self,
        py: Python<'_>,
        event: &str,
        client: Option<[u8; 32]>,
        account: Option<&str>,
        adapter: Option<&str>,
        fields: &str,
    ) -> PyResult<()> {
        let fields: Map<String, Value> =
            serde_json::from_str(fields).map_err(|error| value_error(error.to_string()))?;
        let subject = AuditSubject { client: client.as_ref(), account, adapter };
        Ok(py.detach(|| self.log.write(event, subject, fields))?)
    }

    /// The lines in memory, the oldest first.
    #[getter]
    fn lines(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.log.lines())
    }
}

#[pymethods]
impl AuditTally {
    #[new]
    fn new() -> Self {
        Self { tally: host::AuditTally::default() }
    }

    /// Counts vectors of one input before they are answered. Raises `Refusal` where the session has ended.
    fn count_answers(&self, py: Python<'_>, layer: u32, source: u8, vectors: u64) -> PyResult<()> {
        let counted = self.tally.count_answers(layer, parse_input(source)?, vectors);
        counted.map_err(|refusal| refusal_error(py, refusal))
    }

    /// Counts a refusal by its code. Says whether it needs a line of its own: the first of its kind since the last
    /// line does, and every one after the session's end.
    fn count_refusal(&self, code: u8) -> PyResult<bool> {
        let refusal = Refusal::from_code_and_detail(code, 0);
        let refusal = refusal.ok_or_else(|| value_error(format!("refusal: {code} is unknown")))?;
        Ok(self.tally.count_refusal(refusal))
    }

    /// Gives the counts as the fields of a line, a JSON object, and forgets them; `None` where there are none.
    fn take_counts(&self) -> Option<String> {
        self.tally.take_counts().map(|fields| Value::Object(fields).to_string())
    }

    /// Ends the session: gives the last counts as `take_counts` does, and nothing is counted after them.
    fn close(&self) -> Option<String> {
        self.tally.close().map(|fields| Value::Object(fields).to_string())
    }

    /// Whether the session has ended.
    #[getter]
    fn is_closed(&self) -> bool {
        self.tally.is_closed()
    }
}

/// The name of an input in the audit log.
#[pyfunction]
pub(crate) fn input_name(source: u8) -> PyResult<&'static str> {
    Ok(host::input_name(parse_input(source)?))
}
