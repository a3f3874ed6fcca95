//! A run that is interrupted or killed at many instants leaves a record, and goes on from it.
//!
//! Each run is a process of its own: this test program, started again as `a_run_in_a_process_of_its_own`.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use confide_bench::{
    BenchError, Effort, LoadedRecord, PlannedSuite, ProgramLocator, RunAllIndex, RunAllPlan,
    RunOptions, SuiteSelection, SuiteState, SuiteText, rebuild_report, resume_suite, run_all,
    run_suite, stop_on_interrupt,
};
use confide_tests::Folder;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

const FOLDER: &str = "CONFIDE_TEST_FOLDER";
const GO_ON: &str = "CONFIDE_TEST_GO_ON";

const ARM: &str = r#"#!/bin/sh
echo '{"type":"hello","protocol":1,"arm":"shell","version":"1","guarantee":"none"}'
while read -r line; do
  case "$line" in *'"end"'*) exit 0;; esac
  id=${line#*'"id":'}; id=${id%%,*}
  echo "{\"type\":\"sample\",\"id\":$id,\"metrics\":{\"work_ms\":10.25}}"
  echo "{\"type\":\"done\",\"id\":$id,\"cpu_s\":0.001,\"wall_s\":0.01}"
done
"#;

/// A change that makes another plan of one.
type Change = fn(&mut RunOptions);

/// Two arms and the A/A arm, one block of warm-up and 12 measured, two cases.
const SLICES: usize = 3 * 13 * 2;

#[test]
fn an_interrupt_at_any_instant_leaves_a_record_that_goes_on() {
    for (number, signal) in instants().zip([Signal::SIGINT, Signal::SIGTERM].into_iter().cycle()) {
        let scratch = Folder::new(&format!("interrupt-{number}"));
        let folder = scratch.path();
        let status = end_after(folder, number, signal);
        if !folder.join("out/samples.jsonl").exists() {
            // The interrupt came before the run began, or after its end.
            assert!(status.code().is_none() || slices(folder) == SLICES, "{status}");
        } else {
            let read = document(folder);
            assert!(
                read["partial"].as_str().unwrap().contains("interrupted"),
                "{}",
                read["partial"]
            );
            assert!(folder.join("out/record.json").exists());
        }
        goes_on(folder);
    }
}

#[test]
fn a_kill_at_any_instant_leaves_a_journal_that_reports_and_goes_on() {
    for number in instants() {
        let scratch = Folder::new(&format!("kill-{number}"));
        let folder = scratch.path();
        end_after(folder, number, Signal::SIGKILL);
        let journal = folder.join("out/samples.jsonl");
        // A kill may fall into the write of the first line too: without it nothing was begun.
        let begun = std::fs::read(&journal).is_ok_and(|bytes| bytes.contains(&b'\n'));
        if begun {
            rebuild_report(&folder.join("out")).unwrap();
            let read = document(folder);
            let partial = read["partial"].as_str();
            assert!(partial.is_none_or(|text| text.contains("killed")), "{partial:?}");
        }
        goes_on(folder);
    }
}

#[test]
fn a_torn_last_line_and_a_block_without_its_end_are_not_counted() {
    let scratch = Folder::new("torn");
    let folder = scratch.path();
    let journal = folder.join("out/samples.jsonl");
    interrupt(folder, 20);
    let text = std::fs::read_to_string(&journal).unwrap();
    let whole = LoadedRecord::read(&folder.join("out")).unwrap().to_json_document().unwrap();
    let slice = text.lines().find(|line| line.contains("\"kind\":\"slice\"")).unwrap();
    std::fs::write(&journal, format!("{text}{slice}\n{{\"kind\":\"sam")).unwrap();
    let torn = LoadedRecord::read(&folder.join("out")).unwrap().to_json_document().unwrap();
    assert_eq!(torn, whole);
    let middle = text.replacen("\"kind\":\"block\"", "\"kind\":\"nothing\"", 1);
    std::fs::write(&journal, middle).unwrap();
    assert!(matches!(LoadedRecord::read(&folder.join("out")), Err(BenchError::Record { .. })));
    // The record next to it is whole in itself.
    assert!(LoadedRecord::read(&folder.join("out/record.json")).is_ok());
}

#[test]
fn what_was_measured_is_kept_and_the_record_says_where_it_was_interrupted() {
    let scratch = Folder::new("kept");
    let folder = scratch.path();
    interrupt(folder, 20);
    let before = document(folder);
    goes_on(folder);
    let after = document(folder);
    let (before, after) =
        (before["slices"].as_array().unwrap(), after["slices"].as_array().unwrap());
    assert!(!before.is_empty());
    assert_eq!(before[..], after[..before.len()]);
    assert!(after[before.len()..].iter().all(|slice| slice["session"] == 1));
    let record = document(folder);
    let ended: Vec<_> =
        record["sessions"].as_array().unwrap().iter().map(|s| &s["ended"]).collect();
    assert_eq!(ended, ["interrupted", "done"]);
    assert_eq!(record["sessions"][0]["boot"], record["sessions"][1]["boot"]);
}

#[test]
fn another_plan_is_refused_by_name_and_nothing_is_touched() {
    let scratch = Folder::new("another");
    let folder = scratch.path();
    interrupt(folder, 20);
    let journal = std::fs::read(folder.join("out/samples.jsonl")).unwrap();
    let changes: [(&str, Change); 6] = [
        ("the suite's text", |options| options.suite.text.push('\n')),
        ("the seed", |options| options.seed = Some(8)),
        ("the effort", |options| options.effort = Effort::Full),
        ("the blocks", |options| options.blocks = Some(20)),
        ("the part of the suite", |options| options.part.benches = vec!["one".into()]),
        ("the version", |options| options.version = "another".into()),
    ];
    for (wanted, change) in changes {
        let mut options = options(folder);
        change(&mut options);
        let refused = resume_suite(&options, &AtomicBool::new(false), &mut |_| {});
        assert!(
            matches!(&refused, Err(BenchError::Resume { what, .. }) if *what == wanted),
            "{refused:?}"
        );
    }
    assert_eq!(std::fs::read(folder.join("out/samples.jsonl")).unwrap(), journal);
}

#[test]
fn a_journal_that_was_changed_is_refused_by_name() {
    let scratch = Folder::new("machine");
    let folder = scratch.path();
    interrupt(folder, 20);
    let journal = folder.join("out/samples.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let model = text.split_once("\"cpu_model\":\"").unwrap().1.split_once('"').unwrap().0;
    std::fs::write(&journal, text.replace(model, "another processor")).unwrap();
    let refused = resume_suite(&options(folder), &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(refused, Err(BenchError::Changed { .. })), "{refused:?}");
}

#[test]
fn a_whole_run_does_not_go_on() {
    let scratch = Folder::new("whole");
    let folder = scratch.path();
    goes_on(folder);
    let refused = resume_suite(&options(folder), &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(refused, Err(BenchError::Resume { what: "the run", .. })), "{refused:?}");
}

#[test]
fn a_bench_ends_when_its_share_of_the_time_is_used_up_and_the_record_says_so() {
    let scratch = Folder::new("budget");
    let folder = scratch.path();
    let mut options = options(folder);
    options.part.budget_s = Some(0);
    run_suite(&options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let record = document(folder);
    assert_eq!(record["cut"][0]["blocks"], 2);
    assert_eq!(record["cut"][0]["planned"], 12);
    assert!(record["partial"].is_null());
    // It is whole as it is: nothing goes on.
    assert_eq!(slices(folder), 3 * 3 * 2);
}

#[test]
fn all_suites_run_one_after_the_other_and_go_on_where_they_were_interrupted() {
    let scratch = Folder::new("all");
    let folder = scratch.path();
    let plan = all(folder);
    let options = RunOptions { out: folder.join("all"), ..options(folder) };
    let stop = AtomicBool::new(false);
    let mut ended = Vec::new();
    let index = run_all(
        &plan,
        &options,
        false,
        &stop,
        &mut |progress| {
            let here = progress.what.starts_with("2/3") && progress.what.contains("block 3");
            stop.fetch_or(here, Ordering::Relaxed);
        },
        &mut |entry, _| ended.push(entry.suite.clone()),
    )
    .unwrap();
    assert_eq!(states(&index), [SuiteState::Completed, SuiteState::Partial, SuiteState::NotRun]);
    assert_eq!(ended, ["first", "second"]);
    assert_eq!(RunAllIndex::read(&folder.join("all")).unwrap(), index);
    let first = std::fs::read(folder.join("all/first/record.json")).unwrap();
    let again = |go_on| {
        let stop = AtomicBool::new(false);
        run_all(&plan, &options, go_on, &stop, &mut |_| {}, &mut |_, _| {}).unwrap()
    };
    let index = again(true);
    assert_eq!(states(&index), [SuiteState::Completed; 3]);
    assert_eq!(index.record_folders(&folder.join("all")).len(), 3);
    assert_eq!(std::fs::read(folder.join("all/first/record.json")).unwrap(), first);
    // Without going on, everything runs again and what was there is kept.
    again(false);
    assert!(folder.join("all/first/earlier/1/record.json").exists());
}

#[test]
fn a_suite_that_cannot_run_does_not_keep_the_others_from_it() {
    let scratch = Folder::new("failing");
    let folder = scratch.path();
    let mut plan = all(folder);
    plan.entries[0].suite.text.push_str("\n[[prepare]]\nname = \"no\"\ncommand = [\"false\"]\n");
    let options = RunOptions { out: folder.join("all"), ..options(folder) };
    let stop = AtomicBool::new(false);
    let index = run_all(&plan, &options, false, &stop, &mut |_| {}, &mut |_, _| {}).unwrap();
    assert_eq!(states(&index), [SuiteState::Failed, SuiteState::Completed, SuiteState::Completed]);
    assert!(index.suites[0].reason.as_ref().unwrap().contains("preparation no failed"));
}

/// Runs in a process of its own, which the other tests interrupt; it is not a test by itself.
#[test]
fn a_run_in_a_process_of_its_own() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let stop = stop_on_interrupt().unwrap();
    let options = options(&folder);
    let go_on = std::env::var_os(GO_ON).is_some();
    let measure = if go_on { resume_suite } else { run_suite };
    let outcome = measure(&options, &stop, &mut |_| {}).unwrap();
    std::process::exit(if outcome.record.partial().is_some() { 130 } else { 0 });
}

/// Lists milliseconds after the start: dense over the whole of a run, which takes about 1.5 s here.
fn instants() -> impl Iterator<Item = u64> {
    (0..10).map(|n| n * 12).chain((0..8).map(|n| 120 + n * 190))
}

fn end_after(folder: &Path, milliseconds: u64, signal: Signal) -> ExitStatus {
    let mut child = start(folder, false);
    sleep(Duration::from_millis(milliseconds));
    let _ = kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal);
    wait(&mut child)
}

