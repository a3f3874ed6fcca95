//! `confide-arm adapter-step`: one projection, 1536 to rank 32, under one scheme.
//!
//! A step goes from the vector of floats to `A·x`, everything in this process, each part timed. `B`
//! follows and is timed apart. The answer is compared with float64; an answer that is not close
//! enough voids the pair.

use std::{sync::Arc, time::Instant};

use clap::ValueEnum;
use confide_arm_line::{Hello, Outcome, Report, Run, Sample, serve_runs};
use confide_lora::{
    Adapter, DeltaProvider, DeltaSession, Guarantee, LayerInput, Projection, ProjectionSite,
    plain::LocalAdapter,
};
use confide_report_003::{
    ckks::Parameters,
    ckks_slots::{CkksAdapter, CkksAdapterOptions, DecryptionMode, Packing},
};
use serde_json::json;

use super::{
    direct::DirectScheme,
    dot::measure_copy_ms,
    masked::MaskedScheme,
    problem::{ProjectionShape, RandomProjection},
    spans::{DurationsMs, duration_differences},
    step::{ProjectionStep, lora_pair},
};
use crate::version::VERSION;

/// The scheme that protects the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheme {
    /// Plain LoRA in 32-bit floats.
    Plain,
    /// Masks made before, integers online.
    Masked,
    /// Encrypted, flooded.
    Direct,
    /// Encrypted, N = 2048, not flooded: the adapter is not protected.
    DangerousDirect2048,
    /// CKKS in report 003's layout.
    Ckks,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How `A·x` is computed.
    #[arg(long, value_enum)]
    scheme: Scheme,
    /// Ring degree, for ckks.
    #[arg(long, default_value_t = 16384)]
    n: usize,
    /// The factor that differs from report 003's best layout, for ckks.
    #[arg(long, value_enum)]
    factor: Option<AblatedFactor>,
}

/// A factor of speed that report 003 names, taken out of its best layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AblatedFactor {
    /// Each product is decrypted and decoded before the next.
    OneByOne,
    /// Terms are summed under encryption, by rotations.
    Rotations,
    /// A second product, with B, under encryption.
    TwoProducts,
}

/// Steps shorter than this are repeated within a sample, so that the clock is not what is read.
const SHORT_MS: f64 = 0.2;
/// Repetitions of a short step within a sample.
const REPEATS: u32 = 64;

pub(crate) fn run(args: Args) -> Outcome {
    let problem = RandomProjection::new(ProjectionShape::PUBLISHED);
    let mut step = open_step(&args, &problem)?;
    let hello = Hello {
        guarantee: Some(step.guarantee()),
        ..Hello::new(format!("one projection, {:?}", args.scheme).to_lowercase(), VERSION)
    };
    serve_runs(&hello, |order| measure(order, &problem, step.as_mut()))
}

fn measure(
    order: &Run,
    problem: &RandomProjection,
    step: &mut dyn ProjectionStep,
) -> Outcome<Report> {
    order.refuse_unknown_params(&["width", "rank"])?;
    let shape = ProjectionShape::PUBLISHED;
    for (name, wanted) in [("width", shape.width), ("rank", shape.rank)] {
        let got = order.integer_param(name, wanted as u64)?;
        if got != wanted as u64 {
            return Err(format!("param {name}: wanted {wanted}, got {got}").into());
        }
    }
    let inputs: Vec<Vec<f32>> = (0..order.requests).map(|i| problem.input(order.seed, i)).collect();
    let mut report =
        order.measure_each(|number| measure_sample(problem, step, &inputs[number as usize]))?;
    report.floor = step.measured_floor();
    Ok(report)
}

