//! The program that every stage runs: one copy of its file, which nobody changes afterwards.
//!
//! A digest of a path says what stood there once. The file is therefore read once, hashed while it is
//! read, and kept in sealed memory; the stages run that copy. Whoever puts another file in its place,
//! or writes into it, between two stages changes nothing.

use std::{
    fs::{File, Permissions},
    io::{self, Read, Write},
    os::{
        fd::AsRawFd as _,
        unix::{fs::PermissionsExt as _, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::Command,
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use sha2::{Digest as _, Sha256};

use crate::line::Digest;

/// Largest `confide-prover`: a release build has some 30 MB, one for debugging some hundred.
const PROGRAM_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Bits of a mode that let somebody run a file.
const RUNNABLE: u32 = 0o111;

/// A program, held.
pub(crate) struct Program {
    path: PathBuf,
    copy: File,
    sha256: Digest,
}

impl Program {
    /// Copies the file at `path` and hashes it.
    ///
    /// # Errors
    /// What the system says, or that nobody may run it.
    pub(crate) fn hold(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let about = file.metadata()?;
        if !about.is_file() || about.permissions().mode() & RUNNABLE == 0 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "no file that may be run"));
        }
        if about.len() > PROGRAM_BYTES_MAX {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let mut copy = runnable_memory()?;
        // It may grow while it is read.
        let sha256 = copied(file, &mut copy, PROGRAM_BYTES_MAX)?;
        fcntl_add_seals(
            &copy,
            SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
        )?;
        Ok(Self { path: path.to_owned(), copy, sha256 })
    }

    /// SHA-256 of what is run.
    pub(crate) fn sha256(&self) -> Digest {
        self.sha256
    }

    /// A command that runs the copy, under the name of the file.
    pub(crate) fn command(&self) -> Command {
        // Through this process's own number: a script's interpreter opens it a second time, when the
        // child's descriptors are closed.
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.copy.as_raw_fd());
        let mut command = Command::new(path);
        command.arg0(&self.path);
        command
    }
}

/// Copies all of `from`, at most `most` bytes of it, and hashes them.
fn copied(from: impl Read, into: &mut impl Write, most: u64) -> io::Result<Digest> {
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

/// Memory that looks like a file and can be run.
fn runnable_memory() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match memfd_create("confide-prover", flags | MemfdFlags::EXEC) {
        // Before Linux 6.3 there is no such flag, and all of it can be run.
        Err(rustix::io::Errno::INVAL) => memfd_create("confide-prover", flags),
        made => made,
    };
    let memory = File::from(memory?);
    memory.set_permissions(Permissions::from_mode(0o500))?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_beyond_the_bound_is_refused_and_never_cut() {
        let mut copy = Vec::new();
        let sha256 = copied(&b"12345"[..], &mut copy, 5).unwrap();
        assert_eq!(copy, b"12345");
        assert_eq!(sha256, Digest(Sha256::digest(b"12345").into()));
        let error = copied(&b"12345"[..], &mut Vec::new(), 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
