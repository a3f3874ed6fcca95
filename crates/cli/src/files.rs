//! Files that are named by arguments: read within a limit, written, and named in every error.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read},
    path::Path,
};

use zeroize::Zeroizing;

use crate::error::CliError;

/// The longest root certificate: Intel's has 659 bytes, AMD's 1.7 KB.
pub(crate) const ROOT_BYTES_MAX: u64 = 16 * 1024;

/// The longest file of a credential, in bytes: 64, and the end of the line.
const CREDENTIAL_BYTES_MAX: u64 = 66;

/// Reads a whole file of at most `limit` bytes.
pub(crate) fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, CliError> {
    let cannot = |error| CliError::new(format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > limit {
        let text = format!("{} is too long: wanted at most {limit} bytes", path.display());
        return Err(CliError::new(text));
    }
    Ok(bytes)
}

/// Reads a whole file of at most `limit` bytes, where a path is given.
pub(crate) fn read_optional_file(
    path: Option<&Path>,
    limit: u64,
) -> Result<Option<Vec<u8>>, CliError> {
    path.map(|path| read_file(path, limit)).transpose()
}

/// Reads a text of at most `limit` bytes; `wanted` says what it should hold.
pub(crate) fn read_text(path: &Path, limit: u64, wanted: &str) -> Result<String, CliError> {
    String::from_utf8(read_file(path, limit)?).map_err(|_| {
        CliError::new(format!("{} is not text: wanted {wanted} in UTF-8", path.display()))
    })
}

/// Reads the credential of a client: one line, without its end.
pub(crate) fn read_credential(path: &Path) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let line = Zeroizing::new(read_file(path, CREDENTIAL_BYTES_MAX)?);
    let credential = Zeroizing::new(line.trim_ascii_end().to_vec());
    if credential.is_empty() {
        let text = format!("{}: wanted a credential, got an empty file", path.display());
        return Err(CliError::new(text));
    }
    Ok(credential)
}

/// Writes a file, over one that exists.
pub(crate) fn write_file(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), CliError> {
    fs::write(path, bytes)
        .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))
}

/// Makes a folder and those above it, where they do not exist.
pub(crate) fn make_folder(path: &Path) -> Result<(), CliError> {
    fs::create_dir_all(path)
        .map_err(|error| CliError::new(format!("cannot make {}: {error}", path.display())))
}

/// Refuses a folder that holds something: it may be a root and pins that somebody relies on.
pub(crate) fn refuse_occupied_folder(path: &Path, hint: &str) -> Result<(), CliError> {
    let cannot = |error| CliError::new(format!("cannot read {}: {error}", path.display()));
    let mut entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| {
            cannot(error).with_hint("--out takes a folder, which is made if it does not exist")
        })?,
    };
    match entries.next().transpose().map_err(cannot)? {
        None => Ok(()),
        Some(_) => {
            let text = format!("{} exists and is not empty", path.display());
            Err(CliError::new(text).with_hint(hint))
        }
    }
}

/// A path as it is typed at a shell.
pub(crate) fn quote_for_shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+@%=:,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_as_a_shell_takes_them() {
        assert_eq!(quote_for_shell(Path::new("sim/evidence.bin")), "sim/evidence.bin");
        assert_eq!(quote_for_shell(Path::new("my sim")), "'my sim'");
        assert_eq!(quote_for_shell(Path::new("it's")), r"'it'\''s'");
    }
}
