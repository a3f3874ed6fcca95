//! The engine in a process of its own: a language model on torch behind a Unix socket.
//!
//! [`Worker`] starts `python3 -m confide.worker`, or connects to one that runs, and is an
//! [`Engine`](confide_engine::Engine). Text stays at this end; the worker sees token numbers. When the
//! worker dies every running generation fails with what it said last, and it is started again. The
//! protocol is docs/worker.md; its frames are [`FrameReader`] and [`FromWorker`].
//!
//! One thread reads and looks after the worker, one writes. A generation's text is made where it is
//! read, so that a slow reader slows nobody. An adapter at this end ([`Adapt`](confide_lora::Adapt)) is
//! asked by the worker for each delta and answers on a thread of its own for each generation.

mod adapter;
mod connection;
mod engine;
mod error;
mod feed;
mod frame;
mod message;
mod options;
mod process;
mod relay;
mod report;
mod sites;
mod state;
mod supervise;

pub use engine::Worker;
pub use error::WorkerError;
pub use frame::{FRAME_BYTES_MAX, Frame, FrameError, FrameReader, kind};
pub use message::{AdapterAnswer, Fault, FromWorker, GenerationEnd, Need, Reason, Welcome};
pub use options::{Deadlines, Launch, Options, Program};
pub use sites::Sites;
