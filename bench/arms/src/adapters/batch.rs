//! `confide-arm adapter-batch`: whole batches of the masked scheme, so that what is made ahead of
//! time is counted.

use std::time::Instant;

use confide_arm_line::{Hello, Outcome, Report, Run, Sample, serve_runs};
use serde_json::json;

use super::{
    floor,
    masked::MaskedScheme,
    problem::{ProjectionShape, RandomProjection},
    spans::duration_differences,
    step::ProjectionStep,
};
use crate::version::VERSION;

#[derive(clap::Args)]
pub(crate) struct Args {}

/// Deltas of each batch whose error is computed: float64 takes longer than an answer.
const CHECKED_DELTAS: usize = 4;

pub(crate) fn run(_: Args) -> Outcome {
    let problem = RandomProjection::new(ProjectionShape::PUBLISHED);
    let mut masked = MaskedScheme::new(&problem)?;
    let hello = Hello {
        guarantee: Some(masked.guarantee()),
        note: Some(format!("{} tokens to a batch", masked.batch_tokens())),
        ..Hello::new("masked, whole batches", VERSION)
    };
    serve_runs(&hello, |order| measure(order, &problem, &mut masked))
}

fn measure(order: &Run, problem: &RandomProjection, masked: &mut MaskedScheme) -> Outcome<Report> {
    order.refuse_unknown_params(&["width", "rank"])?;
    let inputs: Vec<Vec<f32>> = (0..16).map(|number| problem.input(order.seed, number)).collect();
    let mut report = order.measure_each(|_| measure_batch(problem, masked, &inputs))?;
    let name = "keystream and transforms that the offline share cannot do without";
    let floor_ms = floor::measure_offline_floor_ms(problem.shape.width)?;
    report.floor = Some((name.into(), "step_ms".into(), floor_ms));
    Ok(report)
}

fn measure_batch(
    problem: &RandomProjection,
    masked: &mut MaskedScheme,
    inputs: &[Vec<f32>],
) -> Outcome<Sample> {
    let prepared = masked.prepare_batch()?;
    let tokens = masked.batch_tokens();
    let mut delta = vec![0.0; problem.shape.output];
    let (mut refill_ms, mut online_ms, mut worst) = (0.0, 0.0, 0.0f64);
    let before = masked.durations_ms();
    for token in 0..tokens {
        let input = &inputs[token % inputs.len()];
        let began = Instant::now();
        masked.refill_masks();
        refill_ms += began.elapsed().as_secs_f64() * 1e3;
        delta.fill(0.0);
        let began = Instant::now();
        masked.add_prepared_delta(input, &mut delta)?;
        online_ms += began.elapsed().as_secs_f64() * 1e3;
        if token % (tokens / CHECKED_DELTAS) == 0 {
            worst = worst.max(problem.relative_error(input, &delta));
        }
    }
    let b_ms = duration_differences(&before, &masked.durations_ms()).get("b_ms").copied();
    let of_token = |ms: f64| ms / tokens as f64;
    let holder_ms = of_token(prepared.holder_ms + refill_ms);
    let host_ms = of_token(prepared.host_ms);
    let online_ms = of_token(online_ms - b_ms.unwrap_or_default());
    let mut sample = Sample::new([
        ("holder_ms", holder_ms),
        ("host_ms", host_ms),
        ("offline_ms", holder_ms + host_ms),
        ("online_ms", online_ms),
        ("step_ms", holder_ms + host_ms + online_ms),
        ("delta_error_ratio", worst),
        ("offline_up_bytes", of_token(prepared.up_bytes as f64)),
        ("offline_down_bytes", of_token(prepared.down_bytes as f64)),
    ]);
    let close = worst <= masked.error_max();
    sample.answer = json!({ "rows": problem.shape.rank, "close": close });
    Ok(sample)
}
