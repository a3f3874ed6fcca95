//! An adapter as its host holds it: integer matrices, and the terms that key holders receive.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use super::{
    error::HostError,
    group::{Contexts, ProjectionGroup},
    online::Online,
    queue::Queue,
};
use crate::{
    adapter::{Adapter, Pair},
    mask::Epoch,
    protocol::{Scheme, is_name},
    site::{Input, Projection},
    terms::Protect,
};

/// The greatest number of inputs of one adapter.
const GROUPS_MAX: usize = 1024;

/// An adapter that a host has loaded, as integers.
pub(crate) struct HostedAdapter {
    pub(crate) name: String,
    /// The id that the masks of a session are bound to: the hash of the adapter's name.
    pub(crate) id: [u8; 32],
    groups: Arc<Vec<ProjectionGroup>>,
    by_input: HashMap<(u32, Input), usize>,
    pub(crate) queue: Arc<Queue<Online>>,
}

impl HostedAdapter {
    /// Quantises an adapter for both schemes.
    pub(crate) fn new(
        adapter: &Adapter,
        contexts: &Contexts,
        protect: Protect,
        noise_sigma: f64,
        epoch: Epoch,
    ) -> Result<Self, HostError> {
        let name = adapter.name.clone();
        if !is_name(&name) {
            return Err(HostError::Name { name });
        }
        let mut inputs: BTreeMap<(u32, Input), Vec<(Projection, &Pair)>> = BTreeMap::new();
        for (site, pair) in &adapter.modules {
            let key = (site.layer, site.projection.input());
            inputs.entry(key).or_default().push((site.projection, pair));
        }
        if inputs.is_empty() || inputs.len() > GROUPS_MAX {
            return Err(HostError::Inputs { limit: GROUPS_MAX, got: inputs.len() });
        }
        let mut groups = Vec::with_capacity(inputs.len());
        let mut by_input = HashMap::new();
        for (key, pairs) in inputs {
            by_input.insert(key, groups.len());
            groups.push(ProjectionGroup::new(key.0, &pairs, contexts, protect, noise_sigma)?);
        }
        let groups = Arc::new(groups);
        let queue = Arc::new(Queue::new(Arc::new(Online::new(groups.clone(), epoch))));
        let mut hash = Sha256::new();
        hash.update(b"confide lora adapter v1");
        hash.update(name.as_bytes());
        Ok(Self { name, id: hash.finalize().into(), groups, by_input, queue })
    }

    pub(crate) fn groups(&self) -> &[ProjectionGroup] {
        &self.groups
    }

    pub(crate) fn group(&self, layer: u32, input: Input) -> Option<usize> {
        self.by_input.get(&(layer, input)).copied()
    }

    /// Returns whether every input of the adapter can be computed by this scheme.
    pub(crate) fn offers(&self, scheme: Scheme) -> bool {
        self.groups.iter().all(|group| group.terms_bytes(scheme).is_some())
    }
}

impl std::fmt::Debug for HostedAdapter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "HostedAdapter({}, {} inputs)", self.name, self.groups.len())
    }
}
