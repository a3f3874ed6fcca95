//! The signed receipts of a listener, which its clients fetch for a while after each answer.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use confide_http::Peer;
use confide_receipt::Keyset;
use tokio::time::Instant;

use crate::{
    api_key::ApiKeyDigest,
    limits::ReceiptLimits,
    openable_receipt::{ReceiptDocuments, ReceiptForm},
};

/// The receipts of a listener that are kept. It lives as long as the listener: a reload keeps it.
pub struct ReceiptBook {
    clock: fn() -> u64,
    kept: Mutex<KeptReceipts>,
    /// The latest keysets, the oldest first: reports are given for those of kept receipts.
    keysets: Mutex<VecDeque<Arc<Keyset>>>,
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
    pub(crate) documents: ReceiptDocuments,
}

#[derive(Default)]
struct KeptReceipts {
    by_id: HashMap<Arc<str>, KeptReceipt>,
    /// The receipts' identifiers by those of their answers, the latest one if several have one. Each
    /// holder has its own, because model servers let clients choose them.
    by_chat_id: HashMap<(ShareHolder, String), Arc<str>>,
    /// The identifiers of each holder, the oldest first.
    holders: HashMap<ShareHolder, VecDeque<Arc<str>>>,
    /// All identifiers, the oldest first, with some that are gone.
    order: VecDeque<Arc<str>>,
}

struct KeptReceipt {
    documents: ReceiptDocuments,
    key: Option<ApiKeyDigest>,
    holder: ShareHolder,
    chat_id: Option<String>,
    since: Instant,
}

/// The outcome of a search for a receipt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundReceipt {
    Document(Bytes),
    /// The receipt belongs to an API key, and none was presented.
    KeyMissing,
    /// There is no such receipt, or it belongs to another API key.
    None,
}

impl ReceiptBook {
    /// An empty book. `clock` returns Unix seconds.
    pub fn new(clock: fn() -> u64) -> Self {
        Self { clock, kept: Mutex::default(), keysets: Mutex::default() }
    }

    /// Remembers a keyset, so that reports can be given for it later.
    pub(crate) fn remember_keyset(&self, keyset: Arc<Keyset>) {
        let now = self.now();
        let mut keysets = self.keysets.lock().unwrap_or_else(PoisonError::into_inner);
        keysets.retain(|keyset| keyset.not_after().is_ok_and(|not_after| now <= not_after));
        if keysets.len() >= KEYSETS_MAX {
            keysets.pop_front();
        }
        keysets.push_back(keyset);
    }

    /// Finds a keyset that is remembered and has not ended.
    pub(crate) fn find_keyset(&self, digest: &str) -> Option<Arc<Keyset>> {
        let keysets = self.keysets.lock().unwrap_or_else(PoisonError::into_inner);
        let found = keysets.iter().find(|keyset| keyset.digest() == digest)?;
        found.not_after().is_ok_and(|not_after| self.now() <= not_after).then(|| found.clone())
    }

    /// Unix seconds.
    pub(crate) fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Keeps a receipt. The oldest ones go if there is no place, those of the same client first.
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
        form: ReceiptForm,
        asker: &ReceiptOwner,
        age_max: Duration,
    ) -> FoundReceipt {
        let kept = self.lock();
        let of_answer = || kept.by_chat_id.get(&(asker.holder, id.to_owned()));
        let found = kept.by_id.get(id).or_else(|| kept.by_id.get(of_answer()?));
        match found.filter(|receipt| receipt.since.elapsed() <= age_max) {
            Some(receipt) if receipt.key.is_none() || receipt.key == asker.key => {
                let document = receipt.documents.get(form).cloned();
                document.map_or(FoundReceipt::None, FoundReceipt::Document)
            }
            Some(_) if asker.key.is_none() => FoundReceipt::KeyMissing,
            _ => FoundReceipt::None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeptReceipts> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ReceiptBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiptBook").finish_non_exhaustive()
    }
}

