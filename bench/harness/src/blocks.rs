//! The blocks of one bench: every arm once, in an order from the seed, answers checked.

use std::{sync::atomic::AtomicBool, time::Duration};

use serde_json::Value;

use crate::{
    arm::{ArmFailure, ArmProcess, ArmRun, RunRequest},
    plan::{Case, random_order, work_seed},
    samples::SamplePlace,
    suite::bench::{Bench, Params},
};

/// Runs every arm once on one case. Returns one run for every arm that was not left out, voids
/// marked, and an error only when it was interrupted.
pub(crate) fn run_block(
    bench: &Bench,
    case: &Case,
    seed: u64,
    block: u32,
    arms: &mut [ArmProcess],
    stop: &AtomicBool,
    mut around: impl FnMut(&mut dyn FnMut() -> Result<ArmRun, ArmFailure>) -> Result<ArmRun, ArmFailure>,
) -> Result<Vec<ArmRun>, ArmFailure> {
    let place = [bench.name.as_str(), case.key.as_str()];
    let warmup = block < bench.warmup;
    let mut ran: Vec<Option<ArmRun>> = arms.iter().map(|_| None).collect();
    let mut broken: Option<String> = None;
    for (position, index) in random_order(seed, &place, block, arms.len()).into_iter().enumerate() {
        let arm = &mut arms[index];
        if arm.given_up.is_some() {
            continue;
        }
        let ask = RunRequest {
            place: SamplePlace {
                bench: bench.name.clone(),
                case: case.key.clone(),
                block,
                arm: arm.name.clone(),
                twin: arm.twin,
            },
            order: position as u32,
            seed: work_seed(seed, &place, block),
            requests: request_count(bench, case),
            params: &case.params,
            deadline: Duration::from_secs(bench.deadline_s.into()),
            warmup,
        };
        match around(&mut || arm.measure_run(&ask, stop)) {
            Ok(done) => ran[index] = Some(done),
            Err(ArmFailure::Interrupted) => return Err(ArmFailure::Interrupted),
            Err(ArmFailure::LeftOut) => {}
            Err(ArmFailure::Void(reason)) => {
                let reason = format!("arm {}: {reason}", arm.describe());
                ran[index] = Some(new_void_run(&ask, &reason));
                broken.get_or_insert(reason);
            }
        }
    }
    void_wrong_answers(bench, &case.params, &mut ran);
    let mut runs: Vec<ArmRun> = ran.into_iter().flatten().collect();
    if let Some(reason) = broken {
        // A dying or silent arm may have disturbed its neighbours, so the whole block is left out.
        for run in &mut runs {
            run.slice.void.get_or_insert_with(|| format!("block void: {reason}"));
        }
    }
    Ok(runs)
}

fn request_count(bench: &Bench, case: &Case) -> u32 {
    let times = bench.requests_times.as_ref().and_then(|name| case.params.get(name)?.as_u64());
    bench.requests.saturating_mul(times.map_or(1, |times| u32::try_from(times).unwrap_or(1)))
}

/// Marks runs whose answers differ from `expect` or, where wanted, from those of the reference arm
/// (the first).
pub(crate) fn void_wrong_answers(bench: &Bench, params: &Params, ran: &mut [Option<ArmRun>]) {
    let reference = ran.first().and_then(Option::as_ref).map(collect_answers);
    for (index, run) in ran.iter_mut().enumerate() {
        let Some(run) = run else { continue };
        if run.slice.void.is_some() {
            continue;
        }
        let mine = collect_answers(run);
        let failed = run.samples.iter().find_map(|sample| sample.error.clone());
        let differs = || {
            let other = reference.as_ref()?;
            (bench.same_answer && index > 0 && *other != mine).then(|| {
                format!(
                    "answer {} differs from the reference arm's {}",
                    describe_answers(&mine),
                    describe_answers(other)
                )
            })
        };
        run.slice.void = failed
            .map(|reason| format!("request failed: {reason}"))
            .or_else(|| describe_unexpected(&bench.expect, params, &mine))
            .or_else(differs);
    }
}

fn collect_answers(run: &ArmRun) -> Vec<Value> {
    let samples = run.samples.iter().filter_map(|sample| sample.answer.clone());
    samples.chain(run.slice.answer.clone()).collect()
}

/// Describes the first key of an answer that is not as the suite expects.
fn describe_unexpected(expect: &Params, params: &Params, answers: &[Value]) -> Option<String> {
    if expect.is_empty() {
        return None;
    }
    if answers.is_empty() {
        return Some("gave no answer, but the suite expects one".into());
    }
    for (key, wanted) in expect {
        let wanted = resolve_param(wanted, params);
        for answer in answers {
            let got = answer.get(key).unwrap_or(&Value::Null);
            if !is_equal(wanted, got) {
                return Some(format!("answer has {key} {got}, wanted {wanted}"));
            }
        }
    }
    None
}

/// Replaces `"{tokens}"` by the run's param of that name.
fn resolve_param<'a>(wanted: &'a Value, params: &'a Params) -> &'a Value {
    let name = wanted.as_str().and_then(|text| text.strip_prefix('{')?.strip_suffix('}'));
    name.and_then(|name| params.get(name)).unwrap_or(wanted)
}

/// True for equal values; numbers are compared by value, so that 200 equals 200.0.
fn is_equal(wanted: &Value, got: &Value) -> bool {
    match (wanted.as_f64(), got.as_f64()) {
        (Some(wanted), Some(got)) => wanted == got,
        _ => wanted == got,
    }
}

fn describe_answers(answers: &[Value]) -> String {
    let text = match answers {
        [one] => one.to_string(),
        many => Value::from(many).to_string(),
    };
    text.chars().take(120).collect()
}

fn new_void_run(ask: &RunRequest<'_>, reason: &str) -> ArmRun {
    let slice = crate::samples::Slice {
        place: ask.place.clone(),
        order: ask.order,
        warmup: ask.warmup,
        void: Some(reason.to_owned()),
        ..Default::default()
    };
    ArmRun { samples: Vec::new(), slice }
}
