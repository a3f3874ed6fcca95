//! The store of documents on disk, whose files are replaced atomically.
//!
//! A file is written under another name, synchronised, renamed over the old one, and then the
//! folder is synchronised: after a power failure either the old or the new document is there. Each
//! file begins with a magic, the length and the SHA-256 of its content, so that a damaged file is
//! recognised and ignored. Writers of all processes exclude each other by a file lock; readers need
//! none.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

use sha2::{Digest, Sha256};

use crate::{
    document::{Document, DocumentKey},
    error::CollateralError,
    limits::{ANSWER_LENGTH_MAX, LOCK_DEADLINE},
    newest_ranks::NewestVersions,
    os,
};

const MAGIC: &[u8; 8] = b"CFDSTR01";
/// The length of a file's header: magic, length, SHA-256.
const HEADER_LENGTH: usize = 8 + 8 + 32;
/// The longest file in bytes: a document in hex, its chain, and the JSON around them.
const FILE_LENGTH_MAX: usize = 3 * ANSWER_LENGTH_MAX;
/// The pause between two attempts to take the lock.
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// The newest versions are kept in two files, so that one of them may be lost.
const NEWEST_RANKS_FILES: [&str; 2] = ["seen.a", "seen.b"];
/// The length of these files is a multiple of this: the block size of most file systems.
const NEWEST_RANKS_BLOCK: usize = 4096;
const DOCUMENT_SUFFIX: &str = ".doc";
const UNFINISHED_SUFFIX: &str = ".tmp";
const LOCK_FILE: &str = "lock";

/// Returns the content of a file after its header, if the header matches the content.
///
/// # Errors
/// The reason for which the file is not valid, as text.
pub fn read_record(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let (header, rest) =
        bytes.split_at_checked(HEADER_LENGTH).ok_or("it is shorter than a header")?;
    if &header[..8] != MAGIC {
        return Err("it does not begin with the store's magic");
    }
    let mut length = [0; 8];
    length.copy_from_slice(&header[8..16]);
    if u64::from_le_bytes(length) != rest.len() as u64 {
        return Err("its length is not the one in its header");
    }
    if Sha256::digest(rest)[..] != header[16..] {
        return Err("its SHA-256 is not the one in its header");
    }
    Ok(rest)
}

fn encode_record(content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LENGTH + content.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&Sha256::digest(content));
    bytes.extend_from_slice(content);
    bytes
}

/// The limits of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// The largest number of documents.
    pub documents_max: usize,
    /// The largest number of bytes of all documents together.
    pub bytes_max: u64,
}

impl Default for StoreLimits {
    /// Enough for a fleet of four thousand AMD chips, each with a certificate of its own, and for
    /// all Intel families.
    fn default() -> Self {
        Self { documents_max: 8192, bytes_max: 64 << 20 }
    }
}

/// A folder of documents, shared by any number of processes.
pub struct Store {
    folder: PathBuf,
    limits: StoreLimits,
    files: Box<dyn FileSystem>,
}

/// The file system calls of a store; tests replace them with failing ones.
pub trait FileSystem: Send + Sync {
    /// Creates a file that only its owner can access, writes it and synchronises it.
    ///
    /// # Errors
    /// The error of the operating system.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Overwrites an existing file in place and synchronises it: this needs no new space if the
    /// file was at least as long.
    ///
    /// # Errors
    /// The error of the operating system.
    fn write_over(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        OsFileSystem.write_over(path, bytes)
    }
    /// Renames a file, which replaces the file `to` if there is one.
    ///
    /// # Errors
    /// The error of the operating system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Synchronises a folder, so that the names of its files survive a power failure.
    ///
    /// # Errors
    /// The error of the operating system.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The file system calls of the operating system.
pub struct OsFileSystem;

impl FileSystem for OsFileSystem {
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = os::private_file_options().write(true).create_new(true).open(path)?;
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
        os::sync_folder(path)
    }
}

/// A file in the store that is not readable as a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableFile {
    /// The name of the file in the folder.
    pub name: String,
    /// The reason for which it is not readable, as text.
    pub reason: String,
}

