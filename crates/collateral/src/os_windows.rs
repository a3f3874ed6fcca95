//! Files on Windows: the functions of `os.rs`. No access list is written or read here: a new folder or file has that
//! of the folder around it.

use std::{
    fs::{self, OpenOptions},
    io,
    path::Path,
};

pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// Warns that nobody has checked who may write to the folder.
pub(crate) fn check_writers(folder: &Path) -> io::Result<()> {
    fs::metadata(folder)?;
    tracing::warn!(
        folder = %folder.display(),
        "on Windows the access list of the store is not checked: anyone who may write there could restore old \
         revocation lists; keep it in a folder of your own, such as one in %LOCALAPPDATA%"
    );
    Ok(())
}

pub(crate) fn private_file_options() -> OpenOptions {
    OpenOptions::new()
}

/// Does nothing: NTFS journals names, and has no call for a folder.
pub(crate) fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}
