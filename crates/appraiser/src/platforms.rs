//! What is known of platforms: bounded, in shards, learnt from accepted evidence only.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use confide_verifier::{
    AwsLc, EndorsementsId, KnownEnclave, KnownPck, NewVerdicts, RecallPlatform, TagKey, VerdictTag,
};

use crate::limits::{PLATFORMS_MAX, SERIAL_LENGTH_MAX};

/// The memory of one process.
///
/// Anyone who has no accepted evidence cannot put anything in, and so cannot push anything out. When a
/// shard is full, the entry that has not been used for longest gives way (second chance).
pub struct PlatformMemory {
    secret: TagKey,
    enclaves: ShardedTable<KnownEnclave>,
    pcks: ShardedTable<KnownPck>,
}

impl PlatformMemory {
    /// A memory of at most `platforms_max` platforms, under a secret drawn now.
    pub fn new(platforms_max: usize) -> Self {
        Self {
            secret: AwsLc::generate_tag_key(),
            enclaves: ShardedTable::new(platforms_max),
            pcks: ShardedTable::new(platforms_max),
        }
    }

    /// Keeps what an accepted appraisal under `generation` has learnt.
    pub fn keep(&self, learned: NewVerdicts, generation: EndorsementsId) {
        if let Some(pck) = learned.pck.filter(|pck| pck.serial_length() <= SERIAL_LENGTH_MAX) {
            self.pcks.insert(pck.tag(), pck, generation);
        }
        if let Some(enclave) =
            learned.enclave.filter(|it| it.pck().serial_length() <= SERIAL_LENGTH_MAX)
        {
            self.enclaves.insert(enclave.tag(), enclave, generation);
        }
    }

    /// Drops all that was learnt under a generation that is no more.
    pub fn forget(&self, generation: EndorsementsId) {
        self.enclaves.forget(generation);
        self.pcks.forget(generation);
    }

    /// Entries held: quoting enclaves and PCK certificates.
    pub fn entry_counts(&self) -> (usize, usize) {
        (self.enclaves.entry_count(), self.pcks.entry_count())
    }
}

impl Default for PlatformMemory {
    fn default() -> Self {
        Self::new(PLATFORMS_MAX)
    }
}

impl RecallPlatform for PlatformMemory {
    fn tag_key(&self) -> Option<&TagKey> {
        Some(&self.secret)
    }

    fn enclave(&self, tag: VerdictTag) -> Option<Arc<KnownEnclave>> {
        self.enclaves.find(tag)
    }

    fn pck(&self, tag: VerdictTag) -> Option<Arc<KnownPck>> {
        self.pcks.find(tag)
    }
}

/// Locks that a table is divided among, so that threads seldom meet.
const SHARDS: usize = 64;

struct ShardedTable<V> {
    shards: Vec<RwLock<TableShard<V>>>,
    shard_max: usize,
}

struct TableShard<V> {
    entries: HashMap<VerdictTag, PlatformEntry<V>, BuildHasherDefault<TagHasher>>,
    /// The tags of the entries, oldest first.
    order: VecDeque<VerdictTag>,
}

struct PlatformEntry<V> {
    value: Arc<V>,
    generation: u64,
    used: AtomicBool,
}

impl<V> ShardedTable<V> {
    fn new(entries_max: usize) -> Self {
        let shard = || {
            let (entries, order) = (HashMap::default(), VecDeque::new());
            RwLock::new(TableShard { entries, order })
        };
        let shard_max = entries_max.div_ceil(SHARDS).max(1);
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), shard_max }
    }

    fn shard(&self, tag: VerdictTag) -> &RwLock<TableShard<V>> {
        // The high bits, because the map inside a shard uses the low ones.
        &self.shards[(tag.number() >> 120) as usize % SHARDS]
    }

    fn find(&self, tag: VerdictTag) -> Option<Arc<V>> {
        let shard = self.shard(tag).read().unwrap_or_else(PoisonError::into_inner);
        let entry = shard.entries.get(&tag)?;
        // A store on every look-up would move the cache line between cores for nothing.
        if !entry.used.load(Relaxed) {
            entry.used.store(true, Relaxed);
        }
        Some(entry.value.clone())
    }

    fn insert(&self, tag: VerdictTag, value: Arc<V>, generation: EndorsementsId) {
        let entry = PlatformEntry {
            value,
            generation: generation_prefix(generation),
            used: AtomicBool::new(false),
        };
        let mut shard = self.shard(tag).write().unwrap_or_else(PoisonError::into_inner);
        if shard.entries.insert(tag, entry).is_some() {
            return;
        }
        shard.order.push_back(tag);
        while shard.entries.len() > self.shard_max {
            shard.evict();
        }
    }

    fn forget(&self, generation: EndorsementsId) {
        let gone = generation_prefix(generation);
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            let TableShard { entries, order } = &mut *shard;
            entries.retain(|_, entry| entry.generation != gone);
            order.retain(|tag| entries.contains_key(tag));
        }
    }

    fn entry_count(&self) -> usize {
        let held = |shard: &RwLock<TableShard<V>>| {
            shard.read().unwrap_or_else(PoisonError::into_inner).entries.len()
        };
        self.shards.iter().map(held).sum()
    }
}

impl<V> TableShard<V> {
    /// Drops the oldest entry that was not used since it was last looked at.
    fn evict(&mut self) {
        // Two rounds, because the first may do no more than clear every mark.
        for _ in 0..=2 * self.order.len() {
            let Some(tag) = self.order.pop_front() else { return };
            match self.entries.get(&tag) {
                Some(entry) if entry.used.swap(false, Relaxed) => self.order.push_back(tag),
                _ => {
                    self.entries.remove(&tag);
                    return;
                }
            }
        }
    }
}

/// Returns the first eight bytes of a generation: enough to tell those of one process apart; the tag is what binds.
fn generation_prefix(generation: EndorsementsId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = generation.0;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Uses the tag itself as its hash: it is a pseudo-random number already.
#[derive(Default)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_shard_lets_go_of_what_was_not_used_and_keeps_what_was() {
        let table: ShardedTable<u8> = ShardedTable::new(3 * SHARDS);
        let tag = |number: u64| VerdictTag::from_number(u128::from(number));
        let generation = EndorsementsId([1; 32]);
        for number in 0..3 {
            table.insert(tag(number), Arc::new(0), generation);
        }
        assert!(table.find(tag(0)).is_some());
        table.insert(tag(3), Arc::new(0), generation);
        assert!(table.find(tag(0)).is_some(), "used");
        assert!(table.find(tag(1)).is_none(), "the oldest that was not");
        // With all entries marked as used, one is evicted all the same.
        for number in [0, 2, 3] {
            assert!(table.find(tag(number)).is_some());
        }
        table.insert(tag(4), Arc::new(0), generation);
        assert_eq!(table.entry_count(), 3);
    }

    #[test]
    fn a_generation_that_is_no_more_is_forgotten_and_no_other() {
        let table: ShardedTable<u8> = ShardedTable::new(100 * SHARDS);
        for number in 0..100 {
            let generation = EndorsementsId([number as u8 % 2; 32]);
            table.insert(VerdictTag::from_number(number << 100), Arc::new(0), generation);
        }
        table.forget(EndorsementsId([1; 32]));
        assert_eq!(table.entry_count(), 50);
        assert!(table.find(VerdictTag::from_number(2 << 100)).is_some());
        let queued: usize = table.shards.iter().map(|it| it.read().unwrap().order.len()).sum();
        assert_eq!(queued, 50);
    }
}
