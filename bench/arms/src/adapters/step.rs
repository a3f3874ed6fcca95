use super::{Args, Scheme, ckks::Slots, plain::Plain, problem::Problem, spans::Spans};
use crate::Outcome;

/// One projection under one scheme, both roles in this process.
pub(crate) trait Step {
    /// For people.
    fn name(&self) -> String;

    /// Who is protected from whom, were the roles apart.
    fn guarantee(&self) -> String;

    /// What a reader must know.
    fn note(&self) -> Option<String> {
        None
    }

    /// `A·x`, each part booked in `spans`.
    fn a_times(&mut self, input: &[f32], spans: &mut Spans) -> Outcome<Vec<f32>>;

    /// `B·A·x`, where the scheme computed that too.
    fn own_delta(&self) -> Option<&[f32]> {
        None
    }

    /// The greatest error of a delta that this scheme may have.
    fn error_max(&self) -> f64;

    /// Bytes that the two roles would send for one step.
    fn wire_bytes(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// A bound measured now: name, metric, value.
    fn floor(&self) -> Option<(String, String, f64)> {
        None
    }
}

pub(crate) fn new(args: &Args, problem: &Problem) -> Outcome<Box<dyn Step>> {
    match args.scheme {
        Scheme::Ckks => Ok(Box::new(Slots::new(problem, args.n, args.factors)?)),
        Scheme::Plain => Ok(Box::new(Plain::new(problem))),
    }
}
