//! A session of a run: benches, blocks and slices, each in the journal as soon as it is whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use super::{
    options::{FinishedRun, RunOptions},
    steps::{BlockStep, DoneBlocks, TimeShare, count_slices, planned_block_count, remaining_steps},
};
use crate::{
    arm::{ArmFailure, ArmProcess, ArmRun},
    blocks::run_block,
    error::BenchError,
    page,
    plan::{Case, cases},
    programs::{Variables, resolve_var},
    progress::Progress,
    record::{
        ArmRecord, BenchNotRun, PAGE_FILE, RECORD_FILE, Record, SAMPLES_FILE, Session, SessionEnd,
        UnfinishedBench, read_boot_id,
    },
    samples::{
        Sample, Slice,
        journal::{Journal, JournalContent, JournalLine},
    },
    services::{Services, fill_command, recorded_command},
    suite::{Arm, Suite, bench::Bench},
};

/// Runs what is left of the plan, then writes record and page. `cancel` ends it early, `on_progress`
/// is called after every slice.
pub(super) fn run_and_record(
    options: &RunOptions,
    suite: &Suite,
    had: JournalContent,
    journal: Journal,
    cancel: &AtomicBool,
    on_progress: &mut dyn FnMut(&Progress),
) -> Result<FinishedRun, BenchError> {
    let log = options.out.join("log");
    std::fs::create_dir_all(&log).map_err(BenchError::io("create", &log))?;
    let before = options.started_unix_s.saturating_sub(had.record.started_unix_s);
    let mut running = SuiteRun {
        suite,
        options,
        cancel,
        on_progress,
        log: &log,
        started: Instant::now(),
        before_s: before as f64,
        journal,
        content: had,
        stopped: false,
        short: BTreeMap::new(),
        done: 0,
        total: 0,
    };
    running.append_to_journal([JournalLine::Session(new_session(options))])?;
    running.total = running.all_slices_left();
    let ended = running.run_suite();
    running.write_session_end(ended.as_ref().err())?;
    ended?;
    running.finish()
}

struct SuiteRun<'a> {
    suite: &'a Suite,
    options: &'a RunOptions,
    cancel: &'a AtomicBool,
    on_progress: &'a mut dyn FnMut(&Progress),
    log: &'a Path,
    started: Instant,
    /// The seconds between the start of the run and that of this session.
    before_s: f64,
    journal: Journal,
    /// The content of the journal.
    content: JournalContent,
    /// True where part of the plan was left because the flag was set.
    stopped: bool,
    /// The benches whose share of the time was used up, with what a block of each takes.
    short: BTreeMap<String, Duration>,
    done: u64,
    total: u64,
}

/// The number of rounds in which a bench whose share was used up may go on in time that others
/// left.
const ROUNDS_MAX: u32 = 3;