/// One request: the step once, or the mean of many where it is short.
fn measure_sample(
    problem: &RandomProjection,
    step: &mut dyn ProjectionStep,
    input: &[f32],
) -> Outcome<Sample> {
    let mut delta = vec![0.0; problem.shape.output];
    let (mut total_ms, mut repeats) = (0.0, 0_u32);
    let before = step.durations_ms();
    while repeats == 0 || repeats < REPEATS && total_ms < SHORT_MS * f64::from(repeats) {
        delta.fill(0.0);
        step.prepare_step()?;
        let began = Instant::now();
        step.add_delta(input, &mut delta)?;
        total_ms += began.elapsed().as_secs_f64() * 1e3;
        repeats += 1;
    }
    let mut sample = Sample::default();
    let mut parts_ms = 0.0;
    let mean_ms = |ms: f64| ms / f64::from(repeats);
    let parts = duration_differences(&before, &step.durations_ms());
    for (name, ms) in &parts {
        sample.set(name, mean_ms(*ms));
        parts_ms += ms;
    }
    let b_ms = parts.get("b_ms").copied().unwrap_or_default();
    sample.set("step_ms", mean_ms(total_ms - b_ms));
    sample.set("remainder_ms", mean_ms(total_ms - parts_ms));
    let error = problem.relative_error(input, &delta);
    sample.set("delta_error_ratio", error);
    for (name, bytes) in step.wire_bytes() {
        sample.set(name, bytes as f64);
    }
    let close = error <= step.error_max();
    sample.answer = json!({ "rows": problem.shape.rank, "close": close });
    Ok(sample)
}

fn open_step(args: &Args, problem: &RandomProjection) -> Outcome<Box<dyn ProjectionStep>> {
    match args.scheme {
        Scheme::Plain => {
            let plain = LocalAdapter::new(Arc::new(projection_adapter(problem)));
            Ok(Box::new(AdapterStep {
                a: problem.a.values.clone(),
                ..AdapterStep::new(&plain, 1e-5)?
            }))
        }
        Scheme::Masked => Ok(Box::new(MaskedScheme::new(problem)?)),
        Scheme::Direct => Ok(Box::new(DirectScheme::new(problem, true)?)),
        Scheme::DangerousDirect2048 => Ok(Box::new(DirectScheme::new(problem, false)?)),
        Scheme::Ckks => {
            let slots = CkksAdapter::new(&projection_adapter(problem), slots_options(args)?);
            let slots = slots?;
            Ok(Box::new(AdapterStep::new(&slots, 1e-6)?))
        }
    }
}

fn slots_options(args: &Args) -> Outcome<CkksAdapterOptions> {
    let name = format!("ckks-{}-tensafe", args.n);
    let mut options = CkksAdapterOptions::new(Parameters::from_name(&name)?);
    match args.factor {
        None => {}
        Some(AblatedFactor::OneByOne) => options.decryption = DecryptionMode::Sequential,
        Some(AblatedFactor::Rotations) => options.packing = Packing::Rotations,
        Some(AblatedFactor::TwoProducts) => options.packing = Packing::TwoProducts,
    }
    Ok(options)
}

/// An adapter of this one projection.
fn projection_adapter(problem: &RandomProjection) -> Adapter {
    let modules = [(SITE, lora_pair(problem))].into();
    Adapter { name: "one projection".into(), base_model: None, modules }
}

const SITE: ProjectionSite = ProjectionSite { layer: 0, projection: Projection::Query };

/// A scheme through the interface that an engine uses.
struct AdapterStep {
    deltas: Box<dyn DeltaSession>,
    guarantee: Guarantee,
    error_max: f64,
    /// The matrix that the step must read once, as a floor; empty if that is not a useful floor.
    a: Vec<f32>,
}

impl AdapterStep {
    fn new(adapt: &dyn DeltaProvider, error_max: f64) -> Outcome<Self> {
        let deltas = adapt.open_session()?;
        Ok(Self { deltas, guarantee: adapt.guarantee(), error_max, a: Vec::new() })
    }
}

impl ProjectionStep for AdapterStep {
    fn guarantee(&self) -> String {
        self.guarantee.to_string()
    }

    fn add_delta(&mut self, input: &[f32], delta: &mut [f32]) -> Outcome {
        let outputs = &mut [(SITE.projection, delta)];
        Ok(self.deltas.add_deltas(SITE.layer, LayerInput::Attention, input, outputs)?)
    }

    fn durations_ms(&self) -> DurationsMs {
        self.deltas.report().steps_ms
    }

    fn error_max(&self) -> f64 {
        self.error_max
    }

    fn measured_floor(&self) -> Option<(String, String, f64)> {
        let floor = || ("a copy of A".into(), "step_ms".into(), measure_copy_ms(&self.a));
        (!self.a.is_empty()).then(floor)
    }
}
