//! What a key holder asks of an adapter host.

use std::time::Duration;

use confide_rlwe::ParameterSet;

use crate::{
    link::{Link, OperationCosts},
    protocol::Scheme,
    terms::Protect,
};

/// What a key holder asks for.
#[derive(Clone, Debug)]
pub struct HolderOptions {
    /// The adapter's name at the host.
    pub adapter: String,
    /// How to compute.
    pub scheme: Scheme,
    /// Ring and noise; the host has to use the same.
    pub parameters: ParameterSet,
    /// What the host may not hand over; `None` takes what it does.
    pub protect: Option<Protect>,
    /// What this client is known by, where the host keeps a list.
    pub credential: Vec<u8>,
    /// The next batch is prepared when fewer vectors than this are left.
    pub low_water: u32,
    /// Threads, and connections, that prepare; 0 prepares nothing by itself.
    pub preparers: usize,
    /// How long a generation waits for masks.
    pub mask_deadline: Duration,
    /// The way to the host, for the direct scheme's choice of a tile.
    pub link: Link,
    /// What operations cost, for the same.
    pub costs: OperationCosts,
}

impl HolderOptions {
    /// The masked scheme with one preparer.
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
            link: Link::LOOPBACK,
            costs: OperationCosts::GIVEN,
        }
    }
}
