//! The model server's process: found by the address at which it listens, and asked by way of `/proc`
//! for the files that it has open.

use std::{
    collections::HashMap,
    ffi::OsStr,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use procfs::{
    net::{TcpNetEntry, TcpState},
    process::{FDInfo, FDTarget, MMapPath, Process, all_processes},
};

use crate::{error::ServerProcessError, file_stamp::FileIdentity, measurement::WeightsMeasurement};

/// The endings of files that hold weights.
const WEIGHTS_EXTENSIONS: [&str; 5] = ["gguf", "safetensors", "pt", "pth", "ckpt"];
/// The endings of files that hold weights if their name begins as below.
const TORCH_EXTENSION: &str = "bin";
const TORCH_NAME: &[u8] = b"pytorch_model";
/// What `/proc` appends to the path of a file without a name.
const DELETED: &[u8] = b" (deleted)";

/// A model server on this machine that has measured files open: the process that listens at an
/// address, and its descendants.
pub struct ServerProcess {
    address: SocketAddr,
    /// The process that listens, or the parent of those that do.
    root: Process,
    /// The time at which `root` started, in ticks since the machine did.
    started: u64,
    /// A process that has the socket at which it listens, and which of its descriptors that is.
    holder: Process,
    held: HeldSocket,
}

impl ServerProcess {
    /// Finds the program that listens at `address`, and checks that it has a measured file open or
    /// mapped, and no file of weights that was not measured.
    ///
    /// It reads the state of all processes of this machine, which can take tens of milliseconds.
    ///
    /// # Errors
    /// [`ServerProcessError`] names what was not found, or what was found and not measured.
    pub fn find(
        address: SocketAddr,
        weights: &WeightsMeasurement,
    ) -> Result<Self, ServerProcessError> {
        let sockets = find_sockets(address)?;
        let processes = read_processes()?;
        let holders: Vec<(&SeenProcess, HeldSocket)> = processes
            .values()
            .filter_map(|seen| Some((seen, seen.find_socket(&sockets)?)))
            .collect();
        let first = holders.first().ok_or(ServerProcessError::NotVisible { address })?;
        // The one process from which all others descend.
        let root = holders
            .iter()
            .map(|(seen, _)| *seen)
            .find(|root| {
                holders.iter().all(|(other, _)| is_descendant(&processes, other, root.pid))
            })
            .ok_or_else(|| ServerProcessError::SeveralPrograms {
                address,
                one: first.0.pid,
                other: holders.last().unwrap_or(first).0.pid,
            })?;
        let mut is_open = false;
        for seen in processes.values().filter(|seen| is_descendant(&processes, seen, root.pid)) {
            is_open |= check_files(&seen.process, weights)?;
        }
        if !is_open {
            return Err(ServerProcessError::NotOpen { pid: root.pid });
        }
        let (pid, started) = (root.pid, root.started);
        let holder = holders.iter().find(|(seen, _)| seen.pid == pid).unwrap_or(first);
        let (holder, held) = (holder.0.pid, holder.1);
        let mut processes = processes;
        let gone = || ServerProcessError::NotListening { address };
        let root = processes.remove(&pid).ok_or_else(gone)?.process;
        let holder = match holder == pid {
            true => Process::new(pid).map_err(|_| gone())?,
            false => processes.remove(&holder).ok_or_else(gone)?.process,
        };
        Ok(Self { address, root, started, holder, held })
    }

    /// The number of the process that listens.
    pub fn pid(&self) -> i32 {
        self.root.pid
    }

    /// Whether the same process still listens at the address. It is cheap, and does not look at
    /// files.
    pub fn still_listens(&self) -> bool {
        let is_same = self.root.stat().is_ok_and(|stat| stat.starttime == self.started);
        let HeldSocket { descriptor, inode } = self.held;
        let still_holds = |fd: FDInfo| matches!(fd.target, FDTarget::Socket(is) if is == inode);
        is_same && self.holder.fd_from_fd(descriptor).is_ok_and(still_holds)
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// An open socket of a process.
#[derive(Clone, Copy)]
struct HeldSocket {
    descriptor: i32,
    inode: u64,
}

/// A process as it was when all were read.
struct SeenProcess {
    process: Process,
    pid: i32,
    parent: i32,
    started: u64,
}

impl SeenProcess {
    /// The one of the sockets that the process has open.
    fn find_socket(&self, sockets: &[u64]) -> Option<HeldSocket> {
        self.process.fd().ok()?.flatten().find_map(|fd| match fd.target {
            FDTarget::Socket(inode) if sockets.contains(&inode) => {
                Some(HeldSocket { descriptor: fd.fd, inode })
            }
            _ => None,
        })
    }
}

/// The inodes of the sockets that take connections to `address`. Of several, the kernel chooses
/// those with the address itself before those of all addresses, and IPv4 before IPv6.
fn find_sockets(address: SocketAddr) -> Result<Vec<u64>, ServerProcessError> {
    let unreadable =
        |error: procfs::ProcError| ServerProcessError::Proc { reason: error.to_string() };
    let mut listening = procfs::net::tcp().map_err(unreadable)?;
    // A machine without IPv6 has no such list.
    listening.extend(procfs::net::tcp6().unwrap_or_default());
    listening.retain(|entry| entry.state == TcpState::Listen);
    let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let found = [address.ip(), all[0], all[1]].into_iter().find_map(|ip| {
        let takes = |entry: &&TcpNetEntry| {
            entry.local_address.ip().to_canonical() == ip
                && entry.local_address.port() == address.port()
        };
        let sockets: Vec<u64> = listening.iter().filter(takes).map(|entry| entry.inode).collect();
        (!sockets.is_empty()).then_some(sockets)
    });
    found.ok_or(ServerProcessError::NotListening { address })
}

fn read_processes() -> Result<HashMap<i32, SeenProcess>, ServerProcessError> {
    let all =
        all_processes().map_err(|error| ServerProcessError::Proc { reason: error.to_string() })?;
    // A process may end while it is being read.
    let seen = all.flatten().filter_map(|process| {
        let stat = process.stat().ok()?;
        let (pid, parent, started) = (stat.pid, stat.ppid, stat.starttime);
        Some((pid, SeenProcess { process, pid, parent, started }))
    });
    Ok(seen.collect())
}

/// Whether `process` is `ancestor` or descends from it.
fn is_descendant(
    processes: &HashMap<i32, SeenProcess>,
    process: &SeenProcess,
    ancestor: i32,
) -> bool {
    let mut at = process;
    // Each step leads to an older process; the bound is for numbers that were used again meanwhile.
    for _ in 0..processes.len() {
        if at.pid == ancestor {
            return true;
        }
        match processes.get(&at.parent) {
            Some(parent) => at = parent,
            None => return false,
        }
    }
    false
}

/// Looks at the files that a process has open or mapped. Returns whether one of them was measured.
fn check_files(
    process: &Process,
    weights: &WeightsMeasurement,
) -> Result<bool, ServerProcessError> {
    let pid = process.pid;
    let mut is_open = false;
    let mut check = |path: PathBuf, seen_at: PathBuf| {
        let is_measured = !is_deleted(&path)
            && std::fs::metadata(seen_at)
                .is_ok_and(|found| weights.has_file(FileIdentity::of(&found)));
        is_open |= is_measured;
        match !is_measured && holds_weights(&path) {
            true => Err(ServerProcessError::OtherWeights { pid, path }),
            false => Ok(()),
        }
    };
    for fd in process.fd().into_iter().flatten().flatten() {
        if let FDTarget::Path(path) = fd.target {
            check(path, format!("/proc/{pid}/fd/{}", fd.fd).into())?;
        }
    }
    for map in process.maps().into_iter().flatten() {
        if let MMapPath::Path(path) = map.pathname {
            // The process may live in another mount namespace.
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            let below = path.strip_prefix("/").unwrap_or(&path).to_owned();
            check(path, root.join(below))?;
        }
    }
    Ok(is_open)
}

fn is_deleted(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(DELETED)
}

/// Whether a file is one of weights, by its name.
fn holds_weights(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let path = Path::new(OsStr::from_bytes(bytes.strip_suffix(DELETED).unwrap_or(bytes)));
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    let is_torch = || {
        extension == TORCH_EXTENSION
            && path.file_name().is_some_and(|name| name.as_bytes().starts_with(TORCH_NAME))
    };
    WEIGHTS_EXTENSIONS.iter().any(|known| extension == *known) || is_torch()
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead, BufReader},
        net::TcpListener,
        process::{Child, Command, Stdio},
    };

    use super::*;

    /// A program that has files open, listens, and prints its port.
    struct Program(Child, SocketAddr);

    impl Program {
        fn start(script: &str, files: &[&Path]) -> Self {
            let mut child = Command::new("python3")
                .args(["-c", script])
                .args(files)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            Self(child, ([127, 0, 0, 1], line.trim().parse().unwrap()).into())
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    const LISTEN: &str = "s = socket.create_server(('127.0.0.1', 0)); \
                          print(s.getsockname()[1], flush=True); time.sleep(600)";

    fn opens() -> String {
        format!("import socket, sys, time; f = [open(p) for p in sys.argv[1:]]; {LISTEN}")
    }

    /// The file is mapped and no longer open, as llama.cpp and torch leave it.
    fn maps() -> String {
        // Python's own module keeps the file open.
        let map = r#"
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
libc.mmap.restype = ctypes.c_ssize_t
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    assert libc.mmap(None, 1, 1, 1, fd, 0) > 0
    os.close(fd)
"#;
        format!("{map}{LISTEN}")
    }

    /// A child has the file open, as with vLLM. It ends with its parent.
    fn forks() -> String {
        let fork = r#"
import os, socket, sys, time
ready, tell = os.pipe()
end, hold = os.pipe()
if os.fork() == 0:
    os.close(hold)
    os.close(1)
    f = open(sys.argv[1])
    os.write(tell, b"1")
    os.read(end, 1)
    os._exit(0)
os.read(ready, 1)
"#;
        format!("{fork}{LISTEN}")
    }

    fn model(names: &[&str]) -> (tempfile::TempDir, WeightsMeasurement) {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let measured = WeightsMeasurement::measure(folder.path()).unwrap();
        (folder, measured)
    }

    #[test]
    fn a_server_with_a_measured_file_open_mapped_or_in_a_child_is_found() {
        let (folder, weights) = model(&["a.gguf"]);
        for script in [opens(), maps(), forks()] {
            let program = Program::start(&script, &[&folder.path().join("a.gguf")]);
            let found = ServerProcess::find(program.1, &weights).unwrap();
            assert_eq!(found.pid(), program.0.id() as i32);
            assert!(found.still_listens());
            drop(program);
            assert!(!found.still_listens());
        }
    }

    #[test]
    fn a_server_without_measured_files_is_refused() {
        let (folder, weights) = model(&["a.gguf"]);
        let (other, _) = model(&["a.gguf", "notes.txt"]);
        let find = |files: &[&Path]| {
            let program = Program::start(&opens(), files);
            ServerProcess::find(program.1, &weights).map(|found| found.pid())
        };
        let measured = folder.path().join("a.gguf");
        let refused = find(&[]);
        assert!(matches!(refused, Err(ServerProcessError::NotOpen { .. })), "{refused:?}");
        let refused = find(&[&measured, &other.path().join("a.gguf")]);
        assert!(matches!(refused, Err(ServerProcessError::OtherWeights { .. })), "{refused:?}");
        assert!(find(&[&measured, &other.path().join("notes.txt")]).is_ok());
    }

    #[test]
    fn a_file_that_was_replaced_under_its_reader_is_not_the_measured_one() {
        let (folder, _) = model(&["a.gguf"]);
        let path = folder.path().join("a.gguf");
        for script in [opens(), maps()] {
            let program = Program::start(&script, &[&path]);
            fs::write(folder.path().join(".new"), "another").unwrap();
            fs::rename(folder.path().join(".new"), &path).unwrap();
            let weights = WeightsMeasurement::measure(folder.path()).unwrap();
            let refused = ServerProcess::find(program.1, &weights).map(|found| found.pid());
            let is_named = matches!(refused, Err(ServerProcessError::OtherWeights { .. }));
            assert!(is_named, "{refused:?}");
        }
    }

    #[test]
    fn an_address_at_which_nothing_listens_is_refused() {
        let (_folder, weights) = model(&["a.gguf"]);
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let refused = ServerProcess::find(address, &weights).map(|found| found.pid());
        assert!(matches!(refused, Err(ServerProcessError::NotListening { .. })), "{refused:?}");
    }

    #[test]
    fn weights_are_told_by_their_names() {
        for (path, wanted) in [
            ("/m/a.gguf", true),
            ("/m/a.GGUF (deleted)", true),
            ("/m/model-00001-of-00002.safetensors", true),
            ("/m/pytorch_model.bin", true),
            ("/m/tokenizer.bin", false),
            ("/usr/lib/libc.so.6", false),
        ] {
            assert_eq!(holds_weights(Path::new(path)), wanted, "{path}");
        }
    }
}
