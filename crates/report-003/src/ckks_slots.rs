//! Report 003's arrangement: A under CKKS with slots, B in the clear, **everything in one process**.
//!
//! The key, the activations and the adapter are held by the same struct, so nobody is protected
//! from anybody: the guarantee is `none`. It is here to be compared with the schemes that do
//! protect, in the report's own layout and in the slower ones that the report compares itself with
//! (its "five factors"): [`Packing`] is the first and the fifth of them, [`Decryption`] the third,
//! [`Direction`] the fourth; the second is the hardware.
//!
//! The layout without rotations: the vector stands floor(slots / width) times in one ciphertext, a
//! plaintext holds as many rows of A, one product gives all their terms, and the terms are summed
//! after decryption. A vector wider than a ciphertext is cut into tiles. Projections that read one
//! vector share its encryption.

mod error;
mod layout;
mod options;
mod step;

use std::{collections::BTreeMap, fmt, sync::Arc};

use confide_lora::{
    Adapt, AdaptError, Adapter, Deltas, Guarantee, Input, Projection, Report, Site, Width,
};
use confide_rlwe::Rng;

use crate::ckks::{Ciphertext, Ckks, CkksError, Decrypted, GaloisKey, SecretKey};
pub use error::CkksSlotsError;
pub use options::{Decryption, Direction, Limbs, Options, Packing};

use layout::Weights;

/// The greatest number of encoded plaintexts: 3.2 GB at N = 16384 with three limbs. All projections
/// of 28 layers at width 1,536 and rank 32 are 2,632.
const PLAINTEXTS_MAX: usize = 8192;

/// An adapter applied under CKKS, in one process with its key.
#[derive(Clone)]
pub struct CkksSlots {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    ckks: Arc<Ckks>,
    key: SecretKey,
    rotations: BTreeMap<usize, GaloisKey>,
    sites: BTreeMap<Site, Width>,
    weights: BTreeMap<Site, Weights>,
}

impl CkksSlots {
    /// Makes a key and encodes the adapter's weights, once for all steps.
    ///
    /// # Errors
    /// If there is no randomness, a weight is not finite or too large, or there are more
    /// plaintexts than are allowed.
    pub fn new(adapter: &Adapter, options: Options) -> Result<CkksSlots, CkksSlotsError> {
        let ckks = Ckks::new(&options.parameters)?;
        let mut rng = Rng::from_os().map_err(CkksError::from)?;
        let key = SecretKey::generate(&ckks, &mut rng);
        let (mut weights, mut plaintexts) = (BTreeMap::new(), 0);
        let mut segment = 1;
        for (site, pair) in &adapter.modules {
            let encoded = Weights::encode(&ckks, &options, pair)?;
            plaintexts += encoded.plaintexts();
            if plaintexts > PLAINTEXTS_MAX {
                return Err(CkksSlotsError::Plaintexts { limit: PLAINTEXTS_MAX });
            }
            segment = segment.max(encoded.segment());
            weights.insert(*site, encoded);
        }
        let steps = std::iter::successors(Some(1), |steps| Some(2 * steps));
        let steps = steps.take_while(|steps| *steps < segment);
        let make = |steps| Ok((steps, key.galois_key(steps, &mut rng)?));
        let rotations = steps.map(make).collect::<Result<_, CkksError>>()?;
        let sites = adapter.sites();
        Ok(CkksSlots { shared: Arc::new(Shared { options, ckks, key, rotations, sites, weights }) })
    }

    /// The options that it was made with.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }
}

impl Adapt for CkksSlots {
    fn sites(&self) -> &BTreeMap<Site, Width> {
        &self.shared.sites
    }

    /// Returns [`Guarantee::NONE`]: `Shared` holds the key and both matrices, and reads the
    /// activations. A client that "encrypts" changes nothing, as its key is here.
    fn guarantee(&self) -> Guarantee {
        Guarantee::NONE
    }

    fn open(&self) -> Result<Box<dyn Deltas>, AdaptError> {
        let rng =
            Rng::from_os().map_err(|error| AdaptError::Refused { reason: error.to_string() })?;
        let shared = Arc::clone(&self.shared);
        let (report, memory) = (Report::default(), StepBuffers::default());
        Ok(Box::new(CkksDeltas { shared, rng, report, memory }))
    }
}

struct CkksDeltas {
    shared: Arc<Shared>,
    rng: Rng,
    report: Report,
    memory: StepBuffers,
}

/// Memory of steps that have ended, to be overwritten: a step needs several megabytes, and fresh
/// pages from the operating system would cost more than its arithmetic.
#[derive(Default)]
struct StepBuffers {
    inputs: Vec<Ciphertext>,
    products: Vec<Ciphertext>,
    decrypted: Vec<Decrypted>,
}

impl Deltas for CkksDeltas {
    fn add(
        &mut self,
        layer: u32,
        input: Input,
        rows: &[f32],
        outputs: &mut [(Projection, &mut [f32])],
    ) -> Result<(), AdaptError> {
        let shared = Arc::clone(&self.shared);
        let mut wanted = Vec::new();
        for (index, (projection, output)) in outputs.iter().enumerate() {
            let site = Site { layer, projection: *projection };
            let Some(weights) = shared.weights.get(&site) else { continue };
            weights.check(site, input, rows, output.len())?;
            wanted.push((index, weights));
        }
        let Some((_, first)) = wanted.first() else { return Ok(()) };
        let mut deltas: Vec<Vec<f64>> = vec![Vec::new(); wanted.len()];
        for row in rows.chunks_exact(first.width().input) {
            let ciphertexts = self.encrypt_row(first, row)?;
            for ((_, weights), delta) in wanted.iter().zip(&mut deltas) {
                delta.extend(self.delta(weights, &ciphertexts)?);
            }
            self.memory.inputs.extend(ciphertexts);
            self.report.answered_vectors += wanted.len() as u64;
        }
        for ((index, _), delta) in wanted.iter().zip(deltas) {
            let output = outputs[*index].1.iter_mut();
            output.zip(delta).for_each(|(out, delta)| *out += delta as f32);
        }
        Ok(())
    }

    fn report(&self) -> Report {
        self.report.clone()
    }
}

// Weights, key and activations are never printed.
impl fmt::Debug for CkksSlots {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        write!(out, "CkksSlots({:?}, {} sites)", shared.options, shared.sites.len())
    }
}

#[cfg(test)]
mod tests;
