//! Memory that looks like a file, written once and sealed: nobody changes it, and nothing of it stays
//! behind when this process ends, however it ends.

use std::{
    fs::{File, Permissions},
    io::{self, Write},
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    path::PathBuf,
    thread,
    time::Duration,
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
};

/// How often sealing is tried. The kernel refuses (`EBUSY`) while a page is in use elsewhere, after
/// waiting 0.15 s by itself; one more attempt nearly always succeeds.
const SEAL_ATTEMPTS: u32 = 20;

/// Pause between two attempts.
const SEAL_PAUSE: Duration = Duration::from_millis(50);

/// Memory that looks like a file and can be run.
pub(crate) fn create_executable_memfd(name: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match memfd_create(name, flags | MemfdFlags::EXEC) {
        // Before Linux 6.3 there is no such flag, and all of it can be run.
        Err(Errno::INVAL) => memfd_create(name, flags),
        made => made,
    };
    let memory = File::from(memory?);
    memory.set_permissions(Permissions::from_mode(0o500))?;
    Ok(memory)
}

/// Lets nobody write, grow or shrink `memory` from here on.
pub(crate) fn seal_memfd(memory: &File) -> io::Result<()> {
    seal_with_retries(memory, || thread::sleep(SEAL_PAUSE))
}

/// Seals as [`seal_memfd`] does; `pause` is called between two attempts.
fn seal_with_retries(memory: &File, mut pause: impl FnMut()) -> io::Result<()> {
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    for _ in 1..SEAL_ATTEMPTS {
        match fcntl_add_seals(memory, seals) {
            Err(Errno::BUSY) => pause(),
            sealed => return Ok(sealed?),
        }
    }
    Ok(fcntl_add_seals(memory, seals)?)
}

/// Bytes for another process of this user, which opens them by a path.
pub(crate) struct SealedMemfd(File);

impl SealedMemfd {
    pub(crate) fn new(name: &str, bytes: &[u8]) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut memory = File::from(memfd_create(name, flags)?);
        memory.set_permissions(Permissions::from_mode(0o400))?;
        memory.write_all(bytes)?;
        seal_memfd(&memory)?;
        Ok(Self(memory))
    }

    pub(crate) fn path(&self) -> PathBuf {
        memfd_path(&self.0)
    }
}

/// The path names this process's own number, since the descriptor is closed in a child.
pub(crate) fn memfd_path(memory: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead, BufReader},
        process::{Child, Command, Stdio},
    };

    use super::*;

    /// Maps a file for writing until its standard input ends.
    const MAPPER: &str = "import mmap, sys\n\
        file = open(sys.argv[1], 'r+b')\n\
        mapped = mmap.mmap(file.fileno(), 0)\n\
        print('mapped', flush=True)\n\
        sys.stdin.read()\n";

    /// Makes memory that another process has mapped for writing, until the process's input ends.
    fn map_memory(name: &str) -> (File, Child) {
        let mut memory = create_executable_memfd(name).unwrap();
        memory.write_all(&[7; 4096]).unwrap();
        memory.set_permissions(Permissions::from_mode(0o700)).unwrap();
        let mut mapper = Command::new("python3")
            .args(["-c", MAPPER])
            .arg(memfd_path(&memory))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(mapper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mapped\n");
        (memory, mapper)
    }

    #[test]
    fn sealing_waits_for_a_mapping_that_lives_meanwhile() {
        let (mut memory, mut mapper) = map_memory("busy");
        let mut pauses = 0;
        seal_with_retries(&memory, || {
            pauses += 1;
            // Its input ends, and with it the mapping.
            mapper.stdin.take();
            mapper.wait().unwrap();
        })
        .unwrap();
        assert!(pauses >= 1, "the first attempt finds the mapping");
        assert_eq!(memory.write(b"x").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_mapping_that_never_ends_is_not_waited_for_without_end() {
        let (memory, mut mapper) = map_memory("held");
        let mut pauses = 0;
        let error = seal_with_retries(&memory, || pauses += 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(pauses, SEAL_ATTEMPTS - 1);
        mapper.stdin.take();
        mapper.wait().unwrap();
    }

    #[test]
    fn sealed_bytes_are_read_by_their_path_and_written_by_nobody() {
        let bytes = SealedMemfd::new("input", b"a secret").unwrap();
        assert_eq!(fs::read(bytes.path()).unwrap(), b"a secret");
        assert!(fs::write(bytes.path(), b"another").is_err());
        assert_eq!(fs::read(bytes.path()).unwrap(), b"a secret");
    }
}
