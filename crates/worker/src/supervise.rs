//! Starts, supervises and restarts the worker.

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
    connection::{ReadOutcome, WorkerConnection},
    error::WorkerError,
    message::{Welcome, WorkerMessage},
    options::{WorkerDeadlines, WorkerLaunch},
    process::{PrivateFolder, TICK, WorkerProcess},
    state::SharedWorkerState,
};

/// The configuration for starting and restarting a worker.
pub(crate) struct WorkerStarter {
    pub(crate) launch: WorkerLaunch,
    pub(crate) model: PathBuf,
    pub(crate) vocabulary: usize,
    pub(crate) deadlines: WorkerDeadlines,
    /// The folder of the socket, for a worker that this program starts.
    pub(crate) folder: Option<PrivateFolder>,
}

/// A worker that has sent its welcome.
pub(crate) struct ReadyWorker {
    pub(crate) process: Option<WorkerProcess>,
    pub(crate) connection: WorkerConnection,
    pub(crate) welcome: Welcome,
}

impl WorkerStarter {
    pub(crate) fn start(&self, stopping: &AtomicBool) -> Result<ReadyWorker, WorkerError> {
        let (process, socket) = match (&self.launch, &self.folder) {
            (WorkerLaunch::Program(program), Some(folder)) => {
                let (socket, limits) = (folder.socket(), &self.deadlines);
                let process =
                    WorkerProcess::start(program, &self.model, &socket, limits, stopping)?;
                (Some(process), socket)
            }
            (WorkerLaunch::Socket(socket), _) => (None, socket.clone()),
            (WorkerLaunch::Program(_), None) => {
                let reason = "no folder was made".into();
                return Err(WorkerError::System { what: "private folder", reason });
            }
        };
        let limit = self.deadlines.welcome;
        let greeted =
            WorkerConnection::connect(&socket, &self.deadlines).and_then(|mut connection| {
                let welcome = connection.request_welcome(self.vocabulary, limit, stopping)?;
                self.check_random_weights(&welcome)?;
                Ok((connection, welcome))
            });
        match greeted {
            Ok((connection, welcome)) => Ok(ReadyWorker { process, connection, welcome }),
            Err(error) => Err(match process {
                Some(process) => process.add_ending(error),
                None => error,
            }),
        }
    }

    /// Checks that a worker with random weights states this in its welcome. Otherwise its answers
    /// could be taken for a real model's.
    fn check_random_weights(&self, welcome: &Welcome) -> Result<(), WorkerError> {
        let WorkerLaunch::Program(program) = &self.launch else { return Ok(()) };
        let Some(seed) = program.random_weights else { return Ok(()) };
        let wanted = format!("random from seed {seed}");
        // The rest of the text describes the storage of the weights, for instance in four bits.
        let rest = welcome.weights.strip_prefix(&wanted);
        if rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit())) {
            return Ok(());
        }
        let got = welcome.weights.clone();
        Err(WorkerError::Mismatch { what: "weights", wanted, got })
    }
}

/// Supervises a worker until the engine is dropped.
pub(crate) fn supervise(shared: &SharedWorkerState, starter: &WorkerStarter, up: ReadyWorker) {
    let ReadyWorker { mut process, mut connection, .. } = up;
    loop {
        let lost = read_messages(shared, &mut connection);
        shared.mark_disconnected(lost.as_deref().unwrap_or("the engine stops"));
        drop(connection);
        let Some(lost) = lost else {
            shared.fail_all_generations("the engine stops");
            if let Some(process) = process {
                process.stop();
            }
            return;
        };
        let reason = match &mut process {
            Some(process) => format!("the worker was lost: {lost}; {}", process.describe_ending()),
            None => format!("the worker was lost: {lost}"),
        };
        drop(process);
        tracing::warn!("{reason}");
        shared.fail_all_generations(&reason);
        match restart_worker(shared, starter, &reason) {
            Some(up) => (process, connection) = (up.process, up.connection),
            None => return,
        }
    }
}

/// Reads messages until the connection fails, and returns the reason; `None` if the engine stops.
fn read_messages(shared: &SharedWorkerState, connection: &mut WorkerConnection) -> Option<String> {
    let mut checked = Instant::now();
    loop {
        if shared.stopping.load(Ordering::Acquire) {
            return None;
        }
        if let ReadOutcome::End(reason) = connection.read_once() {
            return Some(reason);
        }
        loop {
            match connection.next_message() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    if let Err(reason) = shared.process_message(message) {
                        return Some(format!("it sent {reason}"));
                    }
                }
                Err(error) => return Some(error.to_string()),
            }
        }
        let now = Instant::now();
        if now.saturating_duration_since(checked) >= TICK {
            checked = now;
            if let Err(reason) = shared.enforce_deadlines(now) {
                return Some(reason);
            }
        }
    }
}

/// Restarts the worker; `None` if the engine stops, or if no further attempt is made.
fn restart_worker(
    shared: &SharedWorkerState,
    starter: &WorkerStarter,
    lost: &str,
) -> Option<ReadyWorker> {
    let limits = &shared.deadlines;
    let mut wait = limits.back_off;
    for number in 1..=limits.tries {
        if !sleep_unless_stopping(wait, &shared.stopping) {
            return None;
        }
        wait = (wait * 2).min(limits.back_off_max);
        let up = starter.start(&shared.stopping).and_then(|mut up| {
            check_same_model(&shared.welcome, &up.welcome)?;
            let _change = shared.change.lock().unwrap_or_else(PoisonError::into_inner);
            reload_adapters(shared, &mut up.connection)?;
            shared.set_connected(up.connection.frames.clone());
            Ok(up)
        });
        match up {
            Ok(up) => return Some(up),
            Err(WorkerError::Stopped) => return None,
            Err(error) => {
                tracing::warn!(number, "the worker could not be restarted: {error}");
                shared.mark_disconnected(&format!("{lost}; it could not be restarted: {error}"));
            }
        }
    }
    shared.mark_disconnected(&format!(
        "{lost}; {} restarts failed, and no more are attempted",
        limits.tries
    ));
    wait_for_stop(&shared.stopping);
    None
}

fn sleep_unless_stopping(wait: Duration, stopping: &AtomicBool) -> bool {
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
    Err(WorkerError::Mismatch {
        what: "model after the restart",
        wanted: format!("{:?}", essence(was)),
        got: format!("{:?}", essence(is)),
    })
}

fn reload_adapters(
    shared: &SharedWorkerState,
    connection: &mut WorkerConnection,
) -> Result<(), WorkerError> {
    let adapters: Vec<Arc<_>> = shared.lock_state().adapters.clone();
    for adapter in adapters {
        let limit = shared.deadlines.load;
        let answer = connection.send_and_receive(
            adapter.encode_load_frame(),
            "adapter",
            limit,
            &shared.stopping,
        )?;
        let WorkerMessage::Adapter(answer) = answer else {
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
