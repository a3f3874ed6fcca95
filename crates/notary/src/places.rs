//! The bounded number of exchanges at once, of which no client takes all.

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

/// One in this many places goes to a client that has none, however busy the others are.
const NEWCOMERS_SHARE: usize = 8;

/// A client that takes places: one that was named, or else an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// A client of the list, by its name.
    Named(String),
    /// Any other client, by the address of its connection.
    At(Peer),
}

/// Places for exchanges, of which each client takes a share at most.
pub(crate) struct Places {
    all: usize,
    per_client: usize,
    taken: Mutex<HashMap<Client, usize>>,
    freed: Notify,
}

/// One place, which is free again when this is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    client: Client,
}

impl Places {
    pub(crate) fn new(all: usize, per_client: usize) -> Arc<Self> {
        Arc::new(Self { all, per_client, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Waits for a place, at most `deadline`.
    pub(crate) async fn take(
        self: &Arc<Self>,
        client: &Client,
        deadline: Duration,
    ) -> Result<Place, ExchangeError> {
        let until = Instant::now() + deadline;
        loop {
            // Listens before it looks, so that a place that is freed in between is not missed.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(place) = self.take_now(client) {
                return Ok(place);
            }
            if timeout_at(until, freed).await.is_err() {
                let places_of_client = self.lock().get(client).copied().unwrap_or(0);
                return Err(match places_of_client >= self.per_client {
                    true => ExchangeError::ClientBusy { exchanges: self.per_client, deadline },
                    false => ExchangeError::Busy { exchanges: self.all, deadline },
                });
            }
        }
    }

    fn take_now(self: &Arc<Self>, client: &Client) -> Option<Place> {
        let mut taken = self.lock();
        let (all, places_of_client) = (taken.values().sum::<usize>(), taken.get(client).copied());
        // A client that has no place may take the last places too.
        let reserved = if places_of_client.is_some() { self.all / NEWCOMERS_SHARE } else { 0 };
        if places_of_client.unwrap_or(0) >= self.per_client || all + reserved >= self.all {
            return None;
        }
        *taken.entry(client.clone()).or_default() += 1;
        Some(Place { places: self.clone(), client: client.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Client, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if let Some(places_of_client) = taken.get_mut(&self.client) {
            *places_of_client -= 1;
            if *places_of_client == 0 {
                taken.remove(&self.client);
            }
        }
        drop(taken);
        self.places.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn client_at(address: &str) -> Client {
        Client::At(address.parse::<IpAddr>().unwrap().into())
    }

    #[tokio::test]
    async fn one_client_takes_its_share_and_another_is_served_meanwhile() {
        let places = Places::new(4, 2);
        let (one, two) = (client_at("127.0.0.1"), client_at("127.0.0.2"));
        let taken =
            [places.take(&one, SHORT).await.unwrap(), places.take(&one, SHORT).await.unwrap()];
        let third = places.take(&one, SHORT).await.map(drop);
        assert!(matches!(third, Err(ExchangeError::ClientBusy { exchanges: 2, .. })));
        let others =
            [places.take(&two, SHORT).await.unwrap(), places.take(&two, SHORT).await.unwrap()];
        let full = places.take(&client_at("127.0.0.3"), SHORT).await.map(drop);
        assert!(matches!(full, Err(ExchangeError::Busy { exchanges: 4, .. })));
        drop(taken);
        places.take(&one, SHORT).await.unwrap();
        drop(others);
        assert!(places.lock().is_empty(), "what nobody holds is not kept");
    }

    #[tokio::test]
    async fn the_last_places_are_for_clients_that_have_none() {
        let places = Places::new(16, 16);
        let mut taken = Vec::new();
        for _ in 0..14 {
            taken.push(places.take(&client_at("192.0.2.1"), SHORT).await.unwrap());
        }
        assert!(places.take(&client_at("192.0.2.1"), SHORT).await.is_err());
        taken.push(places.take(&client_at("192.0.2.2"), SHORT).await.unwrap());
        taken.push(places.take(&client_at("192.0.2.3"), SHORT).await.unwrap());
        assert!(places.take(&client_at("192.0.2.4"), SHORT).await.is_err());
    }

    #[tokio::test]
    async fn a_place_that_is_freed_goes_to_who_waits() {
        let places = Places::new(1, 1);
        let taken = places.take(&client_at("192.0.2.1"), SHORT).await.unwrap();
        let (other, generous) = (client_at("192.0.2.2"), Duration::from_secs(60));
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { places.take(&other, generous).await.map(drop) }
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
