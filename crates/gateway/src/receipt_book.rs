//! The signed receipts of a listener, which its clients fetch for a while after each answer.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use confide_http::Peer;
use confide_receipt::{ExchangeDigests, Keyset};
use tokio::time::Instant;

use crate::{api_key::ApiKeyDigest, limits::ReceiptLimits, receipt_fault::ReceiptFault};

/// The receipts of a listener that are kept. It lives as long as the listener: a reload keeps it.
pub struct ReceiptBook {
    clock: fn() -> u64,
    kept: Mutex<KeptReceipts>,
    /// The latest keysets, the oldest first: reports are given for those of kept receipts.
    keys: Mutex<VecDeque<RememberedKeys>>,
}

/// The public keys of one keyset.
pub(crate) struct RememberedKeys {
    pub(crate) keyset: Arc<Keyset>,
    /// The public key for signatures in dstack's form.
    pub(crate) dstack_address: [u8; 32],
    /// SHA-256 of the TLS key's `SubjectPublicKeyInfo`.
    pub(crate) spki_sha256: [u8; 32],
}

/// The largest number of keysets that are remembered. A key is renewed every few hours or minutes.
const KEYSETS_MAX: usize = 64;

/// The client to whom a receipt belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiptOwner {
    /// The credential of the request, which whoever asks for the receipt has to present.
    pub(crate) key: Option<ApiKeyDigest>,
    pub(crate) holder: ShareHolder,
}

/// The unit that gets a share of the places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ShareHolder {
    /// An API key that the gateway has found valid.
    Key(ApiKeyDigest),
    /// An address: where the gateway checks no keys, anybody can make them up.
    Peer(Peer),
}

/// A receipt that is ready to be kept.
pub(crate) struct FinishedReceipt {
    pub(crate) receipt_id: String,
    /// The identifier in the answer, by which the receipt is found as well.
    pub(crate) chat_id: Option<String>,
    pub(crate) owner: ReceiptOwner,
    pub(crate) kept: KeptExchange,
}

/// What is kept of one exchange.
#[derive(Clone, Debug)]
pub(crate) struct KeptExchange {
    pub(crate) receipt: Bytes,
    /// The second receipt, if the client wants to show parts of the bodies.
    pub(crate) openable: Option<Bytes>,
    /// The digests of the request and the answer; `None` if the answer was cut.
    pub(crate) exchange: Option<ExchangeDigests>,
}

#[derive(Default)]
struct KeptReceipts {
    by_id: HashMap<Arc<str>, KeptReceipt>,
    /// The receipts' identifiers by those of their answers, the latest one if several have one. Each
    /// holder has its own, because model servers let clients choose them.
    by_chat_id: HashMap<(ShareHolder, String), Arc<str>>,
    /// The identifiers of each holder, the oldest first.
    holders: HashMap<ShareHolder, VecDeque<Arc<str>>>,
    /// The holders by the number of their receipts.
    by_count: BTreeMap<usize, HashSet<ShareHolder>>,
    /// All identifiers, the oldest first, with some that are gone.
    order: VecDeque<Arc<str>>,
}

struct KeptReceipt {
    kept: KeptExchange,
    key: Option<ApiKeyDigest>,
    holder: ShareHolder,
    chat_id: Option<String>,
    since: Instant,
}

/// The outcome of a search for a receipt, of which `T` is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundReceipt<T> {
    Content(T),
    /// The receipt belongs to an API key, and none was presented.
    KeyMissing,
    /// There is no such receipt, or it belongs to another API key.
    None,
}

impl<T> FoundReceipt<T> {
    /// What was found, or the reason why there is nothing for the client.
    pub(crate) fn into_result(self) -> Result<T, ReceiptFault> {
        match self {
            Self::Content(content) => Ok(content),
            Self::KeyMissing => Err(ReceiptFault::KeyMissing),
            Self::None => Err(ReceiptFault::NotFound),
        }
    }
}

impl ReceiptBook {
    /// An empty book. `clock` returns Unix seconds.
    pub fn new(clock: fn() -> u64) -> Self {
        Self { clock, kept: Mutex::default(), keys: Mutex::default() }
    }

