//! How a worker is found, started and waited for.

use std::{ffi::OsString, path::PathBuf, time::Duration};

/// What is to be served, and by which worker.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model's folder: its tokenizer is read here, its weights by the worker.
    pub model: PathBuf,
    /// The name that requests use; the folder's own name where none is given.
    pub model_name: Option<String>,
    /// Where the worker is.
    pub launch: Launch,
    /// The longest time of every step.
    pub deadlines: Deadlines,
}

/// Where the worker is.
#[derive(Clone, Debug)]
pub enum Launch {
    /// A process of ours, which is started again when it dies.
    Program(Program),
    /// A socket at which somebody else's worker listens.
    Socket(PathBuf),
}

/// The worker's program and what it is started with.
#[derive(Clone, Debug)]
pub struct Program {
    /// The Python that runs it.
    pub python: PathBuf,
    /// `PYTHONPATH` of the worker; its parent's where there is none.
    pub python_path: Option<OsString>,
    /// The folder in which its private folder is made.
    pub folder: PathBuf,
    /// `cuda:0`, `cpu`.
    pub device: String,
    /// `bf16`, `f32`.
    pub dtype: String,
    /// Generations at once; the worker's own number where none is given.
    pub slots: Option<u16>,
    /// Random weights from this seed, for a folder that holds none.
    pub random_weights: Option<u64>,
    /// What else the worker is told, as its own `--help` has it.
    pub more: Vec<OsString>,
}

/// The longest time of every step: docs/worker.md, "Waits".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From the start of the process to its ready line: the model is loaded before it.
    pub start: Duration,
    /// From hello to welcome.
    pub welcome: Duration,
    /// Loading an adapter.
    pub load: Duration,
    /// Unloading one, and a status.
    pub answer: Duration,
    /// From a generation's order to its first token.
    pub first_token: Duration,
    /// Between two frames while tokens are made.
    pub silence: Duration,
    /// From a cancel to its end.
    pub cancel: Duration,
    /// One write.
    pub write: Duration,
    /// From the end of standard input to the process's own.
    pub stop: Duration,
    /// The first wait before a worker is started again; each further one is twice as long.
    pub back_off: Duration,
    /// The longest of these waits.
    pub back_off_max: Duration,
    /// Starts in a row that may fail.
    pub tries: u32,
}

impl Default for Deadlines {
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
