//! Files on Unix. `os_windows.rs` has the same functions.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Makes a folder and those above it, where they do not exist, for their owner only.
pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Refuses a folder to which others than its owner may write: they could restore old revocation lists.
pub(crate) fn check_writers(folder: &Path) -> io::Result<()> {
    if fs::metadata(folder)?.mode() & 0o022 != 0 {
        return Err(io::Error::other("users other than its owner may write to it"));
    }
    Ok(())
}

/// Options that make a new file accessible to its owner only.
pub(crate) fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Synchronises a folder, so that the names of its files survive a power failure.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
