//! The slots for simultaneous exchanges, of which no client can take all.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use confide_http::Peer;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::error::ExchangeError;

/// One in this many slots is reserved for clients that have none.
const NEWCOMERS_SHARE: usize = 8;

/// The identity of a client, by which its slots are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientIdentity {
    /// A listed client, by its name.
    Named(String),
    /// Any other client, by the address of its connection.
    At(Peer),
}

/// The slots for exchanges, of which each client can take a limited number.
pub(crate) struct ExchangeSlots {
    all: usize,
    per_client: usize,
    taken: Mutex<HashMap<ClientIdentity, usize>>,
    freed: Notify,
}

/// One slot, which is released when this is dropped.
pub(crate) struct ExchangeSlot {
    slots: Arc<ExchangeSlots>,
    client: ClientIdentity,
}

impl ExchangeSlots {
    pub(crate) fn new(all: usize, per_client: usize) -> Arc<Self> {
        Arc::new(Self { all, per_client, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Waits for a slot, at most `deadline`.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        client: &ClientIdentity,
        deadline: Duration,
    ) -> Result<ExchangeSlot, ExchangeError> {
        let until = Instant::now() + deadline;
        loop {
            // Subscribes before the attempt, so that a slot that is freed in between is not missed.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(slot) = self.try_acquire(client) {
                return Ok(slot);
            }
            if timeout_at(until, freed).await.is_err() {
                let slots_of_client = self.lock().get(client).copied().unwrap_or(0);
                return Err(match slots_of_client >= self.per_client {
                    true => ExchangeError::ClientBusy { exchanges: self.per_client, deadline },
                    false => ExchangeError::Busy { exchanges: self.all, deadline },
                });
            }
        }
    }

    fn try_acquire(self: &Arc<Self>, client: &ClientIdentity) -> Option<ExchangeSlot> {
        let mut taken = self.lock();
        let (all, slots_of_client) = (taken.values().sum::<usize>(), taken.get(client).copied());
        // A client without a slot may take the reserved ones too.
        let reserved = if slots_of_client.is_some() { self.all / NEWCOMERS_SHARE } else { 0 };
        if slots_of_client.unwrap_or(0) >= self.per_client || all + reserved >= self.all {
            return None;
        }
        *taken.entry(client.clone()).or_default() += 1;
        Some(ExchangeSlot { slots: self.clone(), client: client.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientIdentity, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ExchangeSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        if let Some(slots_of_client) = taken.get_mut(&self.client) {
            *slots_of_client -= 1;
            if *slots_of_client == 0 {
                taken.remove(&self.client);
            }
        }
        drop(taken);
        self.slots.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn client_at(address: &str) -> ClientIdentity {
        ClientIdentity::At(address.parse::<IpAddr>().unwrap().into())
    }

    #[tokio::test]
    async fn one_client_takes_its_share_and_another_is_served_meanwhile() {
        let slots = ExchangeSlots::new(4, 2);
        let (one, two) = (client_at("127.0.0.1"), client_at("127.0.0.2"));
        let taken =
            [slots.acquire(&one, SHORT).await.unwrap(), slots.acquire(&one, SHORT).await.unwrap()];
        let third = slots.acquire(&one, SHORT).await.map(drop);
        assert!(matches!(third, Err(ExchangeError::ClientBusy { exchanges: 2, .. })));
        let others =
            [slots.acquire(&two, SHORT).await.unwrap(), slots.acquire(&two, SHORT).await.unwrap()];
        let full = slots.acquire(&client_at("127.0.0.3"), SHORT).await.map(drop);
        assert!(matches!(full, Err(ExchangeError::Busy { exchanges: 4, .. })));
        drop(taken);
        slots.acquire(&one, SHORT).await.unwrap();
        drop(others);
        assert!(slots.lock().is_empty(), "what nobody holds is not kept");
    }

    #[tokio::test]
    async fn the_last_slots_are_for_clients_that_have_none() {
        let slots = ExchangeSlots::new(16, 16);
        let mut taken = Vec::new();
        for _ in 0..14 {
            taken.push(slots.acquire(&client_at("192.0.2.1"), SHORT).await.unwrap());
        }
        assert!(slots.acquire(&client_at("192.0.2.1"), SHORT).await.is_err());
        taken.push(slots.acquire(&client_at("192.0.2.2"), SHORT).await.unwrap());
        taken.push(slots.acquire(&client_at("192.0.2.3"), SHORT).await.unwrap());
        assert!(slots.acquire(&client_at("192.0.2.4"), SHORT).await.is_err());
    }

    #[tokio::test]
    async fn a_freed_slot_goes_to_a_waiting_client() {
        let slots = ExchangeSlots::new(1, 1);
        let taken = slots.acquire(&client_at("192.0.2.1"), SHORT).await.unwrap();
        let (other, generous) = (client_at("192.0.2.2"), Duration::from_secs(60));
        let waiting = tokio::spawn({
            let slots = slots.clone();
            async move { slots.acquire(&other, generous).await.map(drop) }
        });
        tokio::task::yield_now().await;
        drop(taken);
        waiting.await.unwrap().unwrap();
    }

    #[test]
    fn addresses_of_one_owner_are_one_client() {
        assert_eq!(client_at("2001:db8::1"), client_at("2001:db8::2"));
        assert_ne!(client_at("2001:db8::1"), client_at("2001:db8:0:1::1"));
        assert_eq!(client_at("::ffff:192.0.2.1"), client_at("192.0.2.1"));
        assert_ne!(client_at("192.0.2.1"), client_at("192.0.2.2"));
    }
}
