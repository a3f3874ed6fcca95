//! The program that every stage runs: one copy of its file, which nobody changes afterwards.
//!
//! A digest of a path says what stood there once. The file is therefore read once, hashed while it is
//! read, and kept in sealed memory; the stages run that copy. Anyone who puts another file in its place,
//! or writes into it, between two stages changes nothing.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest as _, Sha256};

use crate::{
    launch::Launcher,
    line::Digest,
    sealed::{create_executable_memfd, memfd_path, seal_memfd},
};

/// Largest `confide-prover`: a release build has some 30 MB, one for debugging some hundred.
const PROGRAM_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Bits of a mode that let somebody run a file.
const RUNNABLE: u32 = 0o111;

/// A program that is held in sealed memory.
pub(crate) struct Program {
    path: PathBuf,
    copy: File,
    sha256: Digest,
}

/// Why a program is not held.
#[derive(Debug)]
pub(crate) enum ProgramError {
    /// There is no program at the path, or no file that may be run.
    Absent(io::Error),
    /// The program cannot be read, or is too long.
    Unreadable(io::Error),
    /// No sealed copy of it could be made.
    Unsealed(io::Error),
}

impl Program {
    /// Copies the file at `path` and hashes it.
    ///
    /// # Errors
    /// What the system says, or that nobody may run it.
    pub(crate) fn open_sealed(path: &Path) -> Result<Self, ProgramError> {
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ProgramError::Absent(error),
            _ => ProgramError::Unreadable(error),
        })?;
        let about = file.metadata().map_err(ProgramError::Unreadable)?;
        if !about.is_file() || about.permissions().mode() & RUNNABLE == 0 {
            let reason = "it is not an executable file";
            return Err(ProgramError::Absent(io::Error::new(
                io::ErrorKind::PermissionDenied,
                reason,
            )));
        }
        if about.len() > PROGRAM_BYTES_MAX {
            return Err(ProgramError::Unreadable(io::ErrorKind::FileTooLarge.into()));
        }
        let mut copy = create_executable_memfd("confide-prover").map_err(ProgramError::Unsealed)?;
        // It may grow while it is read.
        let sha256 =
            copy_and_hash(file, &mut copy, PROGRAM_BYTES_MAX).map_err(ProgramError::Unreadable)?;
        seal_memfd(&copy).map_err(ProgramError::Unsealed)?;
        Ok(Self { path: path.to_owned(), copy, sha256 })
    }

    /// SHA-256 of the program that is run.
    pub(crate) fn sha256(&self) -> Digest {
        self.sha256
    }

    /// Makes a command that runs the copy, under the name of the file, through `launcher` if there
    /// is one.
    pub(crate) fn command(&self, launcher: Option<&Launcher>) -> Command {
        // A script's interpreter opens it a second time, when the child's descriptors are closed.
        let path = memfd_path(&self.copy);
        match launcher {
            Some(launcher) => launcher.command(path.as_os_str(), self.path.as_os_str()),
            None => {
                let mut command = Command::new(path);
                command.arg0(&self.path);
                command
            }
        }
    }
}

/// Copies all of `from`, at most `most` bytes of it, and hashes them.
fn copy_and_hash(from: impl Read, into: &mut impl Write, most: u64) -> io::Result<Digest> {
    let mut from = from.take(most + 1);
    let (mut hash, mut piece) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        let read = from.read(&mut piece)?;
        if from.limit() == 0 {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        if read == 0 {
            return Ok(Digest(hash.finalize().into()));
        }
        hash.update(&piece[..read]);
        into.write_all(&piece[..read])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_beyond_the_bound_is_refused_and_never_cut() {
        let mut copy = Vec::new();
        let sha256 = copy_and_hash(&b"12345"[..], &mut copy, 5).unwrap();
        assert_eq!(copy, b"12345");
        assert_eq!(sha256, Digest(Sha256::digest(b"12345").into()));
        let error = copy_and_hash(&b"12345"[..], &mut Vec::new(), 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
