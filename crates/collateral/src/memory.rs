//! The newest number and date seen of each document, so that an older one is refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    document::{Document, DocumentKey, Rank},
    limits::MEMORY_ENTRIES_MAX,
};

/// Number and issue date by document and root: another root is another issuer, whose numbers mean
/// nothing here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct NewestRanks(BTreeMap<String, (u64, u64)>);

impl NewestRanks {
    pub(crate) fn newest_rank(&self, key: &DocumentKey, root: &[u8; 32]) -> Option<Rank> {
        let (number, issued) = *self.0.get(&subject(key, root))?;
        Some(Rank { number, issued })
    }

    pub(crate) fn raise(&mut self, document: &Document, root: &[u8; 32]) {
        if document.key.is_ranked() {
            self.raise_to(document.key.clone(), subject(&document.key, root), document.rank());
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (subject, (number, issued)) in &other.0 {
            let rank = Rank { number: *number, issued: *issued };
            let Some(key) = subject.split(' ').next().and_then(|key| key.parse().ok()) else {
                continue;
            };
            self.raise_to(key, subject.clone(), rank);
        }
    }

    pub(crate) fn holds_all_of(&self, other: &Self) -> bool {
        other.0.iter().all(|(subject, rank)| self.0.get(subject) == Some(rank))
    }

    fn raise_to(&mut self, key: DocumentKey, subject: String, rank: Rank) {
        let known =
            self.0.get(&subject).map(|(number, issued)| Rank { number: *number, issued: *issued });
        match known {
            None if self.0.len() >= MEMORY_ENTRIES_MAX => {
                tracing::warn!(subject, "the memory of documents is full: a new one is left out");
            }
            Some(known) if key.is_older(rank, known) => {}
            _ => {
                self.0.insert(subject, (rank.number, rank.issued));
            }
        }
    }
}

fn subject(key: &DocumentKey, root: &[u8; 32]) -> String {
    format!("{key} {}", hex::encode(&root[..16]))
}