impl Store {
    /// Opens the folder, and creates it, for its owner only, if it is missing. On Windows no access list is
    /// written or checked, and a warning in the log says so.
    ///
    /// # Errors
    /// If the folder cannot be created or read, or others than its owner may write to it.
    pub fn open(folder: &Path, limits: StoreLimits) -> Result<Self, CollateralError> {
        Self::with_file_system(folder, limits, Box::new(OsFileSystem))
    }

    /// Like [`Store::open`], with other file system calls.
    ///
    /// # Errors
    /// If the folder cannot be created or read, or others than its owner may write to it.
    pub fn with_file_system(
        folder: &Path,
        limits: StoreLimits,
        files: Box<dyn FileSystem>,
    ) -> Result<Self, CollateralError> {
        os::create_private_folder(folder)
            .map_err(|error| CollateralError::store("create the folder", folder, &error))?;
        os::check_writers(folder)
            .map_err(|error| CollateralError::store("trust the folder", folder, &error))?;
        Ok(Self { folder: folder.to_owned(), limits, files })
    }

    /// The folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads the document of this name, if there is one and it is undamaged.
    pub fn find(&self, key: &DocumentKey) -> Option<Document> {
        match self.read_document(&file_name(key)) {
            Ok(document) => document,
            Err(fault) => {
                let UnreadableFile { name, reason } = fault;
                tracing::warn!(name, reason, "a stored document is ignored");
                None
            }
        }
    }

    /// Reads all documents, in the order of their names, and lists the damaged files.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> Result<(Vec<Document>, Vec<UnreadableFile>), CollateralError> {
        let (mut documents, mut faults) = (Vec::new(), Vec::new());
        for entry in self.document_files()? {
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

    /// Stores a document, which replaces the stored one of its name, unless the stored one is
    /// newer: then the stored one is returned. On failure the stored one is unchanged.
    ///
    /// # Errors
    /// If the document cannot be written.
    pub fn put(&self, document: &Document) -> Result<Option<Document>, CollateralError> {
        let _lock = self.lock()?;
        let name = file_name(&document.key);
        if let Ok(Some(there)) = self.read_document(&name)
            && there.service == document.service
            && there.root_digest() == document.root_digest()
            && document.key.is_versioned()
            && document.key.is_older(document.version(), there.version())
        {
            return Ok(Some(there));
        }
        let content = serde_json::to_vec(document).map_err(|error| {
            CollateralError::store("encode", &self.folder.join(&name), &error.into())
        })?;
        let bytes = encode_record(&content);
        self.make_room(&name, bytes.len() as u64)?;
        self.replace_file(&name, &bytes)?;
        Ok(None)
    }

    /// Reads the newest versions from both files.
    pub(crate) fn read_newest_versions(&self) -> NewestVersions {
        let mut memory = NewestVersions::default();
        for name in NEWEST_RANKS_FILES {
            if let Some(kept) = self.read_newest_versions_file(name) {
                memory.merge(&kept);
            }
        }
        memory
    }

    /// Adds newest versions to the stored ones, in both files.
    pub(crate) fn merge_newest_versions(
        &self,
        seen: &NewestVersions,
    ) -> Result<(), CollateralError> {
        let _lock = self.lock()?;
        let kept = NEWEST_RANKS_FILES.map(|name| self.read_newest_versions_file(name));
        let mut memory = seen.clone();
        kept.iter().flatten().for_each(|kept| memory.merge(kept));
        if kept.iter().all(|kept| kept.as_ref().is_some_and(|kept| kept.holds_all_of(&memory))) {
            return Ok(());
        }
        let mut content = serde_json::to_vec(&memory).map_err(|error| {
            CollateralError::store(
                "encode",
                &self.folder.join(NEWEST_RANKS_FILES[0]),
                &error.into(),
            )
        })?;
        // Padded with white space after the JSON, so that a longer list can overwrite it in place.
        let length = (HEADER_LENGTH + content.len()).next_multiple_of(NEWEST_RANKS_BLOCK);
        content.resize(length - HEADER_LENGTH, b' ');
        let bytes = encode_record(&content);
        // One file after the other: if one is damaged by a crash, the other one is intact.
        let [first, second] = NEWEST_RANKS_FILES;
        self.replace_newest_versions_file(first, &bytes, kept[1].is_some())?;
        self.replace_newest_versions_file(second, &bytes, true)
    }

    /// Replaces a file of newest versions. A full disk has no space for a new file, but the versions must
    /// be stored: then the file is overwritten in place, if `other_is_whole`, so that a crash
    /// cannot damage both.
    fn replace_newest_versions_file(
        &self,
        name: &str,
        bytes: &[u8],
        other_is_whole: bool,
    ) -> Result<(), CollateralError> {
        let Err(error) = self.replace_file(name, bytes) else { return Ok(()) };
        let path = self.folder.join(name);
        let room = fs::metadata(&path).map_or(0, |about| about.len());
        if !other_is_whole || room < bytes.len() as u64 {
            return Err(error);
        }
        self.files
            .write_over(&path, bytes)
            .map_err(|error| CollateralError::store("overwrite", &path, &error))
    }

    fn read_newest_versions_file(&self, name: &str) -> Option<NewestVersions> {
        let bytes = read_bounded(&self.folder.join(name)).ok()?;
        let content = read_record(&bytes).ok();
        let read = content.and_then(|content| serde_json::from_slice(content).ok());
        if read.is_none() {
            tracing::warn!(name, "a file of newest ranks is ignored: it is damaged");
        }
        read
    }

    fn read_document(&self, name: &str) -> Result<Option<Document>, UnreadableFile> {
        let fault = |reason: String| UnreadableFile { name: name.to_owned(), reason };
        let bytes = match read_bounded(&self.folder.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| fault(error.to_string()))?,
        };
        let content = read_record(&bytes).map_err(|reason| fault(reason.to_owned()))?;
        let document: Document = serde_json::from_slice(content)
            .map_err(|_| fault("its content is not a document".to_owned()))?;
        // A renamed file would be served as another document.
        if file_name(&document.key) != name {
            return Err(fault(format!("it holds another document: {}", document.key)));
        }
        Ok(Some(document))
    }

