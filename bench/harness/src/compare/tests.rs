//! Every refusal by its reason, and what is shown where nothing is refused.

use confide_estimate::Random;

use super::*;
use crate::{
    record::Session,
    samples::Slice,
    selftest::synthetic::{
        Noise, SyntheticSuite, make_loaded_record, make_sample, make_slice, make_slices,
        token_count_answer,
    },
};

/// A record of 20 blocks whose arm b costs 10 % more, on a machine `slower` than another.
fn machine(shape: &SyntheticSuite, seed: u64, slower: f64) -> LoadedRecord {
    let mut random = Random::new(seed);
    let arms = [("a", false, slower), ("a", true, slower), ("b", false, 0.1 + slower)];
    let slices = make_slices(&arms, 20, Noise::Quiet, &mut random);
    make_loaded_record(shape, 1_000 + seed, Vec::new(), slices).unwrap()
}

fn pair() -> [LoadedRecord; 2] {
    [machine(&SyntheticSuite::default(), 1, 0.0), machine(&SyntheticSuite::default(), 2, 0.0)]
}

fn compare_two(a: &LoadedRecord, b: &LoadedRecord) -> Comparison {
    compare(std::slice::from_ref(a), std::slice::from_ref(b), &CompareOptions::default())
}

fn record_refusals(a: &LoadedRecord, b: &LoadedRecord) -> Vec<RefusalReason> {
    let comparison = compare_two(a, b);
    assert!(comparison.rows.is_empty(), "{}", comparison.text());
    comparison.refusals().iter().map(|refusal| refusal.reason).collect()
}

#[test]
fn one_record_a_side_is_confounded_and_has_no_interval() {
    let [a, b] = pair();
    let comparison = compare_two(&a, &b);
    assert!(comparison.has_compared_rows());
    assert_eq!(comparison.rows.len(), 2);
    for row in &comparison.rows {
        assert!(matches!(row.result, ComparisonResult::Confounded { ratio: Some(_), .. }));
        assert_eq!(row.a.twins.len(), 1);
    }
    let text = comparison.text();
    assert!(text.contains("confounded: machine, no interval"), "{text}");
    assert!(comparison.markdown().contains("| layer | A | B |"));
    let json: serde_json::Value = serde_json::from_str(&comparison.json().unwrap()).unwrap();
    assert_eq!(json["rows"][0]["result"]["result"], "confounded");
}

#[test]
fn several_records_a_side_are_clusters_with_an_interval() {
    let shape = SyntheticSuite::default();
    let side = |from: u64, slower: f64| -> Vec<LoadedRecord> {
        (from..from + 6).map(|seed| machine(&shape, seed, slower)).collect()
    };
    let (a, b) = (side(10, 0.0), side(20, 0.5));
    let comparison = compare(&a, &b, &CompareOptions::default());
    let ComparisonResult::Clustered { ratio: Some(spread), .. } = &comparison.rows[0].result else {
        panic!("{}", comparison.text())
    };
    assert_eq!((spread.clusters, spread.method, spread.few), ([6, 6], "bca", false));
    assert!(spread.low < 1.5 && spread.high > 1.5, "{spread:?}");
    assert!(comparison.text().contains("6 and 6 clusters"));
    let few = compare(&a[..2], &b[..2], &CompareOptions::default());
    let ComparisonResult::Clustered { ratio: Some(spread), .. } = &few.rows[0].result else {
        panic!()
    };
    assert!(spread.few && spread.method == "student");
    assert!(few.text().contains("too few to tell them apart"));
}

#[test]
fn records_of_one_boot_are_one_cluster() {
    let shape = SyntheticSuite::default();
    let mut a: Vec<LoadedRecord> = (30..32).map(|seed| machine(&shape, seed, 0.0)).collect();
    for loaded in &mut a {
        let started_unix_s = loaded.record.started_unix_s;
        loaded.record.sessions.push(Session {
            started_unix_s,
            wall_s: 1.0,
            boot: "one boot".into(),
            ended: crate::record::SessionEnd::Completed,
            command: Vec::new(),
        });
    }
    let b = vec![machine(&shape, 40, 0.0), machine(&shape, 41, 0.0)];
    let comparison = compare(&a, &b, &CompareOptions::default());
    assert_eq!((comparison.rows[0].a.clusters, comparison.rows[0].b.clusters), (1, 2));
    assert!(matches!(comparison.rows[0].result, ComparisonResult::Confounded { .. }));
}

#[test]
fn a_record_is_not_compared_with_itself_or_with_nothing() {
    let [a, _] = pair();
    assert_eq!(record_refusals(&a, &a), [RefusalReason::SameRecord]);
    let nothing = compare(&[], std::slice::from_ref(&a), &CompareOptions::default());
    assert_eq!(nothing.refusals()[0].reason, RefusalReason::NoRecord);
}

