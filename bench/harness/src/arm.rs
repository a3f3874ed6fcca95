//! One arm: a process that is asked for runs.

use std::{
    path::PathBuf,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use crate::{
    disturbed::find_disturbances,
    host::{
        cost::UsageMeter,
        quiet::{SliceWatch, calibration_budget},
    },
    process::{LineError, LineProcess, read_last_line},
    protocol::{
        ArmMessage, HarnessMessage, HelloMessage, PROTOCOL, ReportMessage, SAMPLES_PER_RUN_MAX,
        SampleMessage,
    },
    samples::{Sample, SamplePlace, Slice},
    suite::bench::Params,
};

/// The time in which an arm must say hello: it makes keys and loads models first.
const HELLO_DEADLINE: Duration = Duration::from_secs(30);
/// The number of unmeasured requests of a process that was just started.
const WARMING_REQUESTS: u32 = 3;
/// The number of failures in a row after which an arm is left out.
const FAILURES_MAX: u32 = 3;

/// An arm of a bench, whose process is started when it is first asked.
#[derive(Default)]
pub(crate) struct ArmProcess {
    pub(crate) name: String,
    pub(crate) twin: bool,
    pub(crate) simulated: bool,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) log: PathBuf,
    pub(crate) hello: Option<HelloMessage>,
    pub(crate) given_up: Option<String>,
    /// Process ids of the services that run next to it.
    pub(crate) services: Vec<u32>,
    last_wall: Option<Duration>,
    process: Option<LineProcess>,
    cold: bool,
    failures: u32,
    next_id: u64,
}

/// The request for one run of an arm.
pub(crate) struct RunRequest<'a> {
    pub(crate) place: SamplePlace,
    pub(crate) order: u32,
    pub(crate) seed: u64,
    pub(crate) requests: u32,
    pub(crate) params: &'a Params,
    pub(crate) deadline: Duration,
    pub(crate) warmup: bool,
}

/// The reason why a run gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArmFailure {
    /// The block is void with this reason.
    Void(String),
    /// The arm says that it cannot work here: it is left out, and its block counts without it.
    LeftOut,
    /// The whole run stops.
    Interrupted,
}

/// One run's samples and its slice, not yet checked.
#[derive(Debug)]
pub(crate) struct ArmRun {
    pub(crate) samples: Vec<Sample>,
    pub(crate) slice: Slice,
}

impl ArmProcess {
    /// Creates an arm that is not started yet; `program` and `args` are set before its first run.
    pub(crate) fn new(name: &str, twin: bool, log: PathBuf) -> Self {
        Self { name: name.to_owned(), twin, log, cold: true, ..Self::default() }
    }

    /// Returns the name for people, in which the A/A arm is marked.
    pub(crate) fn describe(&self) -> String {
        if self.twin { format!("{} (A/A)", self.name) } else { self.name.clone() }
    }

    /// Starts the process if it is not running, and waits for its hello.
    pub(crate) fn ensure_started(&mut self, stop: &AtomicBool) -> Result<(), ArmFailure> {
        if self.process.is_some() {
            return Ok(());
        }
        // A hello alone is not a success: an arm that dies in every run would never be left out.
        let outcome = self.start(stop);
        if outcome.is_err() { self.count_failure(outcome) } else { outcome }
    }

