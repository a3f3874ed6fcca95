//! Locks that keep two runs apart: in one folder they would overwrite each other, on one machine
//! they would measure each other.

use std::{
    fs::{File, TryLockError},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::Path,
    time::Duration,
};

use crate::error::BenchError;

/// The abstract socket that a run binds while it measures: the kernel frees it however the run ends.
const MACHINE_SOCKET: &[u8] = b"confide-bench";
/// How often a lock is tried, and the time between two tries. A process that a killed run was just
/// starting holds what it inherited until it has started, which takes long on a busy machine.
const TRIES: u32 = 200;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// The lock of a run's folder, which ends with this value.
#[derive(Debug)]
pub(crate) struct FolderLock {
    folder: File,
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // A process that another thread is just starting may still have a copy of the descriptor,
        // and would hold the lock until it has started.
        let _ = self.folder.unlock();
    }
}

impl FolderLock {
    /// Locks a folder that exists. The lock is on the folder itself, so nothing is left in it.
    pub(crate) fn acquire(folder: &Path) -> Result<Self, BenchError> {
        let file = File::open(folder).map_err(BenchError::io("read", folder))?;
        for _ in 0..TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Self { folder: file }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN_TRIES),
                Err(TryLockError::Error(error)) => {
                    return Err(BenchError::io("lock", folder)(error));
                }
            }
        }
        Err(BenchError::FolderInUse { folder: folder.to_owned() })
    }
}

/// The lock of this machine's measurements, which ends with this value.
#[derive(Debug)]
pub struct MachineLock {
    _socket: UnixListener,
}

impl MachineLock {
    /// Takes the lock of the machine, or of the network namespace if it runs in one of its own.
    ///
    /// # Errors
    /// [`BenchError::MachineInUse`] if another run measures now.
    pub fn acquire() -> Result<Self, BenchError> {
        Self::bind_socket(MACHINE_SOCKET)
    }

    fn bind_socket(name: &[u8]) -> Result<Self, BenchError> {
        let bind =
            || SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name));
        for _ in 0..TRIES {
            if let Ok(socket) = bind() {
                return Ok(Self { _socket: socket });
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
        Err(BenchError::MachineInUse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_by_one_run_at_a_time() {
        let folder = confide_tests::Folder::new("folder-lock");
        let held = FolderLock::acquire(folder.path()).unwrap();
        assert!(matches!(FolderLock::acquire(folder.path()), Err(BenchError::FolderInUse { .. })));
        drop(held);
        assert!(FolderLock::acquire(folder.path()).is_ok());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_folder_is_free_once_what_a_killed_run_was_starting_has_started() {
        let folder = confide_tests::Folder::new("folder-lock-inherited");
        let killed = File::open(folder.path()).unwrap();
        killed.lock().unwrap();
        let inherited = killed.try_clone().unwrap();
        // A run that is killed unlocks nothing.
        drop(killed);
        let starting = std::thread::spawn(move || {
            std::thread::sleep(BETWEEN_TRIES * 3);
            drop(inherited);
        });
        assert!(FolderLock::acquire(folder.path()).is_ok());
        starting.join().unwrap();
    }

    #[test]
    fn a_machine_is_measured_by_one_run_at_a_time() {
        let name = format!("confide-bench-test-{}", std::process::id());
        let held = MachineLock::bind_socket(name.as_bytes()).unwrap();
        assert!(matches!(MachineLock::bind_socket(name.as_bytes()), Err(BenchError::MachineInUse)));
        drop(held);
        assert!(MachineLock::bind_socket(name.as_bytes()).is_ok());
    }
}
