//! `confide-prover` as a process, and the body of a proof taken apart.
#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

use confide_prover::line::{Progress, ProverMessage, Refusal, StageResult};

/// The lines that one run printed.
pub struct Answer {
    pub progress: Vec<Progress>,
    pub last: ProverMessage,
}

impl Answer {
    pub fn into_result(self) -> StageResult {
        match self.last {
            ProverMessage::Result(done) => done,
            other => panic!("wanted a result, got {other:?}"),
        }
    }

    pub fn into_refusal(self) -> Refusal {
        match self.last {
            ProverMessage::Refused(refusal) => refusal,
            other => panic!("wanted a refusal, got {other:?}"),
        }
    }
}

/// Runs the prover and reads its lines; the status must fit the last of them.
pub fn run(arguments: &[&str]) -> Answer {
    let output = start(arguments).output().expect("the prover runs");
    read(&output)
}

pub fn start(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_confide-prover"));
    command.args(arguments);
    command
}

fn read(output: &Output) -> Answer {
    let text = String::from_utf8(output.stdout.clone()).expect("lines are text");
    let mut lines: Vec<ProverMessage> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of the protocol"))
        .collect();
    let last = lines.pop().unwrap_or_else(|| panic!("no line: {output:?}"));
    let progress = lines
        .into_iter()
        .map(|line| match line {
            ProverMessage::Progress(progress) => progress,
            other => panic!("only progress comes before the end, got {other:?}"),
        })
        .collect();
    let status = if matches!(last, ProverMessage::Refused(_)) { 1 } else { 0 };
    assert_eq!(output.status.code(), Some(status), "{last:?}");
    Answer { progress, last }
}

/// A folder of its own for each test, removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("confide-prover-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path of text").to_string()
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a file is written");
        path
    }

    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder is there");
        entries.map(|e| e.expect("an entry").file_name().into_string().expect("text")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Input of `fibonacci`: n.
pub fn fibonacci(n: u32) -> Vec<u8> {
    n.to_le_bytes().to_vec()
}

/// Input of `sort`: the source Fibonacci, the count, the place.
pub fn sort(count: u32, place: u32) -> Vec<u8> {
    [1, count, place].into_iter().flat_map(u32::to_le_bytes).collect()
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

const HEAD: usize = 16 + 32 + 32;

/// A body, cut at its lengths: docs of `wire.rs`.
#[derive(Clone)]
pub struct Body {
    pub head: Vec<u8>,
    pub segments: Vec<Vec<u8>>,
    pub public_values: Vec<u8>,
}

impl Body {
    pub fn cut(bytes: &[u8]) -> Self {
        let (head, mut rest) = bytes.split_at(HEAD);
        let count = word(&mut rest);
        let segments = (0..count).map(|_| take_sized(&mut rest)).collect();
        let public_values = take_sized(&mut rest);
        assert!(rest.is_empty());
        Self { head: head.to_vec(), segments, public_values }
    }

    pub fn join(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        bytes.extend((self.segments.len() as u32).to_le_bytes());
        for part in self.segments.iter().chain([&self.public_values]) {
            bytes.extend((part.len() as u32).to_le_bytes());
            bytes.extend(part);
        }
        bytes
    }
}

fn word(rest: &mut &[u8]) -> u32 {
    let (word, left) = rest.split_first_chunk().expect("a word");
    *rest = left;
    u32::from_le_bytes(*word)
}

fn take_sized(rest: &mut &[u8]) -> Vec<u8> {
    let length = word(rest) as usize;
    let (part, left) = rest.split_at(length);
    *rest = left;
    part.to_vec()
}
