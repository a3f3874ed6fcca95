//! What the file system says of a file: enough to notice that it was written to or replaced.

use std::{fs::Metadata, os::unix::fs::MetadataExt};

/// A file system's device number and an inode on it: the file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    pub(crate) fn from_metadata(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// A file's identity, length and times in seconds and nanoseconds.
///
/// No program can set the time of the last change of an inode (`ctime`), which every write sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    pub(crate) identity: FileIdentity,
    pub(crate) bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    pub(crate) fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            identity: FileIdentity::from_metadata(metadata),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The first property in which `later` differs.
    pub(crate) fn find_difference(&self, later: &Self) -> Option<&'static str> {
        if self.identity != later.identity {
            Some("another file has taken its place")
        } else if self.bytes != later.bytes {
            Some("its length")
        } else if self.modified != later.modified {
            Some("its contents were written to")
        } else if self.changed != later.changed {
            // Also a changed owner, mode or number of links: what happened cannot be told apart.
            Some("its inode was changed")
        } else {
            None
        }
    }
}