impl SuiteRun<'_> {
    /// Runs every bench, after the preparation.
    fn run_suite(&mut self) -> Result<(), BenchError> {
        let (suite, options) = (self.suite, self.options);
        let mut services = Services::new(suite, &options.programs, self.log);
        let mut names = Variables::default();
        // The folder as it was given: a record names no folder of the machine that it was made on.
        names.set("dir", options.out.display().to_string());
        for (name, var) in &suite.vars {
            names.set(name, resolve_var(var));
        }
        for (name, value) in &options.vars {
            names.set(name, value);
        }
        if self.total > 0 {
            match services.run_preparations(&names, self.cancel) {
                Err(error) if !self.cancel.load(Ordering::Relaxed) => return Err(error),
                _ => {}
            }
        }
        // After the preparation, so that evidence made by it is not from the future.
        let now = options.started_unix_s + self.started.elapsed().as_secs() + 1;
        names.set("now", now.to_string());
        let left = |bench: &&Bench| self.slices_left(bench) > 0;
        let mut open: Vec<&Bench> = suite.benches.iter().filter(left).collect();
        // Each round goes on with what the one before left for want of time, in the time that is
        // left.
        for _ in 0..ROUNDS_MAX {
            self.run_round(&open, &mut services, &names)?;
            open.retain(|bench| self.short.contains_key(&bench.name));
            if self.stopped || open.is_empty() {
                break;
            }
        }
        services.stop_all();
        if !self.stopped {
            open.into_iter().try_for_each(|bench| self.record_unfinished_bench(bench))?;
        }
        Ok(())
    }

    /// Runs every one of these benches once, each with its share of the budget that is left.
    fn run_round(
        &mut self,
        benches: &[&Bench],
        services: &mut Services<'_>,
        names: &Variables,
    ) -> Result<(), BenchError> {
        for (index, bench) in benches.iter().enumerate() {
            if self.cancel.load(Ordering::Relaxed) {
                self.stopped = true;
                break;
            }
            let budget = self.options.part.budget_s.map(|seconds| {
                Duration::from_secs(seconds.into()).saturating_sub(self.started.elapsed())
            });
            let after: f64 =
                benches[index..].iter().map(|bench| self.remaining_weight(bench)).sum();
            let end = self.done + self.slices_left(bench);
            let share = TimeShare::new(
                budget,
                self.remaining_weight(bench) / after,
                self.next_block_time(bench),
            );
            if let Err(error) = self.run_bench(bench, share, services, names.clone()) {
                let not_run = BenchNotRun { bench: bench.name.clone(), reason: error.to_string() };
                self.append_to_journal([JournalLine::NotRun(not_run)])?;
                self.short.remove(&bench.name);
            }
            if !self.stopped && !self.short.contains_key(&bench.name) {
                self.done = end;
            }
        }
        Ok(())
    }

    /// Returns the weight of what is left of a bench: its time where it is known, else its slices.
    fn remaining_weight(&self, bench: &Bench) -> f64 {
        match self.short.get(&bench.name) {
            Some(cost) => cost.as_secs_f64() * self.remaining_steps(bench).len() as f64,
            None => self.slices_left(bench) as f64,
        }
    }

    /// Returns what the warm-up and one more block would take, where it is known.
    fn next_block_time(&self, bench: &Bench) -> Option<Duration> {
        Some(*self.short.get(&bench.name)? * (bench.warmup + 1))
    }

    /// Starts the arms of a bench, runs its blocks and ends the arms.
    fn run_bench(
        &mut self,
        bench: &Bench,
        share: TimeShare,
        services: &mut Services<'_>,
        mut names: Variables,
    ) -> Result<(), BenchError> {
        for (name, var) in &bench.vars {
            names.set(name, resolve_var(var));
        }
        let measured = self.content.slices.iter().any(|slice| slice.place.bench == bench.name);
        let mut arms: Vec<ArmProcess> = self
            .arms_with_twin(bench)
            .into_iter()
            .map(|(arm, twin)| {
                let file = format!("{}{}.stderr", arm.name, if twin { "-twin" } else { "" });
                let mut process = ArmProcess::new(&arm.name, twin, self.log.join(file));
                // An arm that was left out of earlier blocks stays out.
                let earlier =
                    self.content.record.find_arm(&bench.name, &arm.name, twin).filter(|_| measured);
                process.given_up =
                    earlier.map_or_else(|| arm.unavailable_reason(), |arm| arm.given_up.clone());
                process
            })
            .collect();
        let outcome = self.run_blocks(bench, &mut arms, share, services, &names);
        for arm in &mut arms {
            arm.shut_down();
        }
        self.record_processes(bench, &arms, services)?;
        outcome
    }

    /// Runs block by block over all cases, so that an interruption leaves every case about equal.
    fn run_blocks(
        &mut self,
        bench: &Bench,
        arms: &mut [ArmProcess],
        mut share: TimeShare,
        services: &mut Services<'_>,
        names: &Variables,
    ) -> Result<(), BenchError> {
        let cases = cases(bench, self.options.effort);
        let planned = self.planned_block_count(bench);
        let before = self.count_blocks_done(bench);
        for (at, (block, left)) in self.remaining_steps(bench).into_iter().enumerate() {
            let done = block.saturating_sub(bench.warmup).max(before);
            if share.is_used_up(done) {
                let known = self.short.get(&bench.name).copied();
                let cost = share.mean_block_time().or(known).unwrap_or_default();
                self.short.insert(bench.name.clone(), cost);
                return Ok(());
            }
            if at == 0 || bench.restart_every > 0 && block % bench.restart_every == 0 {
                match self.restart_arms(bench, arms, services, names.clone()) {
                    Err(_) if self.cancel.load(Ordering::Relaxed) => {
                        self.stopped = true;
                        return Ok(());
                    }
                    other => other?,
                }
            }
            let what = if block < bench.warmup {
                format!("{}, warm-up", bench.name)
            } else {
                format!("{}, block {} of {planned}", bench.name, done + 1)
            };
            for case in left {
                if !self.run_block(bench, &cases[case], block, arms, services, &what)? {
                    self.stopped = true;
                    return Ok(());
                }
            }
            share.count_block();
        }
        self.short.remove(&bench.name);
        Ok(())
    }

    /// Runs one block of one case and keeps its samples. Returns false when it was interrupted.
    fn run_block(
        &mut self,
        bench: &Bench,
        case: &Case,
        block: u32,
        arms: &mut [ArmProcess],
        services: &Services<'_>,
        what: &str,
    ) -> Result<bool, BenchError> {
        let (started, before_s, total) = (self.started, self.before_s, self.total);
        let (done, on_progress) = (&mut self.done, &mut self.on_progress);
        let seed = self.content.record.seed;
        let measured = run_block(bench, case, seed, block, arms, self.cancel, |run| {
            let started_s = before_s + started.elapsed().as_secs_f64();
            let mut ran = run();
            if let Ok(ran) = &mut ran {
                ran.slice.started_s = started_s;
            }
            *done += 1;
            let elapsed = started.elapsed();
            on_progress(&Progress {
                done: (*done).min(total),
                total,
                elapsed,
                what: what.to_owned(),
            });
            ran
        });
        let Ok(measured) = measured.map_err(|_: ArmFailure| ()) else { return Ok(false) };
        let session = self.content.record.sessions.len() as u32 - 1;
        let mut lines = Vec::new();
        for ArmRun { samples, mut slice } in measured {
            slice.session = session;
            lines.extend(samples.into_iter().map(|sample| JournalLine::Sample(Box::new(sample))));
            lines.push(JournalLine::Slice(Box::new(slice)));
        }
        let (bench_name, case, chain) = (bench.name.clone(), case.key.clone(), String::new());
        lines.push(JournalLine::Block { bench: bench_name, case, block, chain });
        self.append_to_journal(lines)?;
        self.record_processes(bench, arms, services)?;
        Ok(true)
    }

    /// Ends arms and services and starts the services again; arms start at their next run.
    fn restart_arms(
        &self,
        bench: &Bench,
        arms: &mut [ArmProcess],
        services: &mut Services<'_>,
        mut names: Variables,
    ) -> Result<(), BenchError> {
        for arm in arms.iter_mut() {
            arm.shut_down();
        }
        services.stop_all();
        let all = self.arms_with_twin(bench).into_iter().map(|(arm, _)| arm.command.as_slice());
        let mut left: Vec<_> =
            arms.iter_mut().zip(all).filter(|(arm, _)| arm.given_up.is_none()).collect();
        let commands: Vec<&[String]> = left.iter().map(|(_, command)| *command).collect();
        let needed = services.start_needed(&commands, &mut names, self.cancel)?;
        for ((arm, command), mine) in left.iter_mut().zip(needed) {
            arm.given_up = mine.cannot;
            if arm.given_up.is_some() {
                continue;
            }
            (arm.program, arm.args) =
                fill_command(&self.options.programs, &names, &arm.name, command)?;
            arm.simulated = mine.simulated;
            arm.services = services.process_ids();
        }
        Ok(())
    }

    /// Lists the reference, the others, then the reference again: the A/A arm.
    fn arms_with_twin(&self, bench: &Bench) -> Vec<(&Arm, bool)> {
        let arms = bench.arms.iter().map(|name| (name, false));
        let twin = bench.arms.first().map(|name| (name, true));
        arms.chain(twin).filter_map(|(name, twin)| Some((self.suite.arm(name)?, twin))).collect()
    }

    /// Records that a bench ended before its plan.
    fn record_unfinished_bench(&mut self, bench: &Bench) -> Result<(), BenchError> {
        let planned = self.planned_block_count(bench);
        let blocks = self.count_blocks_done(bench);
        let budget = self.options.part.budget_s.unwrap_or_default();
        let reason = format!("its share of the suite's {budget} s was used up");
        self.append_to_journal([JournalLine::Cut(UnfinishedBench {
            bench: bench.name.clone(),
            blocks,
            planned,
            reason,
        })])
    }

    /// Counts the measured blocks that are done, of a bench that has a plan.
    fn count_blocks_done(&self, bench: &Bench) -> u32 {
        let left =
            self.remaining_steps(bench).iter().filter(|(block, _)| *block >= bench.warmup).count();
        self.planned_block_count(bench).saturating_sub(left as u32)
    }

    /// Writes to the journal what is newly known of arms and services.
    fn record_processes(
        &mut self,
        bench: &Bench,
        arms: &[ArmProcess],
        services: &Services<'_>,
    ) -> Result<(), BenchError> {
        let mut lines = Vec::new();
        let mut programs = BTreeMap::new();
        for path in self.programs_used(arms, services) {
            if let Some((name, program)) = self.content.record.machine.hash_unknown_program(&path) {
                programs.entry(name).or_insert(program);
            }
        }
        lines.extend(
            programs.into_iter().map(|(name, program)| JournalLine::Program { name, program }),
        );
        for arm in arms.iter().map(|arm| self.arm_record(bench, arm)) {
            if self.content.record.find_arm(&arm.bench, &arm.name, arm.twin) != Some(&arm) {
                lines.push(JournalLine::Arm(Box::new(arm)));
            }
        }
        let known = &self.content.record.services;
        let new = services.records.iter().filter(|service| !known.contains(service)).cloned();
        lines.extend(new.map(JournalLine::Service));
        if lines.is_empty() { Ok(()) } else { self.append_to_journal(lines) }
    }

    /// Lists the programs of arms that spoke, the tools that those arms run, and programs of
    /// services.
    fn programs_used(&self, arms: &[ArmProcess], services: &Services<'_>) -> BTreeSet<PathBuf> {
        let spoke = || arms.iter().filter(|arm| arm.hello.is_some());
        let suite_arms = spoke().filter_map(|arm| self.suite.arm(&arm.name));
        let tools = suite_arms.flat_map(|arm| arm.needs.find_tools());
        let own = spoke().map(|arm| arm.program.clone());
        own.chain(tools).chain(services.programs_run.iter().cloned()).collect()
    }

    fn arm_record(&self, bench: &Bench, arm: &ArmProcess) -> ArmRecord {
        let suite_arm = self.suite.arm(&arm.name);
        let hello = arm.hello.as_ref();
        if let (None, Some(known)) =
            (hello, self.content.record.find_arm(&bench.name, &arm.name, arm.twin))
        {
            // It was not started in this session; what it said in an earlier one stays.
            return ArmRecord { given_up: arm.given_up.clone(), ..known.clone() };
        }
        let text =
            |f: fn(&Arm) -> &String| suite_arm.map_or_else(String::new, |arm| f(arm).clone());
        ArmRecord {
            bench: bench.name.clone(),
            name: arm.name.clone(),
            label: text(|arm| &arm.label),
            twin: arm.twin,
            command: suite_arm
                .map_or_else(Vec::new, |known| recorded_command(&known.command, &arm.args)),
            description: text(|arm| &arm.description),
            protects: text(|arm| &arm.protects),
            says: hello.map_or_else(String::new, |hello| hello.arm.clone()),
            version: hello.map_or_else(String::new, |hello| hello.version.clone()),
            guarantee: hello.and_then(|hello| hello.guarantee.clone()),
            note: hello.and_then(|hello| hello.note.clone()),
            simulated: arm.simulated || hello.is_some_and(|hello| hello.simulated),
            given_up: arm.given_up.clone(),
        }
    }

    /// Returns the number of measured blocks of the bench's plan.
    fn planned_block_count(&self, bench: &Bench) -> u32 {
        let RunOptions { effort, blocks, part, .. } = self.options;
        planned_block_count(bench, *effort, *blocks, part)
    }

    fn remaining_steps(&self, bench: &Bench) -> Vec<BlockStep> {
        if self.content.record.cut.iter().any(|cut| cut.bench == bench.name) {
            return Vec::new();
        }
        let seed = self.content.record.seed;
        remaining_steps(
            bench,
            self.options.effort,
            seed,
            self.planned_block_count(bench),
            &self.content.blocks,
        )
    }

    fn slices_left(&self, bench: &Bench) -> u64 {
        count_slices(bench, &self.remaining_steps(bench))
    }

    /// Writes how the session ended.
    fn write_session_end(&mut self, failed: Option<&BenchError>) -> Result<(), BenchError> {
        let wall_s = self.started.elapsed().as_secs_f64();
        let interrupted = self.stopped || failed.is_some();
        let ended = if interrupted { SessionEnd::Interrupted } else { SessionEnd::Completed };
        let partial = match failed {
            Some(error) => Some(error.to_string()),
            None if self.stopped => Some(format!(
                "interrupted with {} of {} slices left",
                self.all_slices_left(),
                self.planned_slices()
            )),
            None => None,
        };
        self.append_to_journal([JournalLine::End { wall_s, ended, partial }])
    }

    /// Appends lines to the journal and applies them to its content.
    fn append_to_journal(&mut self, lines: impl Into<Vec<JournalLine>>) -> Result<(), BenchError> {
        let mut lines = lines.into();
        self.journal.append(&mut lines)?;
        for line in lines {
            self.content.apply_line(line);
        }
        Ok(())
    }

    /// Counts the slices that are still to be run.
    fn all_slices_left(&self) -> u64 {
        self.suite.benches.iter().map(|bench| self.slices_left(bench)).sum()
    }

    /// Counts the slices of the whole plan, as if none of it had been interrupted.
    fn planned_slices(&self) -> u64 {
        let (effort, seed, none) =
            (self.options.effort, self.content.record.seed, DoneBlocks::new());
        let all =
            |bench| remaining_steps(bench, effort, seed, self.planned_block_count(bench), &none);
        self.suite.benches.iter().map(|bench| count_slices(bench, &all(bench))).sum()
    }

    /// Writes record and page. The journal is removed once the record holds the whole run.
    fn finish(self) -> Result<FinishedRun, BenchError> {
        let Self { content, suite, options, .. } = self;
        let JournalContent { mut record, samples, slices, .. } = content;
        let out = &options.out;
        record.compute_analysis(suite, &samples, &slices);
        let record_path = out.join(RECORD_FILE);
        record
            .compute_hash_chain(&samples, &slices)
            .map_err(|error| BenchError::io("write", &record_path)(error.into()))?;
        record.write(out, &samples, &slices)?;
        let page_path = write_page(out, &record, &samples, &slices)?;
        if record.partial.is_none() {
            let journal = out.join(SAMPLES_FILE);
            std::fs::remove_file(&journal).map_err(BenchError::io("remove", &journal))?;
        }
        Ok(FinishedRun { record, record_path, page_path })
    }
}

/// Creates a session that starts now. Until it says otherwise it counts as killed.
fn new_session(options: &RunOptions) -> Session {
    Session {
        started_unix_s: options.started_unix_s,
        wall_s: 0.0,
        boot: read_boot_id(),
        ended: SessionEnd::Killed,
        command: options.command.clone(),
    }
}

/// Writes the report page of a record into `folder` and returns its path.
pub(super) fn write_page(
    folder: &Path,
    record: &Record,
    samples: &[Sample],
    slices: &[Slice],
) -> Result<PathBuf, BenchError> {
    let path = folder.join(PAGE_FILE);
    let shown = page::view::RecordView::new(record, samples, slices, folder.join(RECORD_FILE));
    std::fs::write(&path, page::render_html(&[shown], &[], &path))
        .map_err(BenchError::io("write", &path))?;
    Ok(path)
}
