//! Limits the wrong keys of one network.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use confide_http::Peer;
use tokio::time::Instant;

/// The number of wrong keys within [`WINDOW`] after which a network's wrong keys are not looked up.
const WRONG_KEYS_MAX: u32 = 20;
/// The time in which wrong keys are counted together.
const WINDOW: Duration = Duration::from_secs(60);
/// The time for which a network is then refused.
const BLOCK: Duration = Duration::from_secs(60);
/// The largest number of networks that are remembered, at some 50 bytes each.
const PEERS_MAX: usize = 4096;

/// Counts wrong keys by network. A full table forgets the network whose count began first.
#[derive(Debug, Default)]
pub(crate) struct GuessLimiter(Mutex<HashMap<Peer, WrongKeys>>);

#[derive(Debug)]
struct WrongKeys {
    count: u32,
    since: Instant,
}

impl WrongKeys {
    /// The time at which the count is forgotten.
    fn expiry(&self) -> Instant {
        self.since + if self.count >= WRONG_KEYS_MAX { BLOCK } else { WINDOW }
    }
}

impl GuessLimiter {
    /// The time for which a network's wrong keys are still refused, if they are.
    pub(crate) fn blocked_for(&self, peer: Peer, now: Instant) -> Option<Duration> {
        let peers = self.lock();
        let wrong = peers.get(&peer).filter(|wrong| wrong.count >= WRONG_KEYS_MAX)?;
        Some(wrong.expiry().saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Counts a wrong key.
    pub(crate) fn record_wrong_key(&self, peer: Peer, now: Instant) {
        let mut peers = self.lock();
        if peers.len() >= PEERS_MAX && !peers.contains_key(&peer) {
            peers.retain(|_, wrong| wrong.expiry() > now);
            let oldest = peers.iter().min_by_key(|(_, wrong)| wrong.since).map(|(peer, _)| *peer);
            if let Some(oldest) = oldest.filter(|_| peers.len() >= PEERS_MAX) {
                peers.remove(&oldest);
            }
        }
        let wrong = peers.entry(peer).or_insert(WrongKeys { count: 0, since: now });
        if wrong.expiry() <= now {
            *wrong = WrongKeys { count: 0, since: now };
        }
        wrong.count = wrong.count.saturating_add(1);
        if wrong.count == WRONG_KEYS_MAX {
            wrong.since = now;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Peer, WrongKeys>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn peer(number: u32) -> Peer {
        Peer::from(IpAddr::V4(Ipv4Addr::from(number)))
    }

    #[test]
    fn twenty_wrong_keys_in_a_minute_block_one_network_for_a_minute() {
        let (limiter, start) = (GuessLimiter::default(), Instant::now());
        for second in 0..19 {
            limiter.record_wrong_key(peer(1), start + Duration::from_secs(second));
            limiter.record_wrong_key(peer(2), start);
        }
        let at = start + Duration::from_secs(30);
        assert_eq!(limiter.blocked_for(peer(1), at), None);
        limiter.record_wrong_key(peer(1), at);
        assert_eq!(limiter.blocked_for(peer(1), at), Some(BLOCK));
        assert_eq!(limiter.blocked_for(peer(2), at), None);
        assert_eq!(limiter.blocked_for(peer(1), at + BLOCK), None);
        limiter.record_wrong_key(peer(1), at + BLOCK);
        assert_eq!(limiter.blocked_for(peer(1), at + BLOCK), None, "the count begins anew");
        // The first 19 are forgotten after a minute.
        limiter.record_wrong_key(peer(2), start + WINDOW);
        assert_eq!(limiter.blocked_for(peer(2), start + WINDOW), None);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_oldest() {
        let (limiter, start) = (GuessLimiter::default(), Instant::now());
        for number in 0..PEERS_MAX as u32 + 1 {
            limiter.record_wrong_key(peer(number), start + Duration::from_millis(number.into()));
        }
        let peers = limiter.lock();
        assert_eq!(peers.len(), PEERS_MAX);
        assert!(!peers.contains_key(&peer(0)) && peers.contains_key(&peer(1)));
    }
}
