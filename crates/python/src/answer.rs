//! An answer whose body is read piece by piece, when Python asks for it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use confide_client::AnswerBody;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use pyo3::{prelude::*, types::PyBytes};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::{
    failure::{Failure, TransportFault},
    operation::{self, Operation},
    runtime::{find_runtime, wait},
};

/// A body that is being read; nothing once it has ended or was closed.
type OpenBody = Arc<Mutex<Option<AnswerBody>>>;

/// The answer to a request. Reading its body to the end gives its connection back to the pool; closing it earlier
/// closes the connection.
#[pyclass(frozen, module = "confide._native")]
pub(crate) struct Answer {
    status: u16,
    headers: HeaderMap,
    attestation: String,
    body: OpenBody,
    read_limit: Option<Duration>,
}

impl Answer {
    /// An answer over a connection with this verification document.
    pub(crate) fn new(
        response: Response<AnswerBody>,
        attestation: Value,
        read_limit: Option<Duration>,
    ) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status.as_u16(),
            headers: head.headers,
            attestation: attestation.to_string(),
            body: Arc::new(Mutex::new(Some(body))),
            read_limit,
        }
    }
}

#[pymethods]
impl Answer {
    /// The status.
    #[getter]
    fn status(&self) -> u16 {
        self.status
    }

    /// The verification document of the connection, JSON.
    #[getter]
    fn attestation(&self) -> &str {
        &self.attestation
    }

    /// The header fields in their order.
    fn headers<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let bytes = |text: &[u8]| PyBytes::new(py, text);
        let fields = self.headers.iter();
        fields.map(|(name, value)| (bytes(name.as_ref()), bytes(value.as_bytes()))).collect()
    }

    /// Waits for the next piece of the body; `None` at its end.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let piece = wait(py, read_piece(self.body.clone(), self.read_limit))?;
        Ok(piece.map(|piece| PyBytes::new(py, &piece)))
    }

    /// Starts to read the next piece of the body; `on_end` is called with it, or with an exception.
    fn start_read(&self, py: Python<'_>, on_end: Py<PyAny>) -> PyResult<Operation> {
        let work = read_piece(self.body.clone(), self.read_limit);
        operation::start(py, on_end, work, |py, piece| match piece {
            Some(piece) => Ok(PyBytes::new(py, &piece).into_any().unbind()),
            None => Ok(py.None()),
        })
    }

    /// Waits briefly for the end of the body: the rest of it, or `None` if more is to come. Many programs read a stream
    /// up to its end mark and not to its end.
    fn read_rest<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let rest = wait(py, read_rest(self.body.clone()))?;
        Ok(rest.map(|rest| PyBytes::new(py, &rest)))
    }

    /// Gives up the rest of the body.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Ok(mut body) = self.body.try_lock() {
            *body = None;
            return Ok(());
        }
        // A read that was cancelled a moment ago still holds it.
        let runtime = find_runtime().map_err(|failure| failure.into_exception(py))?;
        let body = self.body.clone();
        runtime.spawn(async move { *body.lock().await = None });
        Ok(())
    }
}

/// The longest rest of a body after its end mark, and the longest wait for it.
const REST_BYTES_MAX: usize = 4096;
const REST_WAIT: Duration = Duration::from_millis(50);

async fn read_rest(body: OpenBody) -> Result<Option<Vec<u8>>, Failure> {
    let read_all = async {
        let mut rest = Vec::new();
        while rest.len() <= REST_BYTES_MAX {
            match read_piece(body.clone(), None).await? {
                Some(piece) => rest.extend_from_slice(&piece),
                None => return Ok(Some(rest)),
            }
        }
        Ok(None)
    };
    tokio::time::timeout(REST_WAIT, read_all).await.unwrap_or(Ok(None))
}

async fn read_piece(body: OpenBody, limit: Option<Duration>) -> Result<Option<Bytes>, Failure> {
    let mut open = body.lock().await;
    loop {
        let Some(reading) = open.as_mut() else { return Ok(None) };
        let frame = match limit {
            None => Ok(reading.frame().await),
            Some(limit) => tokio::time::timeout(limit, reading.frame()).await.map_err(|_| limit),
        };
        match frame {
            // Trailers say nothing to httpx.
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(piece) if !piece.is_empty() => return Ok(Some(piece)),
                _ => {}
            },
            Ok(None) => {
                *open = None;
                return Ok(None);
            }
            Ok(Some(Err(error))) => {
                *open = None;
                return Err(Failure::of_answer(&error));
            }
            Err(limit) => {
                *open = None;
                let text = format!("no piece of the answer came for {limit:?}");
                return Err(Failure::transport(TransportFault::ReadTimeout, text));
            }
        }
    }
}
