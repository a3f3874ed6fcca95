//! Options for finding, starting and waiting for a worker.

use std::{ffi::OsString, path::PathBuf, time::Duration};

/// Configuration of an engine that runs in a worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// The model's folder. This process reads its tokenizer, the worker its weights.
    pub model: PathBuf,
    /// The model's name in requests; by default the name of its folder.
    pub model_name: Option<String>,
    /// How the worker is reached.
    pub launch: WorkerLaunch,
    /// The deadlines of the protocol.
    pub deadlines: WorkerDeadlines,
}

/// How the worker is reached.
#[derive(Clone, Debug)]
pub enum WorkerLaunch {
    /// This program starts the worker, and starts it again when it ends unexpectedly.
    Program(WorkerProgram),
    /// The worker is started elsewhere, and listens at this socket.
    Socket(PathBuf),
}

/// The worker's program and its arguments.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    /// The Python interpreter.
    pub python: PathBuf,
    /// `PYTHONPATH` of the worker; `None` inherits this program's.
    pub python_path: Option<OsString>,
    /// The folder in which the worker's private folder is made.
    pub folder: PathBuf,
    /// The device: `cuda:N` or `cpu`.
    pub device: String,
    /// The type of the weights: `bf16` or `f32`.
    pub dtype: String,
    /// The number of generations that run at once; with `None` the worker decides.
    pub slots: Option<u16>,
    /// The seed of random weights, for a folder without weights.
    pub random_weights: Option<u64>,
    /// Further arguments; `python3 -m confide.worker --help` lists them.
    pub more: Vec<OsString>,
}

/// The deadlines of the protocol: docs/worker.md, "Waits".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerDeadlines {
    /// The longest time from the start of the process to its ready line, which includes loading the
    /// model.
    pub start: Duration,
    /// The longest time from the hello to the welcome.
    pub welcome: Duration,
    /// The longest time from the load of an adapter to its answer.
    pub load: Duration,
    /// The longest time from the unload of an adapter, or the request of a status, to its answer.
    pub answer: Duration,
    /// The longest time from the request of a generation to its first token.
    pub first_token: Duration,
    /// The longest time between two frames while tokens are generated.
    pub silence: Duration,
    /// The longest time from a cancel to the end of the generation.
    pub cancel: Duration,
    /// The longest time for one write to the socket.
    pub write: Duration,
    /// The longest time from the end of standard input to the exit of the process.
    pub stop: Duration,
    /// The first wait before a worker is started again; each further wait is twice as long.
    pub back_off: Duration,
    /// The longest of these waits.
    pub back_off_max: Duration,
    /// The number of failed starts in a row after which no more are attempted.
    pub tries: u32,
}

impl Default for WorkerDeadlines {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(900),
            welcome: Duration::from_secs(30),
            load: Duration::from_secs(300),
            answer: Duration::from_secs(30),
            first_token: Duration::from_secs(300),
            silence: Duration::from_secs(60),
            cancel: Duration::from_secs(30),
            write: Duration::from_secs(30),
            stop: Duration::from_secs(5),
            back_off: Duration::from_millis(500),
            back_off_max: Duration::from_secs(15),
            tries: 5,
        }
    }
}
