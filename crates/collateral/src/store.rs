//! Documents on disk, whole or not at all.
//!
//! A file is written under another name, synchronised, renamed over the old one, and then the
//! folder is synchronised: whenever the power goes, the old or the new document is there. Each
//! file begins with a magic, the length and the SHA-256 of what follows, so that whatever else a
//! disk does is recognised, and the file ignored. Writers of all processes take turns by a lock
//! on a file; readers need none.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

use sha2::{Digest, Sha256};

use crate::{
    document::{Document, DocumentKey},
    error::CollateralError,
    limits::{ANSWER_LENGTH_MAX, LOCK_DEADLINE},
    memory::NewestRanks,
};

const MAGIC: &[u8; 8] = b"CFDSTR01";
/// The length of a file's header: magic, length, SHA-256.
const HEADER_LENGTH: usize = 8 + 8 + 32;
/// The longest file in bytes: a document in hex, its chain, and the JSON around them.
const FILE_LENGTH_MAX: usize = 3 * ANSWER_LENGTH_MAX;
/// The pause between two attempts to take the lock.
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// The memory is kept twice, so that losing one file loses nothing.
const MEMORY_FILES: [&str; 2] = ["seen.a", "seen.b"];
/// The length of the memory's file is a multiple of this: a block of most file systems.
const MEMORY_STEP: usize = 4096;
const DOCUMENT_SUFFIX: &str = ".doc";
const UNFINISHED_SUFFIX: &str = ".tmp";
const LOCK_FILE: &str = "lock";

/// The content of a file behind its header, where the header matches the content.
///
/// # Errors
/// The fault in words.
pub fn read_record(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let (header, rest) = bytes.split_at_checked(HEADER_LENGTH).ok_or("no header")?;
    if &header[..8] != MAGIC {
        return Err("another magic");
    }
    let mut length = [0; 8];
    length.copy_from_slice(&header[8..16]);
    if u64::from_le_bytes(length) != rest.len() as u64 {
        return Err("another length than its header says");
    }
    if Sha256::digest(rest)[..] != header[16..] {
        return Err("another SHA-256 than its header says");
    }
    Ok(rest)
}

fn record(content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LENGTH + content.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&Sha256::digest(content));
    bytes.extend_from_slice(content);
    bytes
}

/// Bounds of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// The most documents.
    pub documents_max: usize,
    /// The most bytes of all documents together.
    pub bytes_max: u64,
}

impl Default for StoreLimits {
    /// Room for a fleet of four thousand AMD chips, each with a certificate of its own in hex, and
    /// for all of Intel's families.
    fn default() -> Self {
        Self { documents_max: 8192, bytes_max: 64 << 20 }
    }
}

/// A folder of documents, shared by any number of processes.
pub struct Store {
    folder: PathBuf,
    limits: StoreLimits,
    files: Box<dyn Files>,
}

/// The file system calls of a store; tests replace them by failing ones.
pub trait Files: Send + Sync {
    /// Makes a file that only its owner can access, writes it and synchronises it.
    ///
    /// # Errors
    /// As the operating system gives them.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Writes over an existing file, from its first byte, and synchronises it: it needs no new
    /// space where the file was as long before.
    ///
    /// # Errors
    /// As the operating system gives them.
    fn write_over(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        SystemFiles.write_over(path, bytes)
    }
    /// Puts one file in place of another.
    ///
    /// # Errors
    /// As the operating system gives them.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Synchronises the names in a folder.
    ///
    /// # Errors
    /// As the operating system gives them.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The calls of the operating system.
pub struct SystemFiles;

impl Files for SystemFiles {
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn write_over(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// A file in the store that is not readable as a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFault {
    /// The name of the file in the folder.
    pub name: String,
    /// The fault in words.
    pub reason: String,
}

impl Store {
    /// Opens the folder; makes it, for its owner only, where it is missing.
    ///
    /// # Errors
    /// If the folder cannot be made or read.
    pub fn open(folder: &Path, limits: StoreLimits) -> Result<Self, CollateralError> {
        Self::with_files(folder, limits, Box::new(SystemFiles))
    }

