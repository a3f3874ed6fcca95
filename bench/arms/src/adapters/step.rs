use std::sync::Arc;

use confide_lora::{
    Adapt, Adapter, Deltas, Guarantee, Input, Pair, Projection, Site, plain::LocalAdapter,
};
use confide_report_003::{
    ckks::Parameters,
    ckks_slots::{CkksSlots, Decryption, Options, Packing},
};

use super::{
    Args, Factor, Scheme, direct::Direct, dot::copy_ms, masked::Masked, problem::Problem,
    spans::Parts,
};
use crate::Outcome;

/// One projection under one scheme, both roles in this process.
pub(crate) trait Step {
    /// Who is protected from whom.
    fn guarantee(&self) -> String;

    /// What happens while nothing waits; not measured.
    fn before(&mut self) -> Outcome {
        Ok(())
    }

    /// Adds `B·A·x` to `delta`.
    fn add(&mut self, input: &[f32], delta: &mut [f32]) -> Outcome;

    /// What the parts took since the start; `b_ms` is the part that is not of the step.
    fn parts(&self) -> Parts;

    /// The greatest error of a delta that this scheme may have.
    fn error_max(&self) -> f64;

    /// Bytes that the two roles would send for one step.
    fn wire_bytes(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    /// A bound measured now: name, metric, value.
    fn floor(&self) -> Option<(String, String, f64)> {
        None
    }
}

pub(crate) fn new(args: &Args, problem: &Problem) -> Outcome<Box<dyn Step>> {
    match args.scheme {
        Scheme::Plain => {
            let plain = LocalAdapter::new(Arc::new(adapter(problem)));
            Ok(Box::new(Adapted { a: problem.a.values.clone(), ..Adapted::new(&plain, 1e-5)? }))
        }
        Scheme::Masked => Ok(Box::new(Masked::new(problem)?)),
        Scheme::Direct => Ok(Box::new(Direct::new(problem, true)?)),
        Scheme::DangerousDirect2048 => Ok(Box::new(Direct::new(problem, false)?)),
        Scheme::Ckks => {
            let slots = CkksSlots::new(&adapter(problem), options(args)?);
            let slots = slots.map_err(|error| error.to_string())?;
            Ok(Box::new(Adapted::new(&slots, 1e-6)?))
        }
    }
}

fn options(args: &Args) -> Outcome<Options> {
    let name = format!("ckks-{}-tensafe", args.n);
    let mut options =
        Options::new(Parameters::from_name(&name).map_err(|error| error.to_string())?);
    match args.factor {
        None => {}
        Some(Factor::OneByOne) => options.decryption = Decryption::Sequential,
        Some(Factor::Rotations) => options.packing = Packing::Rotations,
        Some(Factor::TwoProducts) => options.packing = Packing::TwoProducts,
    }
    Ok(options)
}

/// An adapter of this one projection.
fn adapter(problem: &Problem) -> Adapter {
    let modules = [(SITE, pair_of(problem))].into();
    Adapter { name: "one projection".into(), base_model: None, modules }
}

/// A and B.
pub(crate) fn pair_of(problem: &Problem) -> Pair {
    Pair { a: problem.a.clone(), b: problem.b.clone(), scale: 1.0 }
}

const SITE: Site = Site { layer: 0, projection: Projection::Query };

/// A scheme as an engine meets it.
struct Adapted {
    deltas: Box<dyn Deltas>,
    guarantee: Guarantee,
    error_max: f64,
    /// What the step cannot do without reading once; empty where that says nothing.
    a: Vec<f32>,
}

impl Adapted {
    fn new(adapt: &dyn Adapt, error_max: f64) -> Outcome<Self> {
        let deltas = adapt.open().map_err(|error| error.to_string())?;
        Ok(Self { deltas, guarantee: adapt.guarantee(), error_max, a: Vec::new() })
    }
}

impl Step for Adapted {
    fn guarantee(&self) -> String {
        self.guarantee.to_string()
    }

    fn add(&mut self, input: &[f32], delta: &mut [f32]) -> Outcome {
        let outputs = &mut [(SITE.projection, delta)];
        self.deltas
            .add(SITE.layer, Input::Attention, input, outputs)
            .map_err(|error| error.to_string())
    }

    fn parts(&self) -> Parts {
        self.deltas.report().steps_ms
    }

    fn error_max(&self) -> f64 {
        self.error_max
    }

    fn floor(&self) -> Option<(String, String, f64)> {
        let copied = || ("a copy of A".into(), "step_ms".into(), copy_ms(&self.a));
        (!self.a.is_empty()).then(copied)
    }
}
