//! A connection to a host, which runs on the thread that waits for it, without switches between
//! threads.

use std::time::{Duration, Instant};

use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use super::{
    connect::{ByteStream, HostConnector},
    error::HolderError,
};
use crate::protocol::{
    Attach, AttachAnswer, ConnectionSide, Frame, FrameBuffer, FrameKind, FrameReader, Goodbye,
    ProtocolError, Refusal, write_frame,
};

/// The time limit for TCP, TLS and evidence together.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(20);

/// The time limit for an answer that needs no preparation. A host under load answers in milliseconds.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// The time limit for the host's farewell, which the host sends after it has counted its answers.
const FAREWELL_DEADLINE: Duration = Duration::from_secs(1);

/// A connection and its own event loop.
pub(crate) struct HostConnection {
    reader: FrameReader<Box<dyn ByteStream>>,
    out: FrameBuffer,
    next_id: u32,
    pub(crate) simulated: bool,
    pub(crate) bytes: u64,
    /// The runtime is the last field, so that the stream is dropped before the runtime that it is
    /// registered with.
    runtime: BackgroundRuntime,
}

/// The frame that answers a request, whose payload borrows from the connection.
pub(crate) struct AnswerFrame<'a> {
    pub(crate) kind: FrameKind,
    pub(crate) payload: &'a [u8],
}

impl HostConnection {
    /// Opens a stream without sending anything.
    pub(crate) fn open(connect: &dyn HostConnector) -> Result<Self, HolderError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| HolderError::connection_lost(connect, &error))?;
        let opened = runtime.block_on(async {
            timeout(CONNECT_DEADLINE, connect.connect()).await.unwrap_or_else(|_| {
                let text = format!("no connection within {} s", CONNECT_DEADLINE.as_secs());
                Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
            })
        });
        let opened = opened.map_err(|error| HolderError::connect_failed(connect, error))?;
        Ok(Self {
            reader: FrameReader::new(opened.stream, ConnectionSide::Holder),
            out: FrameBuffer::default(),
            next_id: 1,
            simulated: opened.simulated,
            bytes: 0,
            runtime: BackgroundRuntime(Some(runtime)),
        })
    }

    /// Joins a session that an earlier hello opened.
    pub(crate) fn attach(&mut self, attach: &Attach) -> Result<AttachAnswer, ProtocolError> {
        let answer =
            self.exchange(FrameKind::Attach, FrameKind::Attached, |out| attach.encode(out))?;
        AttachAnswer::decode(answer)
    }

    /// Sends one frame and waits for its answer.
    pub(crate) fn exchange(
        &mut self,
        kind: FrameKind,
        wanted: FrameKind,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<&[u8], ProtocolError> {
        self.exchange_while(kind, wanted, fill, || ())
    }

    /// Sends one frame, calls `meanwhile` while the host computes, and waits for the answer.
    pub(crate) fn exchange_while(
        &mut self,
        kind: FrameKind,
        wanted: FrameKind,
        fill: impl FnOnce(&mut Vec<u8>),
        meanwhile: impl FnOnce(),
    ) -> Result<&[u8], ProtocolError> {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1).max(1);
        let frame = self.out.build_frame(kind, id, fill);
        self.bytes += frame.len() as u64;
        let (reader, runtime) = (&mut self.reader, self.runtime.get());
        let answer = runtime.block_on(async {
            write_frame(reader.stream_mut(), frame, ANSWER_DEADLINE).await?;
            meanwhile();
            reader.read_next("the host's answer", ANSWER_DEADLINE).await
        })?;
        let payload = check_answer(answer, id)?;
        self.bytes += payload.payload.len() as u64 + crate::protocol::HEADER_BYTES as u64;
        match payload.kind == wanted {
            true => Ok(payload.payload),
            false => Err(ProtocolError::Unexpected { wanted: "the answer", got: payload.kind }),
        }
    }

    /// Sends the first frame of a request and returns the id of the request.
    pub(crate) fn begin_request(
        &mut self,
        kind: FrameKind,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u32, ProtocolError> {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1).max(1);
        self.send(kind, id, fill)?;
        Ok(id)
    }

    /// Sends one more frame of a request.
    pub(crate) fn send(
        &mut self,
        kind: FrameKind,
        id: u32,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), ProtocolError> {
        let frame = self.out.build_frame(kind, id, fill);
        self.bytes += frame.len() as u64;
        let (reader, runtime) = (&mut self.reader, self.runtime.get());
        runtime.block_on(write_frame(reader.stream_mut(), frame, ANSWER_DEADLINE))
    }

    /// Receives the next frame of a request.
    pub(crate) fn receive(
        &mut self,
        id: u32,
        what: &'static str,
        deadline: Duration,
    ) -> Result<AnswerFrame<'_>, ProtocolError> {
        let (reader, runtime) = (&mut self.reader, self.runtime.get());
        let frame = runtime.block_on(reader.read_next(what, deadline))?;
        let answer = check_answer(frame, id)?;
        self.bytes += answer.payload.len() as u64 + crate::protocol::HEADER_BYTES as u64;
        Ok(answer)
    }

    /// Sends a goodbye to the host: for the whole session if `session` is true, else for this
    /// connection.
    pub(crate) fn send_goodbye(mut self, session: bool) {
        let until = Instant::now() + FAREWELL_DEADLINE;
        let goodbye = Goodbye { session };
        if let Ok(id) = self.begin_request(FrameKind::Goodbye, |out| goodbye.encode(out)) {
            let left = until.saturating_duration_since(Instant::now());
            let _ = self.receive(id, "the host's farewell", left);
        }
    }
}

/// Checks that a frame answers the request `id`. A refusal results in [`ProtocolError::Refused`].
fn check_answer(frame: Frame<'_>, id: u32) -> Result<AnswerFrame<'_>, ProtocolError> {
    if frame.kind == FrameKind::Error {
        return Err(Refusal::decode(frame.payload)?.into());
    }
    if frame.id != id {
        let wanted = "an answer to this request";
        return Err(ProtocolError::Unexpected { wanted, got: frame.kind });
    }
    Ok(AnswerFrame { kind: frame.kind, payload: frame.payload })
}

/// A runtime that may be dropped anywhere, even in another runtime.
struct BackgroundRuntime(Option<Runtime>);

impl BackgroundRuntime {
    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("the runtime is only taken on drop")
    }
}

impl Drop for BackgroundRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