#[test]
fn suites_that_set_up_other_services_or_values_are_refused() {
    let [a, b] = pair();
    for more in [
        "[[service]]\nname = \"server\"\ncommand = [\"server\"]\n",
        "[[prepare]]\nname = \"files\"\ncommand = [\"make\"]\n",
        "[vars]\nrate = \"3\"\n",
    ] {
        let mut other = b.clone();
        other.record.suite.text.push_str(more);
        assert_eq!(record_refusals(&a, &other), [RefusalReason::DifferentSuite], "{more}");
    }
    // A margin or a comment changes nothing that was measured.
    let mut other = b.clone();
    other.record.suite.text.push_str("# a remark\n");
    assert!(compare_two(&a, &other).has_compared_rows());
}

#[test]
fn invalid_and_partial_records_are_refused() {
    let [a, b] = pair();
    let mut bad = b.clone();
    bad.record.validity = crate::validity::Validity::Invalid { reasons: vec!["work".into()] };
    assert_eq!(record_refusals(&a, &bad), [RefusalReason::Invalid]);
    let mut bad = b;
    bad.record.partial = Some("interrupted".into());
    assert_eq!(record_refusals(&bad, &a), [RefusalReason::Partial]);
}

#[test]
fn other_suites_definitions_params_loads_and_seeds_are_refused_by_name() {
    let [a, _] = pair();
    for (shape, reason) in [
        (
            SyntheticSuite { model: "chat-ttft", ..SyntheticSuite::default() },
            RefusalReason::DifferentDefinition,
        ),
        (
            SyntheticSuite { stat: "p50", ..SyntheticSuite::default() },
            RefusalReason::DifferentDefinition,
        ),
        (
            SyntheticSuite { params: "tokens = 5", ..SyntheticSuite::default() },
            RefusalReason::DifferentParams,
        ),
        (
            SyntheticSuite { load: "open", ..SyntheticSuite::default() },
            RefusalReason::DifferentLoad,
        ),
    ] {
        assert_eq!(record_refusals(&a, &machine(&shape, 2, 0.0)), [reason]);
    }
    let mut other = machine(&SyntheticSuite::default(), 2, 0.0);
    other.record.seed = 7;
    assert_eq!(record_refusals(&a, &other), [RefusalReason::DifferentSeed]);
}

#[test]
fn other_commits_and_margins_of_the_same_suite_and_arms_are_compared_and_named() {
    let [a, mut b] = pair();
    b.record.commit = "another".into();
    let compared = compare_two(&a, &b);
    assert!(
        compared.has_compared_rows() && compared.says[0].contains("across commits"),
        "{compared:?}"
    );
    let shape = SyntheticSuite { more: "margin = 0.05", ..SyntheticSuite::default() };
    let compared = compare_two(&a, &machine(&shape, 2, 0.0));
    assert!(
        compared.has_compared_rows() && compared.says[0].contains("text differs"),
        "{compared:?}"
    );
}

#[test]
fn another_peer_and_another_command_are_refused_unless_that_is_taken_upon_oneself() {
    let [a, mut b] = pair();
    b.record.arms[1].version = "2".into();
    assert_eq!(record_refusals(&a, &b), [RefusalReason::DifferentVersion]);
    let [_, mut b] = pair();
    b.record.suite.text = b.record.suite.text.replacen("command = [\"", "command = [\"other-", 1);
    assert_eq!(record_refusals(&a, &b), [RefusalReason::DifferentVersion]);
    let options = CompareOptions { dangerous_across_versions: true, ..Default::default() };
    assert!(compare(&[a], &[b], &options).has_compared_rows());
}

#[test]
fn table_and_ratio_have_the_same_centre_and_a_slower_side_is_flagged() {
    let [mut a, mut b] = pair();
    for (side, us) in [(&mut a, 200.0), (&mut b, 800.0)] {
        side.slices.iter_mut().for_each(|slice| slice.quiet.calibration_us = us);
    }
    let compared = compare_two(&a, &b);
    let ComparisonResult::Confounded { ratio: Some(ratio), .. } = compared.rows[0].result else {
        panic!()
    };
    let [of_a, of_b] = [&compared.rows[0].a, &compared.rows[0].b].map(|side| side.value.unwrap());
    assert!((of_b / of_a - ratio).abs() < 1e-9);
    assert!(
        compared.text().contains("WARNING: B's processor was x4.00 slower"),
        "{}",
        compared.text()
    );
}

