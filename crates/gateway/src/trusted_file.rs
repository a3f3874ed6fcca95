//! Files that decide who is served: they are read only if nobody but their owner may write them.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

const NOT_REGULAR: &str = "wanted a regular file";

/// The reason why a file was not read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct TrustedFileError {
    path: PathBuf,
    reason: String,
}

impl TrustedFileError {
    pub(crate) fn content(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::content(path, format!("cannot be read: {error}"))
    }
}

/// Reads a file of at most `limit` bytes that neither its group nor others may write.
pub(crate) fn read_trusted_file(path: &Path, limit: u64) -> Result<Vec<u8>, TrustedFileError> {
    let unreadable = |error| TrustedFileError::unreadable(path, &error);
    // Before it is opened: opening a FIFO waits until somebody writes.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(TrustedFileError::content(path, NOT_REGULAR));
    }
    let file = File::open(path).map_err(unreadable)?;
    let bytes = check_trusted(path, &file)?;
    // With room for one byte more, nothing is moved and no copy of a secret stays behind.
    let mut contents = Vec::with_capacity(bytes.min(limit) as usize + 1);
    file.take(limit + 1).read_to_end(&mut contents).map_err(unreadable)?;
    if contents.len() as u64 > limit {
        return Err(TrustedFileError::content(path, format!("wanted at most {limit} bytes")));
    }
    Ok(contents)
}

/// Checks that an open file is a regular one that neither its group nor others may write, and
/// returns its length in bytes. The open file is examined, so that it cannot be exchanged in
/// between.
pub(crate) fn check_trusted(path: &Path, file: &File) -> Result<u64, TrustedFileError> {
    let about = file.metadata().map_err(|error| TrustedFileError::unreadable(path, &error))?;
    let mode = about.permissions().mode() & 0o777;
    if !about.is_file() {
        return Err(TrustedFileError::content(path, NOT_REGULAR));
    }
    if mode & 0o022 != 0 {
        let reason = format!(
            "wanted a file that only its owner may write, got mode {mode:03o}; run chmod go-w"
        );
        return Err(TrustedFileError::content(path, reason));
    }
    Ok(about.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_others_may_write_or_that_is_too_long_is_refused() {
        let name = format!("confide-trusted-file-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, b"four").unwrap();
        for (mode, limit, wanted) in [
            (0o600, 4, None),
            (0o644, 4, None),
            (0o664, 4, Some("got mode 664")),
            (0o602, 4, Some("got mode 602")),
            (0o600, 3, Some("wanted at most 3 bytes")),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match (read_trusted_file(&path, limit), wanted) {
                (Ok(contents), None) => assert_eq!(contents, b"four"),
                (Err(error), Some(wanted)) => {
                    assert!(error.to_string().contains(wanted), "{error}");
                }
                (other, _) => panic!("{mode:o} {limit}: {other:?}"),
            }
        }
        fs::remove_file(&path).unwrap();
        let absent = read_trusted_file(&path, 4).unwrap_err();
        assert!(absent.to_string().contains("cannot be read"), "{absent}");
        assert!(read_trusted_file(&std::env::temp_dir(), 4).is_err());
        // Of a FIFO nobody writes to, nothing is waited for.
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(read_trusted_file(&path, 4).unwrap_err().to_string().contains("regular"));
        fs::remove_file(&path).unwrap();
    }
}
