//! The newest number and date seen of each document, so that an older one is refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    document::{Document, DocumentKey, DocumentVersion},
    limits::NEWEST_RANKS_MAX,
};

/// The newest number and issue date seen of each document under each root. Another root is another
/// issuer, whose numbers are not comparable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct NewestVersions(BTreeMap<String, (u64, u64)>);

impl NewestVersions {
    pub(crate) fn newest_version(
        &self,
        key: &DocumentKey,
        root: &[u8; 32],
    ) -> Option<DocumentVersion> {
        let (number, issued) = *self.0.get(&entry_key(key, root))?;
        Some(DocumentVersion { number, issued })
    }

    pub(crate) fn record(&mut self, document: &Document, root: &[u8; 32]) {
        if document.key.is_versioned() {
            self.record_version(
                document.key.clone(),
                entry_key(&document.key, root),
                document.version(),
            );
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (subject, (number, issued)) in &other.0 {
            let version = DocumentVersion { number: *number, issued: *issued };
            let Some(key) = subject.split(' ').next().and_then(|key| key.parse().ok()) else {
                continue;
            };
            self.record_version(key, subject.clone(), version);
        }
    }

    pub(crate) fn holds_all_of(&self, other: &Self) -> bool {
        other.0.iter().all(|(subject, version)| self.0.get(subject) == Some(version))
    }

    fn record_version(&mut self, key: DocumentKey, subject: String, version: DocumentVersion) {
        let known = self
            .0
            .get(&subject)
            .map(|(number, issued)| DocumentVersion { number: *number, issued: *issued });
        match known {
            None if self.0.len() >= NEWEST_RANKS_MAX => {
                tracing::warn!(
                    subject,
                    "the list of newest documents is full: a new one is not recorded"
                );
            }
            Some(known) if key.is_older(version, known) => {}
            _ => {
                self.0.insert(subject, (version.number, version.issued));
            }
        }
    }
}

fn entry_key(key: &DocumentKey, root: &[u8; 32]) -> String {
    format!("{key} {}", hex::encode(&root[..16]))
}
