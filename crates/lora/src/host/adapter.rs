//! An adapter as its host holds it: integers, and what key holders are told.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use confide_rlwe::{Context, ScalarMatrix};
use sha2::{Digest, Sha256};

use super::{HostError, online::Online, queue::Queue};
use crate::{
    Adapter, Input, Pair, Projection, Protect, Weights,
    protocol::{Hello, Kind, encode_terms},
};

/// Rows of one input: the sums of a batch take 128 KB for each, half a gigabyte for all.
pub const ROWS_MAX: usize = 4096;

/// Inputs of one adapter.
const GROUPS_MAX: usize = 1024;

/// A loaded adapter.
pub(crate) struct Hosted {
    pub(crate) name: String,
    /// What slots and counts of answers call it: its name, hashed.
    pub(crate) id: [u8; 32],
    groups: Arc<Vec<Group>>,
    by_input: HashMap<(u32, Input), usize>,
    pub(crate) queue: Arc<Queue<Online>>,
}

/// One input and all that reads it.
pub(crate) struct Group {
    pub(crate) weights: Weights,
    pub(crate) scalars: Arc<ScalarMatrix>,
    terms: Vec<u8>,
}

impl Hosted {
    /// Quantises an adapter.
    pub(crate) fn new(
        adapter: &Adapter,
        context: &Context,
        protect: Protect,
        noise_sigma: f64,
    ) -> Result<Self, HostError> {
        let name = adapter.name.clone();
        if !Hello::is_name(&name) {
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
            groups.push(Group::new(key.0, &pairs, context, protect, noise_sigma)?);
        }
        let groups = Arc::new(groups);
        let queue = Arc::new(Queue::new(Arc::new(Online::new(groups.clone()))));
        let mut hash = Sha256::new();
        hash.update(b"confide lora adapter v1");
        hash.update(name.as_bytes());
        Ok(Self { name, id: hash.finalize().into(), groups, by_input, queue })
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub(crate) fn group(&self, layer: u32, input: Input) -> Option<usize> {
        self.by_input.get(&(layer, input)).copied()
    }

    /// Rounds of products, and vectors' jobs in them.
    pub(crate) fn rounds(&self) -> (u64, u64) {
        self.queue.counts()
    }
}

impl Group {
    fn new(
        layer: u32,
        pairs: &[(Projection, &Pair)],
        context: &Context,
        protect: Protect,
        noise_sigma: f64,
    ) -> Result<Self, HostError> {
        let weights = Weights::new(layer, pairs, protect, context.set(), noise_sigma)?;
        let (rows, columns) = (weights.matrix.rows(), weights.matrix.columns());
        if rows > ROWS_MAX {
            return Err(HostError::Rows { layer, limit: ROWS_MAX, got: rows });
        }
        if weights.terms.norm_limit == 0 {
            return Err(HostError::Noise { layer });
        }
        let values: Vec<i16> = (0..rows).flat_map(|row| weights.matrix.row(row)).collect();
        let scalars = Arc::new(ScalarMatrix::new(context, rows, columns, &values)?);
        let terms = encode_terms(&weights.terms);
        if terms.len() > Kind::Terms.payload_max() - 16 {
            return Err(HostError::Terms { layer, got: terms.len() });
        }
        Ok(Self { weights, scalars, terms })
    }

    pub(crate) fn columns(&self) -> usize {
        self.weights.terms.columns
    }

    pub(crate) fn rows(&self) -> usize {
        self.weights.matrix.rows()
    }

    pub(crate) fn terms_bytes(&self) -> &[u8] {
        &self.terms
    }
}

impl std::fmt::Debug for Hosted {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Hosted({}, {} inputs)", self.name, self.groups.len())
    }
}
