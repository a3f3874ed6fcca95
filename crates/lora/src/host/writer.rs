//! The writing end of a connection, shared by the tasks that answer on it.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite, WriteHalf},
    sync::Mutex,
};

use crate::protocol::{FrameBuffer, FrameKind, ProtocolError, Refusal, write_frame};

/// The time limit for a key holder to receive an answer before its connection is closed.
pub(crate) const WRITE_DEADLINE: Duration = Duration::from_secs(30);

/// The writing end of a connection, shared by the task that reads and the one that prepares.
pub(crate) struct FrameWriter<S> {
    stream: WriteHalf<S>,
    buffer: FrameBuffer,
}

pub(crate) type SharedWriter<S> = Arc<Mutex<FrameWriter<S>>>;

impl<S: AsyncRead + AsyncWrite> FrameWriter<S> {
    pub(crate) fn new(stream: WriteHalf<S>) -> Self {
        Self { stream, buffer: FrameBuffer::default() }
    }

    pub(crate) async fn send(
        &mut self,
        kind: FrameKind,
        id: u32,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), ProtocolError> {
        let frame = self.buffer.build_frame(kind, id, fill);
        write_frame(&mut self.stream, frame, WRITE_DEADLINE).await
    }

    pub(crate) async fn send_refusal(
        &mut self,
        id: u32,
        refusal: Refusal,
    ) -> Result<(), ProtocolError> {
        self.send(FrameKind::Error, id, |out| refusal.encode(out)).await
    }
}
