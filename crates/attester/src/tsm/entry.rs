//! One entry of the tree: made by `mkdir`, removed when it is dropped.

use std::{
    collections::hash_map::RandomState,
    fs::{self, File, OpenOptions},
    hash::{BuildHasher, Hasher},
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use super::provider::Provider;
use crate::{device_calls::has_no_driver, error::AttesterError};

/// The most names that are tried. They are random, so a name that is taken is chance or somebody's
/// intent.
const NAME_TRIES: u32 = 4;
/// The longest text of an attribute in bytes: a number or a name and a newline; configfs gives at
/// most a page.
const TEXT_LENGTH_MAX: usize = 4096;
const SHOWN_MAX: usize = 64;

pub(super) struct Entry(PathBuf);

impl Entry {
    /// Makes an entry. Entries that others left behind do not matter: the name is new.
    pub(super) fn create(reports: &Path) -> Result<Self, AttesterError> {
        let mut tries = 1;
        loop {
            let name = format!("confide-{:016x}", RandomState::new().build_hasher().finish());
            let path = reports.join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < NAME_TRIES => {
                    tries += 1;
                }
                Err(source) if is_absence(&source) => {
                    return Err(AttesterError::Absent { path: reports.into(), source });
                }
                Err(source) => {
                    return Err(AttesterError::Io { action: "make an entry in", path, source });
                }
            }
        }
    }

    pub(super) fn path(&self, attribute: &str) -> PathBuf {
        self.0.join(attribute)
    }

    pub(super) fn read_provider(&self) -> Result<Provider, AttesterError> {
        let text = self.read_text("provider")?;
        match text.as_str() {
            "tdx_guest" => Ok(Provider::TdxGuest),
            "sev_guest" => Ok(Provider::SevGuest),
            _ => Err(AttesterError::Provider { got: shorten(&text) }),
        }
    }

    pub(super) fn read_generation(&self) -> Result<u64, AttesterError> {
        let text = self.read_text("generation")?;
        text.parse().map_err(|_| AttesterError::Attribute {
            path: self.path("generation"),
            wanted: "a number",
            got: shorten(&text),
        })
    }

    /// Writes an attribute in one write and a close, as the kernel takes over binary attributes.
    pub(super) fn write(&self, attribute: &str, bytes: &[u8]) -> Result<(), AttesterError> {
        let path = self.path(attribute);
        let written = OpenOptions::new().write(true).open(&path).and_then(|mut file| {
            match file.write(bytes)? {
                length if length == bytes.len() => Ok(()),
                // A second write would count as a second generation.
                _ => Err(io::Error::from(ErrorKind::WriteZero)),
            }
        });
        written.map_err(|source| AttesterError::Io { action: "write", path, source })
    }

    /// Reads a whole attribute, of `limit` bytes at most.
    pub(super) fn read(&self, attribute: &str, limit: usize) -> Result<Vec<u8>, AttesterError> {
        let path = self.path(attribute);
        let mut bytes = Vec::with_capacity(limit + 1);
        let read =
            File::open(&path).and_then(|file| file.take(limit as u64 + 1).read_to_end(&mut bytes));
        match read {
            Ok(_) if bytes.len() > limit => Err(AttesterError::TooBig { path, limit }),
            Ok(_) => Ok(bytes),
            Err(source) if source.kind() == ErrorKind::FileTooLarge => {
                Err(AttesterError::TooBig { path, limit })
            }
            Err(source) => Err(AttesterError::Io { action: "read", path, source }),
        }
    }

    fn read_text(&self, attribute: &str) -> Result<String, AttesterError> {
        let bytes = self.read(attribute, TEXT_LENGTH_MAX)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\n').into())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // An entry that cannot be removed stays behind unused.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Whether there is no such folder, or a tree whose provider is gone.
fn is_absence(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || has_no_driver(error)
}

fn shorten(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}
