//! Which server of a group has which key for encrypted requests, as the servers list them. Nothing
//! vouches for the lists: a server that lists a key of another one can keep requests from it, and
//! read none.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use confide_encrypted_body::{BodyKeyId, BodyPublicKey};
use confide_http::SingleFlight;
use tokio::{runtime::Handle, time::Instant};

/// The largest number of servers of a group of which a route selects one by key: as many keys as a client
/// reads in one list.
pub(crate) const KEYED_SERVERS_MAX: usize = 16;
/// The largest number of keys that are remembered of one server: those of its keyset and of earlier
/// ones, which it opens until they end.
const KEYS_MAX: usize = 16;
/// The shortest time between two times that all servers are asked because of an unknown key.
const REFRESH_PAUSE: Duration = Duration::from_secs(1);

/// The keys of the servers of one group.
pub(crate) struct KeyDirectory {
    state: Mutex<DirectoryState>,
    refreshes: Arc<SingleFlight<(), ()>>,
}

#[derive(Default)]
struct DirectoryState {
    /// The index of the server that has a key: the first one that listed it.
    holders: HashMap<BodyKeyId, usize>,
    servers: Vec<ServerKeys>,
    refreshed: Option<Instant>,
}

#[derive(Default)]
struct ServerKeys {
    /// The keys that lead to the server, the oldest first.
    known: VecDeque<BodyKeyId>,
    /// The key that the server prefers, while it answers.
    preferred: Option<BodyPublicKey>,
    /// Whether it lists a key that another server listed before.
    is_disputed: bool,
}

impl KeyDirectory {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), refreshes: SingleFlight::new() }
    }

    /// The index of the server that has the key, as far as is known.
    pub(crate) fn find_holder(&self, id: BodyKeyId) -> Option<usize> {
        self.lock().holders.get(&id).copied()
    }

    /// Remembers the keys that a server lists, the preferred one first. Returns whether it is news that
    /// it lists one of another server, which stays that one's.
    pub(crate) fn record_keys(&self, index: usize, keys: &[BodyPublicKey]) -> bool {
        let mut state = self.lock();
        let DirectoryState { holders, servers, .. } = &mut *state;
        if servers.len() <= index {
            servers.resize_with(index + 1, ServerKeys::default);
        }
        let server = &mut servers[index];
        let mut is_disputed = false;
        for id in keys.iter().take(KEYS_MAX).map(BodyPublicKey::key_id) {
            match holders.entry(id) {
                Entry::Occupied(holder) => is_disputed |= *holder.get() != index,
                Entry::Vacant(free) => {
                    free.insert(index);
                    server.known.push_back(id);
                    if server.known.len() > KEYS_MAX
                        && let Some(oldest) = server.known.pop_front()
                    {
                        holders.remove(&oldest);
                    }
                }
            }
        }
        server.preferred = keys.first().cloned();
        !std::mem::replace(&mut server.is_disputed, is_disputed) && is_disputed
    }

    /// Remembers that a server lists no keys now, so that no new client learns of it. Requests for the
    /// keys that it listed before still go to it alone.
    pub(crate) fn record_failure(&self, index: usize) {
        if let Some(server) = self.lock().servers.get_mut(index) {
            server.preferred = None;
        }
    }

    /// The preferred key of each server that answers.
    pub(crate) fn list_preferred(&self) -> Vec<BodyPublicKey> {
        self.lock().servers.iter().filter_map(|server| server.preferred.clone()).collect()
    }

    /// Runs `refresh`, once for all who wait for it, unless that was done a moment ago.
    pub(crate) async fn refresh<F>(&self, refresh: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let admit = |_running| {
            let (mut state, now) = (self.lock(), Instant::now());
            let is_recent =
                state.refreshed.is_some_and(|last| now.duration_since(last) < REFRESH_PAUSE);
            if is_recent {
                return Err(());
            }
            state.refreshed = Some(now);
            Ok(())
        };
        let started = self.refreshes.start_if_admitted(&Handle::current(), &(), admit, refresh);
        if let Ok(refreshing) = started {
            refreshing.outcome().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, DirectoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use confide_encrypted_body::{BodyKem, RecipientKey};

    use super::*;

    fn make_key() -> BodyPublicKey {
        RecipientKey::generate(BodyKem::X25519).unwrap().public_key().clone()
    }

    #[test]
    fn a_key_leads_to_the_server_that_listed_it_first_and_to_no_other() {
        let (directory, [one, two]) = (KeyDirectory::new(), [make_key(), make_key()]);
        assert!(!directory.record_keys(1, std::slice::from_ref(&one)));
        assert!(!directory.record_keys(0, std::slice::from_ref(&two)));
        assert!(directory.record_keys(0, &[two.clone(), one.clone()]), "this is news");
        assert!(!directory.record_keys(0, &[two.clone(), one.clone()]), "and then no longer");
        let holders = [&one, &two].map(|key| directory.find_holder(key.key_id()));
        assert_eq!(holders, [Some(1), Some(0)]);
        assert_eq!(directory.find_holder(make_key().key_id()), None);
        assert_eq!(directory.list_preferred(), [two.clone(), one.clone()]);
        // A server that does not answer is not offered, and its requests go nowhere else.
        directory.record_failure(1);
        assert_eq!(directory.list_preferred(), [two]);
        assert_eq!(directory.find_holder(one.key_id()), Some(1));
    }

    #[test]
    fn the_keys_of_a_server_are_bounded_and_the_oldest_go_first() {
        let (directory, first) = (KeyDirectory::new(), make_key());
        directory.record_keys(0, std::slice::from_ref(&first));
        for _ in 0..KEYS_MAX - 1 {
            directory.record_keys(0, &[make_key()]);
        }
        assert_eq!(directory.find_holder(first.key_id()), Some(0));
        directory.record_keys(0, &[make_key()]);
        assert_eq!(directory.find_holder(first.key_id()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_keys_have_the_servers_asked_once_a_second() {
        let (directory, asked) = (KeyDirectory::new(), Arc::new(Mutex::new(0)));
        let ask = || {
            let asked = asked.clone();
            directory.refresh(|| async move { *asked.lock().unwrap() += 1 })
        };
        tokio::join!(ask(), ask(), ask());
        ask().await;
        assert_eq!(*asked.lock().unwrap(), 1);
        tokio::time::advance(REFRESH_PAUSE).await;
        ask().await;
        assert_eq!(*asked.lock().unwrap(), 2);
    }
}
