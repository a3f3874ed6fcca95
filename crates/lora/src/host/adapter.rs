//! An adapter at a host: integer matrices, and the terms that key holders receive.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use super::{
    error::HostError,
    group::{ProjectionGroup, SchemeContexts},
    online::OnlineComputer,
    queue::JobQueue,
};
use crate::{
    adapter::{Adapter, LoraPair},
    mask::HostEpoch,
    protocol::{Scheme, Welcome, is_valid_name},
    site::{LayerInput, Projection},
    terms::ProtectedMatrices,
};

/// The greatest number of inputs of one adapter.
const INPUTS_MAX: usize = Welcome::INPUTS_MAX as usize;

/// An adapter that a host has loaded, as integers.
pub(crate) struct HostedAdapter {
    pub(crate) name: String,
    /// The id from which the masks of a session are derived: the hash of the adapter's name.
    pub(crate) id: [u8; 32],
    groups: Arc<Vec<ProjectionGroup>>,
    by_input: HashMap<(u32, LayerInput), usize>,
    pub(crate) queue: Arc<JobQueue<OnlineComputer>>,
}

impl HostedAdapter {
    /// Quantises an adapter for both schemes.
    pub(crate) fn new(
        adapter: &Adapter,
        contexts: &SchemeContexts,
        protect: ProtectedMatrices,
        noise_sigma: f64,
        epoch: HostEpoch,
    ) -> Result<Self, HostError> {
        let name = adapter.name.clone();
        if !is_valid_name(&name) {
            return Err(HostError::InvalidName { name });
        }
        let mut inputs: BTreeMap<(u32, LayerInput), Vec<(Projection, &LoraPair)>> = BTreeMap::new();
        for (site, pair) in &adapter.modules {
            let key = (site.layer, site.projection.input());
            inputs.entry(key).or_default().push((site.projection, pair));
        }
        if inputs.is_empty() || inputs.len() > INPUTS_MAX {
            return Err(HostError::InputCount { limit: INPUTS_MAX, got: inputs.len() });
        }
        let mut groups = Vec::with_capacity(inputs.len());
        let mut by_input = HashMap::new();
        for (key, pairs) in inputs {
            by_input.insert(key, groups.len());
            groups.push(ProjectionGroup::new(key.0, &pairs, contexts, protect, noise_sigma)?);
        }
        let groups = Arc::new(groups);
        let queue = Arc::new(JobQueue::new(Arc::new(OnlineComputer::new(groups.clone(), epoch))));
        let mut hash = Sha256::new();
        hash.update(b"confide lora adapter v1");
        hash.update(name.as_bytes());
        Ok(Self { name, id: hash.finalize().into(), groups, by_input, queue })
    }

    pub(crate) fn groups(&self) -> &[ProjectionGroup] {
        &self.groups
    }

    pub(crate) fn group_index(&self, layer: u32, input: LayerInput) -> Option<usize> {
        self.by_input.get(&(layer, input)).copied()
    }

    /// Returns whether this scheme can compute every input of the adapter.
    pub(crate) fn offers_scheme(&self, scheme: Scheme) -> bool {
        self.groups.iter().all(|group| group.terms_bytes(scheme).is_some())
    }
}

impl std::fmt::Debug for HostedAdapter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "HostedAdapter({}, {} inputs)", self.name, self.groups.len())
    }
}
