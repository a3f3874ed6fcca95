//! The peers to which limits apply, and the limits for each peer and in all.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The part of an address to which limits apply: an IPv4 address, or the /64 network of an IPv6
/// address, because a client can use all addresses of its /64 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerPrefix {
    /// An IPv4 address, or one that is mapped into IPv6.
    V4(Ipv4Addr),
    /// The first 64 bits of an IPv6 address.
    V6([u8; 8]),
}

impl From<IpAddr> for PeerPrefix {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let mut network = [0; 8];
                network.copy_from_slice(&address.octets()[..8]);
                Self::V6(network)
            }
        }
    }
}

/// The limits on concurrent sessions and preparations, in all and for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// The greatest number of sessions. Each stores a public key of about 400 KB and, for each input
    /// and batch, a bit for each counter.
    pub sessions: usize,
    /// The greatest number of sessions of one peer.
    pub sessions_per_peer: usize,
    /// The greatest number of batches that are being prepared, with up to half a gigabyte each.
    pub preparations: usize,
    /// The greatest number of batches that are being prepared for one peer.
    pub preparations_per_peer: usize,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self { sessions: 256, sessions_per_peer: 64, preparations: 4, preparations_per_peer: 3 }
    }
}

/// The batches that are being prepared, by peer; connections without an address count as one peer.
#[derive(Debug)]
pub(crate) struct RunningPreparations {
    limits: HostLimits,
    running: Mutex<HashMap<Option<PeerPrefix>, usize>>,
}

/// A permit for the sums of one batch, held until it is dropped.
#[derive(Debug)]
pub(crate) struct PreparationPermit {
    preparations: Arc<RunningPreparations>,
    peer: Option<PeerPrefix>,
}

impl RunningPreparations {
    pub(crate) fn new(limits: HostLimits) -> Self {
        Self { limits, running: Mutex::default() }
    }

    /// Takes a permit for one more batch of `peer`; `None` if the peer is at its limit. The last permit
    /// is reserved for a peer that has none, so that active peers cannot block a new one.
    pub(crate) fn acquire_permit(
        self: &Arc<Self>,
        peer: Option<PeerPrefix>,
    ) -> Option<PreparationPermit> {
        let mut running = self.lock();
        let all: usize = running.values().sum();
        let own = running.get(&peer).copied().unwrap_or(0);
        let last = all + 1 >= self.limits.preparations;
        if all >= self.limits.preparations
            || own >= self.limits.preparations_per_peer
            || (last && own > 0)
        {
            return None;
        }
        *running.entry(peer).or_default() += 1;
        Some(PreparationPermit { preparations: self.clone(), peer })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<PeerPrefix>, usize>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PreparationPermit {
    fn drop(&mut self) {
        let mut running = self.preparations.lock();
        let Some(own) = running.get_mut(&self.peer) else { return };
        *own -= 1;
        if *own == 0 {
            running.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Option<PeerPrefix> {
        let address: IpAddr = address.parse().unwrap();
        Some(address.into())
    }

    #[test]
    fn a_network_of_ipv6_addresses_and_a_mapped_ipv4_address_are_one_peer_each() {
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
    }

    #[test]
    fn four_begun_preparations_of_one_peer_leave_room_for_another() {
        let preparations = Arc::new(RunningPreparations::new(HostLimits::default()));
        let stranger = peer("127.0.0.1");
        let begun: Vec<_> = (0..4).filter_map(|_| preparations.acquire_permit(stranger)).collect();
        assert_eq!(begun.len(), 3);
        let honest = preparations.acquire_permit(peer("127.0.0.2")).expect("the last room");
        assert!(preparations.acquire_permit(peer("127.0.0.3")).is_none(), "no room is left");
        drop(honest);
        // Two peers that prepare already leave the last permit to a third.
        drop(begun);
        let _two: Vec<_> = ["127.0.0.1", "127.0.0.1", "127.0.0.2"]
            .map(|one| preparations.acquire_permit(peer(one)))
            .into();
        assert!(preparations.acquire_permit(peer("127.0.0.2")).is_none());
        assert!(preparations.acquire_permit(peer("127.0.0.3")).is_some());
    }
}
