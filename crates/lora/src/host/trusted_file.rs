//! Files that decide who is answered and how often: nobody but their owner may write to them.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};

/// The bits by which a group or others may write to a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Opens a file with these options and checks what was opened, so that the file cannot be exchanged in
/// between.
///
/// # Errors
/// If it is a symbolic link or not a regular file, belongs to neither this user nor root, or if a group
/// or others may write to it.
pub(super) fn open_trusted_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Without NONBLOCK, a FIFO would be waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let opened = options.custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::LOOP.raw_os_error() => {
            io::Error::other("wanted a regular file, got a symbolic link")
        }
        _ => error,
    })?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("wanted a regular file, got a device, a pipe or a folder"));
    }
    if found.uid() != 0 && found.uid() != geteuid().as_raw() {
        let text = format!("wanted a file of this user or root, got one of user {}", found.uid());
        return Err(io::Error::other(text));
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        let mode = found.mode() & 0o777;
        let text = format!(
            "wanted a file that only its owner may write, got mode {mode:03o}; run chmod go-w"
        );
        return Err(io::Error::other(text));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn what_others_may_write_or_exchange_is_not_opened() {
        let folder = std::env::temp_dir().join(format!("confide-trusted-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, link) = (folder.join("file"), folder.join("link"));
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        open_trusted_file(&path, &mut options).unwrap();
        for (mode, wanted) in [
            (0o600, None),
            (0o644, None),
            (0o664, Some("got mode 664")),
            (0o602, Some("got mode 602")),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match (open_trusted_file(&path, OpenOptions::new().read(true)), wanted) {
                (Ok(_), None) => {}
                (Err(error), Some(wanted)) => {
                    assert!(error.to_string().contains(wanted), "{error}");
                }
                (opened, _) => panic!("{mode:o}: {opened:?}"),
            }
        }
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for odd in [&link, &folder, Path::new("/dev/null")] {
            let refused = open_trusted_file(odd, OpenOptions::new().read(true)).unwrap_err();
            assert!(refused.to_string().starts_with("wanted a regular file"), "{refused}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
