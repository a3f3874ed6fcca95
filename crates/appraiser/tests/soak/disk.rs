//! A small file system that is filled and freed, and what the store remembers on it.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use confide_collateral::{FileSystem, OsFileSystem, PckIssuer, Store, StoreLimits, read_record};

/// Size of the file system in KiB: the store takes about a third of it.
pub(crate) const SIZE_KIB: u64 = 256;
const PAGE: usize = 4096;

/// The folder of the store, on a small file system of its own where one may be mounted.
pub(crate) struct Disk {
    folder: PathBuf,
    /// Whether it is a file system of our own, which may be filled.
    own: bool,
    /// Writes that failed because it was full.
    pub(crate) full: Arc<AtomicU64>,
}

/// The CAs whose lists are looked at, in this order.
pub(crate) const CAS: [PckIssuer; 2] = [PckIssuer::Platform, PckIssuer::Processor];

impl Disk {
    pub(crate) fn new(folder: &Path, own: bool) -> Self {
        Self { folder: folder.to_owned(), own, full: Arc::default() }
    }

    pub(crate) fn store(&self) -> Store {
        let files = Counting(self.full.clone());
        Store::with_file_system(&self.folder(), StoreLimits::default(), Box::new(files)).unwrap()
    }

    /// Takes all space that is left.
    pub(crate) fn fill(&self) {
        if !self.own {
            return;
        }
        let path = self.folder.join("ballast");
        let Ok(mut ballast) = OpenOptions::new().create(true).append(true).open(path) else {
            return;
        };
        for _ in 0..SIZE_KIB {
            if ballast.write_all(&[0; PAGE]).is_err() {
                break;
            }
        }
    }

    pub(crate) fn free(&self) {
        let _ = fs::remove_file(self.folder.join("ballast"));
    }

    /// Numbers of the newest lists that the store would know after a restart now.
    pub(crate) fn newest_numbers(&self) -> [u64; 2] {
        let mut seen = [0; 2];
        for name in ["seen.a", "seen.b"] {
            let Ok(bytes) = fs::read(self.folder().join(name)) else { continue };
            // A file that is being written may be seen in the middle; the other one is whole then.
            let Ok(content) = read_record(&bytes) else { continue };
            let kept: BTreeMap<String, (u64, u64)> = serde_json::from_slice(content).unwrap();
            for (subject, (number, _)) in kept {
                for (ca, held) in CAS.iter().zip(&mut seen) {
                    if subject.starts_with(&format!("intel-pck-crl-{} ", ca.as_str())) {
                        *held = (*held).max(number);
                    }
                }
            }
        }
        seen
    }

    fn folder(&self) -> PathBuf {
        self.folder.join("store")
    }
}

/// The operating system's files; it only counts.
struct Counting(Arc<AtomicU64>);

impl Counting {
    fn count(&self, done: io::Result<()>) -> io::Result<()> {
        if done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            self.0.fetch_add(1, Relaxed);
        }
        done
    }
}

impl FileSystem for Counting {
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.count(OsFileSystem.write_new(path, bytes))
    }

    fn write_over(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.count(OsFileSystem.write_over(path, bytes))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.count(OsFileSystem.rename(from, to))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.count(OsFileSystem.sync_folder(path))
    }
}
