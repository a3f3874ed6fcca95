//! Makes a folder that appears under its name only once it is complete.

use std::{
    fs,
    path::{Path, PathBuf},
};

use confide_engine::text::FolderError;

use crate::error::NativeError;

/// Calls `fill` with a temporary folder, and renames it to `dir` once it is complete. If `dir`
/// exists, it must be empty.
///
/// # Errors
/// [`NativeError::Exists`], [`NativeError::Folder`] and those of `fill`.
pub(super) fn create_folder_atomically<T>(
    dir: &Path,
    fill: impl FnOnce(&Path) -> Result<T, NativeError>,
) -> Result<T, NativeError> {
    if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(NativeError::Exists { path: dir.into() });
    }
    let partial = partial_folder_path(dir);
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(FolderError::file(&partial))?;
    }
    fs::create_dir_all(&partial).map_err(FolderError::file(&partial))?;
    let made = fill(&partial).and_then(|made| {
        // The rename replaces an empty folder of that name.
        fs::rename(&partial, dir).map_err(FolderError::file(dir))?;
        Ok(made)
    });
    if made.is_err() {
        // The first error is the one to report, even if the temporary folder cannot be removed.
        let _ = fs::remove_dir_all(&partial);
    }
    made
}

/// The temporary name: `models/tiny.partial` for `models/tiny`. It is on the same file system, so
/// that the rename is atomic.
fn partial_folder_path(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    dir.with_file_name(name)
}