/// Interrupts a run within this process after so many slices.
fn interrupt(folder: &Path, after: u32) {
    let stop = AtomicBool::new(false);
    let mut slices = 0;
    let outcome = run_suite(&options(folder), &stop, &mut |_| {
        slices += 1;
        stop.fetch_or(slices >= after, Ordering::Relaxed);
    })
    .unwrap();
    assert!(outcome.record.partial().is_some());
}

/// Resumes the run to its end, and checks that its record is whole and reads back to the same text.
fn goes_on(folder: &Path) {
    if slices(folder) != SLICES {
        let mut child = start(folder, true);
        assert_eq!(wait(&mut child).code(), Some(0));
    }
    let record = document(folder);
    assert!(record["partial"].is_null());
    assert!(!folder.join("out/samples.jsonl").exists());
    let slices = record["slices"].as_array().unwrap();
    let key = |slice: &Value| format!("{} {} {}", slice["case"], slice["block"], slice["arm"]);
    let measured: Vec<_> = slices.iter().filter(|slice| slice["warmup"] != true).map(key).collect();
    assert_eq!(measured.len(), SLICES - 6);
    for row in record["rows"].as_array().unwrap() {
        assert_eq!(row["blocks"], 12);
    }
    let path = folder.join("out/record.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(LoadedRecord::read(&path).unwrap().to_json_document().unwrap(), text);
}

/// Counts the slices of a whole record; 0 if there is none.
fn slices(folder: &Path) -> usize {
    let path = folder.join("out/record.json");
    if !path.exists() || folder.join("out/samples.jsonl").exists() {
        return 0;
    }
    document(folder)["slices"].as_array().unwrap().len()
}

fn document(folder: &Path) -> Value {
    let text = LoadedRecord::read(&folder.join("out")).unwrap().to_json_document().unwrap();
    serde_json::from_str(&text).unwrap()
}

fn states(index: &RunAllIndex) -> Vec<SuiteState> {
    index.suites.iter().map(|entry| entry.state).collect()
}

fn start(folder: &Path, go_on: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_run_in_a_process_of_its_own"]).env(FOLDER, folder);
    if go_on {
        command.env(GO_ON, "1");
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status,
            None if Instant::now() > deadline => panic!("the run did not end in 300 s"),
            None => sleep(Duration::from_millis(5)),
        }
    }
}

