//! The holder's file: written whole or not at all, for its owner only.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use confide_disclosure::Notarised;

use crate::error::CliError;

/// A file under another name beside its place, until it is whole. Dropped before that it is gone.
pub(super) struct NewFile {
    file: File,
    unfinished: PathBuf,
    finished: PathBuf,
    is_kept: bool,
}

impl NewFile {
    /// Makes the file beside `finished`, readable by its owner only.
    pub(super) fn beside(finished: &Path) -> Result<Self, CliError> {
        let cannot = |error: &dyn std::fmt::Display| {
            CliError::new(format!("cannot write {}: {error}", finished.display()))
                .hint("give --out a file in a folder that exists")
        };
        let name = finished.file_name().ok_or_else(|| cannot(&"it is no file name"))?;
        let mut unfinished = std::ffi::OsString::from(".");
        unfinished.push(name);
        unfinished.push(format!(".{}", std::process::id()));
        let unfinished = finished.with_file_name(unfinished);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&unfinished).map_err(|error| cannot(&error))?;
        Ok(Self { file, unfinished, finished: finished.to_owned(), is_kept: false })
    }

    /// Writes everything that the holder needs, and gives the file its name.
    pub(super) fn save(mut self, notarised: &Notarised) -> Result<(), CliError> {
        let bytes = notarised.encode();
        let whole = self
            .file
            .write_all(&bytes)
            .and_then(|()| self.file.sync_all())
            .and_then(|()| fs::rename(&self.unfinished, &self.finished));
        whole.map_err(|error| {
            CliError::new(format!("cannot write {}: {error}", self.finished.display()))
        })?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}