impl KeptReceipts {
    fn keep(&mut self, receipt: FinishedReceipt, limits: &ReceiptLimits, now: Instant) {
        let FinishedReceipt { receipt_id, chat_id, owner, documents } = receipt;
        let ReceiptOwner { key, holder } = owner;
        self.remove_expired(limits.age, now);
        let share = limits.kept_per_client.clamp(1, limits.kept);
        while self.holders.get(&holder).is_some_and(|held| held.len() >= share)
            && let Some(oldest) = self.holders[&holder].front().cloned()
        {
            self.remove(&oldest);
        }
        while self.by_id.len() >= limits.kept
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(&oldest);
        }
        let id: Arc<str> = receipt_id.into();
        if let Some(chat_id) = &chat_id {
            self.by_chat_id.insert((holder, chat_id.clone()), id.clone());
        }
        self.holders.entry(holder).or_default().push_back(id.clone());
        self.order.push_back(id.clone());
        let kept = KeptReceipt { documents, key, holder, chat_id, since: now };
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
            if held.is_empty() {
                self.holders.remove(&removed.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const LIMITS: ReceiptLimits =
        ReceiptLimits { kept: 8, kept_per_client: 3, age: Duration::from_secs(60) };

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
            documents: ReceiptDocuments {
                whole: Bytes::copy_from_slice(id.as_bytes()),
                openable: None,
            },
        }
    }

    /// Whether the book has a receipt, asked for by the address of [`owner`] `number`.
    fn is_kept_for(book: &ReceiptBook, id: &str, number: u8) -> bool {
        book.find(id, ReceiptForm::Whole, &owner(number, None), LIMITS.age) != FoundReceipt::None
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
        // Many clients together push out the oldest.
        for number in 10..30 {
            book.keep(receipt(&format!("many-{number}"), owner(number, None)), &LIMITS);
            let kept = book.lock();
            assert!(kept.by_id.len() <= LIMITS.kept && kept.order.len() <= 2 * LIMITS.kept);
            assert_eq!(kept.by_chat_id.len(), kept.by_id.len());
            let held: usize = kept.holders.values().map(VecDeque::len).sum();
            assert_eq!(held, kept.by_id.len());
        }
        assert!(!is_kept_for(&book, "other", 1));
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
        both.documents.openable = Some("open".into());
        book.keep(both, &LIMITS);
        book.keep(receipt("b", owner(1, Some("one"))), &LIMITS);
        let find =
            |id: &str, key| book.find(id, ReceiptForm::Openable, &owner(2, Some(key)), LIMITS.age);
        assert_eq!(find("a", "one"), FoundReceipt::Document("open".into()));
        assert_eq!(find("a", "two"), FoundReceipt::None);
        assert_eq!(find("b", "one"), FoundReceipt::None);
    }

    #[test]
    fn a_receipt_of_an_api_key_is_for_this_key() {
        let book = book();
        book.keep(receipt("a", owner(1, Some("one"))), &LIMITS);
        let find =
            |key: Option<&str>| book.find("a", ReceiptForm::Whole, &owner(2, key), LIMITS.age);
        assert_eq!(find(Some("one")), FoundReceipt::Document("a".into()));
        assert_eq!(find(Some("two")), FoundReceipt::None);
        assert_eq!(find(None), FoundReceipt::KeyMissing);
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
        let find = |id: &str, key: &str| {
            book.find(id, ReceiptForm::Whole, &owner(1, Some(key)), LIMITS.age)
        };
        assert_eq!(find("chosen", "one"), FoundReceipt::Document("one".into()));
        assert_eq!(find("chosen", "two"), FoundReceipt::Document("two".into()));
        assert_eq!(find("one", "one"), FoundReceipt::Document("one".into()));
        assert_eq!(
            find("one", "two"),
            FoundReceipt::None,
            "a receipt's own identifier comes first"
        );
        assert_eq!(
            book.find("chosen", ReceiptForm::Whole, &owner(1, None), LIMITS.age),
            FoundReceipt::None
        );
    }

    #[test]
    fn nothing_is_kept_without_places() {
        let book = book();
        book.keep(receipt("a", owner(1, None)), &ReceiptLimits { kept: 0, ..LIMITS });
        assert!(!is_kept_for(&book, "a", 1));
    }
}