    /// Runs the arm once and measures what the run cost; a new process gets an unmeasured run
    /// first.
    pub(crate) fn measure_run(
        &mut self,
        ask: &RunRequest<'_>,
        stop: &AtomicBool,
    ) -> Result<ArmRun, ArmFailure> {
        self.ensure_started(stop)?;
        if self.cold && self.hello.as_ref().is_none_or(|hello| hello.warming) {
            // A new process has cold caches, and so have the services behind it.
            let requests = ask.requests.min(WARMING_REQUESTS);
            let outcome = self.request_run(ask, requests, stop);
            self.cold = false;
            if outcome.is_err() {
                self.count_failure(outcome)?;
            }
        }
        let watch = SliceWatch::start(calibration_budget(self.last_wall));
        let meter = UsageMeter::start(self.process_id(), &self.services);
        let started = Instant::now();
        let outcome = self.request_run(ask, ask.requests, stop);
        let elapsed = started.elapsed();
        let mut cost = meter.stop();
        cost.wall_s = elapsed.as_secs_f64();
        let quiet = watch.stop(cost.total_cpu_s());
        let (messages, mut done) = self.count_failure(outcome)?;
        self.last_wall = Some(elapsed);
        // Only the arm knows the peak of its child processes that have ended.
        cost.arm.peak_bytes = cost.arm.peak_bytes.max(done.peak_memory_bytes);
        add_default_exchange_metric(&messages, &mut done, elapsed);
        let samples = messages
            .into_iter()
            .enumerate()
            .map(|(index, message)| to_sample(ask, index as u32, message))
            .collect::<Vec<_>>();
        let cpu_s = done.cpu_s.or(cost.arm.cpu_s);
        let wall_s = done.wall_s.unwrap_or(elapsed.as_secs_f64());
        let threads = self.hello.as_ref().map_or(1, |hello| hello.threads.max(1));
        let simulated = self.simulated
            || done.simulated
            || self.hello.as_ref().is_some_and(|hello| hello.simulated)
            || samples.iter().any(|sample| sample.simulated);
        if let Some(hello) = &mut self.hello {
            hello.guarantee = done.guarantee.clone().or_else(|| hello.guarantee.take());
            hello.note = done.note.clone().or_else(|| hello.note.take());
            hello.simulated |= simulated;
        }
        let slice = Slice {
            place: ask.place.clone(),
            order: ask.order,
            wall_s,
            samples: samples.len() as u32,
            metrics: done.metrics,
            answer: done.answer,
            cpu_s,
            client_cpu: cpu_s.map(|cpu_s| cpu_s / (wall_s.max(1e-9) * f64::from(threads))),
            round_trips: done.round_trips.or_else(|| samples.iter().find_map(|s| s.round_trips)),
            floor: done.floor,
            marks: done.marks,
            disturbed: find_disturbances(&quiet),
            void: done.void,
            quiet,
            services_cpu_s: cost.services.and_then(|services| services.cpu_s),
            cost: Some(Box::new(cost)),
            simulated,
            warmup: ask.warmup,
            ..Slice::default()
        };
        Ok(ArmRun { samples, slice })
    }

    /// Asks the process to end, and waits for it.
    pub(crate) fn shut_down(&mut self) {
        if let Some(mut process) = self.process.take() {
            let line = serde_json::to_string(&HarnessMessage::End {}).unwrap_or_default();
            let _ = process.send(&line);
            process.shut_down();
        }
    }

    fn process_id(&self) -> Option<u32> {
        Some(self.process.as_ref()?.id())
    }

    fn start(&mut self, stop: &AtomicBool) -> Result<(), ArmFailure> {
        let mut process = LineProcess::start(&self.program, &self.args, &self.log)
            .map_err(|error| ArmFailure::Void(format!("cannot be started: {error}")))?;
        let line = process.read_line(Instant::now() + HELLO_DEADLINE, stop);
        let line = line.map_err(|no| self.failure_from_line_error("before its hello", &no))?;
        match serde_json::from_str(&line) {
            Ok(ArmMessage::Hello(hello))
                if hello.protocol == PROTOCOL && hello.cannot.is_some() =>
            {
                self.given_up.clone_from(&hello.cannot);
                self.hello.get_or_insert(hello);
                process.shut_down();
                Err(ArmFailure::LeftOut)
            }
            Ok(ArmMessage::Hello(hello)) if hello.protocol == PROTOCOL => {
                // A restart keeps what runs before it said of themselves.
                self.hello.get_or_insert(hello);
                self.process = Some(process);
                self.cold = true;
                Ok(())
            }
            Ok(ArmMessage::Hello(hello)) => Err(ArmFailure::Void(format!(
                "has protocol version {}, wanted {PROTOCOL}",
                hello.protocol
            ))),
            _ => Err(ArmFailure::Void(format!("first line is not a hello: {}", shorten(&line)))),
        }
    }

