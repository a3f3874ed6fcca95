//! Records of real runs, compared and checked: tiny arms in shell, each with one habit.

use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use confide_bench::{
    CheckOptions, CheckOutcome, CompareOptions, Effort, LoadedRecord, ProgramLocator,
    RefusalReason, RunOptions, SuiteSelection, SuiteText, check_against_baselines, check_record,
    compare, run_suite,
};

/// Answers every run with one sample; `VALUE` is a shell expression, `ANSWER` what it says.
const ARM: &str = r#"#!/bin/sh
echo '{"type":"hello","protocol":1,"arm":"shell","version":"1","guarantee":"none"}'
while read -r line; do
  case "$line" in *'"end"'*) exit 0;; esac
  id=${line#*'"id":'}; id=${id%%,*}
  block=${line#*'"block":'}; block=${block%%,*}
  value=VALUE
  echo "{\"type\":\"sample\",\"id\":$id,\"metrics\":{\"work_ms\":$value},\"answer\":{\"tokens\":ANSWER}}"
  echo "{\"type\":\"done\",\"id\":$id,\"cpu_s\":0.001,\"wall_s\":0.01}"
done
"#;

#[test]
fn two_real_runs_are_confounded_and_four_are_clusters() {
    let of = |name: &str, value: &str| measure(name, value, 200, 12);
    let [a, b] = [of("fast", "$((1000 + block % 3))"), of("slow", "$((1100 + block % 3))")];
    // Where the kernel tells no processor there would be two columns only.
    let options = CompareOptions { dangerous_across_hardware: true, ..CompareOptions::default() };
    let one = compare(std::slice::from_ref(&a), std::slice::from_ref(&b), &options);
    assert!(one.has_compared_rows(), "{}", one.text());
    assert!(one.text().contains("confounded: machine, no interval"), "{}", one.text());
    let sides = |loaded: LoadedRecord, name: &str, value: &str| vec![loaded, of(name, value)];
    let a = sides(a, "fast-2", "$((1001 + block % 3))");
    let b = sides(b, "slow-2", "$((1102 + block % 3))");
    let both = compare(&a, &b, &options);
    // All of them ran on this boot, where the kernel tells it: then two records are one cluster.
    let text = both.text();
    assert!(text.contains("2 and 2 clusters") || text.contains("confounded"), "{text}");
}

#[test]
fn real_runs_of_unequal_work_are_not_compared() {
    let [a, b] = [measure("work-200", "1000", 200, 12), measure("work-180", "1000", 180, 12)];
    let comparison = compare(&[a], &[b], &CompareOptions::default());
    assert!(!comparison.has_compared_rows());
    assert!(
        comparison.row_refusal_reasons().iter().all(|reason| *reason == RefusalReason::UnequalWork)
    );
}

#[test]
fn a_check_ends_by_the_verdict() {
    let noisy = "$((1000 + (block * 7) % 5))";
    let same = measure("check-same", noisy, 200, 12);
    let of = |loaded: &LoadedRecord, margin| {
        let options = CheckOptions { margin, accept_disturbed: true, ..CheckOptions::default() };
        check_record(loaded, &options).unwrap().checked
    };
    assert_eq!(of(&same, None), CheckOutcome::Within);
    let slow = measure_two("check-slow", noisy, "$((1050 + (block * 7) % 5))", 200, 12);
    assert_eq!(of(&slow, None), CheckOutcome::Outside);
    assert_eq!(of(&slow, Some(0.1)), CheckOutcome::Within);
    let few = measure("check-few", noisy, 200, 8);
    assert_eq!(of(&few, None), CheckOutcome::Undecided);
    let options = CheckOptions { metric: Some("other_ms".into()), ..CheckOptions::default() };
    assert_eq!(check_record(&same, &options).unwrap().checked, CheckOutcome::Undecided);

    let options = CheckOptions { accept_disturbed: true, ..CheckOptions::default() };
    let baseline = std::slice::from_ref(&same);
    assert_eq!(
        check_against_baselines(&slow, baseline, &options).unwrap().checked,
        CheckOutcome::Outside
    );
    assert_eq!(
        check_against_baselines(&same, std::slice::from_ref(&slow), &options).unwrap().checked,
        CheckOutcome::Within
    );
    let both_ways = CheckOptions { both_ways: true, ..options };
    assert_eq!(
        check_against_baselines(&same, std::slice::from_ref(&slow), &both_ways).unwrap().checked,
        CheckOutcome::Outside
    );
    let text = check_against_baselines(&slow, baseline, &both_ways).unwrap().text();
    assert!(
        text.contains("of the baseline's cost") && text.contains("corrected for 1 rows"),
        "{text}"
    );
}

#[test]
fn an_invalid_run_checks_as_invalid() {
    // The twin is told apart by the file that the first process leaves.
    let name = "check-invalid";
    let mark = scratch_of(name).join("first");
    let value = format!(
        "$(if [ -e {m} ] && [ \"$(cat {m})\" != $$ ]; then echo 1200; else echo $$ > {m}; echo 1000; fi)",
        m = mark.display()
    );
    let invalid = measure_two(name, &value, "1000", 200, 12);
    let checked = check_record(&invalid, &CheckOptions::default()).unwrap();
    assert_eq!(checked.checked, CheckOutcome::Invalid, "{}", checked.text());
}

/// Measures two arms that are alike.
fn measure(name: &str, value: &str, tokens: u32, blocks: u32) -> LoadedRecord {
    measure_two(name, value, value, tokens, blocks)
}

fn measure_two(name: &str, a: &str, b: &str, tokens: u32, blocks: u32) -> LoadedRecord {
    let folder = scratch_of(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    // One text for all of them, so that the records are of one suite.
    let programs = ["a", "b"].map(|arm| format!("compared-arm-{arm}"));
    for (program, value) in programs.iter().zip([a, b]) {
        let path = folder.join(program);
        let text = ARM.replace("VALUE", value).replace("ANSWER", &tokens.to_string());
        std::fs::write(&path, text).unwrap();
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        std::fs::set_permissions(&path, permissions).unwrap();
    }
    let options = RunOptions {
        suite: SuiteText { name: "compared".into(), text: suite() },
        effort: Effort::Quick,
        blocks: Some(blocks),
        seed: None,
        vars: Vec::new(),
        part: SuiteSelection::default(),
        out: folder.join("out"),
        command: vec!["test".into()],
        version: "test".into(),
        started_unix_s: 1_767_225_600,
        programs: ProgramLocator::new(folder.join("confide")),
    };
    let outcome = run_suite(&options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    LoadedRecord::read(outcome.record_path.parent().unwrap()).unwrap()
}

fn suite() -> String {
    let arm = |name: &str| {
        format!(
            "[[arm]]\nname = \"{name}\"\nlabel = \"{name}\"\ncommand = [\"compared-arm-{name}\"]\n\
             description = \"shell\"\nprotects = \"nobody\"\n"
        )
    };
    format!(
        "[suite]\nname = \"compared\"\ntitle = \"Test\"\nabout = \"test\"\nseed = 7\n{}{}\
         [[bench]]\nname = \"one\"\nmodel = \"spin\"\nload = \"closed\"\narms = [\"a\", \"b\"]\n\
         requests = 1\nrestart_every = 0\nblocks = {{ quick = 12, full = 24 }}\n\
         same_answer = false\n\
         [[bench.metric]]\nname = \"work_ms\"\nlabel = \"work\"\nheadline = true\n",
        arm("a"),
        arm("b"),
    )
}

fn scratch_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("compared").join(name)
}