fn all(folder: &Path) -> RunAllPlan {
    let entry = |name: &str| {
        let text =
            options(folder).suite.text.replace("name = \"test\"", &format!("name = {name:?}"));
        let suite = SuiteText { name: name.into(), text };
        PlannedSuite {
            suite,
            blocks: Some(4),
            part: SuiteSelection { benches: Vec::new(), budget_s: Some(60) },
        }
    };
    RunAllPlan { entries: ["first", "second", "third"].map(entry).into() }
}

fn options(folder: &Path) -> RunOptions {
    let arms: String = ["a", "b"].map(|name| arm(folder, name)).concat();
    let text = format!(
        "[suite]\nname = \"test\"\ntitle = \"Test\"\nabout = \"test\"\nseed = 7\n{arms}\
         [[prepare]]\nname = \"slow\"\ncommand = [\"sleep\", \"0.05\"]\n\
         [[service]]\nname = \"service\"\n\
         command = [\"sh\", \"-c\", \"echo '{{\\\"ready\\\":true,\\\"at\\\":1}}'; exec sleep 60\"]\n\
         [[bench]]\nname = \"one\"\nmodel = \"spin\"\nload = \"closed\"\narms = [\"a\", \"b\"]\n\
         requests = 1\nblocks = {{ quick = 12, full = 24 }}\ngrid = {{ size = [1, 2] }}\n\
         [[bench.metric]]\nname = \"work_ms\"\nlabel = \"work\"\nheadline = true\n",
    );
    RunOptions {
        suite: SuiteText { name: "test".into(), text },
        effort: Effort::Quick,
        blocks: None,
        seed: None,
        vars: Vec::new(),
        part: SuiteSelection::default(),
        out: folder.join("out"),
        command: vec!["test".into()],
        version: "test".into(),
        started_unix_s: 1_767_225_600,
        programs: ProgramLocator::new(std::env::current_exe().unwrap()),
    }
}

fn arm(folder: &Path, name: &str) -> String {
    let path = folder.join(format!("arm-{name}"));
    if !path.exists() {
        std::fs::write(&path, ARM).unwrap();
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        std::fs::set_permissions(&path, permissions).unwrap();
    }
    format!(
        "[[arm]]\nname = \"{name}\"\nlabel = \"{name}\"\ncommand = [\"{}\", \"{{service.at}}\"]\n\
         description = \"shell\"\nprotects = \"nobody\"\n",
        path.display()
    )
}
