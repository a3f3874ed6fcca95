//! The reading of frames of the blind protocol; the socket is Python's.

use confide_lora::protocol::{ConnectionSide, FRAME_DEADLINE, FrameSplitter};
use pyo3::prelude::*;

use super::{
    errors::{protocol_error, value_error},
    messages::decode_message,
};

/// Splits the bytes that one side of a connection receives into messages. `side` is `host` or `holder`. Lengths and
/// kinds are checked before a payload arrives, and memory grows with the bytes that arrive.
#[pyclass(module = "confide._native")]
pub(crate) struct FrameReader {
    frames: FrameSplitter,
}

#[pymethods]
impl FrameReader {
    /// The time limit for the rest of a frame after its first bytes, in seconds.
    #[classattr]
    const FRAME_DEADLINE_S: f64 = FRAME_DEADLINE.as_secs_f64();

    #[new]
    fn new(side: &str) -> PyResult<Self> {
        let side = match side {
            "host" => ConnectionSide::Host,
            "holder" => ConnectionSide::Holder,
            _ => return Err(value_error(format!("side: wanted host or holder, got {side:?}"))),
        };
        Ok(Self { frames: FrameSplitter::new(side) })
    }

    /// Adds received bytes. Gives the id of a request and its next message, or `None` while it is not complete. A
    /// refusal is given as the exception `Refusal`, not raised. Raises `ProtocolError`; no message follows then.
    fn read<'py>(
        &mut self,
        py: Python<'py>,
        received: &[u8],
    ) -> PyResult<Option<(u32, Bound<'py, PyAny>)>> {
        self.frames.push(received);
        let frame = self.frames.next_frame().map_err(|error| protocol_error(py, &error))?;
        frame.map(|frame| Ok((frame.id, decode_message(py, &frame)?))).transpose()
    }

    /// Whether no byte of the next message was received.
    #[getter]
    fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}
