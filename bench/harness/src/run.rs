//! A run from suite to report, one that goes on where it was interrupted, and a report from a
//! record.

pub(crate) mod all;
pub(crate) mod options;
mod running;
mod steps;

use std::{
    fs::File,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use self::{
    options::{FinishedRun, RunOptions},
    running::{run_and_record, write_page},
};
use crate::{
    error::BenchError,
    host::machine::Machine,
    loaded::LoadedRecord,
    progress::Progress,
    record::{
        PAGE_FILE, PlanRecord, RECORD_FILE, Record, SAMPLES_FILE, SCHEMA, SuiteRecord, read_commit,
        sha256_hex,
    },
    run_lock::FolderLock,
    samples::journal::{Journal, JournalContent, JournalLine, read_journal},
    suite::Suite,
};

/// Sets the flag at the first SIGINT or SIGTERM; a second one ends the process. Its journal is
/// then the record.
///
/// # Errors
/// When the signal handler cannot be set.
pub fn stop_on_interrupt() -> Result<Arc<AtomicBool>, BenchError> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    })
    .map_err(|error| BenchError::Interrupt { message: error.to_string() })?;
    Ok(stop)
}

/// Runs a suite. `cancel` ends it early with a valid partial record; `on_progress` is
/// called after every slice.
///
/// # Errors
/// When the suite or the options are not valid, the preparation fails, or a file cannot be written.
/// A bench that fails is named in the record instead.
pub fn run_suite(
    options: &RunOptions,
    cancel: &AtomicBool,
    on_progress: &mut dyn FnMut(&Progress),
) -> Result<FinishedRun, BenchError> {
    let suite = Suite::parse(&options.suite.name, &options.suite.text)?;
    check_options(&suite, options)?;
    let _lock = lock_folder(options)?;
    start_run(options, &suite, cancel, on_progress)
}

/// Creates the run's folder if need be, and locks it.
fn lock_folder(options: &RunOptions) -> Result<FolderLock, BenchError> {
    std::fs::create_dir_all(&options.out).map_err(BenchError::io("create", &options.out))?;
    FolderLock::acquire(&options.out)
}

/// Starts a run in a folder that is locked.
fn start_run(
    options: &RunOptions,
    suite: &Suite,
    cancel: &AtomicBool,
    on_progress: &mut dyn FnMut(&Progress),
) -> Result<FinishedRun, BenchError> {
    move_earlier_run(&options.out)?;
    let record = initial_record(options, suite);
    let mut journal = Journal::create(&options.out.join(SAMPLES_FILE))?;
    journal.append(&mut [JournalLine::Run(Box::new(record.clone()))])?;
    run_and_record(options, suite, JournalContent::new(record), journal, cancel, on_progress)
}

/// Goes on with an interrupted or killed run of the same plan on the same machine; where there is
/// none, starts one. What was measured is kept; what could not be run is tried again.
///
/// # Errors
/// As [`run_suite`]; also when the run that was interrupted had another plan, machine or version.
pub fn resume_suite(
    options: &RunOptions,
    cancel: &AtomicBool,
    on_progress: &mut dyn FnMut(&Progress),
) -> Result<FinishedRun, BenchError> {
    let suite = Suite::parse(&options.suite.name, &options.suite.text)?;
    check_options(&suite, options)?;
    let _lock = lock_folder(options)?;
    let path = options.out.join(SAMPLES_FILE);
    let record = options.out.join(RECORD_FILE);
    if !path.exists() {
        if record.exists() {
            return Err(resume_error("the run", "interrupted", "complete"));
        }
        return start_run(options, &suite, cancel, on_progress);
    }
    let file = File::open(&path).map_err(BenchError::io("read", &path))?;
    let Some(had) = read_journal(&path, file)? else {
        // A journal that was killed before its first line was written holds nothing.
        let empty = std::fs::metadata(&path).is_ok_and(|data| data.len() < EMPTY_JOURNAL_BYTES);
        if empty && !record.exists() {
            return start_run(options, &suite, cancel, on_progress);
        }
        return Err(resume_error("the layout of the journal", "another", "2"));
    };
    refuse_different_plan(&had.record, &initial_record(options, &suite))?;
    let journal = Journal::reopen(&path, had.length, had.chain.clone())?;
    // The journal holds all that they hold, and is what counts from here on.
    for name in [RECORD_FILE, PAGE_FILE] {
        let _ = std::fs::remove_file(options.out.join(name));
    }
    run_and_record(options, &suite, had, journal, cancel, on_progress)
}

/// The least bytes of a journal with a first line, which holds the suite.
const EMPTY_JOURNAL_BYTES: u64 = 256;

