//! The direct scheme, both roles in this process.

use std::sync::Arc;

use confide_arm_line::Outcome;
use confide_lora::{
    DeltaStep as Lap, Guarantee, InputTerms, NetworkLink, OperationCosts, Projection,
    ProtectedMatrices, QuantisedWeights, StepMeter, WeightRounding,
    direct::{
        EncryptedProductError, EncryptedProductHolder, EncryptedProductHost, derive_parameters,
        tiling_problem,
    },
    quantise_vector,
};
use confide_rlwe::{
    Context, ParameterSet, PublicKey, RlweError, Rng, SecretKey, SeededCiphertext, SmallCiphertext,
};

use super::{
    masked::{SET, combined_guarantee, meter_durations_ms},
    problem::RandomProjection,
    spans::DurationsMs,
    step::{ProjectionStep, lora_pair},
};

/// The set without flooding.
const UNFLOODED: &str = "rlwe-2048-q50";

/// Key holder and host of one projection.
pub(crate) struct DirectScheme {
    key: SecretKey,
    public: PublicKey,
    rng: Rng,
    terms: InputTerms,
    holder: EncryptedProductHolder,
    host: EncryptedProductHost,
    meter: StepMeter,
    flooded: bool,
    wire: [usize; 2],
}

impl DirectScheme {
    pub(crate) fn new(problem: &RandomProjection, flooded: bool) -> Outcome<Self> {
        let (context, entry_max) = select_parameters(flooded)?;
        let pair = lora_pair(problem);
        let pairs = [(Projection::Query, &pair)];
        let rounding = WeightRounding { entry_max, noise_sigma: 0.0 };
        let weights = QuantisedWeights::with_rounding(
            0,
            &pairs,
            ProtectedMatrices::A,
            context.parameter_set(),
            rounding,
        );
        let weights = weights?;
        let terms = weights.terms.clone();
        let job = tiling_problem(&context, &terms);
        let tile = job.best_tile(&NetworkLink::LOOPBACK, &OperationCosts::GIVEN);
        let tile = tile.ok_or("no tile fits the noise budget")?;
        let host = if flooded {
            EncryptedProductHost::new(&context, &weights, tile)?
        } else {
            EncryptedProductHost::dangerous_unflooded(&context, &weights, tile)?
        };
        let holder = EncryptedProductHolder::new(&context, &terms, tile)?;
        let mut rng = Rng::from_os()?;
        let key = SecretKey::generate(&context, &mut rng);
        let public = key.public_key(&mut rng);
        let answer_bytes = |rows: usize| SmallCiphertext::wire_bytes(&context, rows);
        let (requests, answers) =
            (terms.columns.div_ceil(tile.inputs), terms.rows().div_ceil(tile.outputs));
        let wire = [
            requests * SeededCiphertext::wire_bytes(&context),
            answers * answer_bytes(tile.outputs.min(terms.rows())),
        ];
        let meter = StepMeter::default();
        Ok(Self { key, public, rng, terms, holder, host, meter, flooded, wire })
    }

    fn encrypted_products(&mut self, values: &[i16]) -> Result<Vec<u64>, EncryptedProductError> {
        let (rng, meter) = (&mut self.rng, &mut self.meter);
        let request = self.holder.encrypt_request(&self.key, values, rng, meter)?;
        let answers = self.host.answer(request, &self.public, rng, meter)?;
        self.holder.decrypt_answers(&self.key, &answers, meter)
    }
}

/// The ring and the greatest entry of a weight.
fn select_parameters(flooded: bool) -> Result<(Arc<Context>, i16), RlweError> {
    let set = if flooded {
        ParameterSet::from_name(SET)?
    } else {
        ParameterSet::dangerous_from_name(UNFLOODED)?
    };
    let (set, entry_max) = derive_parameters(&set)?;
    Ok((Context::new(&set)?, entry_max))
}

impl ProjectionStep for DirectScheme {
    fn guarantee(&self) -> String {
        combined_guarantee(Guarantee {
            host_is_blind: true,
            adapter_stays: self.flooded,
            b_is_handed_over: true,
            // Nobody's attestation was accepted.
            adapter_can_be_learned: true,
            simulated: false,
        })
    }

    fn add_delta(&mut self, input: &[f32], delta: &mut [f32]) -> Outcome {
        let limit = self.terms.norm_limit;
        let x = self.meter.time(Lap::Quantise, || quantise_vector(input, limit));
        let x = x?;
        let products = self.encrypted_products(&x.values)?;
        let terms = &self.terms;
        self.meter
            .time(Lap::B, || terms.add_deltas(Projection::Query, &products, &[x.scale], delta));
        Ok(())
    }

    fn durations_ms(&self) -> DurationsMs {
        meter_durations_ms(&self.meter)
    }

    fn error_max(&self) -> f64 {
        if self.flooded { 2e-3 } else { 3e-2 }
    }

    fn wire_bytes(&self) -> Vec<(&'static str, usize)> {
        vec![("up_bytes", self.wire[0]), ("down_bytes", self.wire[1])]
    }
}
