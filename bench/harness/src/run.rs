//! A run from suite to report, and a report from a record.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use crate::{
    BenchError, Effort, Loaded, Programs, Record, Suite, SuiteText,
    arm::ArmProcess,
    blocks::run_block,
    host::Machine,
    page,
    plan::{Case, blocks, cases, order},
    programs::{Names, text_of},
    progress::Progress,
    record::{
        ArmRecord, NotRun, PAGE_FILE, RECORD_FILE, SAMPLES_FILE, SCHEMA, SuiteRecord, commit,
        sha256_hex,
    },
    rows::judge,
    samples::{Sample, SampleWriter, Slice},
    services::{Services, argv, shown},
    suite::Bench,
};

/// What to run, and everything that only the program knows.
#[derive(Clone, Debug)]
pub struct Options {
    /// The suite.
    pub suite: SuiteText,
    /// Quick or full.
    pub effort: Effort,
    /// Blocks of every bench, instead of the suite's.
    pub blocks: Option<u32>,
    /// The plan's seed, instead of the suite's.
    pub seed: Option<u64>,
    /// Values for the suite's `[vars]`, instead of its own.
    pub vars: Vec<(String, String)>,
    /// A folder without a record; made where it is missing.
    pub out: PathBuf,
    /// The exact command line, for the record.
    pub command: Vec<String>,
    /// The program's version.
    pub version: String,
    /// Wall clock at the start.
    pub started_unix_s: u64,
    /// Where programs are found.
    pub programs: Programs,
}

/// What a run leaves behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The record, as written.
    pub record: Record,
    /// Path of `record.json`.
    pub record_path: PathBuf,
    /// Path of `report.html`.
    pub page_path: PathBuf,
}

/// Sets the flag at the first SIGINT or SIGTERM; a second one ends the process.
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

/// Runs a suite. `stop` ends it early with a valid partial record; `told` hears of every slice.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    told: &mut dyn FnMut(&Progress),
) -> Result<Outcome, BenchError> {
    let suite = Suite::parse(&options.suite.name, &options.suite.text)?;
    let log = options.out.join("log");
    keep_earlier(&options.out)?;
    std::fs::create_dir_all(&log).map_err(BenchError::io("create", &log))?;
    // As it was given: a record names no folder of the machine that it was made on.
    let out = options.out.clone();
    let total = suite.benches.iter().map(|bench| slices_planned(bench, options)).sum();
    let mut running = Running {
        suite: &suite,
        options,
        stop,
        told,
        log: &log,
        started: Instant::now(),
        writer: SampleWriter::create(&out.join(SAMPLES_FILE))?,
        samples: Vec::new(),
        slices: Vec::new(),
        arms: Vec::new(),
        not_run: Vec::new(),
        done: 0,
        total,
        machine: Machine::read(),
    };
    let mut services = Services::new(&suite, &options.programs, &log);
    let mut names = Names::default();
    names.set("dir", out.display().to_string());
    for (name, var) in &suite.vars {
        names.set(name, text_of(var));
    }
    for (name, value) in &options.vars {
        if !suite.vars.contains_key(name) {
            return Err(BenchError::UnknownVar { name: name.clone() });
        }
        names.set(name, value);
    }
    match services.prepare(&names, stop) {
        Err(error) if !stop.load(Ordering::Relaxed) => return Err(error),
        _ => {}
    }
    // After the preparation, so that evidence made by it is not from the future.
    let now = options.started_unix_s + running.started.elapsed().as_secs() + 1;
    names.set("now", now.to_string());
    for bench in &suite.benches {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if planned(bench, options) == 0 {
            continue;
        }
        if let Err(error) = running.bench(bench, &mut services, names.clone()) {
            let (bench, reason) = (bench.name.clone(), error.to_string());
            running.done += slices_planned_by_name(&suite, &bench, options);
            running.not_run.push(NotRun { bench, reason });
        }
    }
    services.end();
    let service_records = std::mem::take(&mut services.records);
    let mut record = running.record();
    record.services = service_records;
    let (samples, slices) = (running.samples, running.slices);
    finish(&out, record, &suite, &samples, &slices)
}