#[test]
fn other_hardware_gives_two_columns_and_no_ratio() {
    let [a, mut b] = pair();
    b.record.machine.cpu_model = "another processor".into();
    let comparison = compare_two(&a, &b);
    assert!(!comparison.has_compared_rows());
    assert_eq!(comparison.row_refusal_reasons(), [RefusalReason::DifferentHardware; 2]);
    assert!(comparison.text().contains("no ratio"));
    let options = CompareOptions { dangerous_across_hardware: true, ..Default::default() };
    let across = compare(std::slice::from_ref(&a), std::slice::from_ref(&b), &options);
    assert!(
        across.has_compared_rows()
            && across.text().contains("different hardware, so not an overhead")
    );
    b.record.machine.cpu_model = "unknown".into();
    assert_eq!(compare_two(&b, &a).row_refusal_reasons(), [RefusalReason::DifferentHardware; 2]);
}

#[test]
fn unequal_work_is_refused() {
    let shape = SyntheticSuite { arms: vec!["a"], ..SyntheticSuite::default() };
    let with = |seed, count| {
        let mut record = machine(&shape, seed, 0.0);
        record.slices.iter_mut().for_each(|slice| slice.answer = token_count_answer(count));
        record
    };
    assert_eq!(
        compare_two(&with(1, 200), &with(2, 180)).row_refusal_reasons(),
        [RefusalReason::UnequalWork]
    );
    assert!(compare_two(&with(1, 200), &with(2, 200)).has_compared_rows());
    let proof = |seed, bytes: f64| {
        let mut record = machine(&shape, seed, 0.0);
        for slice in &mut record.slices {
            slice.metrics.insert("proof_bytes".into(), bytes);
        }
        record
    };
    assert_eq!(
        compare_two(&proof(1, 3000.0), &proof(2, 1000.0)).row_refusal_reasons(),
        [RefusalReason::UnequalWork]
    );
}

/// Changes every slice of B and returns the reasons for which its rows are refused.
fn refused_rows(shape: &SyntheticSuite, change: impl Fn(&mut Slice)) -> Vec<RefusalReason> {
    let mut b = machine(shape, 2, 0.0);
    b.slices.iter_mut().for_each(change);
    compare_two(&machine(shape, 1, 0.0), &b).row_refusal_reasons()
}

#[test]
fn client_bound_simulated_cached_and_missing_rows_are_refused() {
    let one = SyntheticSuite { arms: vec!["a"], client: "load", ..SyntheticSuite::default() };
    let bound = refused_rows(&one, |slice| slice.client_cpu = Some(0.95));
    assert_eq!(bound, [RefusalReason::ClientBound]);
    let simulated = refused_rows(&one, |slice| slice.simulated = true);
    assert_eq!(simulated, [RefusalReason::Simulated]);
    let cached = refused_rows(&one, |slice| slice.marks = vec!["through the page cache".into()]);
    assert_eq!(cached, [RefusalReason::CacheServed]);
    let missing = refused_rows(&one, |slice| slice.void = Some("died".into()));
    assert_eq!(missing, [RefusalReason::Missing]);
}

#[test]
fn a_failed_aa_row_refuses_the_rows_beside_it() {
    let reasons = refused_rows(&SyntheticSuite::default(), |slice| {
        if slice.place.twin {
            slice.metrics.values_mut().for_each(|value| *value *= 1.3);
        }
    });
    assert!(reasons.iter().all(|reason| *reason == RefusalReason::AaFailed) && reasons.len() == 2);
}

#[test]
fn a_percentile_without_a_tail_is_refused() {
    let shape = SyntheticSuite { arms: vec!["a"], stat: "p95", ..SyntheticSuite::default() };
    let record = |seed| {
        let mut random = Random::new(seed);
        let (mut samples, mut slices) = (Vec::new(), Vec::new());
        for (block, twin) in (0..20).flat_map(|block| [(block, false), (block, true)]) {
            let slice =
                Slice { metrics: [].into(), ..make_slice("a", twin, block, "work_ms", 0.0) };
            for index in 0..40 {
                samples.push(make_sample(&slice.place, index, "work_ms", 10.0 + random.uniform()));
            }
            slices.push(slice);
        }
        make_loaded_record(&shape, seed, samples, slices).unwrap()
    };
    let reasons = compare_two(&record(1), &record(2)).row_refusal_reasons();
    assert!(
        reasons.iter().all(|reason| *reason == RefusalReason::WithoutTail) && !reasons.is_empty()
    );
}

#[test]
fn a_closed_loops_latency_that_is_users_over_rate_is_refused() {
    let shape =
        SyntheticSuite { arms: vec!["a"], params: "concurrency = 8", ..SyntheticSuite::default() };
    let littles = |slice: &mut Slice| {
        let latency_s = slice.metrics["work_ms"] / 1e3;
        slice.metrics.insert("rate_per_s".into(), 8.0 / latency_s);
    };
    assert_eq!(refused_rows(&shape, littles), [RefusalReason::LittlesLaw]);
}

