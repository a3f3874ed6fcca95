//! The state of the model servers and their queues, for metrics.

use std::sync::Arc;

use crate::server_group::ServerGroup;

/// Reads the state of the model servers while the gateway serves. Clones read the same state.
#[derive(Clone)]
pub struct ServerStates(Arc<[Arc<ServerGroup>]>);

/// The state of one model server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// The address.
    pub url: String,
    /// The name of its group.
    pub group: String,
    /// The number of requests that run on it.
    pub running: u32,
    /// The largest number of requests that may run on it; 0 for no limit.
    pub requests_max: u32,
    /// Whether it counts as healthy; otherwise it is tried last.
    pub is_healthy: bool,
    /// The number of requests and checks for which no connection to it could be used.
    pub connect_failures: u64,
}

/// The state of the queue of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    /// The name of the group.
    pub group: String,
    /// The number of requests that wait for one of its servers.
    pub waiting: usize,
}

impl ServerStates {
    pub(crate) fn new(groups: &[Arc<ServerGroup>]) -> Self {
        Self(groups.into())
    }

    /// The current state of each server, by group.
    pub fn servers(&self) -> Vec<ServerState> {
        let states = self.0.iter().flat_map(|group| {
            group.servers().iter().map(|server| ServerState {
                url: server.pool().upstream().url(),
                group: group.name().to_owned(),
                running: server.running(),
                requests_max: server.requests_max(),
                is_healthy: server.health().is_healthy(),
                connect_failures: server.health().connect_failures(),
            })
        });
        states.collect()
    }

    /// The current state of the queue of each group.
    pub fn queues(&self) -> Vec<QueueState> {
        let state = |group: &Arc<ServerGroup>| QueueState {
            group: group.name().to_owned(),
            waiting: group.waiting(),
        };
        self.0.iter().map(state).collect()
    }
}