    /// Remembers the keys of a keyset, so that reports can be given for it later.
    pub(crate) fn remember_keys(&self, new: RememberedKeys) {
        let now = self.now();
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|keys| keys.are_valid(now));
        if keys.len() >= KEYSETS_MAX {
            keys.pop_front();
        }
        keys.push_back(new);
    }

    /// Finds a keyset that is remembered and has not ended.
    pub(crate) fn find_keyset(&self, digest: &str) -> Option<Arc<Keyset>> {
        self.find_keys(|keys| keys.keyset.digest() == digest, |keys| keys.keyset.clone())
    }

    /// Finds the TLS key that was in use with a signing address of dstack's form, whose keyset is
    /// remembered and has not ended.
    pub(crate) fn find_dstack_address(&self, address: &[u8; 32]) -> Option<[u8; 32]> {
        self.find_keys(|keys| keys.dstack_address == *address, |keys| keys.spki_sha256)
    }

    fn find_keys<T>(
        &self,
        is_wanted: impl Fn(&RememberedKeys) -> bool,
        read: impl FnOnce(&RememberedKeys) -> T,
    ) -> Option<T> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let found = keys.iter().find(|keys| is_wanted(keys))?;
        found.are_valid(self.now()).then(|| read(found))
    }

    /// Unix seconds.
    pub(crate) fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Keeps a receipt. If there is no place, the oldest one of a client with the most receipts goes, so
    /// that a few clients push out nobody who has fewer.
    pub(crate) fn keep(&self, receipt: FinishedReceipt, limits: &ReceiptLimits) {
        if limits.kept == 0 {
            return;
        }
        self.lock().keep(receipt, limits, Instant::now());
    }

    /// Finds a receipt by its identifier, or for its owner by the one in its answer.
    pub(crate) fn find(
        &self,
        id: &str,
        asker: &ReceiptOwner,
        age_max: Duration,
    ) -> FoundReceipt<Bytes> {
        self.find_content(id, asker, age_max, |kept| Some(kept.receipt.clone()))
    }

    /// Finds the receipt of an answer that can be opened, by the same rules.
    pub(crate) fn find_openable(
        &self,
        id: &str,
        asker: &ReceiptOwner,
        age_max: Duration,
    ) -> FoundReceipt<Bytes> {
        self.find_content(id, asker, age_max, |kept| kept.openable.clone())
    }

    /// Finds the digests of an answer and its request, by the same rules as the receipt; `None` for
    /// an answer that was cut.
    pub(crate) fn find_exchange(
        &self,
        id: &str,
        asker: &ReceiptOwner,
        age_max: Duration,
    ) -> FoundReceipt<Option<ExchangeDigests>> {
        self.find_content(id, asker, age_max, |kept| Some(kept.exchange))
    }

    fn find_content<T>(
        &self,
        id: &str,
        asker: &ReceiptOwner,
        age_max: Duration,
        read: impl FnOnce(&KeptExchange) -> Option<T>,
    ) -> FoundReceipt<T> {
        let kept = self.lock();
        let of_answer = || kept.by_chat_id.get(&(asker.holder, id.to_owned()));
        let found = kept.by_id.get(id).or_else(|| kept.by_id.get(of_answer()?));
        match found.filter(|receipt| receipt.since.elapsed() <= age_max) {
            Some(receipt) if receipt.key.is_none() || receipt.key == asker.key => {
                read(&receipt.kept).map_or(FoundReceipt::None, FoundReceipt::Content)
            }
            Some(_) if asker.key.is_none() => FoundReceipt::KeyMissing,
            _ => FoundReceipt::None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeptReceipts> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RememberedKeys {
    fn are_valid(&self, now: u64) -> bool {
        self.keyset.not_after().is_ok_and(|not_after| now <= not_after)
    }
}

impl fmt::Debug for ReceiptBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiptBook").finish_non_exhaustive()
    }
}

impl KeptReceipts {
    fn keep(&mut self, receipt: FinishedReceipt, limits: &ReceiptLimits, now: Instant) {
        let FinishedReceipt { receipt_id, chat_id, owner, kept } = receipt;
        let ReceiptOwner { key, holder } = owner;
        self.remove_expired(limits.age, now);
        let share = limits.kept_per_client.clamp(1, limits.kept);
        while self.holders.get(&holder).is_some_and(|held| held.len() >= share)
            && let Some(oldest) = self.holders[&holder].front().cloned()
        {
            self.remove(&oldest);
        }
        while self.by_id.len() >= limits.kept
            && let Some(oldest) = self.find_replaceable(holder)
        {
            self.remove(&oldest);
        }
        let id: Arc<str> = receipt_id.into();
        if let Some(chat_id) = &chat_id {
            self.by_chat_id.insert((holder, chat_id.clone()), id.clone());
        }
        self.holders.entry(holder).or_default().push_back(id.clone());
        self.note_count(holder, self.holders[&holder].len() - 1);
        self.order.push_back(id.clone());
        let kept = KeptReceipt { kept, key, holder, chat_id, since: now };
        self.by_id.insert(id, kept);
        // What clients' shares removed is still in the order.
        if self.order.len() > 2 * limits.kept {
            let by_id = &self.by_id;
            self.order.retain(|id| by_id.contains_key(id));
        }
    }

