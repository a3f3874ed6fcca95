//! `confide-arm adapter-batch`: whole batches of the masked scheme, so that what is made ahead of
//! time is counted.

use std::time::Instant;

use confide_arm_line::{Hello, Report, Run, Sample, Stopwatch, speak};
use serde_json::json;

use super::{
    floor,
    masked::Masked,
    problem::{Problem, Shape},
    step::Step,
};
use crate::Outcome;

#[derive(clap::Args)]
pub(crate) struct Args {}

/// Deltas whose error is looked at in each batch: float64 takes longer than an answer.
const CHECKED: usize = 4;

pub(crate) fn run(_: Args) -> Outcome {
    let problem = Problem::new(Shape::PUBLISHED);
    let mut masked = Masked::new(&problem)?;
    let hello = Hello {
        arm: "masked, whole batches".into(),
        version: format!("confide {}", env!("CARGO_PKG_VERSION")),
        simulated: false,
        guarantee: Some(masked.guarantee()),
        threads: 1,
        note: Some(format!("{} tokens to a batch", masked.tokens())),
    };
    speak(&hello, |order| measure(order, &problem, &mut masked)).map_err(|e| e.to_string())
}

fn measure(order: &Run, problem: &Problem, masked: &mut Masked) -> Outcome<Report> {
    order.knows_only(&["width", "rank"])?;
    let inputs: Vec<Vec<f32>> = (0..16).map(|number| problem.input(order.seed, number)).collect();
    let watch = Stopwatch::start();
    let mut report = Report::default();
    for _ in 0..order.requests {
        report.samples.push(batch(problem, masked, &inputs)?);
    }
    (report.wall_s, report.cpu_s) = watch.stop();
    let name = "keystream and transforms that the offline share cannot do without";
    let floor_ms = floor::offline_ms(problem.shape.width)?;
    report.floor = Some((name.into(), "step_ms".into(), floor_ms));
    Ok(report)
}

fn batch(problem: &Problem, masked: &mut Masked, inputs: &[Vec<f32>]) -> Outcome<Sample> {
    let prepared = masked.prepare()?;
    let tokens = masked.tokens();
    let mut delta = vec![0.0; problem.shape.output];
    let (mut refill_ms, mut online_ms, mut worst) = (0.0, 0.0, 0.0f64);
    let before = masked.parts();
    for token in 0..tokens {
        let input = &inputs[token % inputs.len()];
        let began = Instant::now();
        masked.refill();
        refill_ms += began.elapsed().as_secs_f64() * 1e3;
        delta.fill(0.0);
        let began = Instant::now();
        masked.answer(input, &mut delta)?;
        online_ms += began.elapsed().as_secs_f64() * 1e3;
        if token % (tokens / CHECKED) == 0 {
            worst = worst.max(problem.error(input, &delta));
        }
    }
    let b_ms = super::spans::between(&before, &masked.parts()).get("b_ms").copied();
    let of_token = |ms: f64| ms / tokens as f64;
    let holder_ms = of_token(prepared.holder_ms + refill_ms);
    let host_ms = of_token(prepared.host_ms);
    let online_ms = of_token(online_ms - b_ms.unwrap_or_default());
    let mut sample = Sample::default();
    for (name, value) in [
        ("holder_ms", holder_ms),
        ("host_ms", host_ms),
        ("offline_ms", holder_ms + host_ms),
        ("online_ms", online_ms),
        ("step_ms", holder_ms + host_ms + online_ms),
        ("delta_error_ratio", worst),
        ("offline_up_bytes", of_token(prepared.up_bytes as f64)),
        ("offline_down_bytes", of_token(prepared.down_bytes as f64)),
    ] {
        sample.metrics.insert(name.into(), json!(value));
    }
    let close = worst <= masked.error_max();
    sample.answer = json!({ "rows": problem.shape.rank, "close": close });
    Ok(sample)
}
