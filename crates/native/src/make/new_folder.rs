//! A folder that appears under its name only once it is complete.

use std::{
    fs,
    path::{Path, PathBuf},
};

use confide_engine::text::FolderError;

use crate::error::NativeError;

/// Has a folder filled next to the wanted one, and renames it once it is complete. If `dir` exists,
/// it must be empty.
///
/// # Errors
/// [`NativeError::Exists`], [`NativeError::Folder`] and those of `fill`.
pub(super) fn fill_new_folder<T>(
    dir: &Path,
    fill: impl FnOnce(&Path) -> Result<T, NativeError>,
) -> Result<T, NativeError> {
    if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(NativeError::Exists { path: dir.into() });
    }
    let partial = partial_name(dir);
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
        // The first error matters more than what is left behind under a name nobody loads.
        let _ = fs::remove_dir_all(&partial);
    }
    made
}

/// The name while the folder is filled: `models/tiny.partial` for `models/tiny`, on the same file
/// system, so that the rename is atomic.
fn partial_name(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    dir.with_file_name(name)
}
