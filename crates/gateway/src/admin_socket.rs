//! The Unix socket of the administrator, which only its owner can open.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, ErrorKind},
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        net::UnixListener as StdUnixListener,
    },
    path::{Path, PathBuf},
};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

use crate::telemetry_error::TelemetryError;

/// The mode of the socket: its owner may connect.
const SOCKET_MODE: u32 = 0o600;
/// The mode of the folder in which the socket is made: nobody else reaches it before its mode is
/// set.
const PRIVATE_FOLDER_MODE: u32 = 0o700;
/// The bits by which a group or others may write to a folder.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// The largest number of bytes of the socket's path. Linux allows 107, and the socket is first made
/// in a folder beside it.
const PATH_BYTES_MAX: usize = 90;

/// A Unix socket that accepts only this process's user and root. The file is removed when the
/// socket is dropped.
#[derive(Debug)]
pub struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
    own_uid: u32,
    /// The locked file that marks the socket as one of a running process.
    _lock: File,
}

impl AdminSocket {
    /// Makes the socket at `path` with mode 0600. A socket that a dead process left is replaced.
    /// Call it within a Tokio runtime.
    ///
    /// The folder has to exist, and only its owner may write to it: others could replace the
    /// socket. The file `PATH.lock` stays, since removing it would let two processes lock different
    /// files.
    ///
    /// # Errors
    /// [`TelemetryError::SocketPath`] if the folder is another user's or writable by others, or
    /// something other than a socket is at `path`; [`TelemetryError::SocketInUse`] if a process serves it;
    /// [`TelemetryError::Socket`] if the operating system refuses.
    pub fn bind(path: &Path) -> Result<Self, TelemetryError> {
        let failed = |source| TelemetryError::Socket { path: path.into(), source };
        let unfit =
            |wanted, got| Err(TelemetryError::SocketPath { path: path.into(), wanted, got });
        let length = path.as_os_str().len();
        if length > PATH_BYTES_MAX {
            return unfit("a path of at most 90 bytes", format!("{length}"));
        }
        let Some(folder) = path.parent().filter(|_| path.is_absolute()) else {
            return unfit("an absolute path", "another".into());
        };
        let own_uid = own_uid().map_err(failed)?;
        let found = fs::metadata(folder).map_err(failed)?;
        if !is_administrator(found.uid(), own_uid) {
            return unfit("a folder of this user or root", format!("user {}", found.uid()));
        }
        if found.mode() & WRITABLE_BY_OTHERS != 0 {
            let wanted = "a folder to which only its owner may write";
            return unfit(wanted, format!("mode {:04o}", found.mode() & 0o7777));
        }
        let in_use = || TelemetryError::SocketInUse { path: path.into() };
        let lock = match lock_file(&with_suffix(path, ".lock")) {
            Ok(lock) => lock,
            Err(TryLockError::WouldBlock) => return Err(in_use()),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return unfit("a socket or nothing", "another kind of file".into());
            }
            // The lock covers other gateways, and the question covers other programs.
            Ok(_) if is_served(path).map_err(failed)? => return Err(in_use()),
            Ok(_) => {}
        }
        let listener = bind_privately(path).map_err(failed)?;
        Ok(Self { listener, path: path.into(), own_uid, _lock: lock })
    }

    /// Accepts the next connection of this process's user or of root. Connections of others are
    /// closed.
    ///
    /// # Errors
    /// The error of the operating system if no connection can be accepted now.
    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let uid = stream.peer_cred()?.uid();
            if is_administrator(uid, self.own_uid) {
                return Ok(stream);
            }
            tracing::warn!(uid, "a connection of another user to the admin socket was closed");
        }
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // A file that stays is replaced at the next start.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a user may administer a gateway that runs as `own_uid`.
fn is_administrator(uid: u32, own_uid: u32) -> bool {
    uid == 0 || uid == own_uid
}

/// The user as which the kernel shows this process to its peers.
fn own_uid() -> io::Result<u32> {
    let (one, _other) = UnixStream::pair()?;
    Ok(one.peer_cred()?.uid())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn lock_file(path: &Path) -> Result<File, TryLockError> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(false).mode(SOCKET_MODE);
    let file = options.open(path).map_err(TryLockError::Error)?;
    file.try_lock()?;
    Ok(file)
}

/// Whether a process listens on the socket. It is not waited for: one that accepts nothing still
/// holds it.
fn is_served(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) => Ok(error.kind() != ErrorKind::ConnectionRefused),
    }
}

/// Makes the socket in a folder that is closed to others, sets its mode and moves it to its path,
/// which replaces an old one.
fn bind_privately(path: &Path) -> io::Result<UnixListener> {
    let folder = with_suffix(path, ".new");
    // One that a process left when it was killed in between; the lock is held.
    if let Err(error) = fs::remove_dir_all(&folder)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    DirBuilder::new().mode(PRIVATE_FOLDER_MODE).create(&folder)?;
    let new = folder.join("s");
    let made = StdUnixListener::bind(&new).and_then(|listener| {
        fs::set_permissions(&new, Permissions::from_mode(SOCKET_MODE))?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        fs::rename(&new, path)?;
        Ok(listener)
    });
    fs::remove_dir_all(&folder)?;
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_user_and_root_administer() {
        assert!(is_administrator(1000, 1000));
        assert!(is_administrator(0, 1000));
        assert!(!is_administrator(1001, 1000));
        assert!(!is_administrator(1000, 0));
    }
}