/// A record is never overwritten: what an earlier run left moves to `earlier/N`.
fn keep_earlier(out: &Path) -> Result<(), BenchError> {
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

/// Rebuilds rows and page from a record and its samples; the record is not touched.
pub fn report(folder: &Path) -> Result<Outcome, BenchError> {
    let Loaded { mut record, samples, slices, path } = Loaded::read(folder)?;
    let suite = Suite::parse(&record.suite.name, &record.suite.text)?;
    fill(&mut record, &suite, &samples, &slices);
    let folder = path.parent().unwrap_or(Path::new(""));
    let page_path = write_page(folder, &record, &samples, &slices)?;
    Ok(Outcome { record, record_path: path, page_path })
}

struct Running<'a> {
    suite: &'a Suite,
    options: &'a Options,
    stop: &'a AtomicBool,
    told: &'a mut dyn FnMut(&Progress),
    log: &'a Path,
    started: Instant,
    writer: SampleWriter,
    samples: Vec<Sample>,
    slices: Vec<Slice>,
    arms: Vec<ArmRecord>,
    not_run: Vec<NotRun>,
    done: u64,
    total: u64,
    machine: Machine,
}

impl Running<'_> {
    fn bench(
        &mut self,
        bench: &Bench,
        services: &mut Services<'_>,
        mut names: Names,
    ) -> Result<(), BenchError> {
        for (name, var) in &bench.vars {
            names.set(name, text_of(var));
        }
        let mut arms: Vec<ArmProcess> = self
            .arms_of(bench)
            .map(|(arm, twin)| {
                let file = format!("{}{}.stderr", arm.name, if twin { "-twin" } else { "" });
                let mut process = ArmProcess::new(&arm.name, twin, self.log.join(file));
                process.given_up = arm.missing();
                process
            })
            .collect();
        let outcome = self.blocks(bench, &mut arms, services, &names);
        for arm in &mut arms {
            arm.end();
        }
        for arm in &arms {
            self.arms.push(self.arm_record(bench, arm));
        }
        outcome
    }

    /// Ends arms and services and starts the services anew; arms start at their next run.
    fn start_anew(
        &self,
        bench: &Bench,
        arms: &mut [ArmProcess],
        services: &mut Services<'_>,
        mut names: Names,
    ) -> Result<(), BenchError> {
        for arm in arms.iter_mut() {
            arm.end();
        }
        services.end();
        let all = self.arms_of(bench).map(|(arm, _)| arm.command.as_slice());
        let mut left: Vec<_> =
            arms.iter_mut().zip(all).filter(|(arm, _)| arm.given_up.is_none()).collect();
        let commands: Vec<&[String]> = left.iter().map(|(_, command)| *command).collect();
        let tainted = services.start_for(&commands, &mut names, self.stop)?;
        for ((arm, command), simulated) in left.iter_mut().zip(tainted) {
            (arm.program, arm.args) = argv(&self.options.programs, &names, &arm.name, command)?;
            arm.simulated = simulated;
        }
        Ok(())
    }

    /// The reference, the others, then the reference again: the A/A arm.
    fn arms_of(&self, bench: &Bench) -> impl Iterator<Item = (&crate::suite::Arm, bool)> {
        let arms = bench.arms.iter().filter_map(|name| self.suite.arm(name));
        let twin = bench.arms.first().and_then(|name| self.suite.arm(name));
        arms.map(|arm| (arm, false))
            .chain(twin.map(|arm| (arm, true)))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Block by block over all cases, so that an interruption leaves every case about equal.
    fn blocks(
        &mut self,
        bench: &Bench,
        arms: &mut [ArmProcess],
        services: &mut Services<'_>,
        names: &Names,
    ) -> Result<(), BenchError> {
        let cases = cases(bench, self.options.effort);
        let seed = self.options.seed.unwrap_or(self.suite.suite.seed);
        let measured = blocks(bench, self.options.effort, self.options.blocks);
        for block in 0..bench.warmup + measured {
            if block == 0 || bench.restart_every > 0 && block % bench.restart_every == 0 {
                match self.start_anew(bench, arms, services, names.clone()) {
                    Err(_) if self.stop.load(Ordering::Relaxed) => return Ok(()),
                    other => other?,
                }
            }
            for case in order(seed, &[&bench.name, "cases"], block, cases.len()) {
                let what = if block < bench.warmup {
                    format!("{}, warm-up", bench.name)
                } else {
                    format!("{}, block {} of {measured}", bench.name, block + 1 - bench.warmup)
                };
                match self.block(bench, &cases[case], seed, block, arms, services, &what) {
                    Ok(()) => {}
                    Err(Some(error)) => return Err(error),
                    Err(None) => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// `Err(None)` when interrupted.
    #[allow(clippy::too_many_arguments)]
    fn block(
        &mut self,
        bench: &Bench,
        case: &Case,
        seed: u64,
        block: u32,
        arms: &mut [ArmProcess],
        services: &Services<'_>,
        what: &str,
    ) -> Result<(), Option<BenchError>> {
        let (started, total) = (self.started, self.total);
        let (done, told) = (&mut self.done, &mut self.told);
        let measured = run_block(bench, case, seed, block, arms, self.stop, |run| {
            let cpu_before = services.cpu_seconds();
            let started_s = started.elapsed().as_secs_f64();
            let mut ran = run();
            if let Ok(ran) = &mut ran {
                ran.slice.started_s = started_s;
                let cpu = services.cpu_seconds().zip(cpu_before);
                ran.slice.services_cpu_s = cpu.map(|(after, before)| after - before);
            }
            *done += 1;
            let elapsed = started.elapsed();
            told(&Progress { done: *done, total, elapsed, what: what.to_owned() });
            ran
        });
        let measured = match measured {
            Ok(measured) => measured,
            Err(_) => return Err(None),
        };
        for ran in measured.runs {
            self.writer.write(&ran.samples, &ran.slice).map_err(Some)?;
            self.samples.extend(ran.samples);
            self.slices.push(ran.slice);
        }
        Ok(())
    }

    fn arm_record(&self, bench: &Bench, arm: &ArmProcess) -> ArmRecord {
        let suite_arm = self.suite.arm(&arm.name);
        let hello = arm.hello.as_ref();
        let text = |f: fn(&crate::suite::Arm) -> &String| {
            suite_arm.map_or_else(String::new, |arm| f(arm).clone())
        };
        ArmRecord {
            bench: bench.name.clone(),
            name: arm.name.clone(),
            label: text(|arm| &arm.label),
            twin: arm.twin,
            command: suite_arm.map_or_else(Vec::new, |known| shown(&known.command, &arm.args)),
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

    fn record(&mut self) -> Record {
        let options = self.options;
        let about = &self.suite.suite;
        let interrupted = self.stop.load(Ordering::Relaxed);
        let partial = interrupted
            .then(|| format!("interrupted after {} of {} slices", self.done, self.total));
        Record {
            schema: SCHEMA,
            version: options.version.clone(),
            commit: commit(),
            command: options.command.clone(),
            suite: SuiteRecord {
                name: about.name.clone(),
                title: about.title.clone(),
                about: about.about.clone(),
                sha256: sha256_hex(&options.suite.text),
                text: options.suite.text.clone(),
            },
            effort: options.effort,
            seed: options.seed.unwrap_or(about.seed),
            blocks_asked: options.blocks,
            started_unix_s: options.started_unix_s,
            wall_s: self.started.elapsed().as_secs_f64(),
            partial,
            machine: std::mem::take(&mut self.machine),
            arms: std::mem::take(&mut self.arms),
            services: Vec::new(),
            not_run: std::mem::take(&mut self.not_run),
            voids: Vec::new(),
            validity: crate::Validity::NotJudged { reason: "no row was computed".into() },
            rows: Vec::new(),
            figures: Vec::new(),
            seed_figures: self.suite.seed_figures.clone(),
            answers: self.suite.answers.clone(),
            quoted: self.suite.quoted.clone(),
        }
    }
}

fn finish(
    folder: &Path,
    mut record: Record,
    suite: &Suite,
    samples: &[Sample],
    slices: &[Slice],
) -> Result<Outcome, BenchError> {
    fill(&mut record, suite, samples, slices);
    record.write(folder)?;
    let page_path = write_page(folder, &record, samples, slices)?;
    Ok(Outcome { record, record_path: folder.join(RECORD_FILE), page_path })
}

fn fill(record: &mut Record, suite: &Suite, samples: &[Sample], slices: &[Slice]) {
    let judged = judge(suite, record.effort, samples, slices);
    record.rows = judged.rows;
    record.figures = judged.figures;
    record.voids = judged.voids;
    record.validity = judged.validity;
}

fn write_page(
    folder: &Path,
    record: &Record,
    samples: &[Sample],
    slices: &[Slice],
) -> Result<PathBuf, BenchError> {
    let path = folder.join(PAGE_FILE);
    std::fs::write(&path, page::render(record, samples, slices))
        .map_err(BenchError::io("write", &path))?;
    Ok(path)
}

/// Blocks of this bench in this run, however few or many were asked for of the others.
fn planned(bench: &Bench, options: &Options) -> u32 {
    match blocks(bench, options.effort, None) {
        0 => 0,
        _ => blocks(bench, options.effort, options.blocks),
    }
}

fn slices_planned(bench: &Bench, options: &Options) -> u64 {
    let cases = cases(bench, options.effort).len() as u64;
    let blocks = match planned(bench, options) {
        0 => 0,
        measured => u64::from(bench.warmup + measured),
    };
    cases * blocks * (bench.arms.len() as u64 + 1)
}

fn slices_planned_by_name(suite: &Suite, name: &str, options: &Options) -> u64 {
    let bench = suite.benches.iter().find(|bench| bench.name == name);
    bench.map_or(0, |bench| slices_planned(bench, options))
}
