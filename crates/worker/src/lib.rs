//! An engine in a separate process: a language model on torch behind a Unix socket. [`Worker`]
//! implements [`Engine`](confide_engine::Engine): it starts `python3 -m confide.worker`, or
//! connects to a running worker. Text stays at this end; the worker sees only token numbers. When
//! the worker ends unexpectedly, every running generation fails with the worker's last output, and
//! the worker is started again. docs/worker.md describes the protocol; [`FrameReader`] and
//! [`WorkerMessage`] parse its frames. One thread reads from the worker and supervises it, another
//! one writes. A generation's tokens are decoded by the reader of the answer, so that a slow reader
//! delays only itself. For an adapter at this end ([`DeltaProvider`](confide_lora::DeltaProvider))
//! the worker requests each delta, and one thread for each generation answers.

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
pub use message::{
    AdapterAnswer, DeltaRequest, EndReason, GenerationEnd, Welcome, WorkerFault, WorkerMessage,
};
pub use options::{WorkerDeadlines, WorkerLaunch, WorkerOptions, WorkerProgram};
pub use sites::ModelSites;
