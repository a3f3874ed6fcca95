//! One connection to a worker, with a thread that writes and reads with a short timeout.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::WorkerError,
    frame::FrameReader,
    message::{self, Welcome, WorkerMessage},
    options::WorkerDeadlines,
    process::TICK,
};

/// The largest number of frames that wait for the writer. More could be valid (a request, a cancel
/// and an answer for every generation), but a writer so far behind is stuck.
const FRAMES_QUEUED_MAX: usize = 4096;
const BLOCK_BYTES: usize = 256 << 10;

pub(crate) struct WorkerConnection {
    stream: UnixStream,
    reader: FrameReader,
    block: Vec<u8>,
    pub(crate) frames: SyncSender<Vec<u8>>,
    /// The error that ended the writer thread.
    write_error: Arc<Mutex<Option<String>>>,
}

/// The outcome of one read.
pub(crate) enum ReadOutcome {
    /// Nothing arrived within a [`TICK`].
    TimedOut,
    /// Some bytes arrived.
    Bytes,
    /// The connection ended for this reason.
    End(String),
}

impl WorkerConnection {
    pub(crate) fn connect(path: &Path, deadlines: &WorkerDeadlines) -> Result<Self, WorkerError> {
        let stream = UnixStream::connect(path).map_err(|error| {
            let reason = format!("{}: {error}", path.display());
            WorkerError::System { what: "cannot connect", reason }
        })?;
        let set = |stream: &UnixStream| {
            stream.set_read_timeout(Some(TICK))?;
            stream.set_write_timeout(Some(deadlines.write))?;
            stream.try_clone()
        };
        let writing = set(&stream).map_err(WorkerError::system("socket"))?;
        let (frames, waiting) = mpsc::sync_channel(FRAMES_QUEUED_MAX);
        let write_error = Arc::<Mutex<Option<String>>>::default();
        let error = Arc::clone(&write_error);
        thread::Builder::new()
            .name("worker-writer".into())
            .spawn(move || write_frames(writing, &waiting, &error))
            .map_err(WorkerError::system("thread"))?;
        let block = vec![0; BLOCK_BYTES];
        Ok(Self { stream, reader: FrameReader::default(), block, frames, write_error })
    }

    /// Reads once, for at most a [`TICK`].
    pub(crate) fn read_once(&mut self) -> ReadOutcome {
        match self.stream.read(&mut self.block) {
            Ok(0) => ReadOutcome::End(self.disconnect_reason("it closed the connection")),
            Ok(count) => {
                self.reader.push(&self.block[..count]);
                ReadOutcome::Bytes
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => ReadOutcome::TimedOut,
                _ => ReadOutcome::End(
                    self.disconnect_reason(&format!("the connection broke: {error}")),
                ),
            },
        }
    }

    fn disconnect_reason(&self, found: &str) -> String {
        let error = self.write_error.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.unwrap_or_else(|| found.into())
    }

    /// Returns the next complete message; `None` if more bytes are needed.
    pub(crate) fn next_message(&mut self) -> Result<Option<WorkerMessage>, WorkerError> {
        match self.reader.next_frame()? {
            None => Ok(None),
            Some(frame) => Ok(Some(WorkerMessage::parse(frame)?)),
        }
    }

    /// Sends a frame and waits for its answer. No other exchange may be in progress.
    pub(crate) fn send_and_receive(
        &mut self,
        frame: Vec<u8>,
        what: &'static str,
        limit: Duration,
        stopping: &AtomicBool,
    ) -> Result<WorkerMessage, WorkerError> {
        let _ = self.frames.try_send(frame);
        let until = Instant::now() + limit;
        loop {
            if let Some(message) = self.next_message()? {
                return Ok(message);
            }
            match self.read_once() {
                ReadOutcome::End(reason) => return Err(WorkerError::Protocol { reason }),
                _ if stopping.load(Ordering::Acquire) => return Err(WorkerError::Stopped),
                _ if Instant::now() > until => return Err(WorkerError::TimedOut { what, limit }),
                _ => {}
            }
        }
    }

    pub(crate) fn request_welcome(
        &mut self,
        vocabulary: usize,
        limit: Duration,
        stopping: &AtomicBool,
    ) -> Result<Welcome, WorkerError> {
        match self.send_and_receive(
            message::encode_hello(vocabulary),
            "welcome",
            limit,
            stopping,
        )? {
            WorkerMessage::Welcome(welcome) => Ok(*welcome),
            _ => {
                Err(WorkerError::Protocol { reason: "wanted a welcome, got another frame".into() })
            }
        }
    }
}

impl Drop for WorkerConnection {
    fn drop(&mut self) {
        // The writer thread has its own handle, so only this ends the stream for the worker.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

fn write_frames(mut stream: UnixStream, frames: &Receiver<Vec<u8>>, error: &Mutex<Option<String>>) {
    while let Ok(frame) = frames.recv() {
        if let Err(failed) = stream.write_all(&frame) {
            let reason = format!("it does not read from the connection: {failed}");
            *error.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            // The reader sees the end of the connection.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}
