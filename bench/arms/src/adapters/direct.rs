//! The direct scheme, both roles in this process.

use std::sync::Arc;

use confide_lora::{
    Guarantee, Link, Meter, OperationCosts, Projection, Protect, Rounding, Step as Lap, Terms,
    Weights,
    direct::{DirectError, DirectHolder, DirectHost, job, parameters},
    quantise_vector,
};
use confide_rlwe::{
    Context, ParameterSet, PublicKey, RlweError, Rng, SecretKey, SeededCiphertext, SmallCiphertext,
};

use super::{
    masked::{SET, both_sides, parts_of},
    problem::Problem,
    spans::Parts,
    step::{Step, pair_of},
};
use crate::Outcome;

/// The set without flooding.
const UNFLOODED: &str = "rlwe-2048-q50";

/// Key holder and host of one projection.
pub(crate) struct Direct {
    key: SecretKey,
    public: PublicKey,
    rng: Rng,
    terms: Terms,
    holder: DirectHolder,
    host: DirectHost,
    meter: Meter,
    flooded: bool,
    wire: [usize; 2],
}

impl Direct {
    pub(crate) fn new(problem: &Problem, flooded: bool) -> Outcome<Self> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let (context, entry_max) = chosen(flooded).map_err(|e| text(&e))?;
        let pair = pair_of(problem);
        let pairs = [(Projection::Query, &pair)];
        let rounding = Rounding { entry_max, noise_sigma: 0.0 };
        let weights = Weights::with_rounding(0, &pairs, Protect::A, context.set(), rounding);
        let weights = weights.map_err(|e| text(&e))?;
        let terms = weights.terms.clone();
        let job = job(&context, &terms);
        let tile = job.best_tile(&Link::LOOPBACK, &OperationCosts::GIVEN);
        let tile = tile.ok_or("no tile fits the noise budget")?;
        let host = match flooded {
            true => DirectHost::new(&context, &weights, tile),
            false => DirectHost::dangerous_unflooded(&context, &weights, tile),
        };
        let host = host.map_err(|e| text(&e))?;
        let holder = DirectHolder::new(&context, &terms, tile).map_err(|e| text(&e))?;
        let mut rng = Rng::from_os().map_err(|e| text(&e))?;
        let key = SecretKey::generate(&context, &mut rng);
        let public = key.public_key(&mut rng);
        let answer_bytes = |rows: usize| SmallCiphertext::wire_bytes(&context, rows);
        let (requests, answers) =
            (terms.columns.div_ceil(tile.inputs), terms.rows().div_ceil(tile.outputs));
        let wire = [
            requests * SeededCiphertext::wire_bytes(&context),
            answers * answer_bytes(tile.outputs.min(terms.rows())),
        ];
        let meter = Meter::default();
        Ok(Self { key, public, rng, terms, holder, host, meter, flooded, wire })
    }

    fn products(&mut self, values: &[i16]) -> Result<Vec<u64>, DirectError> {
        let (rng, meter) = (&mut self.rng, &mut self.meter);
        let request = self.holder.request(&self.key, values, rng, meter)?;
        let answers = self.host.answer(request, &self.public, rng, meter)?;
        self.holder.open(&self.key, &answers, meter)
    }
}

/// Parameters and greatest entries.
fn chosen(flooded: bool) -> Result<(Arc<Context>, i16), RlweError> {
    let set = match flooded {
        true => ParameterSet::from_name(SET)?,
        false => ParameterSet::dangerous_from_name(UNFLOODED)?,
    };
    let (set, entry_max) = parameters(&set)?;
    Ok((Context::new(&set)?, entry_max))
}

impl Step for Direct {
    fn guarantee(&self) -> String {
        both_sides(Guarantee {
            host_is_blind: true,
            adapter_stays: self.flooded,
            b_is_handed_over: true,
            // Nobody's attestation was accepted.
            adapter_can_be_learned: true,
            simulated: false,
        })
    }

    fn add(&mut self, input: &[f32], delta: &mut [f32]) -> Outcome {
        let limit = self.terms.norm_limit;
        let x = self.meter.time(Lap::Quantise, || quantise_vector(input, limit));
        let x = x.map_err(|error| error.to_string())?;
        let products = self.products(&x.values).map_err(|error| error.to_string())?;
        let terms = &self.terms;
        self.meter.time(Lap::B, || terms.add(Projection::Query, &products, &[x.scale], delta));
        Ok(())
    }

    fn parts(&self) -> Parts {
        parts_of(&self.meter)
    }

    fn error_max(&self) -> f64 {
        if self.flooded { 2e-3 } else { 3e-2 }
    }

    fn wire_bytes(&self) -> Vec<(&'static str, usize)> {
        vec![("up_bytes", self.wire[0]), ("down_bytes", self.wire[1])]
    }
}
