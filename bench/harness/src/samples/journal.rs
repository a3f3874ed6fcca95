//! `samples.jsonl`: the journal of a run while it runs, one JSON object a line.
//!
//! Its first line is the record with nothing measured yet, so that the journal alone makes a record
//! when the process is killed. A block counts only if its samples are followed by a line `block`. A
//! file of samples next to a record of layout 1 has only the lines `sample` and `slice`.

use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions},
    io::{self, BufRead, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Sample, Slice};
use crate::{
    error::BenchError,
    host::programs::Program,
    record::{ArmRecord, BenchNotRun, Record, ServiceRecord, Session, SessionEnd, UnfinishedBench},
};

/// The most bytes of a whole file, after decompression: a hundred times the longest run so far.
const JOURNAL_BYTES_MAX: u64 = 4 << 30;
/// The most bytes of a line. A protocol line is at most 64 KiB; the first line holds a suite of at
/// most 1 MiB, escaped.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// A line of the journal.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum JournalLine {
    Sample(Box<Sample>),
    Slice(Box<Slice>),
    /// The record before anything was measured.
    Run(Box<Record>),
    /// The run starts, or goes on.
    Session(Session),
    /// A block of one case is whole: all its slices stand before this line.
    Block {
        bench: String,
        case: String,
        block: u32,
        /// The chain over all lines before this one ([`LineChain`]); the journal itself fills it in.
        chain: String,
    },
    /// An arm as it was started; the last line of an arm counts.
    Arm(Box<ArmRecord>),
    /// A service as it was started; the last line of a service counts.
    Service(ServiceRecord),
    /// A program that an arm or service ran.
    Program {
        name: String,
        program: Program,
    },
    NotRun(BenchNotRun),
    Cut(UnfinishedBench),
    /// The session ended.
    End {
        wall_s: f64,
        ended: SessionEnd,
        partial: Option<String>,
    },
}

/// A file to which lines are appended as they come, so that an interrupted run keeps what it has.
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    chain: LineChain,
}

/// The chain of hashes over the lines of a journal: SHA-256 over the link before and the bytes of the line, its line
/// feed included; 32 zero bytes before the first line. Each `block` line names the link before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineChain([u8; 32]);

impl LineChain {
    fn add(&mut self, line: &[u8]) {
        self.0 = Sha256::new().chain_update(self.0).chain_update(line).finalize().into();
    }

    fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl Journal {
    /// Creates a new file; an existing one is an error.
    pub(crate) fn create(path: &Path) -> Result<Self, BenchError> {
        let file = File::create_new(path).map_err(BenchError::io("create", path))?;
        Ok(Self { file, path: path.to_owned(), chain: LineChain::default() })
    }

    /// Opens a journal to go on after `length` bytes, where its chain is `chain`; what stands behind them is of a
    /// block that did not end.
    pub(crate) fn reopen(path: &Path, length: u64, chain: LineChain) -> Result<Self, BenchError> {
        let open = || {
            let mut file = OpenOptions::new().write(true).open(path)?;
            file.set_len(length)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().map_err(BenchError::io("write", path))?;
        Ok(Self { file, path: path.to_owned(), chain })
    }

    /// Writes these lines in one piece, each `block` line with the chain so far.
    pub(crate) fn append(&mut self, lines: &mut [JournalLine]) -> Result<(), BenchError> {
        let mut bytes = Vec::new();
        for line in lines {
            if let JournalLine::Block { chain, .. } = line {
                *chain = self.chain.to_hex();
            }
            let start = bytes.len();
            let written = serde_json::to_writer(&mut bytes, line).map_err(io::Error::from);
            written.map_err(BenchError::io("write", &self.path))?;
            bytes.push(b'\n');
            self.chain.add(&bytes[start..]);
        }
        self.file.write_all(&bytes).map_err(BenchError::io("write", &self.path))
    }
}

/// The record, samples and slices that the lines of a journal give.
#[derive(Clone, Debug, Default)]
pub(crate) struct JournalContent {
    /// The record without rows, which follow from the samples.
    pub(crate) record: Record,
    pub(crate) samples: Vec<Sample>,
    pub(crate) slices: Vec<Slice>,
    /// The blocks that are whole: bench, case, number.
    pub(crate) blocks: BTreeSet<(String, String, u32)>,
    /// The bytes of the file that count.
    pub(crate) length: u64,
    /// The chain over those bytes.
    pub(crate) chain: LineChain,
    /// The samples and slices of a block whose line has not come yet.
    open_samples: Vec<Sample>,
    open_slices: Vec<Slice>,
    /// True where the last session said how it ended.
    has_ended: bool,
}

impl JournalContent {
    /// Creates the content of a journal with nothing measured yet.
    pub(crate) fn new(record: Record) -> Self {
        Self { record, ..Self::default() }
    }

    /// Applies the next line; false if it counts only once its block is whole.
    pub(crate) fn apply_line(&mut self, line: JournalLine) -> bool {
        match line {
            JournalLine::Sample(sample) => self.open_samples.push(*sample),
            JournalLine::Slice(slice) => self.open_slices.push(*slice),
            JournalLine::Block { bench, case, block, .. } => {
                self.samples.append(&mut self.open_samples);
                self.slices.append(&mut self.open_slices);
                self.blocks.insert((bench, case, block));
            }
            JournalLine::Session(session) => {
                self.close_killed_session();
                // What could not be run is tried again.
                self.record.not_run.clear();
                self.record.sessions.push(session);
                (self.open_samples, self.open_slices) = (Vec::new(), Vec::new());
                self.has_ended = false;
            }
            JournalLine::End { wall_s, ended, partial } => {
                if let Some(session) = self.record.sessions.last_mut() {
                    (session.wall_s, session.ended) = (wall_s, ended);
                }
                self.record.partial = partial;
                self.record.update_wall_time();
                self.has_ended = true;
            }
            JournalLine::Arm(arm) => self.record.put_arm(*arm),
            JournalLine::Service(service) => self.record.put_service(service),
            JournalLine::Program { name, program } => {
                self.record.machine.programs.insert(name, program);
            }
            JournalLine::NotRun(not_run) => self.record.not_run.push(not_run),
            JournalLine::Cut(cut) => self.record.cut.push(cut),
            JournalLine::Run(_) => {}
        }
        self.open_samples.is_empty() && self.open_slices.is_empty()
    }

    /// Returns a session that did not say how it ended a duration up to the end of its last slice.
    fn close_killed_session(&mut self) {
        let first = self.record.started_unix_s;
        let Some(session) = self.record.sessions.last_mut() else { return };
        if session.ended == SessionEnd::Killed {
            let before = session.started_unix_s.saturating_sub(first) as f64;
            let end = self.slices.last().map_or(0.0, |slice| slice.started_s + slice.wall_s);
            session.wall_s = (end - before).max(0.0);
        }
    }
}

/// Reads a journal back; `None` for a file of samples that is not a journal.
pub(crate) fn read_journal(
    path: &Path,
    reader: impl Read,
) -> Result<Option<JournalContent>, BenchError> {
    let mut lines = JournalReader::new(path, reader, true);
    let Some(JournalLine::Run(record)) = lines.next_line()? else { return Ok(None) };
    let mut read = JournalContent::new(*record);
    (read.length, read.chain) = (lines.length, lines.chain.clone());
    loop {
        let before = lines.chain.to_hex();
        let Some(line) = lines.next_line()? else { break };
        if let JournalLine::Block { bench, block, chain, .. } = &line
            && *chain != before
        {
            let part = format!("a line before the end of block {block} of {bench}");
            return Err(BenchError::Changed { path: path.to_owned(), part });
        }
        if read.apply_line(line) {
            (read.length, read.chain) = (lines.length, lines.chain.clone());
        }
    }
    read.close_killed_session();
    if !read.has_ended {
        let whole = read.slices.len();
        let partial =
            format!("killed, or still running: {whole} slices in the journal, but no end");
        read.record.partial = Some(partial);
    }
    read.record.update_wall_time();
    Ok(Some(read))
}

/// Reads the samples next to a record of layout 1.
pub(crate) fn read_sample_lines(
    path: &Path,
    reader: impl Read,
) -> Result<(Vec<Sample>, Vec<Slice>), BenchError> {
    let (mut samples, mut slices) = (Vec::new(), Vec::new());
    let mut lines = JournalReader::new(path, reader, false);
    while let Some(line) = lines.next_line()? {
        match line {
            JournalLine::Sample(sample) => samples.push(*sample),
            JournalLine::Slice(slice) => slices.push(*slice),
            _ => {}
        }
    }
    Ok((samples, slices))
}

struct JournalReader<'a, R> {
    path: &'a Path,
    reader: io::BufReader<io::Take<R>>,
    length: u64,
    chain: LineChain,
    bytes: Vec<u8>,
    /// True where a last line without a line feed was being written when the process was killed.
    torn_may_end: bool,
}

impl<'a, R: Read> JournalReader<'a, R> {
    fn new(path: &'a Path, reader: R, torn_may_end: bool) -> Self {
        let reader = io::BufReader::new(reader.take(JOURNAL_BYTES_MAX + 1));
        Self {
            path,
            reader,
            length: 0,
            chain: LineChain::default(),
            bytes: Vec::new(),
            torn_may_end,
        }
    }

    /// Reads the next line; `None` at the end.
    fn next_line(&mut self) -> Result<Option<JournalLine>, BenchError> {
        self.bytes.clear();
        let mut limited = self.reader.by_ref().take(LINE_BYTES_MAX + 1);
        let read = limited.read_until(b'\n', &mut self.bytes);
        let read = read.map_err(BenchError::io("read", self.path))? as u64;
        self.length += read;
        if self.length > JOURNAL_BYTES_MAX {
            return Err(too_large_error(self.path, JOURNAL_BYTES_MAX));
        }
        if read > LINE_BYTES_MAX {
            return Err(too_large_error(self.path, LINE_BYTES_MAX));
        }
        if read == 0 || self.torn_may_end && self.bytes.last() != Some(&b'\n') {
            return Ok(None);
        }
        self.chain.add(&self.bytes);
        serde_json::from_slice(&self.bytes).map(Some).map_err(|error| BenchError::Record {
            path: self.path.to_owned(),
            message: error.to_string(),
        })
    }
}

/// Returns the error for a file beyond its limit.
pub(crate) fn too_large_error(path: &Path, most: u64) -> BenchError {
    let message = format!("wanted at most {most} bytes, got more");
    BenchError::io("read", path)(io::Error::new(io::ErrorKind::FileTooLarge, message))
}
