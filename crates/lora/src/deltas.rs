//! The traits through which an engine uses an adapter, whatever protects it.

use std::collections::BTreeMap;

use crate::{
    adapt_error::AdaptError,
    guarantee::Guarantee,
    reservation::Reservation,
    site::{LayerInput, Projection, ProjectionSite, ProjectionWidth},
};

/// An adapter that an engine can use. It is opened once for each generation.
pub trait DeltaProvider: Send + Sync + 'static {
    /// The projections that the adapter changes, with their widths. An engine refuses an adapter with
    /// projections that its model does not have.
    fn sites(&self) -> &BTreeMap<ProjectionSite, ProjectionWidth>;

    /// The guarantee: which party is protected from which, computed from what runs.
    fn guarantee(&self) -> Guarantee;

    /// Reserves the answers that a generation will request: one for each token of its prompt and of
    /// its completion, except the last. A completion without a length gets all that are left. The
    /// call may take a network round trip.
    ///
    /// # Errors
    /// [`AdaptError::BudgetTooSmall`] if fewer answers are left; then none is reserved.
    fn reserve_answers(
        &self,
        prompt: u32,
        completion: Option<u32>,
    ) -> Result<Reservation, AdaptError> {
        let _ = (prompt, completion);
        Ok(Reservation::UNLIMITED)
    }

    /// Starts a generation. The call may take a network round trip.
    ///
    /// # Errors
    /// If the adapter's host cannot be reached or refuses.
    fn open_session(&self) -> Result<Box<dyn DeltaSession>, AdaptError>;
}

/// The use of an adapter in one generation. All calls block.
pub trait DeltaSession: Send {
    /// Adds the adapter's scaled deltas to the outputs of the base model's projections.
    ///
    /// `rows` has `T` vectors of the input's width, one after the other. `outputs` has projections
    /// that read `input`, each with `T` vectors of the projection's width. Projections that the
    /// adapter does not change stay the same.
    ///
    /// # Errors
    /// If the host fails or refuses; then the outputs are unchanged.
    fn add_deltas(
        &mut self,
        layer: u32,
        input: LayerInput,
        rows: &[f32],
        outputs: &mut [(Projection, &mut [f32])],
    ) -> Result<(), AdaptError>;

    /// The costs of the generation so far.
    fn report(&self) -> DeltaReport;
}

/// The costs of an adapter in one generation. Times are sums over all calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeltaReport {
    /// The number of homomorphic operations, here and at the host: encryptions, products, decryptions.
    pub he_operations: u64,
    /// The number of rotations of ciphertexts, which are also part of `he_operations`.
    pub he_rotations: u64,
    /// The number of vectors that the host answered; each is a linear equation about the adapter.
    pub answered_vectors: u64,
    /// The number of answers left in the budget of this client; `None` if there is no budget.
    pub budget_left: Option<u64>,
    /// The number of round trips to the host.
    pub round_trips: u64,
    /// The number of bytes sent and received while tokens were generated.
    pub online_bytes: u64,
    /// Milliseconds by step: `quantise_ms`, `mask_ms`, `encrypt_ms`, `network_ms`, `product_ms`,
    /// `decrypt_ms`, `unmask_ms`, `b_ms`; with ckks-slots also `encode_ms`, `rotation_ms`, `wire_ms`,
    /// `decode_ms`, `sum_ms`. Steps that did not run are absent.
    pub steps_ms: BTreeMap<&'static str, f64>,
}
