//! Report 003's scheme: A under CKKS with slots, B in the clear, **everything in one process**.
//!
//! One struct holds the key, the activations and the adapter, so nothing is protected and the
//! guarantee is `none`. The module exists to be compared with the schemes that do protect, in the
//! report's own layout and in the slower ones that the report compares itself with (its "five
//! factors"): [`Packing`] is the first and the fifth factor, [`DecryptionMode`] the third and
//! [`EncryptingSide`] the fourth; the second is the hardware.
//!
//! In the layout without rotations, a ciphertext holds floor(slots / width) copies of the vector and
//! a plaintext as many rows of A. One product computes all their terms, which are summed after
//! decryption. A vector wider than a ciphertext is split into tiles. Projections that read the same
//! vector share its encryption.

mod error;
mod layout;
mod options;
mod step;

use std::{collections::BTreeMap, fmt, sync::Arc};

use confide_lora::{
    AdaptError, Adapter, DeltaProvider, DeltaReport, DeltaSession, Guarantee, LayerInput,
    Projection, ProjectionSite, ProjectionWidth,
};
use confide_rlwe::Rng;

use crate::ckks::{Ciphertext, CkksContext, CkksError, DecryptedMessage, GaloisKey, SecretKey};
pub use error::CkksAdapterError;
pub use options::{CkksAdapterOptions, DecryptionMode, EncryptingSide, LimbChoice, Packing};

use layout::EncodedWeights;

/// The greatest number of encoded plaintexts: 3.2 GB at N = 16384 with three limbs. All projections
/// of 28 layers at width 1,536 and rank 32 need 2,632.
const PLAINTEXTS_MAX: usize = 8192;

/// An adapter applied under CKKS, in one process with its key.
#[derive(Clone)]
pub struct CkksAdapter {
    shared: Arc<CkksAdapterState>,
}

struct CkksAdapterState {
    options: CkksAdapterOptions,
    ckks: Arc<CkksContext>,
    key: SecretKey,
    rotations: BTreeMap<usize, GaloisKey>,
    sites: BTreeMap<ProjectionSite, ProjectionWidth>,
    weights: BTreeMap<ProjectionSite, EncodedWeights>,
}

impl CkksAdapter {
    /// Makes a key and encodes the adapter's weights, once for all steps.
    ///
    /// # Errors
    /// If the operating system's random generator fails, a weight is not finite or too large, or
    /// there are more plaintexts than are allowed.
    pub fn new(
        adapter: &Adapter,
        options: CkksAdapterOptions,
    ) -> Result<CkksAdapter, CkksAdapterError> {
        let ckks = CkksContext::new(&options.parameters)?;
        let mut rng = Rng::from_os().map_err(CkksError::from)?;
        let key = SecretKey::generate(&ckks, &mut rng);
        let (mut weights, mut plaintexts) = (BTreeMap::new(), 0);
        let mut segment = 1;
        for (site, pair) in &adapter.modules {
            let encoded = EncodedWeights::encode(&ckks, &options, pair)?;
            plaintexts += encoded.plaintext_count();
            if plaintexts > PLAINTEXTS_MAX {
                return Err(CkksAdapterError::Plaintexts { limit: PLAINTEXTS_MAX });
            }
            segment = segment.max(encoded.segment_slots());
            weights.insert(*site, encoded);
        }
        let steps = std::iter::successors(Some(1), |steps| Some(2 * steps));
        let steps = steps.take_while(|steps| *steps < segment);
        let make = |steps| Ok((steps, key.galois_key(steps, &mut rng)?));
        let rotations = steps.map(make).collect::<Result<_, CkksError>>()?;
        let sites = adapter.sites();
        Ok(CkksAdapter {
            shared: Arc::new(CkksAdapterState { options, ckks, key, rotations, sites, weights }),
        })
    }

    /// The options of the adapter.
    pub fn options(&self) -> &CkksAdapterOptions {
        &self.shared.options
    }
}

impl DeltaProvider for CkksAdapter {
    fn sites(&self) -> &BTreeMap<ProjectionSite, ProjectionWidth> {
        &self.shared.sites
    }

    /// Returns [`Guarantee::NONE`]: this process holds the key and both matrices, and reads the
    /// activations. A client that "encrypts" does not change that, because its key is here.
    fn guarantee(&self) -> Guarantee {
        Guarantee::NONE
    }

    fn open_session(&self) -> Result<Box<dyn DeltaSession>, AdaptError> {
        let rng =
            Rng::from_os().map_err(|error| AdaptError::Refused { reason: error.to_string() })?;
        let shared = Arc::clone(&self.shared);
        let (report, memory) = (DeltaReport::default(), StepBuffers::default());
        Ok(Box::new(CkksDeltas { shared, rng, report, memory }))
    }
}

struct CkksDeltas {
    shared: Arc<CkksAdapterState>,
    rng: Rng,
    report: DeltaReport,
    memory: StepBuffers,
}

/// Buffers that each step overwrites. A step needs several megabytes, and fresh pages from the
/// operating system would cost more than its arithmetic.
#[derive(Default)]
struct StepBuffers {
    inputs: Vec<Ciphertext>,
    products: Vec<Ciphertext>,
    decrypted: Vec<DecryptedMessage>,
}

impl DeltaSession for CkksDeltas {
    fn add_deltas(
        &mut self,
        layer: u32,
        input: LayerInput,
        rows: &[f32],
        outputs: &mut [(Projection, &mut [f32])],
    ) -> Result<(), AdaptError> {
        let shared = Arc::clone(&self.shared);
        let mut wanted = Vec::new();
        for (index, (projection, output)) in outputs.iter().enumerate() {
            let site = ProjectionSite { layer, projection: *projection };
            let Some(weights) = shared.weights.get(&site) else { continue };
            weights.check_activations(site, input, rows, output.len())?;
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

    fn report(&self) -> DeltaReport {
        self.report.clone()
    }
}

// Weights, key and activations are never printed.
impl fmt::Debug for CkksAdapter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        write!(out, "CkksAdapter({:?}, {} sites)", shared.options, shared.sites.len())
    }
}

#[cfg(test)]
mod tests;
