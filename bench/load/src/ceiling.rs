//! What the client can do by itself, and how much of that a run asked for.

use serde::{Deserialize, Serialize};

use crate::event::RequestRecord;

/// What one second of the client's CPU time is enough for, each alone.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Ceiling {
    /// Requests over kept connections, each with an answer of one token.
    pub requests_per_cpu_s: f64,
    /// Connections opened over plain TCP, without the requests on them.
    pub connections_per_cpu_s: f64,
    /// Pieces of content that arrive one by one, each in a read of its own.
    pub tokens_per_cpu_s: f64,
    /// Whether it was measured on this machine before the run; otherwise it is the stated one.
    pub is_measured: bool,
}

impl Ceiling {
    /// What is stated for one core of a server's processor; `confide bench load --ceiling` measures
    /// it (`bench/METHODOLOGY.md`, "Load").
    pub const STATED: Self = Self {
        requests_per_cpu_s: 10_000.0,
        connections_per_cpu_s: 3_000.0,
        tokens_per_cpu_s: 50_000.0,
        is_measured: false,
    };

    /// The CPU time that this work takes by the ceiling, in seconds.
    pub(crate) fn estimated_cpu_s(&self, work: ClientWork) -> f64 {
        work.requests as f64 / self.requests_per_cpu_s
            + work.connections as f64 / self.connections_per_cpu_s
            + work.tokens as f64 / self.tokens_per_cpu_s
    }
}

/// What a client did in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientWork {
    /// Requests that were sent.
    pub(crate) requests: u64,
    /// Connections that were opened during the run.
    pub(crate) connections: u64,
    /// Pieces of content that came in a read of their own.
    pub(crate) tokens: u64,
}

impl ClientWork {
    pub(crate) fn from_events(events: &[RequestRecord]) -> Self {
        // Pieces that came in one read bear one instant, and cost little more than one.
        let reads = |event: &RequestRecord| {
            let later = event.chunks_s.windows(2).filter(|pair| pair[0] < pair[1]).count();
            (later + usize::from(!event.chunks_s.is_empty())) as u64
        };
        let count = |is_counted: &dyn Fn(&RequestRecord) -> bool| {
            events.iter().filter(|event| is_counted(event)).count() as u64
        };
        Self {
            requests: count(&|event| event.sent_s.is_some()),
            connections: count(&|event| event.connected_s.is_some()),
            tokens: events.iter().map(reads).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::tests::events_of_known_truth;

    #[test]
    fn work_counts_reads_and_not_the_pieces_in_them() {
        let mut events = events_of_known_truth(10, 4);
        for event in &mut events {
            event.sent_s = Some(event.dispatched_s);
            event.chunks_s[2] = event.chunks_s[1];
        }
        (events[0].sent_s, events[1].connected_s) = (None, None);
        let work = ClientWork::from_events(&events);
        assert_eq!(work, ClientWork { requests: 9, connections: 9, tokens: 30 });
        let ceiling = Ceiling {
            requests_per_cpu_s: 9.0,
            connections_per_cpu_s: 4.5,
            tokens_per_cpu_s: 60.0,
            is_measured: true,
        };
        assert_eq!(ceiling.estimated_cpu_s(work), 3.5);
    }
}
