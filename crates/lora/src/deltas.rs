//! The traits with which an engine meets an adapter, whatever protects it.

use std::collections::BTreeMap;

use crate::{
    adapt_error::AdaptError,
    guarantee::Guarantee,
    reservation::Reservation,
    site::{Input, Projection, Site, Width},
};

/// An adapter as an engine meets it: opened once for each generation.
pub trait Adapt: Send + Sync + 'static {
    /// Every projection that it changes, with its widths; an engine refuses those that its model
    /// does not have.
    fn sites(&self) -> &BTreeMap<Site, Width>;

    /// Who is protected from whom, computed from what runs.
    fn guarantee(&self) -> Guarantee;

    /// Sets aside the answers that a generation will ask for: one for each token of its prompt and
    /// each of its completion but the last. A completion without a length gets what is left. May
    /// take the time of a network round trip.
    ///
    /// # Errors
    /// [`AdaptError::BudgetTooSmall`] if they are more than are left: nothing is counted then.
    fn reserve(&self, prompt: u32, completion: Option<u32>) -> Result<Reservation, AdaptError> {
        let _ = (prompt, completion);
        Ok(Reservation::UNLIMITED)
    }

    /// Begins a generation. May take the time of a network round trip.
    ///
    /// # Errors
    /// If its host cannot be reached or refuses.
    fn open(&self) -> Result<Box<dyn Deltas>, AdaptError>;
}

/// An adapter at work in one generation. All calls block.
pub trait Deltas: Send {
    /// Adds the adapter's part, scaling included, to what the base model's projections gave.
    ///
    /// `rows` holds `T` vectors of the input's width, one after the other. `outputs` names
    /// projections that read `input`, each with `T` vectors of its own width. Projections that the
    /// adapter does not change are left as they are.
    ///
    /// # Errors
    /// If the host fails or refuses; the outputs are then as they were.
    fn add(
        &mut self,
        layer: u32,
        input: Input,
        rows: &[f32],
        outputs: &mut [(Projection, &mut [f32])],
    ) -> Result<(), AdaptError>;

    /// The costs of the generation until now.
    fn report(&self) -> Report;
}

/// The costs of an adapter in one generation. Times are sums over all calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Homomorphic operations that ran, here or at the host: encryptions, products, decryptions.
    pub he_operations: u64,
    /// Rotations of ciphertexts, which `he_operations` counts too.
    pub he_rotations: u64,
    /// Vectors that the host answered, each a linear equation about the adapter.
    pub answered_vectors: u64,
    /// Answers left in the budget of this client; `None` if there is no budget.
    pub budget_left: Option<u64>,
    /// Round trips to the host.
    pub round_trips: u64,
    /// The number of bytes sent and received while tokens were made.
    pub online_bytes: u64,
    /// Milliseconds by step: `quantise_ms`, `mask_ms`, `encrypt_ms`, `network_ms`, `product_ms`,
    /// `decrypt_ms`, `unmask_ms`, `b_ms`; of ckks-slots also `encode_ms`, `rotation_ms`, `wire_ms`,
    /// `decode_ms`, `sum_ms`. Steps that did not run are absent.
    pub steps_ms: BTreeMap<&'static str, f64>,
}
