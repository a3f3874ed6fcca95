//! From the proofs of segments to one proof of constant size: a tree of proofs of checks.

use std::sync::Arc;

use confide_zkvm_constraints::Engine;
use openvm_continuations::{
    circuit::inner::ProofsType,
    prover::{ChildVkKind, InnerCpuProver},
};
use openvm_recursion_circuit::system::check_param_compatibility;
use openvm_stark_backend::{keygen::types::MultiStarkVerifyingKey, proof::Proof};
use openvm_stark_sdk::config::{
    internal_params_with_100_bits_security, leaf_params_with_100_bits_security,
};

use crate::{
    backend::SC,
    error::Fault,
    fan_in::{FanIn, INTERNAL_CHILDREN, LEAF_CHILDREN},
    lineage::{LayerCommitments, proven_bits_of_key},
    progress::ProofStep,
    prove::AppProof,
    wire::ProofBody,
};

/// Provers of the layers of the tree.
pub(crate) struct Aggregator {
    leaf: InnerCpuProver<LEAF_CHILDREN>,
    internal_for_leaf: InnerCpuProver<INTERNAL_CHILDREN>,
    internal_recursive: InnerCpuProver<INTERNAL_CHILDREN>,
}

/// Aggregates the proofs of all segments of a run into one of constant size, and gives its body. No
/// node joins more proofs than `fan_in` says, whatever it may: fewer take less memory and more time.
///
/// # Errors
///
/// [`Fault::Backend`].
pub fn aggregate(
    proof: AppProof,
    fan_in: FanIn,
    step: &mut dyn FnMut(ProofStep),
) -> Result<Vec<u8>, Fault> {
    let AppProof { body, key } = proof;
    let aggregator = Aggregator::new(Arc::new(key));
    let joined = aggregator.join_proofs(body.proofs, fan_in, step)?;
    ProofBody { aggregated: true, proofs: vec![joined], ..body }
        .encode()
        .map_err(|e| Fault::Backend(e.to_string()))
}

impl Aggregator {
    pub fn new(app: Arc<MultiStarkVerifyingKey<SC>>) -> Self {
        let leaf_params = leaf_params_with_100_bits_security();
        let internal_params = internal_params_with_100_bits_security();
        check_param_compatibility(&app.inner.params, &leaf_params, &internal_params);
        let leaf = InnerCpuProver::new::<Engine>(app, leaf_params, false, None);
        let internal_for_leaf =
            InnerCpuProver::new::<Engine>(leaf.get_vk(), internal_params.clone(), false, None);
        let internal_recursive =
            InnerCpuProver::new::<Engine>(internal_for_leaf.get_vk(), internal_params, true, None);
        Self { leaf, internal_for_leaf, internal_recursive }
    }

    pub fn verifying_key(&self) -> MultiStarkVerifyingKey<SC> {
        self.internal_recursive.get_vk().as_ref().clone()
    }

    pub fn layer_commitments(&self) -> LayerCommitments {
        LayerCommitments {
            app: self.leaf.get_vk_commit(false),
            leaf: self.internal_for_leaf.get_vk_commit(false),
            internal_for_leaf: self.internal_recursive.get_vk_commit(false),
            internal_recursive: self.internal_recursive.get_vk_commit(true),
        }
    }

    /// The least proven bits of the three layers.
    pub fn proven_bits(&self) -> u32 {
        let keys =
            [self.leaf.get_vk(), self.internal_for_leaf.get_vk(), self.internal_recursive.get_vk()];
        keys.iter().map(|key| proven_bits_of_key(key)).min().unwrap_or(0)
    }

    /// Joins layer by layer, and once more at the end, which makes the proof smaller.
    fn join_proofs(
        &self,
        segments: Vec<Proof<SC>>,
        fan_in: FanIn,
        step: &mut dyn FnMut(ProofStep),
    ) -> Result<Proof<SC>, Fault> {
        // A node that joins one proof makes no layer shorter: the last layers would have no end.
        let leaf = fan_in.leaf.clamp(1, LEAF_CHILDREN);
        let internal = fan_in.internal.clamp(2, INTERNAL_CHILDREN);
        let mut tally =
            JoinProgress { done: 0, of: count_joins(segments.len(), leaf, internal), step };
        let mut proofs = tally.join_layer(&segments, leaf, |children| {
            self.leaf.agg_prove_no_def::<Engine>(children, ChildVkKind::App)
        })?;
        drop(segments);
        proofs = tally.join_layer(&proofs, internal, |children| {
            self.internal_for_leaf.agg_prove_no_def::<Engine>(children, ChildVkKind::Standard)
        })?;
        proofs = tally.join_layer(&proofs, internal, |children| {
            self.internal_recursive.agg_prove_no_def::<Engine>(children, ChildVkKind::Standard)
        })?;
        while proofs.len() > 1 {
            proofs =
                tally.join_layer(&proofs, internal, |children| self.join_recursively(children))?;
        }
        (tally.step)(ProofStep::Wrap);
        self.join_recursively(&proofs).map_err(|e| Fault::Backend(e.to_string()))
    }

    fn join_recursively(&self, children: &[Proof<SC>]) -> eyre::Result<Proof<SC>> {
        self.internal_recursive.agg_prove::<Engine>(
            children,
            ChildVkKind::RecursiveSelf,
            ProofsType::Vm,
            None,
        )
    }
}

struct JoinProgress<'a> {
    done: u32,
    of: u32,
    step: &'a mut dyn FnMut(ProofStep),
}

impl JoinProgress<'_> {
    fn join_layer(
        &mut self,
        proofs: &[Proof<SC>],
        children: usize,
        prove: impl Fn(&[Proof<SC>]) -> eyre::Result<Proof<SC>>,
    ) -> Result<Vec<Proof<SC>>, Fault> {
        let mut joined = Vec::new();
        for group in proofs.chunks(children) {
            (self.step)(ProofStep::Aggregate { done: self.done, of: self.of });
            joined.push(prove(group).map_err(|e| Fault::Backend(e.to_string()))?);
            self.done += 1;
        }
        Ok(joined)
    }
}

/// How many joins a run of so many segments takes, without the last one.
fn count_joins(segments: usize, leaf: usize, internal: usize) -> u32 {
    let mut layer = segments.div_ceil(leaf);
    let mut joins = layer;
    for _ in 0..2 {
        layer = layer.div_ceil(internal);
        joins += layer;
    }
    while layer > 1 {
        layer = layer.div_ceil(internal);
        joins += layer;
    }
    joins as u32
}
