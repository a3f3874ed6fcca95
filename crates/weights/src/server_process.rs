//! The model server's process: found by the address at which it listens, and asked by way of `/proc`
//! for the files that it has open.

use std::{
    collections::HashMap,
    ffi::OsStr,
    iter,
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
    /// mapped, or had one at an earlier search, and that it has no file of weights open that was
    /// not measured.
    ///
    /// It reads the state of all processes of this machine, which can take tens of milliseconds.
    /// It looks for readers of the weights among them all, whatever comes out.
    ///
    /// # Errors
    /// [`ServerProcessError`] names what was not found, or what was found and not measured.
    pub fn find(
        address: SocketAddr,
        weights: &WeightsMeasurement,
    ) -> Result<Self, ServerProcessError> {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        Self::find_beside(own, address, weights)
    }

    /// Finds the program as [`Self::find`] does. A process from which `own` descends is none: a
    /// service manager has the sockets of its services open, and every process descends from it.
    fn find_beside(
        own: i32,
        address: SocketAddr,
        weights: &WeightsMeasurement,
    ) -> Result<Self, ServerProcessError> {
        let processes = read_processes()?;
        look(&processes, weights);
        let sockets = find_sockets(address)?;
        let is_beside = |seen: &&SeenProcess| {
            let own = processes.get(&own).filter(|own| own.pid != seen.pid);
            own.is_none_or(|own| !is_descendant(&processes, own, seen.pid))
        };
        let holders: Vec<(&SeenProcess, HeldSocket)> = processes
            .values()
            .filter(is_beside)
            .flat_map(|seen| seen.list_sockets(&sockets).into_iter().map(move |held| (seen, held)))
            .collect();
        let is_held = |socket: &u64| holders.iter().any(|(_, held)| held.inode == *socket);
        // A program that cannot be seen may share the port (`SO_REUSEPORT`).
        let first = holders.first().filter(|_| sockets.iter().all(is_held));
        let first = first.ok_or(ServerProcessError::NotVisible { address })?;
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
        let mut is_reader = false;
        for seen in processes.values().filter(|seen| is_descendant(&processes, seen, root.pid)) {
            is_reader |= weights.readers().lock().contains(&seen.identity());
            if let Some(path) = list_files(&seen.process).into_iter().find_map(|file| {
                (file.holds_weights() && !file.is_measured(weights)).then_some(file.path)
            }) {
                return Err(ServerProcessError::OtherWeights { pid: seen.pid, path });
            }
        }
        if !is_reader {
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
    /// The process among all that ever run.
    fn identity(&self) -> (i32, u64) {
        (self.pid, self.started)
    }

    /// Those of the sockets that the process has open.
    fn list_sockets(&self, sockets: &[u64]) -> Vec<HeldSocket> {
        let open = self.process.fd().into_iter().flatten().flatten();
        let held = open.filter_map(|fd| match fd.target {
            FDTarget::Socket(inode) if sockets.contains(&inode) => {
                Some(HeldSocket { descriptor: fd.fd, inode })
            }
            _ => None,
        });
        held.collect()
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
    let all: &[IpAddr] = match address.ip() {
        IpAddr::V4(_) => &[Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        IpAddr::V6(_) => &[Ipv6Addr::UNSPECIFIED.into()],
    };
    let found = iter::once(&address.ip()).chain(all).find_map(|&ip| {
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

/// A file that a process has open or mapped.
struct HeldFile {
    /// Its path, as the process sees it.
    path: PathBuf,
    /// A path by which this process reaches it.
    reached: PathBuf,
}

impl HeldFile {
    fn is_measured(&self, weights: &WeightsMeasurement) -> bool {
        let is_gone = self.path.as_os_str().as_bytes().ends_with(DELETED);
        !is_gone
            && std::fs::metadata(&self.reached)
                .is_ok_and(|found| weights.has_file(FileIdentity::from_metadata(&found)))
    }

    fn holds_weights(&self) -> bool {
        holds_weights(&self.path)
    }
}

/// Lists the files that a process has open or mapped; none if it may not be read, or has ended.
fn list_files(process: &Process) -> Vec<HeldFile> {
    let pid = process.pid;
    let mut files = Vec::new();
    for fd in process.fd().into_iter().flatten().flatten() {
        if let FDTarget::Path(path) = fd.target {
            files.push(HeldFile { path, reached: format!("/proc/{pid}/fd/{}", fd.fd).into() });
        }
    }
    for map in process.maps().into_iter().flatten() {
        // A file is mapped in several pieces, one after another.
        if let MMapPath::Path(path) = map.pathname
            && files.last().is_none_or(|last| last.path != path)
        {
            // The process may live in another mount namespace.
            let below = path.strip_prefix("/").unwrap_or(&path);
            let reached = Path::new(&format!("/proc/{pid}/root")).join(below);
            files.push(HeldFile { path, reached });
        }
    }
    files
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

/// Adds the processes that have a measured file to the readers, and forgets those that have ended.
fn look(processes: &HashMap<i32, SeenProcess>, weights: &WeightsMeasurement) {
    let mut readers = weights.readers().lock();
    readers
        .retain(|(pid, started)| processes.get(pid).is_some_and(|seen| seen.started == *started));
    // This process has measured them.
    let own = std::process::id();
    for seen in processes.values().filter(|seen| u32::try_from(seen.pid) != Ok(own)) {
        let is_reader = readers.contains(&seen.identity())
            || list_files(&seen.process).iter().any(|file| file.is_measured(weights));
        if is_reader {
            readers.insert(seen.identity());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        process::{Child, ChildStdout, Command, Stdio},
    };

    use super::*;

    /// A program that has files open, listens, and prints its port.
    struct Program(Child, SocketAddr, BufReader<ChildStdout>);

    impl Program {
        fn start(script: &str, files: &[&Path]) -> Self {
            let (mut program, line) = Self::launch(script, files);
            program.1.set_port(line.trim().parse().unwrap());
            program
        }

        /// Returns the program and its first line.
        fn launch(script: &str, files: &[&Path]) -> (Self, String) {
            let mut child = Command::new("python3")
                .args(["-c", script])
                .args(files)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            let mut program = Self(child, ([127, 0, 0, 1], 0).into(), output);
            let line = program.read_line();
            (program, line)
        }

        fn read_line(&mut self) -> String {
            let mut line = String::new();
            self.2.read_line(&mut line).unwrap();
            line
        }

        fn write_line(&mut self) {
            self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        }

        /// Lets a program that waits listen.
        fn go_on(&mut self) {
            self.write_line();
            let line = self.read_line();
            self.1.set_port(line.trim().parse().unwrap());
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

    fn find(
        program: &Program,
        weights: &WeightsMeasurement,
    ) -> Result<ServerProcess, ServerProcessError> {
        ServerProcess::find(program.1, weights)
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
            let found = find(&program, &weights).unwrap();
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
            super::tests::find(&program, &weights).map(|found| found.pid())
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
            let refused = find(&program, &weights).map(|found| found.pid());
            let is_named = matches!(refused, Err(ServerProcessError::OtherWeights { .. }));
            assert!(is_named, "{refused:?}");
        }
    }

    /// Closes the files when it is told to, and only then listens.
    const LOADS: &str = "import socket, sys, time; f = open(sys.argv[1]); print(0, flush=True); \
                         sys.stdin.readline(); f.close(); ";

    #[test]
    fn a_server_that_closed_its_files_before_it_listened_is_known_to_whoever_looked_meanwhile() {
        let (folder, weights) = model(&["a.gguf"]);
        let file = folder.path().join("a.gguf");
        let mut program = Program::start(&format!("{LOADS}{LISTEN}"), &[&file]);
        let never_looked = WeightsMeasurement::measure(folder.path()).unwrap();
        // Nothing listens yet.
        assert!(find(&program, &weights).is_err());
        program.go_on();
        let refused = find(&program, &never_looked).map(|found| found.pid());
        assert!(matches!(refused, Err(ServerProcessError::NotOpen { .. })), "{refused:?}");
        let found = find(&program, &weights).unwrap();
        assert_eq!(found.pid(), program.0.id() as i32);
        drop(program);
        // Another process with the same number would not be taken for it.
        let _ = ServerProcess::find(found.address(), &weights);
        let readers = weights.readers().lock();
        assert!(readers.iter().all(|(pid, _)| *pid != found.pid()));
    }

    /// A manager of services: a gateway and a model server are its children, and it has the
    /// server's socket open, which the server inherits.
    const MANAGES: &str = r#"
import os, socket, sys, time
s = socket.create_server(('127.0.0.1', 0))
end, hold = os.pipe()
def start(run):
    pid = os.fork()
    if pid == 0:
        os.close(hold)
        run()
        os.read(end, 1)
        os._exit(0)
    return pid
gateway = start(s.close)
def serve():
    global f
    os.close(1)
    sys.stdin.readline()
    f = open(sys.argv[1])
    os.write(tell, b"1")
ready, tell = os.pipe()
server = start(serve)
print(s.getsockname()[1], gateway, server, flush=True)
os.read(ready, 1)
print("ready", flush=True)
time.sleep(600)
"#;

    #[test]
    fn a_service_manager_that_has_the_socket_open_is_not_the_model_server() {
        let (folder, weights) = model(&["a.gguf"]);
        let (other, _) = model(&["a.gguf"]);
        // A reader of the weights that has nothing to do with the server, under the same manager.
        let _reader = Program::start(&opens(), &[&folder.path().join("a.gguf")]);
        for (file, is_measured) in [(folder.path(), true), (other.path(), false)] {
            let (mut program, line) = Program::launch(MANAGES, &[&file.join("a.gguf")]);
            let numbers: Vec<i32> =
                line.split_whitespace().map(|number| number.parse().unwrap()).collect();
            let [port, gateway, server] = numbers[..] else { panic!("{line}") };
            program.1.set_port(u16::try_from(port).unwrap());
            program.write_line();
            assert_eq!(program.read_line().trim(), "ready");
            let found = ServerProcess::find_beside(gateway, program.1, &weights);
            let found = found.map(|found| found.pid());
            match is_measured {
                true => assert_eq!(found.unwrap(), server),
                false => {
                    let is_named = matches!(found, Err(ServerProcessError::OtherWeights { .. }));
                    assert!(is_named, "{found:?}");
                }
            }
            // Nobody but the manager has the socket left.
            let killed = Command::new("kill").arg(server.to_string()).status().unwrap();
            assert!(killed.success());
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            loop {
                let found = ServerProcess::find_beside(gateway, program.1, &weights);
                match found.map(|found| found.pid()) {
                    Err(ServerProcessError::NotVisible { .. }) => break,
                    found => assert!(std::time::Instant::now() < until, "{found:?}"),
                }
            }
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
    fn a_socket_of_another_family_takes_no_connection_to_the_address() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(find_sockets((Ipv4Addr::LOCALHOST, port).into()).unwrap().len(), 1);
        assert!(find_sockets((Ipv6Addr::LOCALHOST, port).into()).is_err());
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