    /// Replaces a file; the caller has to hold the lock.
    fn replace_file(&self, name: &str, bytes: &[u8]) -> Result<(), CollateralError> {
        let path = self.folder.join(name);
        let unfinished = self.folder.join(format!("{name}{UNFINISHED_SUFFIX}"));
        let written = self
            .files
            .write_new(&unfinished, bytes)
            .and_then(|()| self.files.rename(&unfinished, &path));
        if let Err(error) = written {
            // If that fails too, the next writer removes it.
            let _ = fs::remove_file(&unfinished);
            return Err(CollateralError::store("write", &path, &error));
        }
        self.files
            .sync_folder(&self.folder)
            .map_err(|error| CollateralError::store("synchronise", &self.folder, &error))
    }

    /// Removes the oldest documents until one more of `length` bytes fits.
    fn make_room(&self, name: &str, length: u64) -> Result<(), CollateralError> {
        let mut others = self.document_files()?;
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
            tracing::info!(name = entry.name, "the store is full: an old document was removed");
            (count, bytes) = (count - 1, bytes - entry.length);
        }
        Ok(())
    }

    fn document_files(&self) -> Result<Vec<DocumentFile>, CollateralError> {
        let failed = |error: io::Error| CollateralError::store("list", &self.folder, &error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !name.ends_with(DOCUMENT_SUFFIX) {
                continue;
            }
            // Another process may have removed the file to make room.
            let Ok(about) = entry.metadata() else { continue };
            let written = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            entries.push(DocumentFile { name, length: about.len(), written });
        }
        Ok(entries)
    }

    /// Takes the lock for writing, and removes the unfinished files of earlier writers.
    fn lock(&self) -> Result<File, CollateralError> {
        let path = self.folder.join(LOCK_FILE);
        let failed = |error: io::Error| CollateralError::store("lock", &path, &error);
        let mut options = os::private_file_options();
        let file = options.write(true).create(true).truncate(false).open(&path).map_err(failed)?;
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

struct DocumentFile {
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