    fn remove_expired(&mut self, age: Duration, now: Instant) {
        while let Some(oldest) = self.order.front().cloned() {
            let is_young = |kept: &KeptReceipt| now.duration_since(kept.since) <= age;
            if self.by_id.get(&oldest).is_some_and(is_young) {
                return;
            }
            self.order.pop_front();
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, id: &Arc<str>) {
        let Some(removed) = self.by_id.remove(id) else { return };
        if let Some(chat_id) = removed.chat_id {
            let chat = (removed.holder, chat_id);
            if self.by_chat_id.get(&chat) == Some(id) {
                self.by_chat_id.remove(&chat);
            }
        }
        if let Some(held) = self.holders.get_mut(&removed.holder) {
            // It is nearly always the oldest one of its holder.
            if let Some(index) = held.iter().position(|held| held == id) {
                held.remove(index);
            }
            let count = held.len() + 1;
            if held.is_empty() {
                self.holders.remove(&removed.holder);
            }
            self.note_count(removed.holder, count);
        }
    }

    /// The oldest receipt of a holder with the most of them; of `asking` itself if it is one.
    fn find_replaceable(&self, asking: ShareHolder) -> Option<Arc<str>> {
        let (_, most) = self.by_count.last_key_value()?;
        let holder = most.get(&asking).or_else(|| most.iter().next())?;
        self.holders.get(holder)?.front().cloned()
    }

    /// Moves a holder from the number of receipts that it had to the one that it has.
    fn note_count(&mut self, holder: ShareHolder, before: usize) {
        if let Some(holders) = self.by_count.get_mut(&before) {
            holders.remove(&holder);
            if holders.is_empty() {
                self.by_count.remove(&before);
            }
        }
        if let Some(held) = self.holders.get(&holder) {
            self.by_count.entry(held.len()).or_default().insert(holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const LIMITS: ReceiptLimits =
        ReceiptLimits { kept: 8, kept_per_client: 3, age: Duration::from_secs(60) };

    const EXCHANGE: ExchangeDigests = ExchangeDigests { request: [1; 32], response: [2; 32] };

    fn book() -> ReceiptBook {
        ReceiptBook::new(|| 1_750_000_000)
    }

    /// A client behind this address, with a key that the gateway checks.
    fn owner(number: u8, key: Option<&str>) -> ReceiptOwner {
        let key = key.map(|key| ApiKeyDigest::of_key(key.as_bytes()));
        let peer = IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)).into();
        ReceiptOwner { key, holder: key.map_or(ShareHolder::Peer(peer), ShareHolder::Key) }
    }

    fn receipt(id: &str, owner: ReceiptOwner) -> FinishedReceipt {
        FinishedReceipt {
            receipt_id: id.into(),
            chat_id: Some(format!("chat-{id}")),
            owner,
            kept: KeptExchange {
                receipt: Bytes::copy_from_slice(id.as_bytes()),
                openable: None,
                exchange: Some(EXCHANGE),
            },
        }
    }

    /// Whether the book has a receipt, asked for by the address of [`owner`] `number`.
    fn is_kept_for(book: &ReceiptBook, id: &str, number: u8) -> bool {
        book.find(id, &owner(number, None), LIMITS.age) != FoundReceipt::None
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_pushes_out_its_own_receipts_only() {
        let book = book();
        book.keep(receipt("other", owner(1, None)), &LIMITS);
        for number in 0..20 {
            book.keep(receipt(&format!("{number}"), owner(2, None)), &LIMITS);
        }
        assert!(is_kept_for(&book, "other", 1) && is_kept_for(&book, "chat-other", 1));
        for (id, wanted) in [("16", false), ("17", true), ("18", true), ("19", true)] {
            assert_eq!(is_kept_for(&book, id, 2), wanted, "{id}");
            assert_eq!(is_kept_for(&book, &format!("chat-{id}"), 2), wanted, "chat-{id}");
        }
        // A few clients together push out nobody who has fewer.
        for number in 0..40 {
            let client = owner(10 + number % 4, None);
            book.keep(receipt(&format!("few-{number}"), client), &LIMITS);
        }
        assert!(is_kept_for(&book, "other", 1), "the only one of its client");
        // As many clients as there are places push out others' only ones.
        for number in 20..60 {
            book.keep(receipt(&format!("many-{number}"), owner(number, None)), &LIMITS);
            assert!(is_kept_for(&book, &format!("many-{number}"), number), "{number}");
            let kept = book.lock();
            let counted: usize = kept.by_count.iter().map(|(n, holders)| n * holders.len()).sum();
            assert_eq!(counted, kept.by_id.len());
            assert!(kept.by_id.len() <= LIMITS.kept && kept.order.len() <= 2 * LIMITS.kept);
            assert_eq!(kept.by_chat_id.len(), kept.by_id.len());
            let held: usize = kept.holders.values().map(VecDeque::len).sum();
            assert_eq!(held, kept.by_id.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_receipt_is_gone_after_its_time() {
        let book = book();
        book.keep(receipt("a", owner(1, None)), &LIMITS);
        tokio::time::advance(LIMITS.age).await;
        assert!(is_kept_for(&book, "a", 1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!is_kept_for(&book, "a", 1), "although nothing came after it");
        book.keep(receipt("b", owner(1, None)), &LIMITS);
        assert_eq!(book.lock().by_id.len(), 1);
    }

    #[test]
    fn the_openable_form_is_for_the_same_client_and_there_only_where_it_was_wanted() {
        let book = book();
        let mut both = receipt("a", owner(1, Some("one")));
        both.kept.openable = Some("open".into());
        book.keep(both, &LIMITS);
        book.keep(receipt("b", owner(1, Some("one"))), &LIMITS);
        let find = |id: &str, key| book.find_openable(id, &owner(2, Some(key)), LIMITS.age);
        assert_eq!(find("a", "one"), FoundReceipt::Content("open".into()));
        assert_eq!(find("a", "two"), FoundReceipt::None);
        assert_eq!(find("b", "one"), FoundReceipt::None);
    }

    #[test]
    fn a_receipt_of_an_api_key_is_for_this_key() {
        let book = book();
        book.keep(receipt("a", owner(1, Some("one"))), &LIMITS);
        let find = |key: Option<&str>| book.find("a", &owner(2, key), LIMITS.age);
        assert_eq!(find(Some("one")), FoundReceipt::Content("a".into()));
        assert_eq!(find(Some("two")), FoundReceipt::None);
        assert_eq!(find(None), FoundReceipt::KeyMissing);
        // The digests have the same owner.
        let find = |key: Option<&str>| book.find_exchange("a", &owner(2, key), LIMITS.age);
        assert_eq!(find(Some("one")), FoundReceipt::Content(Some(EXCHANGE)));
        assert_eq!(find(Some("two")), FoundReceipt::None);
        assert_eq!(find(None), FoundReceipt::KeyMissing);
    }

    #[test]
    fn keys_are_found_until_their_keyset_ends() {
        let book = book();
        for (number, not_after) in [(1, 1_750_000_000), (2, 1_749_999_999)] {
            let spki_sha256 = [number + 10; 32];
            let keyset = Keyset::new("k", &[number; 32], &spki_sha256, not_after);
            let keyset = Arc::new(keyset);
            book.remember_keys(RememberedKeys {
                keyset,
                dstack_address: [number; 32],
                spki_sha256,
            });
        }
        assert_eq!(book.find_dstack_address(&[1; 32]), Some([11; 32]));
        assert_eq!(book.find_dstack_address(&[2; 32]), None, "its keyset has ended");
        assert_eq!(book.find_dstack_address(&[3; 32]), None);
    }

    #[test]
    fn the_identifier_of_an_answer_leads_its_owner_to_its_receipt_and_nobody_else() {
        let book = book();
        let with_chat_id = |id: &str, chat_id: &str, owner: ReceiptOwner| {
            book.keep(
                FinishedReceipt { chat_id: Some(chat_id.into()), ..receipt(id, owner) },
                &LIMITS,
            );
        };
        with_chat_id("one", "chosen", owner(1, Some("one")));
        // Another client makes its model server give the same identifiers, and that of a receipt.
        with_chat_id("two", "chosen", owner(1, Some("two")));
        with_chat_id("three", "one", owner(1, Some("two")));
        let find = |id: &str, key: &str| book.find(id, &owner(1, Some(key)), LIMITS.age);
        assert_eq!(find("chosen", "one"), FoundReceipt::Content("one".into()));
        assert_eq!(find("chosen", "two"), FoundReceipt::Content("two".into()));
        assert_eq!(find("one", "one"), FoundReceipt::Content("one".into()));
        assert_eq!(
            find("one", "two"),
            FoundReceipt::None,
            "a receipt's own identifier comes first"
        );
        assert_eq!(book.find("chosen", &owner(1, None), LIMITS.age), FoundReceipt::None);
    }

    #[test]
    fn nothing_is_kept_without_places() {
        let book = book();
        book.keep(receipt("a", owner(1, None)), &ReceiptLimits { kept: 0, ..LIMITS });
        assert!(!is_kept_for(&book, "a", 1));
    }
}
