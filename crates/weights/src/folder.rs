//! The files of a folder, in the order in which they are listed.

use std::path::{Path, PathBuf};

use crate::error::WeightsError;

/// The largest number of files of a model. Large ones come in some hundreds.
const FILES_MAX: usize = 4096;
/// The largest number of entries of a folder that are looked at, hidden ones and folders included.
const ENTRIES_MAX: usize = 65_536;
/// The deepest folder below the model's.
const DEPTH_MAX: usize = 16;

/// Lists the files below `folder` by their names relative to it, sorted by bytes.
///
/// Hidden files and folders are left out: downloaders keep their records there. A link to a file
/// counts as that file, as in the cache of Hugging Face's tools; a link to a folder is refused.
///
/// # Errors
/// [`WeightsError`] for a folder that cannot be read, a name that cannot be listed, or a limit.
pub(crate) fn list_files(folder: &Path) -> Result<Vec<String>, WeightsError> {
    let mut files = Vec::new();
    let mut entries = 0;
    let mut folders = vec![(PathBuf::new(), 0)];
    while let Some((below, depth)) = folders.pop() {
        let path = folder.join(&below);
        let read = |source| WeightsError::Read { path: path.clone(), source };
        for entry in path.read_dir().map_err(read)? {
            let entry = entry.map_err(read)?;
            entries += 1;
            check_limit(folder, entries, ENTRIES_MAX, "entries")?;
            let name = entry.file_name();
            if name.as_encoded_bytes().first() == Some(&b'.') {
                continue;
            }
            let relative = below.join(&name);
            let kind = entry.file_type().map_err(read)?;
            if kind.is_dir() {
                check_limit(folder, depth + 1, DEPTH_MAX, "levels of folders")?;
                folders.push((relative, depth + 1));
                continue;
            }
            let found = entry.path();
            let target = std::fs::metadata(&found)
                .map_err(|source| WeightsError::Read { path: found.clone(), source })?;
            if !target.is_file() {
                return Err(WeightsError::Kind { path: found });
            }
            check_limit(folder, files.len() + 1, FILES_MAX, "files")?;
            files.push(check_name(&relative)?);
        }
    }
    if files.is_empty() {
        return Err(WeightsError::Empty { path: folder.into() });
    }
    files.sort_unstable();
    Ok(files)
}

fn check_limit(
    folder: &Path,
    got: usize,
    limit: usize,
    of: &'static str,
) -> Result<(), WeightsError> {
    match got <= limit {
        true => Ok(()),
        false => Err(WeightsError::TooMany { path: folder.into(), limit, of }),
    }
}

/// A name as a line of the list has it. `sha256sum` escapes backslashes and line feeds; names with
/// them are refused, so that the list has one form.
fn check_name(relative: &Path) -> Result<String, WeightsError> {
    let is_allowed = |name: &&str| !name.chars().any(|c| c.is_control() || c == '\\');
    let name = relative.to_str().filter(is_allowed);
    name.map(str::to_owned).ok_or_else(|| WeightsError::Name { path: relative.into() })
}