    /// As [`Store::open`], over another file system.
    ///
    /// # Errors
    /// If the folder cannot be made or read.
    pub fn with_files(
        folder: &Path,
        limits: StoreLimits,
        files: Box<dyn Files>,
    ) -> Result<Self, CollateralError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| CollateralError::store("make the folder", folder, &error))?;
        let about = fs::metadata(folder)
            .map_err(|error| CollateralError::store("read the folder", folder, &error))?;
        if about.mode() & 0o022 != 0 {
            // Anybody who may write there could put old revocation lists back.
            let error = io::Error::other("users other than its owner may write to it");
            return Err(CollateralError::store("trust the folder", folder, &error));
        }
        Ok(Self { folder: folder.to_owned(), limits, files })
    }

    /// The folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The document of this name, if it is there and whole.
    pub fn find(&self, key: &DocumentKey) -> Option<Document> {
        match self.read_document(&file_name(key)) {
            Ok(document) => document,
            Err(fault) => {
                let StoredFault { name, reason } = fault;
                tracing::warn!(name, reason, "a stored document is ignored");
                None
            }
        }
    }

    /// All whole documents in the order of their names, and the files that are not whole.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> Result<(Vec<Document>, Vec<StoredFault>), CollateralError> {
        let (mut documents, mut faults) = (Vec::new(), Vec::new());
        for entry in self.entries()? {
            match self.read_document(&entry.name) {
                Ok(Some(document)) => documents.push(document),
                Ok(None) => {}
                Err(fault) => faults.push(fault),
            }
        }
        documents.sort_by(|a, b| a.key.cmp(&b.key));
        faults.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((documents, faults))
    }

    /// Stores a document in place of the one of its name, unless that is newer: then the newer one
    /// is returned. On failure the old one is still there.
    ///
    /// # Errors
    /// If the document cannot be written, or the folder is full.
    pub fn put(&self, document: &Document) -> Result<Option<Document>, CollateralError> {
        let _lock = self.lock()?;
        let name = file_name(&document.key);
        if let Ok(Some(there)) = self.read_document(&name)
            && there.service == document.service
            && there.root() == document.root()
            && document.key.is_ranked()
            && document.key.is_older(document.rank(), there.rank())
        {
            return Ok(Some(there));
        }
        let content = serde_json::to_vec(document).map_err(|error| {
            CollateralError::store("encode", &self.folder.join(&name), &error.into())
        })?;
        let bytes = record(&content);
        self.make_room(&name, bytes.len() as u64)?;
        self.replace(&name, &bytes)?;
        Ok(None)
    }

    /// The memory, from both files.
    pub(crate) fn memory(&self) -> NewestRanks {
        let mut memory = NewestRanks::default();
        for name in MEMORY_FILES {
            if let Some(kept) = self.read_newest_ranks(name) {
                memory.merge(&kept);
            }
        }
        memory
    }

    /// Adds to the memory; what other processes have added is kept.
    pub(crate) fn remember(&self, seen: &NewestRanks) -> Result<(), CollateralError> {
        let _lock = self.lock()?;
        let kept = MEMORY_FILES.map(|name| self.read_newest_ranks(name));
        let mut memory = seen.clone();
        kept.iter().flatten().for_each(|kept| memory.merge(kept));
        if kept.iter().all(|kept| kept.as_ref().is_some_and(|kept| kept.holds_all_of(&memory))) {
            return Ok(());
        }
        let mut content = serde_json::to_vec(&memory).map_err(|error| {
            CollateralError::store("encode", &self.folder.join(MEMORY_FILES[0]), &error.into())
        })?;
        // Padded with white space after the JSON: a memory that grows fits the space that it has.
        let length = (HEADER_LENGTH + content.len()).next_multiple_of(MEMORY_STEP);
        content.resize(length - HEADER_LENGTH, b' ');
        let bytes = record(&content);
        // One file after the other: if one is torn, the other one is whole.
        let [first, second] = MEMORY_FILES;
        self.replace_memory(first, &bytes, kept[1].is_some())?;
        self.replace_memory(second, &bytes, true)
    }

    /// Replaces a file of the memory. A full disk has no space for a new file, but the memory must
    /// not be lost: the file is written over in its place, where `other_is_whole` so that a crash
    /// loses nothing.
    fn replace_memory(
        &self,
        name: &str,
        bytes: &[u8],
        other_is_whole: bool,
    ) -> Result<(), CollateralError> {
        let Err(error) = self.replace(name, bytes) else { return Ok(()) };
        let path = self.folder.join(name);
        let room = fs::metadata(&path).map_or(0, |about| about.len());
        if !other_is_whole || room < bytes.len() as u64 {
            return Err(error);
        }
        self.files
            .write_over(&path, bytes)
            .map_err(|error| CollateralError::store("write over", &path, &error))
    }

    fn read_newest_ranks(&self, name: &str) -> Option<NewestRanks> {
        let bytes = read_bounded(&self.folder.join(name)).ok()?;
        let content = read_record(&bytes).ok();
        let read = content.and_then(|content| serde_json::from_slice(content).ok());
        if read.is_none() {
            tracing::warn!(name, "a stored memory is ignored: it is not whole");
        }
        read
    }

    fn read_document(&self, name: &str) -> Result<Option<Document>, StoredFault> {
        let fault = |reason: String| StoredFault { name: name.to_owned(), reason };
        let bytes = match read_bounded(&self.folder.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| fault(error.to_string()))?,
        };
        let content = read_record(&bytes).map_err(|reason| fault(reason.to_owned()))?;
        let document: Document =
            serde_json::from_slice(content).map_err(|_| fault("not a document".to_owned()))?;
        // A file under another name would be found as another document.
        if file_name(&document.key) != name {
            return Err(fault(format!("the document {}", document.key)));
        }
        Ok(Some(document))
    }

    /// Replaces a file; the caller has to hold the lock.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), CollateralError> {
        let path = self.folder.join(name);
        let unfinished = self.folder.join(format!("{name}{UNFINISHED_SUFFIX}"));
        let written = self
            .files
            .write_new(&unfinished, bytes)
            .and_then(|()| self.files.rename(&unfinished, &path));
        if let Err(error) = written {
            // Where that fails too, the next writer removes it.
            let _ = fs::remove_file(&unfinished);
            return Err(CollateralError::store("write", &path, &error));
        }
        self.files
            .sync_folder(&self.folder)
            .map_err(|error| CollateralError::store("synchronise", &self.folder, &error))
    }

    /// Removes the oldest documents until one more of `length` bytes fits.
    fn make_room(&self, name: &str, length: u64) -> Result<(), CollateralError> {
        let mut others = self.entries()?;
        others.retain(|entry| entry.name != name);
        others.sort_by_key(|entry| entry.written);
        let mut bytes = others.iter().map(|entry| entry.length).sum::<u64>() + length;
        let mut count = others.len() + 1;
        for entry in &others {
            if count <= self.limits.documents_max && bytes <= self.limits.bytes_max {
                break;
            }
            let path = self.folder.join(&entry.name);
            fs::remove_file(&path)
                .map_err(|error| CollateralError::store("make room", &path, &error))?;
            tracing::info!(name = entry.name, "the store is full: an old document went");
            (count, bytes) = (count - 1, bytes - entry.length);
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<Entry>, CollateralError> {
        let failed = |error: io::Error| CollateralError::store("list", &self.folder, &error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !name.ends_with(DOCUMENT_SUFFIX) {
                continue;
            }
            // The file may be gone already: another process made room.
            let Ok(about) = entry.metadata() else { continue };
            let written = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            entries.push(Entry { name, length: about.len(), written });
        }
        Ok(entries)
    }

    /// Takes the lock for writing, and removes what an earlier writer left unfinished.
    fn lock(&self) -> Result<File, CollateralError> {
        let path = self.folder.join(LOCK_FILE);
        let failed = |error: io::Error| CollateralError::store("lock", &path, &error);
        let open =
            || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open().map_err(failed)?;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if started.elapsed() > LOCK_DEADLINE => {
                    return Err(failed(io::Error::other("another process holds it")));
                }
                Err(TryLockError::WouldBlock) => sleep(LOCK_RETRY),
            }
        }
        for entry in fs::read_dir(&self.folder).map_err(failed)?.flatten() {
            if entry.file_name().to_string_lossy().ends_with(UNFINISHED_SUFFIX) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(file)
    }
}

struct Entry {
    name: String,
    length: u64,
    written: SystemTime,
}

fn file_name(key: &DocumentKey) -> String {
    format!("{key}{DOCUMENT_SUFFIX}")
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_LENGTH_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_LENGTH_MAX {
        return Err(io::Error::other("longer than any document"));
    }
    Ok(bytes)
}
