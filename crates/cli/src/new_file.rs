//! A file that is written whole or not at all, and whose place is tried before the work begins.

use std::{
    fmt::Display,
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::error::CliError;

/// A file under another name beside its place, until it is whole. Dropped before that it is gone.
pub(crate) struct NewFile {
    file: File,
    unfinished: PathBuf,
    finished: PathBuf,
    is_kept: bool,
}

impl NewFile {
    /// Makes the file beside `finished`, readable by everyone whom the umask lets.
    pub(crate) fn beside(finished: &Path) -> Result<Self, CliError> {
        Self::with_mode(finished, 0o666)
    }

    /// The same, readable by its owner only.
    pub(crate) fn secret(finished: &Path) -> Result<Self, CliError> {
        Self::with_mode(finished, 0o600)
    }

    fn with_mode(finished: &Path, mode: u32) -> Result<Self, CliError> {
        let cannot = |error: &dyn Display| {
            CliError::new(format!("cannot write {}: {error}", finished.display()))
                .hint("give --out a file in a folder that exists")
        };
        // A rename onto a folder would fail only when the work is done.
        if finished.is_dir() {
            return Err(cannot(&"it is a folder"));
        }
        let name = finished.file_name().ok_or_else(|| cannot(&"it is no file name"))?;
        let mut unfinished = std::ffi::OsString::from(".");
        unfinished.push(name);
        unfinished.push(format!(".{}", std::process::id()));
        let unfinished = finished.with_file_name(unfinished);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let file = options.open(&unfinished).map_err(|error| cannot(&error))?;
        Ok(Self { file, unfinished, finished: finished.to_owned(), is_kept: false })
    }

    /// Writes all of it, and gives the file its name: a reader finds the whole file or none.
    pub(crate) fn save(mut self, bytes: &[u8]) -> Result<(), CliError> {
        let whole = self
            .file
            .write_all(bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("confide-new-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let place = folder.join("proof");
        drop(NewFile::beside(&place).unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        NewFile::beside(&place).unwrap().save(b"whole").unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"whole");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        for nowhere in [folder.as_path(), &folder.join("absent/proof"), Path::new("..")] {
            assert!(NewFile::beside(nowhere).is_err(), "{}", nowhere.display());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
