//! Programs of this machine: those that are asked for facts, and those that were run, by size and
//! hash.

use std::{
    fs::File,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::process::wait_or_kill;

/// The time that a program may take; nvidia-smi without persistence mode takes some seconds for
/// each GPU.
const DEADLINE: Duration = Duration::from_secs(20);
/// The most bytes of standard output that are read.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// A function that asks a program: its standard output where it ended well, else `None`.
pub(crate) type RunProgram<'a> = &'a dyn Fn(&str, &[&str]) -> Option<String>;

/// Runs the program itself, without input and in the C locale.
pub(crate) fn run_program(program: &str, args: &[&str]) -> Option<String> {
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        bytes
    });
    let until = Instant::now() + DEADLINE;
    // After a kill a grandchild may hold the pipe: the reader is left to end by itself.
    let status = wait_or_kill(&mut child, until, &AtomicBool::new(false)).ok()??;
    let bytes = reader.join().ok()?;
    status.success().then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// A program that arms or services ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct Program {
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
}

impl Program {
    /// Hashes the file; `None` if it cannot be read.
    pub(crate) fn hash_file(path: &Path) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        let (mut hash, mut bytes, mut block) = (Sha256::new(), 0, vec![0; 1 << 16]);
        loop {
            match file.read(&mut block).ok()? {
                0 => break,
                read => {
                    hash.update(&block[..read]);
                    bytes += read as u64;
                }
            }
        }
        Some(Self { sha256: hex::encode(hash.finalize()), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_asked_and_a_missing_or_failing_one_says_nothing() {
        assert_eq!(run_program("echo", &["one", "two"]).as_deref(), Some("one two\n"));
        assert_eq!(run_program("false", &[]), None);
        assert_eq!(run_program("no-such-program-anywhere", &[]), None);
    }

    #[test]
    fn a_program_is_known_by_its_hash() {
        let empty = Program::hash_file(Path::new("/dev/null")).unwrap();
        assert_eq!(empty.bytes, 0);
        assert!(empty.sha256.starts_with("e3b0c44298fc1c149afbf4c8996fb924"));
        assert_eq!(Program::hash_file(Path::new("/no/such/file")), None);
    }
}
