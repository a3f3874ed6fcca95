//! Services of a suite: started when an arm needs them, ended in the opposite order.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    error::BenchError,
    process::{LineProcess, read_last_line, run_to_end},
    programs::{ProgramLocator, Variables},
    record::ServiceRecord,
    suite::{NamedCommand, Suite},
};

/// The time that a preparation may take: evidence, certificates and models take less.
const PREPARE_DEADLINE: Duration = Duration::from_secs(120);

/// What a command has of the services that it needs.
pub(crate) struct NeededServices {
    /// True where one of them is simulated.
    pub(crate) simulated: bool,
    /// The reason why one of them cannot work on this machine at all.
    pub(crate) cannot: Option<String>,
}

/// The services of a suite that run.
pub(crate) struct Services<'a> {
    suite: &'a Suite,
    programs: &'a ProgramLocator,
    log: &'a Path,
    running: Vec<(String, LineProcess)>,
    /// Why services cannot work on this machine at all, by name.
    refusals: BTreeMap<String, String>,
    pub(crate) records: Vec<ServiceRecord>,
    /// The programs of the services that were started.
    pub(crate) programs_run: BTreeSet<PathBuf>,
}

impl<'a> Services<'a> {
    /// Creates the set of services, with none running.
    pub(crate) fn new(suite: &'a Suite, programs: &'a ProgramLocator, log: &'a Path) -> Self {
        Self {
            suite,
            programs,
            log,
            running: Vec::new(),
            refusals: BTreeMap::new(),
            records: Vec::new(),
            programs_run: BTreeSet::new(),
        }
    }

    /// Runs every `[[prepare]]`.
    pub(crate) fn run_preparations(
        &self,
        names: &Variables,
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        for prepare in &self.suite.prepares {
            let (program, args) =
                fill_command(self.programs, names, &prepare.name, &prepare.command)?;
            let log = self.log.join(format!("{}.log", prepare.name));
            run_to_end(&program, &args, &log, PREPARE_DEADLINE, stop)
                .map_err(|reason| BenchError::Prepare { name: prepare.name.clone(), reason })?;
        }
        Ok(())
    }

    /// Starts what these commands need and adds `{service.field}` to `names`. Returns what each command
    /// has of its services.
    pub(crate) fn start_needed(
        &mut self,
        commands: &[&[String]],
        names: &mut Variables,
        stop: &AtomicBool,
    ) -> Result<Vec<NeededServices>, BenchError> {
        let needed: Vec<_> =
            commands.iter().map(|command| self.needed_services(command, names)).collect();
        self.add_ready_fields(names);
        let suite = self.suite;
        let is_needed =
            |service: &&NamedCommand| needed.iter().flatten().any(|one| one.name == service.name);
        for service in suite.services.iter().filter(is_needed) {
            let is_running = self.running.iter().any(|(name, _)| *name == service.name);
            let others = self.needed_services(&service.command, names);
            if !is_running && self.refusal(&others).is_none() {
                self.start_service(service, names, stop)?;
            }
        }
        let describe = |mine: &Vec<&NamedCommand>| NeededServices {
            simulated: mine.iter().any(|service| service.simulated),
            cannot: self.refusal(mine),
        };
        Ok(needed.iter().map(describe).collect())
    }

    /// Returns the reason why one of these services cannot work here.
    fn refusal(&self, services: &[&NamedCommand]) -> Option<String> {
        services.iter().find_map(|service| self.refusals.get(&service.name).cloned())
    }

    /// Adds the ready fields of the services that run, so that every later bench knows them.
    fn add_ready_fields(&self, names: &mut Variables) {
        let runs = |name: &str| self.running.iter().any(|(running, _)| running == name);
        for record in self.records.iter().filter(|record| runs(&record.name)) {
            for (field, value) in &record.ready {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                names.set(format!("{}.{field}", record.name), text);
            }
        }
    }

    /// Returns the process ids of all that run.
    pub(crate) fn process_ids(&self) -> Vec<u32> {
        self.running.iter().map(|(_, process)| process.id()).collect()
    }

    /// Asks all of them to end, then waits for the last started first.
    pub(crate) fn stop_all(&mut self) {
        for (_, process) in &self.running {
            process.terminate();
        }
        while let Some((_, process)) = self.running.pop() {
            process.shut_down();
        }
    }

    /// Lists the services that a command refers to, and those that they refer to.
    fn needed_services(&self, command: &[String], names: &Variables) -> Vec<&'a NamedCommand> {
        let mut found: Vec<&'a NamedCommand> = Vec::new();
        let mut open: Vec<String> = command.to_vec();
        while let Some(text) = open.pop() {
            for name in names.mentioned_names(&text) {
                let prefix = name.split_once('.').map(|(prefix, _)| prefix);
                let is_meant = |service: &&NamedCommand| prefix == Some(&*service.name);
                let Some(service) = self.suite.services.iter().find(is_meant) else { continue };
                if !found.iter().any(|known| known.name == service.name) {
                    found.push(service);
                    open.extend(service.command.iter().cloned());
                }
            }
        }
        found
    }

    fn start_service(
        &mut self,
        service: &NamedCommand,
        names: &mut Variables,
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        let name = &service.name;
        let fail = |reason: String| BenchError::Service { name: name.clone(), reason };
        let (program, args) = fill_command(self.programs, names, name, &service.command)?;
        let log = self.log.join(format!("{name}.stderr"));
        let mut process =
            LineProcess::start(&program, &args, &log).map_err(|error| fail(error.to_string()))?;
        let line = process
            .read_line(Instant::now() + Duration::from_secs(service.ready_s.into()), stop)
            .map_err(|no| fail(format!("{no}; last output: {}", read_last_line(&log))))?;
        let ready: BTreeMap<String, Value> =
            serde_json::from_str(&line).map_err(|error| fail(format!("ready line: {error}")))?;
        if let Some(reason) = ready.get("cannot").and_then(Value::as_str) {
            self.refusals.insert(name.clone(), format!("{name}: {reason}"));
            process.shut_down();
            return Ok(());
        }
        if ready.get("ready") != Some(&Value::Bool(true)) {
            return Err(fail("its first line is not a ready line".into()));
        }
        // Of a service that was started several times, the last start is recorded.
        self.records.retain(|record| record.name != *name);
        self.records.push(ServiceRecord {
            name: name.clone(),
            command: recorded_command(&service.command, &args),
            simulated: service.simulated,
            ready,
        });
        self.running.push((name.clone(), process));
        self.programs_run.insert(program);
        self.add_ready_fields(names);
        Ok(())
    }
}

impl Drop for Services<'_> {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// Returns the program and the filled arguments of a command.
pub(crate) fn fill_command(
    programs: &ProgramLocator,
    names: &Variables,
    place: &str,
    command: &[String],
) -> Result<(PathBuf, Vec<String>), BenchError> {
    let mut words = Vec::new();
    for word in command {
        // A word that is one variable may hold several words, or none.
        let several = names.suite_variable(word).map(|text| text.split_whitespace().collect());
        for word in several.unwrap_or_else(|| vec![word.as_str()]) {
            words.push(names.substitute(word, place)?);
        }
    }
    let first = words.first().cloned().unwrap_or_default();
    Ok((programs.find(&first, place)?, words.split_off(1.min(words.len()))))
}

/// Returns the command as the record shows it: the program by its word in the suite.
pub(crate) fn recorded_command(command: &[String], args: &[String]) -> Vec<String> {
    command.first().into_iter().chain(args).cloned().collect()
}
