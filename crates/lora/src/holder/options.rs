//! Configuration of a key holder.

use std::time::Duration;

use confide_rlwe::ParameterSet;

use crate::{
    link::{NetworkLink, OperationCosts},
    protocol::Scheme,
    terms::ProtectedMatrices,
};

/// Configuration of a key holder: the adapter that it requests, and how it prepares masks.
#[derive(Clone, Debug)]
pub struct KeyHolderOptions {
    /// The adapter's name at the host.
    pub adapter: String,
    /// The scheme by which products are computed.
    pub scheme: Scheme,
    /// The parameter set: ring and noise. The host has to use the same one.
    pub parameters: ParameterSet,
    /// The matrices that must stay at the host; `None` accepts the host's choice.
    pub protect: Option<ProtectedMatrices>,
    /// The credential that identifies this client to a host that keeps a list of clients.
    pub credential: Vec<u8>,
    /// The number of prepared vectors below which the next batch is prepared.
    pub low_water: u32,
    /// The number of threads that prepare masks, each with a connection; 0 disables preparation in
    /// the background.
    pub preparers: usize,
    /// The longest time that a generation waits for masks.
    pub mask_deadline: Duration,
    /// Bandwidth and latency of the link to the host, from which the direct scheme chooses its
    /// tile.
    pub link: NetworkLink,
    /// Costs of the operations, from which the direct scheme chooses its tile.
    pub costs: OperationCosts,
}

impl KeyHolderOptions {
    /// Options for the masked scheme, with one thread that prepares masks.
    pub fn new(adapter: impl Into<String>, parameters: ParameterSet) -> Self {
        let low_water = (parameters.n() / 4).max(1) as u32;
        Self {
            adapter: adapter.into(),
            scheme: Scheme::Masked,
            parameters,
            protect: None,
            credential: Vec::new(),
            low_water,
            preparers: 1,
            mask_deadline: Duration::from_secs(300),
            link: NetworkLink::LOOPBACK,
            costs: OperationCosts::GIVEN,
        }
    }
}
