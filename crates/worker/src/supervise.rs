//! The worker's life: started, connected to, looked after, started again.

use std::{
    path::PathBuf,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    connection::{Connection, ReadOutcome},
    error::WorkerError,
    message::{FromWorker, Welcome},
    options::{Deadlines, Launch},
    process::{PrivateFolder, Process, TICK},
    state::Shared,
};

/// The configuration with which a worker is started, the first time and again.
pub(crate) struct Starter {
    pub(crate) launch: Launch,
    pub(crate) model: PathBuf,
    pub(crate) vocabulary: usize,
    pub(crate) deadlines: Deadlines,
    /// The folder of the socket, for a worker that this program starts.
    pub(crate) folder: Option<PrivateFolder>,
}

/// A worker that has sent its welcome.
pub(crate) struct ReadyWorker {
    pub(crate) process: Option<Process>,
    pub(crate) connection: Connection,
    pub(crate) welcome: Welcome,
}

impl Starter {
    pub(crate) fn start(&self, stopping: &AtomicBool) -> Result<ReadyWorker, WorkerError> {
        let (process, socket) = match (&self.launch, &self.folder) {
            (Launch::Program(program), Some(folder)) => {
                let (socket, limits) = (folder.socket(), &self.deadlines);
                let process = Process::start(program, &self.model, &socket, limits, stopping)?;
                (Some(process), socket)
            }
            (Launch::Socket(socket), _) => (None, socket.clone()),
            (Launch::Program(_), None) => {
                let reason = "none was made".into();
                return Err(WorkerError::System { what: "private folder", reason });
            }
        };
        let limit = self.deadlines.welcome;
        let greeted = Connection::open(&socket, &self.deadlines).and_then(|mut connection| {
            let welcome = connection.welcome(self.vocabulary, limit, stopping)?;
            self.check(&welcome)?;
            Ok((connection, welcome))
        });
        match greeted {
            Ok((connection, welcome)) => Ok(ReadyWorker { process, connection, welcome }),
            Err(error) => Err(match process {
                Some(process) => process.explain(error),
                None => error,
            }),
        }
    }

    /// Checks that a worker which was told to draw random weights says so in its welcome: otherwise
    /// its answers could be taken for a real model's.
    fn check(&self, welcome: &Welcome) -> Result<(), WorkerError> {
        let Launch::Program(program) = &self.launch else { return Ok(()) };
        let Some(seed) = program.random_weights else { return Ok(()) };
        let wanted = format!("random from seed {seed}");
        // The rest of the text says how the weights are stored, for instance in four bits.
        let rest = welcome.weights.strip_prefix(&wanted);
        if rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit())) {
            return Ok(());
        }
        let got = welcome.weights.clone();
        Err(WorkerError::Differs { what: "weights", wanted, got })
    }
}

/// Supervises a worker until the engine is dropped.
pub(crate) fn supervise(shared: &Shared, starter: &Starter, up: ReadyWorker) {
    let ReadyWorker { mut process, mut connection, .. } = up;
    loop {
        let lost = run(shared, &mut connection);
        shared.disconnect(lost.as_deref().unwrap_or("the engine stops"));
        drop(connection);
        let Some(lost) = lost else {
            shared.fail_all("the engine stops");
            if let Some(process) = process {
                process.stop();
            }
            return;
        };
        let reason = match &mut process {
            Some(process) => format!("the worker was lost: {lost}; {}", process.ending()),
            None => format!("the worker was lost: {lost}"),
        };
        drop(process);
        tracing::warn!("{reason}");
        shared.fail_all(&reason);
        match restart(shared, starter, &reason) {
            Some(up) => (process, connection) = (up.process, up.connection),
            None => return,
        }
    }
}

/// Reads until the connection cannot be used any longer, and returns the reason; `None` if the
/// engine stops.
fn run(shared: &Shared, connection: &mut Connection) -> Option<String> {
    let mut checked = Instant::now();
    loop {
        if shared.stopping.load(Ordering::Acquire) {
            return None;
        }
        if let ReadOutcome::End(reason) = connection.read() {
            return Some(reason);
        }
        loop {
            match connection.message() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    if let Err(reason) = shared.receive(message) {
                        return Some(format!("it sent {reason}"));
                    }
                }
                Err(error) => return Some(error.to_string()),
            }
        }
        let now = Instant::now();
        if now.saturating_duration_since(checked) >= TICK {
            checked = now;
            if let Err(reason) = shared.check_time(now) {
                return Some(reason);
            }
        }
    }
}

/// Starts a worker again; `None` if the engine stops, or no further attempt is made.
fn restart(shared: &Shared, starter: &Starter, lost: &str) -> Option<ReadyWorker> {
    let limits = &shared.deadlines;
    let mut wait = limits.back_off;
    for number in 1..=limits.tries {
        if !pause(wait, &shared.stopping) {
            return None;
        }
        wait = (wait * 2).min(limits.back_off_max);
        let up = starter.start(&shared.stopping).and_then(|mut up| {
            check_same_model(&shared.welcome, &up.welcome)?;
            let _change = shared.change.lock().unwrap_or_else(PoisonError::into_inner);
            reload_adapters(shared, &mut up.connection)?;
            shared.reconnect(up.connection.frames.clone());
            Ok(up)
        });
        match up {
            Ok(up) => return Some(up),
            Err(WorkerError::Stopped) => return None,
            Err(error) => {
                tracing::warn!(number, "the worker does not come back: {error}");
                shared.disconnect(&format!("{lost}; it does not come back: {error}"));
            }
        }
    }
    shared.disconnect(&format!("{lost}; {} starts failed and no more are tried", limits.tries));
    wait_for_stop(&shared.stopping);
    None
}

fn pause(wait: Duration, stopping: &AtomicBool) -> bool {
    let until = Instant::now() + wait;
    while !stopping.load(Ordering::Acquire) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(TICK));
    }
    false
}

fn wait_for_stop(stopping: &AtomicBool) {
    while !stopping.load(Ordering::Acquire) {
        thread::sleep(TICK);
    }
}

/// Checks that a restarted worker serves the same model as before.
fn check_same_model(was: &Welcome, is: &Welcome) -> Result<(), WorkerError> {
    let essence = |it: &Welcome| (it.context_tokens, it.vocabulary, it.slots, it.weights.clone());
    if essence(was) == essence(is) && was.sites == is.sites {
        return Ok(());
    }
    Err(WorkerError::Differs {
        what: "model after the restart",
        wanted: format!("{:?}", essence(was)),
        got: format!("{:?}", essence(is)),
    })
}

fn reload_adapters(shared: &Shared, connection: &mut Connection) -> Result<(), WorkerError> {
    let adapters: Vec<Arc<_>> = shared.state().adapters.clone();
    for adapter in adapters {
        let limit = shared.deadlines.load;
        let answer = connection.ask(adapter.frame(), "adapter", limit, &shared.stopping)?;
        let FromWorker::Adapter(answer) = answer else {
            let reason = "wanted the answer to a load, got another frame".into();
            return Err(WorkerError::Protocol { reason });
        };
        if let Some(error) = &answer.error {
            tracing::warn!(adapter = adapter.name, "not loaded again: {error}");
        }
        adapter.set_broken(answer.error);
    }
    Ok(())
}