    fn request_run(
        &mut self,
        ask: &RunRequest<'_>,
        requests: u32,
        stop: &AtomicBool,
    ) -> Result<(Vec<SampleMessage>, ReportMessage), ArmFailure> {
        self.next_id += 1;
        let id = self.next_id;
        let message = HarnessMessage::Run {
            id,
            block: ask.place.block,
            seed: ask.seed,
            requests,
            params: ask.params.clone(),
        };
        let deadline = Instant::now() + ask.deadline;
        let Some(mut process) = self.process.take() else {
            return Err(ArmFailure::Void("is not running".into()));
        };
        let line = serde_json::to_string(&message)
            .map_err(|error| ArmFailure::Void(format!("run line: {error}")))?;
        if process.discard_unread_lines() {
            return Err(ArmFailure::Void("sent a line before it was asked for one".into()));
        }
        process.send(&line).map_err(|no| self.failure_from_line_error("at its run line", &no))?;
        let mut samples = Vec::new();
        loop {
            let line = process
                .read_line(deadline, stop)
                .map_err(|no| self.failure_from_line_error("in a run", &no))?;
            match serde_json::from_str(&line) {
                Ok(ArmMessage::Sample(sample)) if sample.id == id => samples.push(sample),
                Ok(ArmMessage::Report(done)) if done.id == id => {
                    self.process = Some(process);
                    return Ok((samples, *done));
                }
                Ok(ArmMessage::Error { id: of, reason }) if of == id => {
                    self.process = Some(process);
                    return Err(ArmFailure::Void(format!("failed: {}", shorten(&reason))));
                }
                _ => {
                    return Err(ArmFailure::Void(format!("unexpected line: {}", shorten(&line))));
                }
            }
            if samples.len() > SAMPLES_PER_RUN_MAX {
                let reason = format!("sent more than {SAMPLES_PER_RUN_MAX} samples");
                return Err(ArmFailure::Void(reason));
            }
        }
    }

    fn failure_from_line_error(&self, when: &str, no: &LineError) -> ArmFailure {
        match no {
            LineError::Interrupted => ArmFailure::Interrupted,
            LineError::ProcessEnded(_) => {
                ArmFailure::Void(format!("{no} {when}; last output: {}", read_last_line(&self.log)))
            }
            _ => ArmFailure::Void(format!("{no} {when}")),
        }
    }

    fn count_failure<T>(&mut self, outcome: Result<T, ArmFailure>) -> Result<T, ArmFailure> {
        match &outcome {
            Ok(_) => self.failures = 0,
            Err(ArmFailure::Void(reason)) => {
                self.failures += 1;
                if self.failures >= FAILURES_MAX {
                    self.given_up = Some(format!("failed {FAILURES_MAX} times: {reason}"));
                }
            }
            Err(ArmFailure::Interrupted | ArmFailure::LeftOut) => {}
        }
        outcome
    }
}

/// Takes the time from the run line to `done` as the figure of an arm that reports none.
fn add_default_exchange_metric(
    messages: &[SampleMessage],
    done: &mut ReportMessage,
    elapsed: Duration,
) {
    if done.metrics.is_empty() && messages.iter().all(|message| message.metrics.is_empty()) {
        done.metrics.insert(EXCHANGE.to_owned(), elapsed.as_secs_f64() * 1e6);
    }
}

/// The metric of an exchange that the harness timed itself, in microseconds.
const EXCHANGE: &str = "exchange_us";

fn to_sample(ask: &RunRequest<'_>, index: u32, message: SampleMessage) -> Sample {
    Sample {
        place: ask.place.clone(),
        index,
        metrics: message.metrics,
        answer: message.answer,
        round_trips: message.round_trips,
        cpu_s: message.cpu_s,
        at_s: message.at_s,
        simulated: message.simulated,
        error: message.error,
        warmup: ask.warmup,
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(200).collect()
}