#[test]
fn a_floor_measured_on_both_machines_normalises() {
    let shape = SyntheticSuite {
        arms: vec!["a", "b"],
        better: "higher",
        metric: "rate_per_s",
        ..SyntheticSuite::default()
    };
    let record = |seed, speed: f64| {
        let mut slices = Vec::new();
        for block in 0..20 {
            for (arm, twin) in [("a", false), ("a", true), ("b", false)] {
                let mut slice = make_slice(arm, twin, block, "rate_per_s", 100.0 * speed);
                slice.floor = Some(crate::protocol::FloorMeasurement {
                    name: "arithmetic".into(),
                    metric: "rate_per_s".into(),
                    value: 200.0 * speed,
                });
                slices.push(slice);
            }
        }
        make_loaded_record(&shape, seed, Vec::new(), slices).unwrap()
    };
    let comparison = compare_two(&record(1, 1.0), &record(2, 0.5));
    let row = &comparison.rows[1];
    assert!(
        matches!(row.result, ComparisonResult::Confounded { ratio: Some(r), .. } if (r - 2.0).abs() < 1e-9)
    );
    assert!((row.to_floor.as_ref().unwrap().ratio - 1.0).abs() < 1e-9);
}

#[test]
fn what_differs_between_machines_is_named() {
    let [a, mut b] = pair();
    b.record.machine.kernel = "7.0".into();
    let text = compare_two(&a, &b).text();
    assert!(text.contains("kernel:") && text.contains("7.0 on B"), "{text}");
}

/// A record of suite `zk` with one case, whose stages took so many seconds.
fn stages(started: u64, seconds: [f64; 4], cycles: f64) -> LoadedRecord {
    const NAMES: [&str; 4] = ["native", "emulate", "prove", "check"];
    let text = crate::find_suite("zk").unwrap().text;
    let mut slices = Vec::new();
    for block in 0..11 {
        let arms = NAMES.iter().zip(seconds).map(|(arm, wall_s)| (*arm, false, wall_s));
        for (arm, twin, wall_s) in arms.chain([(NAMES[0], true, seconds[0])]) {
            let mut slice = make_slice(arm, twin, block, "wall_s", wall_s);
            slice.place.bench = "stages".into();
            slice.place.case = "work=fibonacci-sort-3000".into();
            slice.metrics.insert("cpu_s".into(), 1.6 * wall_s);
            slice.metrics.insert("peak_rss_mib".into(), 3_600.0);
            slice.metrics.insert("executed_cycles".into(), cycles);
            slice.answer =
                Some(serde_json::json!({"cycles": cycles, "mode": "app", "segments": 1}));
            slices.push(slice);
        }
    }
    let shape = SyntheticSuite { arms: NAMES.into(), ..SyntheticSuite::default() };
    let mut made = make_loaded_record(&shape, started, Vec::new(), slices).unwrap();
    made.record.suite.name = "zk".into();
    made.record.suite.sha256 = crate::record::sha256_hex(&text);
    made.record.suite.text = text;
    made
}

#[test]
fn the_table_of_a_tee_off_and_on_comes_of_two_records_of_suite_zk() {
    let off = stages(1, [0.063, 0.284, 87.67, 0.693], 461_500.0);
    let on = stages(2, [0.064, 0.290, 89.17, 0.700], 461_500.0);
    let options = CompareOptions { all: true, ..CompareOptions::default() };
    let comparison = compare(std::slice::from_ref(&off), std::slice::from_ref(&on), &options);
    let text = comparison.text();
    let line = |label: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(label));
        lines.next().unwrap_or_else(|| panic!("{label}: {text}")).to_owned()
    };
    let proving = line("wall clock, fibonacci-sort-3000: prove");
    for wanted in ["87.7 s", "89.2 s", "x1.017 (+1500 ms)", "confounded: machine", "11 and 11"] {
        assert!(proving.contains(wanted), "{wanted}: {proving}");
    }
    for stage in ["native", "emulate", "check"] {
        line(&format!("CPU, fibonacci-sort-3000: {stage}"));
        line(&format!("peak memory, fibonacci-sort-3000: {stage}"));
    }
    // Other cycles are other work, so nothing is said of the TEE.
    let other = stages(3, [0.064, 0.290, 89.17, 0.700], 463_500.0);
    let comparison = compare(&[off], &[other], &options);
    assert!(!comparison.has_compared_rows());
    assert!(
        comparison.row_refusal_reasons().iter().all(|reason| *reason == RefusalReason::UnequalWork)
    );
}