/// Rebuilds rows and page from a record; the record is not touched. Where a run was killed its
/// record is made from the journal.
///
/// # Errors
/// When the record cannot be read, or record or page cannot be written.
pub fn rebuild_report(folder: &Path) -> Result<FinishedRun, BenchError> {
    let LoadedRecord { record, samples, slices, path, .. } = LoadedRecord::read(folder)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    if !path.exists() {
        record.write(folder, &samples, &slices)?;
    }
    let page_path = write_page(folder, &record, &samples, &slices)?;
    Ok(FinishedRun { record, record_path: path, page_path })
}

/// Moves what an earlier run left to `earlier/N`, because a record is never overwritten.
fn move_earlier_run(out: &Path) -> Result<(), BenchError> {
    let left = [RECORD_FILE, SAMPLES_FILE, PAGE_FILE, "log"];
    if !left.iter().any(|name| out.join(name).exists()) {
        return Ok(());
    }
    let earlier = out.join("earlier");
    let free = |n: &u32| !earlier.join(n.to_string()).exists();
    let folder = earlier.join((1..).find(free).unwrap_or_default().to_string());
    std::fs::create_dir_all(&folder).map_err(BenchError::io("create", &folder))?;
    for name in left.iter().filter(|name| out.join(name).exists()) {
        let to = folder.join(name);
        std::fs::rename(out.join(name), &to).map_err(BenchError::io("write", &to))?;
    }
    Ok(())
}

fn check_options(suite: &Suite, options: &RunOptions) -> Result<(), BenchError> {
    let unknown = |name: &&String| !suite.benches.iter().any(|bench| bench.name == **name);
    if let Some(name) = options.part.benches.iter().find(unknown) {
        return Err(BenchError::SuiteMeaning {
            name: suite.suite.name.clone(),
            place: "the requested part".into(),
            message: format!("no bench named {name}"),
        });
    }
    match options.vars.iter().find(|(name, _)| !suite.vars.contains_key(name)) {
        Some((name, _)) => Err(BenchError::UnknownVar { name: name.clone() }),
        None => Ok(()),
    }
}

/// Creates the record before anything is measured.
fn initial_record(options: &RunOptions, suite: &Suite) -> Record {
    let about = &suite.suite;
    let seed = options.seed.unwrap_or(about.seed);
    let sha256 = sha256_hex(&options.suite.text);
    let vars = options.vars.iter().cloned().collect();
    let mut plan = PlanRecord { part: options.part.clone(), vars, ..PlanRecord::default() };
    plan.sha256 = plan.hash(&sha256, options.effort, seed, options.blocks);
    Record {
        schema: SCHEMA,
        version: options.version.clone(),
        commit: read_commit(),
        command: options.command.clone(),
        suite: SuiteRecord {
            name: about.name.clone(),
            title: about.title.clone(),
            about: about.about.clone(),
            sha256,
            text: options.suite.text.clone(),
        },
        effort: options.effort,
        seed,
        blocks_asked: options.blocks,
        started_unix_s: options.started_unix_s,
        machine: Machine::read(&options.out),
        seed_figures: suite.seed_figures.clone(),
        answers: suite.answers.clone(),
        quoted: suite.quoted.clone(),
        plan,
        ..Record::default()
    }
}

/// Refuses to resume another plan, or on another machine, or with another program.
fn refuse_different_plan(had: &Record, now: &Record) -> Result<(), BenchError> {
    let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
    let machine = |record: &Record| {
        let machine = &record.machine;
        text(&(&machine.cpu_model, machine.cpus_online, machine.memory_bytes, &machine.kernel))
    };
    // Outside a repository the commit is not known, so it cannot differ.
    let known = |record: &Record| (record.commit != "unknown").then(|| record.commit.clone());
    let commits = known(had).zip(known(now)).unwrap_or_default();
    let of = |record: &Record| {
        [
            ("the suite's text", record.suite.sha256.clone()),
            ("the seed", record.seed.to_string()),
            ("the effort", text(&record.effort)),
            ("the blocks", text(&record.blocks_asked)),
            ("the part of the suite", text(&record.plan.part)),
            ("the variables", text(&record.plan.vars)),
            ("the version", record.version.clone()),
            ("the machine", machine(record)),
        ]
    };
    let mut pairs: Vec<_> = of(had).into_iter().zip(of(now).map(|(_, now)| now)).collect();
    pairs.push((("the commit", commits.0), commits.1));
    match pairs.into_iter().find(|((_, had), now)| had != now) {
        Some(((what, had), now)) => Err(resume_error(what, &had, &now)),
        None => Ok(()),
    }
}

fn resume_error(what: &'static str, wanted: &str, got: &str) -> BenchError {
    BenchError::Resume { what, wanted: wanted.to_owned(), got: got.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_is_refused_by_name() {
        let had = Record::default();
        let mut now = had.clone();
        assert!(refuse_different_plan(&had, &now).is_ok());
        now.machine.cpu_model = "another processor".into();
        let refused = refuse_different_plan(&had, &now);
        assert!(
            matches!(refused, Err(BenchError::Resume { what: "the machine", .. })),
            "{refused:?}"
        );
    }
}
