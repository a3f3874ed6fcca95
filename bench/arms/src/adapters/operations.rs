//! `confide-arm adapter-operations`: one of each CKKS operation, apart, as report 003 tabulates them.

use std::sync::Arc;

use confide_arm_line::{Hello, Outcome, Report, Run, Sample, serve_runs};
use confide_report_003::ckks::{
    CkksContext, CkksError, GaloisKey, Parameters, Plaintext, SecretKey,
};
use confide_rlwe::Rng;
use serde_json::json;

use super::{problem::Random, spans::Spans};
use crate::version::VERSION;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Ring degree: 16384 or 32768.
    #[arg(long, default_value_t = 16384)]
    n: usize,
}

/// Nine digits are kept; one wrong slot is far beyond this.
const CLOSE: f64 = 1e-7;

struct CkksOperations {
    ckks: Arc<CkksContext>,
    key: SecretKey,
    rng: Rng,
    factor: Vec<f64>,
    weights: Plaintext,
    rotation: GaloisKey,
}

pub(crate) fn run(args: Args) -> Outcome {
    let mut arm = CkksOperations::new(args.n)?;
    let hello = Hello {
        guarantee: Some(confide_lora::Guarantee::NONE.to_string()),
        ..Hello::new(format!("CKKS operations, {}", arm.ckks.parameters()), VERSION)
    };
    serve_runs(&hello, |order| arm.measure(order))
}

impl CkksOperations {
    fn new(n: usize) -> Result<Self, CkksError> {
        let ckks = CkksContext::new(&Parameters::from_name(&format!("ckks-{n}-tensafe"))?)?;
        let mut rng = Rng::from_os()?;
        let key = SecretKey::generate(&ckks, &mut rng);
        let mut random = Random(1);
        let factor: Vec<f64> =
            (0..ckks.slot_count()).map(|_| f64::from(random.normal()) * 0.02).collect();
        let weights = ckks.to_plaintext(&ckks.encode(&factor)?, ckks.limbs_max())?;
        let rotation = key.galois_key(1, &mut rng)?;
        Ok(Self { ckks, key, rng, factor, weights, rotation })
    }

    fn measure(&mut self, order: &Run) -> Outcome<Report> {
        order.refuse_unknown_params(&[])?;
        order.measure_each(|number| {
            let mut random = Random(order.seed ^ number);
            let slots: Vec<f64> =
                (0..self.ckks.slot_count()).map(|_| f64::from(random.normal())).collect();
            Ok(self.measure_operations(&slots)?)
        })
    }

    fn measure_operations(&mut self, slots: &[f64]) -> Result<Sample, CkksError> {
        let mut spans = Spans::start();
        let message = self.ckks.encode(slots)?;
        spans.record_span("encode_ms");
        let limbs = self.ckks.limbs_max();
        let encrypted = self.key.encrypt(&message, limbs, &mut self.rng)?;
        spans.record_span("encrypt_ms");
        let product = encrypted.product(&self.weights)?;
        spans.record_span("product_ms");
        let rotated = product.rotate(&self.ckks, &self.rotation)?;
        spans.record_span("rotation_ms");
        let decrypted = self.key.decrypt(&rotated)?;
        spans.record_span("decrypt_ms");
        let got = self.ckks.decode(&decrypted)?;
        spans.record_span("decode_ms");
        let mut right: Vec<f64> = slots.iter().zip(&self.factor).map(|(a, b)| a * b).collect();
        right.rotate_left(1);
        let size = right.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        let close = got.iter().zip(&right).all(|(got, right)| (got - right).abs() <= CLOSE * size);
        let answer = json!({ "slots": got.len(), "close": close });
        let parts = spans.durations_ms().into_iter();
        let metrics = parts.map(|(name, ms)| (name.to_owned(), json!(ms))).collect();
        Ok(Sample { metrics, answer, ..Sample::default() })
    }
}
