//! A rate for each network, in a table of bounded size.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use confide_http::Peer;
use tokio::time::Instant;

use crate::rate_limit::TokenBucket;

/// The largest number of networks that are remembered, at some 50 bytes each.
const PEERS_MAX: usize = 4096;

/// Counts what each network does. A network whose bucket is full again is forgotten; if none is, a
/// new one has to wait.
#[derive(Debug, Default)]
pub(crate) struct PeerRates(Mutex<HashMap<Peer, TokenBucket>>);

impl PeerRates {
    /// Takes one of the `per_minute` that a network may do; `false` if it has done them.
    pub(crate) fn take(&self, peer: Peer, per_minute: u64, now: Instant) -> bool {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.len() >= PEERS_MAX && !peers.contains_key(&peer) {
            peers.retain(|_, bucket| bucket.status(per_minute, now).remaining < per_minute);
            if peers.len() >= PEERS_MAX {
                return false;
            }
        }
        let bucket = peers.entry(peer).or_default();
        let is_allowed = bucket.wait_for(1, per_minute, now) == Duration::ZERO;
        if is_allowed {
            bucket.take(1);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn peer(number: u32) -> Peer {
        IpAddr::V4(Ipv4Addr::from(number)).into()
    }

    #[test]
    fn a_network_has_its_own_rate() {
        let (rates, start) = (PeerRates::default(), Instant::now());
        for _ in 0..60 {
            assert!(rates.take(peer(1), 60, start));
        }
        assert!(!rates.take(peer(1), 60, start));
        assert!(rates.take(peer(2), 60, start));
        assert!(rates.take(peer(1), 60, start + Duration::from_secs(1)));
        assert!(!rates.take(peer(1), 60, start + Duration::from_secs(1)));
    }

    #[test]
    fn a_full_table_forgets_only_those_that_have_waited() {
        let (rates, start) = (PeerRates::default(), Instant::now());
        for number in 0..PEERS_MAX as u32 {
            assert!(rates.take(peer(number), 60, start));
        }
        assert!(!rates.take(peer(u32::MAX), 60, start));
        assert!(rates.take(peer(u32::MAX), 60, start + Duration::from_secs(1)));
    }
}
