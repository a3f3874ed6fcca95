//! A file that is written completely or not at all, and whose place is checked before the work begins.

use std::{
    fmt::Display,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use crate::{error::CliError, os::create_secret_file};

/// A file that has a temporary name until it is complete. Dropped before that, it is removed.
pub(crate) struct NewFile {
    file: File,
    unfinished: PathBuf,
    finished: PathBuf,
    is_kept: bool,
    replaces: bool,
}

impl NewFile {
    /// Makes the file next to `finished`, readable by everyone whom the umask admits.
    pub(crate) fn create_next_to(finished: &Path) -> Result<Self, CliError> {
        Self::create_by(|path| File::create_new(path), finished)
    }

    /// Makes a file that only its owner can access, and that never replaces another. `outcome` says what
    /// comes of it if there is another: nothing.
    pub(crate) fn create_secret_once(finished: &Path, outcome: &str) -> Result<Self, CliError> {
        if fs::symlink_metadata(finished).is_ok() {
            return Err(exists_error(finished, outcome));
        }
        let mut file = Self::create_by(create_secret_file, finished)?;
        file.replaces = false;
        Ok(file)
    }

    fn create_by(
        create: impl FnOnce(&Path) -> io::Result<File>,
        finished: &Path,
    ) -> Result<Self, CliError> {
        let cannot = |error: &dyn Display| {
            CliError::new(format!("cannot write {}: {error}", finished.display()))
                .with_hint("give --out a file in a folder that exists")
        };
        // A rename onto a folder would fail only when the work is done.
        if finished.is_dir() {
            return Err(cannot(&"it is a folder"));
        }
        let name = finished.file_name().ok_or_else(|| cannot(&"it is not a file name"))?;
        let mut unfinished = std::ffi::OsString::from(".");
        unfinished.push(name);
        unfinished.push(format!(".{}", std::process::id()));
        let unfinished = finished.with_file_name(unfinished);
        let file = create(&unfinished).map_err(|error| cannot(&error))?;
        let finished = finished.to_owned();
        Ok(Self { file, unfinished, finished, is_kept: false, replaces: true })
    }

    /// Writes the content and gives the file its name: a reader finds the complete file or none.
    pub(crate) fn save(mut self, bytes: &[u8]) -> Result<(), CliError> {
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_all());
        match written.and_then(|()| self.move_into_place()) {
            Ok(()) => {
                self.is_kept = true;
                Ok(())
            }
            // Another process made one in the meantime: neither of the two is lost.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.is_kept = true;
                let kept = format!("its content is in {}", self.unfinished.display());
                Err(exists_error(&self.finished, &kept))
            }
            Err(error) => {
                Err(CliError::new(format!("cannot write {}: {error}", self.finished.display())))
            }
        }
    }

    fn move_into_place(&self) -> io::Result<()> {
        if self.replaces {
            return fs::rename(&self.unfinished, &self.finished);
        }
        // A link refuses a name that is taken, which a rename does not; some file systems have none.
        match fs::hard_link(&self.unfinished, &self.finished) {
            Ok(()) => fs::remove_file(&self.unfinished),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
            Err(_) => fs::rename(&self.unfinished, &self.finished),
        }
    }
}

fn exists_error(finished: &Path, outcome: &str) -> CliError {
    CliError::new(format!("{} exists already; {outcome}", finished.display()))
        .with_hint("choose another file; an existing one is never overwritten")
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
        drop(NewFile::create_next_to(&place).unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        NewFile::create_next_to(&place).unwrap().save(b"whole").unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"whole");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        // A secret file never replaces another, neither when it is opened nor when it is saved.
        assert!(NewFile::create_secret_once(&place, "nothing").is_err());
        let other = folder.join("other");
        let late = NewFile::create_secret_once(&other, "nothing").unwrap();
        fs::write(&other, b"made meanwhile").unwrap();
        let error = late.save(b"only").unwrap_err();
        assert_eq!(fs::read(&other).unwrap(), b"made meanwhile");
        let kept = error.message().rsplit_once(" is in ").unwrap().1;
        assert_eq!(fs::read(kept).unwrap(), b"only");
        fs::remove_file(kept).unwrap();
        fs::remove_file(&other).unwrap();
        NewFile::create_secret_once(&other, "nothing").unwrap().save(b"only").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"only");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        for nowhere in [folder.as_path(), &folder.join("absent/proof"), Path::new("..")] {
            assert!(NewFile::create_next_to(nowhere).is_err(), "{}", nowhere.display());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
