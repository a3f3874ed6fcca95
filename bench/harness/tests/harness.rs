//! The harness over real processes: tiny arms in shell, each with one habit.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use confide_bench::{
    BenchError, Effort, FinishedRun, ProgramLocator, RunOptions, SuiteSelection, SuiteText,
    Validity, render_record_text, run_suite,
};
use serde_json::Value;

/// An arm that answers every run with `requests` samples; `{HOOK}` runs before each answer.
const ARM: &str = r#"#!/bin/sh
echo '{"type":"hello","protocol":1,"arm":"shell","version":"1","guarantee":"none"}'
while read -r line; do
  case "$line" in *'"end"'*) exit 0;; esac
  id=${line#*'"id":'}; id=${id%%,*}
  block=${line#*'"block":'}; block=${block%%,*}
  value=10; answer=same
  HOOK
  for i in 1 2; do
    echo "{\"type\":\"sample\",\"id\":$id,\"metrics\":{\"work_ms\":$value},\"answer\":{\"text\":\"$answer\"}}"
  done
  echo "{\"type\":\"done\",\"id\":$id,\"metrics\":{\"rate_per_s\":5.5},\"cpu_s\":0.001,\"wall_s\":0.01}"
done
"#;

#[test]
fn a_run_writes_record_samples_and_page_and_has_an_aa_row() {
    let outcome = measure("whole", "", "value=$((10 + block % 3))", |_| {});
    assert_eq!(outcome.record.validity(), &Validity::Valid { judged: 1, failed: 0 });
    let record = json(&outcome.record_path);
    let rows = record["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["twin"] == true && row["aa"] == "valid"));
    assert!(rows.iter().any(|row| row["arm"] == "b" && row["blocks"] == 12));
    assert!(outcome.page_path.is_file());
    assert_eq!(record["suite"]["sha256"].as_str().unwrap().len(), 64);
    assert!(record["machine"]["kernel"].is_string());
    // 12 blocks and one of warm-up, three arms, two samples and a slice each.
    assert_eq!(samples(&outcome).len(), 13 * 3 * 3);
    let table = confide_bench::render_record_text(&outcome.record);
    assert!(table.contains("A/A work") && table.contains("A/A passed, 1 of 1."), "{table}");
}

#[test]
fn a_record_tells_what_slices_cost_and_names_neither_machine_nor_owner() {
    let outcome = measure("cost", "", "", |_| {});
    let text = std::fs::read_to_string(&outcome.record_path).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    let beside = &row(&record, "b", false)["beside"];
    assert!(beside["cpu_s"][0].is_number() && beside["memory_mib"][1].is_number(), "{beside}");
    assert!(beside["harness_cpu_s"].is_number(), "{beside}");
    assert_eq!(beside["slices"], 24);
    assert!(record["machine"]["tee"]["signals"].as_array().unwrap().len() > 5);
    assert!(!record["machine"]["programs"].as_object().unwrap().is_empty());
    for path in ["/proc/sys/kernel/hostname", "/etc/machine-id"] {
        let Ok(name) = std::fs::read_to_string(path) else { continue };
        let word = |c: char| !c.is_alphanumeric() && !"-_.:".contains(c);
        // The command and the suite's text are the caller's own words.
        let private = record["machine"].to_string() + &record["slices"].to_string();
        let found = private.split(word).any(|word| word == name.trim());
        assert!(!found, "the text of {path} is in the record");
    }
}

#[test]
fn an_arm_without_any_figure_is_measured_from_line_to_line() {
    let outcome = measure("exchange", "", "", |options| {
        let text = &mut options.suite.text;
        *text = text.replace("work_ms", "exchange_us").replace("requests = 2", "requests = 1");
        let silent = r#"#!/bin/sh
echo '{"type":"hello","protocol":1,"arm":"silent","version":"1"}'
while read -r line; do
  case "$line" in *'"end"'*) exit 0;; esac
  id=${line#*'"id":'}; id=${id%%,*}
  echo "{\"type\":\"done\",\"id\":$id}"
done
"#;
        for arm in ["arm-a", "arm-b"] {
            let path = options.out.with_file_name(arm);
            std::fs::write(path, silent).unwrap();
        }
    });
    let record = json(&outcome.record_path);
    assert!(row(&record, "b", false)["clear"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_page_needs_no_network_and_runs_nothing_of_what_arms_say() {
    let outcome = measure("page", "", "", |options| {
        options.suite.text =
            options.suite.text.replace("about = \"test\"", "about = \"<script>alert(1)</script>\"");
    });
    let page = std::fs::read_to_string(&outcome.page_path).unwrap();
    for forbidden in ["src=", "@import", "url(", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert_eq!(page.matches("<script").count(), 1, "ours, which the policy names by its hash");
    for link in page.split("href=\"").skip(1) {
        let inside = ["#", "?", "data:application/gzip;base64,"];
        assert!(inside.iter().any(|start| link.starts_with(start)), "{}", &link[..40]);
    }
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(page.contains("A/A passed, 1 of 1."));
}

#[test]
fn the_same_seed_gives_the_same_order_and_another_seed_another() {
    let order = |name: &str, seed| {
        let outcome = measure(name, "", "", |options| options.seed = Some(seed));
        samples(&outcome)
            .iter()
            .filter(|line| line["kind"] == "slice")
            .map(|line| format!("{}{}{}", line["block"], line["arm"], line["twin"]))
            .collect::<Vec<_>>()
    };
    // Slices are written by arm; their position in the block is `order`.
    assert_eq!(order("order-1", 5), order("order-2", 5));
    let positions = |name: &str, seed| {
        let outcome = measure(name, "", "", |options| options.seed = Some(seed));
        let lines = samples(&outcome);
        let slices = lines.iter().filter(|line| line["kind"] == "slice");
        slices.map(|line| line["order"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(positions("order-3", 5), positions("order-4", 5));
    assert_ne!(positions("order-5", 5), positions("order-6", 6));
}

#[test]
fn a_wrong_answer_voids_the_pair_and_is_recorded() {
    let outcome = measure("wrong", "", "[ $block = 4 ] && answer=other", |_| {});
    let record = json(&outcome.record_path);
    let voids = record["voids"].as_array().unwrap();
    assert_eq!(voids.len(), 1);
    assert_eq!((&voids[0]["arm"], &voids[0]["block"]), (&Value::from("b"), &Value::from(4)));
    assert!(voids[0]["reason"].as_str().unwrap().contains("differs"));
    assert_eq!(row(&record, "b", false)["blocks"], 11);
    assert_eq!(row(&record, "a", true)["blocks"], 12);
}

#[test]
fn an_answer_other_than_expected_voids_every_pair_of_the_block() {
    let hook = "[ $block = 4 ] && answer=other";
    let outcome = measure("expected", hook, "", |options| {
        let with = "requests = 2\nexpect = { text = \"same\" }";
        options.suite.text = options.suite.text.replace("requests = 2", with);
    });
    let record = json(&outcome.record_path);
    assert_eq!(row(&record, "b", false)["blocks"], 11);
    assert_eq!(row(&record, "a", true)["blocks"], 11);
}

#[test]
fn a_dying_arm_voids_the_block_and_is_started_again() {
    let outcome = measure("dying", "", "[ $block = 4 ] && echo gone >&2 && exit 3", |_| {});
    let record = json(&outcome.record_path);
    let reason = record["voids"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("exit status: 3") || reason.contains("block void"), "{reason}");
    assert_eq!(row(&record, "b", false)["blocks"], 11);
    assert_eq!(row(&record, "a", true)["blocks"], 11);
    let log = outcome.record_path.with_file_name("log").join("b.stderr");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "gone\n");
}

#[test]
fn a_silent_arm_is_left_out_after_three_deadlines_and_the_others_go_on() {
    let outcome = measure("silent", "", "[ $block -gt 2 ] && sleep 60", |options| {
        options.suite.text =
            options.suite.text.replace("requests = 2", "requests = 2\ndeadline_s = 1");
    });
    let record = json(&outcome.record_path);
    let arms = record["arms"].as_array().unwrap();
    let arm = arms.iter().find(|arm| arm["name"] == "b").unwrap();
    assert!(arm["given_up"].as_str().unwrap().contains("silent"));
    assert_eq!(row(&record, "b", false)["blocks"], 2);
    assert_eq!(row(&record, "a", true)["blocks"], 9);
}

#[test]
fn an_arm_that_says_nothing_sensible_is_left_out_with_the_reason() {
    let outcome = measure("nonsense", "", "echo nonsense", |_| {});
    let record = json(&outcome.record_path);
    let arms = record["arms"].as_array().unwrap();
    let arm = arms.iter().find(|arm| arm["name"] == "b").unwrap();
    assert!(arm["given_up"].as_str().unwrap().contains("unexpected line: nonsense"));
    assert!(render_record_text(&outcome.record).contains("Left out: one, b: "));
}

#[test]
fn an_arm_without_what_it_needs_is_not_run_and_says_why() {
    let outcome = measure("needs", "", "", |options| {
        let needs = "arm-b\"]\nneeds = { path = \"/no/such/wheel\", otherwise = \"no wheel\" }";
        options.suite.text = options.suite.text.replace("arm-b\"]", needs);
    });
    let record = json(&outcome.record_path);
    assert_eq!(row(&record, "a", true)["blocks"], 12);
    assert!(record["voids"].as_array().unwrap().is_empty());
    assert!(render_record_text(&outcome.record).contains("Left out: one, b: no wheel"));
}

#[test]
fn an_arm_that_says_it_cannot_work_here_is_left_out_and_its_first_block_counts() {
    let outcome = measure("cannot", "", "", |options| {
        edit(options, "b", "\"guarantee\":\"none\"", "\"cannot\":\"no direct I/O here\"");
    });
    let record = json(&outcome.record_path);
    assert_eq!(row(&record, "a", true)["blocks"], 12);
    assert!(record["voids"].as_array().unwrap().is_empty());
    assert!(render_record_text(&outcome.record).contains("Left out: one, b: no direct I/O here"));
}

#[test]
fn an_arm_that_needs_no_warming_is_asked_only_for_what_is_measured() {
    let count = |name: &str, hello: &str| {
        let outcome = measure(name, "", "echo asked >&2", |options| {
            edit(options, "b", "\"guarantee\":\"none\"", hello);
        });
        let log = outcome.record_path.with_file_name("log").join("b.stderr");
        std::fs::read_to_string(log).unwrap().lines().count()
    };
    // 12 blocks and one of warm-up; a process that is new in each is asked once more.
    assert_eq!(count("warmed", "\"warming\":true"), 26);
    assert_eq!(count("unwarmed", "\"warming\":false"), 13);
}

#[test]
fn what_arms_remark_stands_beside_their_rows_with_how_often() {
    let outcome = measure("marks", "", "", |options| {
        let done = "\\\"cpu_s\\\":0.001";
        let always = format!("\\\"marks\\\":[\\\"from a cache\\\"],{done}");
        edit(options, "a", done, &always);
        edit(options, "b", done, &always.replace("from a cache", "unsteady in $block"));
    });
    let table = render_record_text(&outcome.record);
    assert!(table.contains("a: from a cache"), "{table}");
    assert!(table.contains("unsteady in 3 (1 of 24 runs)"), "{table}");
    let twin = table.lines().find(|line| line.starts_with("A/A")).unwrap();
    assert!(twin.ends_with(", from a cache"), "{twin}");
}

#[test]
fn a_second_reference_has_rows_of_its_own() {
    let outcome = measure("second", "", "value=20", |options| {
        let folder = options.out.parent().unwrap().to_owned();
        let script = std::fs::read_to_string(folder.join("arm-b")).unwrap();
        let third = arm(&folder, "c").replace("arm-c", "arm-a");
        assert!(script.contains("value=20"));
        let text = options.suite.text.replace("[[bench]]", &format!("{third}[[bench]]"));
        let text = text.replace("[\"a\", \"b\"]", "[\"a\", \"b\", \"c\"]");
        options.suite.text = text + "also_against = \"b\"\n";
    });
    let record = json(&outcome.record_path);
    let rows = record["rows"].as_array().unwrap();
    let of = |arm: &str, against: &str| {
        let found = rows
            .iter()
            .find(|row| row["arm"] == arm && row["reference"] == against && row["twin"] == false);
        found.map(|row| row["ratio"]["value"].as_f64().unwrap())
    };
    assert_eq!(of("b", "a"), Some(2.0));
    assert_eq!(of("c", "b"), Some(0.5));
    assert_eq!(of("b", "b"), None);
    assert!(rows.iter().any(|row| row["label"] == "work: c, against b"));
}

#[test]
fn what_gives_more_per_thread_than_fewer_threads_is_marked() {
    let marked = |name: &str, value: &str| {
        let outcome = measure(name, "", value, |options| {
            let text = options.suite.text.replace("headline", "better = \"higher\"\nheadline");
            options.suite.text = text + "scales = true\n";
        });
        render_record_text(&outcome.record)
            .contains("out of line: more per thread than the reference")
    };
    assert!(marked("rises", "value=25"));
    assert!(!marked("falls", "value=9"));
}

#[test]
fn a_variable_can_be_given_and_an_unknown_one_is_an_error() {
    let error = |name: &str| {
        let mut options = options(&scratch(name), "", "");
        options.suite.text.push_str("[vars]\nplace = \"here\"\n");
        options.vars = vec![(name.to_owned(), "there".to_owned())];
        run_suite(&options, &AtomicBool::new(true), &mut |_| {})
    };
    assert!(error("place").is_ok());
    assert!(matches!(error("colour"), Err(BenchError::UnknownVar { .. })));
}

#[test]
fn the_page_shows_published_tables_with_our_figures_beside_theirs() {
    let outcome = measure("published", "", "", |options| {
        options.suite.text.push_str(
            r#"
            [[answer]]
            title = "Their table"
            source = "a report"
            protects = "nobody, they say"
            [[answer.row]]
            what = "their work"
            theirs = "3 ms"
            ours = [{ bench = "one", arm = "b", metric = "work_ms" }]
            [[answer.row]]
            what = "their device"
            theirs = "1 ms"
            absent = "no device here"
            [[answer.row]]
            what = "their other"
            theirs = "2 ms"
            ours = [{ bench = "one", arm = "b", metric = "nothing_ms" }]
            [[quoted]]
            system = "another"
            model = "large"
            hardware = "much"
            encrypted = "all"
            protects = "the user from the server"
            rate = "0.1 /s"
            seed_says = "0.2 /s"
            source = "a paper"
        "#,
        );
    });
    let page = std::fs::read_to_string(&outcome.page_path).unwrap();
    for wanted in ["Their table", "nobody, they say", "3 ms", "<b>10.0 ms</b>", "no device here"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    for wanted in ["not measured", "the user from the server", "quoted", "0.2 /s"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    let again = confide_bench::rebuild_report(outcome.record_path.parent().unwrap()).unwrap();
    assert_eq!(std::fs::read_to_string(&again.page_path).unwrap(), page);
}

#[test]
fn an_interrupted_run_leaves_a_valid_partial_record_that_reports() {
    let folder = scratch("partial");
    let options = options(&folder, "", "");
    let stop = AtomicBool::new(false);
    let mut slices = 0;
    let outcome = run_suite(&options, &stop, &mut |_| {
        slices += 1;
        stop.store(slices >= 16, Ordering::Relaxed);
    })
    .unwrap();
    assert!(outcome.record.partial().unwrap().contains("interrupted"));
    let record = json(&outcome.record_path);
    let blocks = row(&record, "b", false)["blocks"].as_u64().unwrap();
    assert!((2..12).contains(&blocks), "{blocks}");
    let again = confide_bench::rebuild_report(&folder.join("out")).unwrap();
    assert_eq!(
        confide_bench::render_record_text(&again.record),
        confide_bench::render_record_text(&outcome.record)
    );
}

#[test]
fn an_earlier_record_is_kept() {
    let folder = scratch("earlier");
    let options = options(&folder, "", "");
    let stop = AtomicBool::new(false);
    run_suite(&options, &stop, &mut |_| {}).unwrap();
    run_suite(&options, &stop, &mut |_| {}).unwrap();
    assert!(folder.join("out/earlier/1/record.json").is_file());
    assert!(folder.join("out/record.json").is_file());
}

#[test]
fn services_get_ready_and_are_known_to_arms_and_to_later_services() {
    let outcome = measure("services", "", "", |options| {
        let services = r#"
            [[service]]
            name = "first"
            command = ["sh", "-c", "echo '{\"ready\":true,\"listen\":\"here:1\"}'; sleep 60"]
            [[service]]
            name = "second"
            command = ["sh", "-c", "echo '{\"ready\":true,\"listen\":\"'$0'+2\"}'; sleep 60", "{first.listen}"]
            [[service]]
            name = "unneeded"
            command = ["false"]
        "#;
        options.suite.text =
            options.suite.text.replace("arm-b\"]", "arm-b\", \"{second.listen}\"]");
        options.suite.text.push_str(services);
    });
    let record = json(&outcome.record_path);
    assert_eq!(record["services"].as_array().unwrap().len(), 2);
    assert_eq!(record["services"][1]["ready"]["listen"], "here:1+2");
    let arms = record["arms"].as_array().unwrap();
    let arm = arms.iter().find(|arm| arm["name"] == "b").unwrap();
    assert_eq!(arm["command"][1], "here:1+2");
}

#[test]
fn arms_whose_service_cannot_work_here_are_left_out_with_its_reason() {
    let outcome = measure("cannot", "", "", |options| {
        let services = r#"
            [[service]]
            name = "first"
            command = ["echo", '{"cannot":"no privilege"}']
            [[service]]
            name = "second"
            command = ["false", "{first.listen}"]
        "#;
        options.suite.text =
            options.suite.text.replace("arm-b\"]", "arm-b\", \"{second.listen}\"]");
        options.suite.text.push_str(services);
    });
    assert!(outcome.record.not_run().is_empty(), "{:?}", outcome.record.not_run());
    let record = json(&outcome.record_path);
    let arms = record["arms"].as_array().unwrap();
    let arm = arms.iter().find(|arm| arm["name"] == "b").unwrap();
    assert_eq!(arm["given_up"], "first: no privilege");
    assert!(record["rows"].as_array().unwrap().iter().any(|row| row["twin"] == true));
}

#[test]
fn a_service_that_does_not_get_ready_leaves_its_bench_out_with_the_reason() {
    let outcome = measure("unready", "", "", |options| {
        let service = "\n[[service]]\nname = \"broken\"\ncommand = [\"false\"]\n";
        options.suite.text = options.suite.text.replace("arm-b\"]", "arm-b\", \"{broken.x}\"]");
        options.suite.text.push_str(service);
    });
    let not_run = outcome.record.not_run();
    assert_eq!(not_run.len(), 1);
    assert!(not_run[0].contains("broken"), "{not_run:?}");
}

/// Runs a suite of two shell arms with these hooks.
fn measure(name: &str, a: &str, b: &str, change: impl FnOnce(&mut RunOptions)) -> FinishedRun {
    let mut options = options(&scratch(name), a, b);
    change(&mut options);
    run_suite(&options, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

/// Replaces a piece of an arm's script.
fn edit(options: &RunOptions, name: &str, from: &str, to: &str) {
    let path = options.out.with_file_name(format!("arm-{name}"));
    let script = std::fs::read_to_string(&path).unwrap();
    assert!(script.contains(from), "{script}");
    std::fs::write(&path, script.replace(from, to)).unwrap();
}

fn options(folder: &Path, a: &str, b: &str) -> RunOptions {
    for (name, hook) in [("a", a), ("b", b)] {
        let path = folder.join(format!("arm-{name}"));
        std::fs::write(&path, ARM.replace("HOOK", if hook.is_empty() { ":" } else { hook }))
            .unwrap();
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        std::fs::set_permissions(&path, permissions).unwrap();
    }
    let text = format!(
        "[suite]\nname = \"test\"\ntitle = \"Test\"\nabout = \"test\"\nseed = 7\n{}{}\
         [[bench]]\nname = \"one\"\nmodel = \"spin\"\nload = \"closed\"\narms = [\"a\", \"b\"]\n\
         requests = 2\nblocks = {{ quick = 12, full = 24 }}\n\
         [[bench.metric]]\nname = \"work_ms\"\nlabel = \"work\"\nheadline = true\n",
        arm(folder, "a"),
        arm(folder, "b"),
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
    format!(
        "[[arm]]\nname = \"{name}\"\nlabel = \"{name}\"\ncommand = [\"{}\"]\n\
         description = \"shell\"\nprotects = \"nobody\"\n",
        path.display()
    )
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns a line for each sample, then one for its slice.
fn samples(outcome: &FinishedRun) -> Vec<Value> {
    let mut lines = Vec::new();
    for slice in json(&outcome.record_path)["slices"].as_array().unwrap() {
        for _ in 0..slice["samples"].as_u64().unwrap() {
            let mut sample = slice.clone();
            sample["kind"] = "sample".into();
            lines.push(sample);
        }
        let mut slice = slice.clone();
        slice["kind"] = "slice".into();
        lines.push(slice);
    }
    lines
}

fn row<'a>(record: &'a Value, arm: &str, twin: bool) -> &'a Value {
    let rows = record["rows"].as_array().unwrap();
    rows.iter().find(|row| row["arm"] == arm && row["twin"] == twin).unwrap()
}
