//! A run read back: its record with every sample and slice, whichever layout it was written in.

pub(crate) mod facts;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    error::BenchError,
    record::{
        CHAINED_SCHEMA, METHOD, RECORD_FILE, Record, SAMPLES_FILE, SCHEMA, chain::RecordChain,
        recomputed::find_difference, sha256_hex,
    },
    rows::{RunAnalysis, analyse_run},
    samples::{
        Sample, Slice,
        columns::unpack_columns,
        journal::{JournalContent, read_journal, read_sample_lines, too_large_error},
    },
    suite::Suite,
};

/// The most bytes of a record: a day of benches makes some 100 MiB, several times as much is a mistake
/// or an attack.
const RECORD_BYTES_MAX: u64 = 512 << 20;

/// A run read back with its record, samples and slices. All code that reads records reads them
/// here.
#[derive(Clone, Debug)]
pub struct LoadedRecord {
    pub(crate) record: Record,
    pub(crate) samples: Vec<Sample>,
    pub(crate) slices: Vec<Slice>,
    pub(crate) path: PathBuf,
    /// SHA-256 of the record's text; of a journal, of the document that it makes.
    pub(crate) sha256: String,
}

impl LoadedRecord {
    /// Reads a folder that `bench run` wrote, a `record.json`, or a `record.json.gz`. Of a folder
    /// whose run was killed, or still runs, the journal is read.
    ///
    /// # Errors
    /// When there is no record, it cannot be read, or its layout is not known.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let file = find_record_path(path);
        if !path.is_dir() || !path.join(SAMPLES_FILE).exists() {
            return Self::read_file(file);
        }
        let record = if file.exists() { Some(Self::read_file(file.clone())?) } else { None };
        match record {
            Some(whole) if whole.record.partial.is_none() => Ok(whole),
            other => match Self::read_journal(path, file.clone())? {
                Some(loaded) => Ok(loaded),
                None => other.map_or_else(|| Self::read_file(file), Ok),
            },
        }
    }

    /// Reads a document that needs no other file, such as one downloaded from a page. One of layout
    /// 1 has its samples elsewhere, and is refused.
    ///
    /// # Errors
    /// When the text is not a record, or one whose layout needs another file.
    pub fn from_document(text: &str) -> Result<Self, BenchError> {
        Self::parse(PathBuf::from(RECORD_FILE), text, |path| {
            let message =
                format!("wanted layout 2 to {SCHEMA}, got 1, whose samples are elsewhere");
            Err(BenchError::Record { path: path.to_owned(), message })
        })
    }

    /// Reads a journal; `None` for a file of samples that is not a journal.
    ///
    /// # Errors
    /// When a line of the journal cannot be read.
    pub fn from_journal_bytes(bytes: &[u8]) -> Result<Option<Self>, BenchError> {
        Self::from_journal(Path::new(SAMPLES_FILE), bytes, PathBuf::from(RECORD_FILE))
    }

    /// Returns the record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Lists what a reader must know of the record's origin: that it bears no chain of hashes, or that its rows were
    /// computed by another version.
    pub fn remarks(&self) -> &[String] {
        &self.record.remarks
    }

    /// Returns the path of the record, or the path that it would have where there is only a
    /// journal.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole run as one JSON document of this version's layout.
    ///
    /// # Errors
    /// When a field cannot be written as JSON.
    pub fn to_json_document(&self) -> Result<String, BenchError> {
        let document = self.record.to_json_document(&self.samples, &self.slices);
        document.map_err(|error| BenchError::Record {
            path: self.path.clone(),
            message: error.to_string(),
        })
    }

    /// Judges the samples again, by `suite`.
    pub(crate) fn analyse_with_suite(&self, suite: &Suite) -> RunAnalysis {
        analyse_run(suite, self.record.effort, &self.samples, &self.slices)
    }

    fn read_file(path: PathBuf) -> Result<Self, BenchError> {
        let text = read_record_text(&path)?;
        Self::parse(path, &text, read_sample_file)
    }

    /// Parses a record; `read_samples` finds the samples of one of layout 1.
    fn parse(
        path: PathBuf,
        text: &str,
        read_samples: impl FnOnce(&Path) -> Result<(Vec<Sample>, Vec<Slice>), BenchError>,
    ) -> Result<Self, BenchError> {
        let wrong = |message: String| BenchError::Record { path: path.clone(), message };
        let mut record: Record =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let changed = |part: String| BenchError::Changed { path: path.clone(), part };
        if record.schema > SCHEMA || record.schema == 0 {
            return Err(wrong(format!("wanted schema 1 to {SCHEMA}, got {}", record.schema)));
        }
        let (samples, slices) = if record.schema == 1 {
            read_samples(&path)?
        } else {
            unpack_columns(std::mem::take(&mut record.slices)).map_err(wrong)?
        };
        if record.schema >= CHAINED_SCHEMA {
            check_hash_chain(text, record.chain.as_ref()).map_err(changed)?;
        }
        record.upgrade_layout();
        recompute_rows(&mut record, &samples, &slices)?.map_err(changed)?;
        Ok(Self { record, samples, slices, path, sha256: sha256_hex(text) })
    }

    fn read_journal(folder: &Path, path: PathBuf) -> Result<Option<Self>, BenchError> {
        let journal = folder.join(SAMPLES_FILE);
        Self::from_journal(&journal, open_decompressed(&journal)?, path)
    }

    fn from_journal(
        journal: &Path,
        bytes: impl Read,
        path: PathBuf,
    ) -> Result<Option<Self>, BenchError> {
        let Some(read) = read_journal(journal, bytes)? else { return Ok(None) };
        let JournalContent { mut record, samples, slices, .. } = read;
        let suite = record.parse_suite()?;
        record.compute_analysis(&suite, &samples, &slices);
        record.compute_hash_chain(&samples, &slices).map_err(|error| BenchError::Record {
            path: path.clone(),
            message: error.to_string(),
        })?;
        let mut loaded = Self { record, samples, slices, path, sha256: String::new() };
        loaded.sha256 = sha256_hex(&loaded.to_json_document()?);
        Ok(Some(loaded))
    }
}

/// Replaces the rows of a record by what its samples give, whatever the file says of them. The inner error names a row
/// that differs; where the record does not bear a chain, or has rows of another method, it is a remark.
fn recompute_rows(
    record: &mut Record,
    samples: &[Sample],
    slices: &[Slice],
) -> Result<Result<(), String>, BenchError> {
    let suite = record.parse_suite()?;
    let judged = analyse_run(&suite, record.effort, samples, slices);
    let different = find_difference(record, &judged);
    if record.schema < CHAINED_SCHEMA {
        let remark = "it has no chain of hashes, like every record of layout 1 or 2: whether it \
                      was changed after the run cannot be checked";
        record.remarks.push(remark.to_owned());
    }
    match different {
        Some(part) if record.method == METHOD => return Ok(Err(part)),
        Some(part) => record.remarks.push(format!(
            "its rows were computed by another version and are computed again here; the first difference: {part}"
        )),
        None => {}
    }
    record.set_analysis(judged);
    Ok(Ok(()))
}

/// Compares a record's text with the chain of hashes that it bears; the error names what differs.
fn check_hash_chain(text: &str, chain: Option<&RecordChain>) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Document {
        slices: Vec<Value>,
        #[serde(flatten)]
        others: BTreeMap<String, Value>,
    }
    let chain = chain.ok_or("its chain of hashes is missing")?;
    let Document { slices, others } =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    match chain.find_difference(&RecordChain::compute(&others, &slices), &slices) {
        Some(part) => Err(format!("{part} differs from what the run wrote")),
        None => Ok(()),
    }
}

/// Lists the folder itself where it holds a record, else the folders in it that do, by name.
///
/// # Errors
/// When the folder cannot be read, or holds no record.
pub fn list_record_folders(folder: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let holds = |path: &Path| {
        path.is_file() || find_record_path(path).exists() || path.join(SAMPLES_FILE).exists()
    };
    if holds(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(BenchError::io("read", folder))? {
        let path = entry.map_err(BenchError::io("read", folder))?.path();
        if path.is_dir() && holds(&path) {
            folders.push(path);
        }
    }
    if folders.is_empty() {
        let none = std::io::Error::new(std::io::ErrorKind::NotFound, "no record in it");
        return Err(BenchError::io("read", folder)(none));
    }
    folders.sort();
    Ok(folders)
}

/// Returns the record within a folder, compressed or not; any other path stays as it is.
fn find_record_path(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_owned();
    }
    let plain = path.join(RECORD_FILE);
    let packed = path.join(format!("{RECORD_FILE}.gz"));
    if !plain.exists() && packed.exists() { packed } else { plain }
}

fn read_record_text(path: &Path) -> Result<String, BenchError> {
    let mut text = String::new();
    let read = open_decompressed(path)?.take(RECORD_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(BenchError::io("read", path))?;
    if text.len() as u64 > RECORD_BYTES_MAX {
        return Err(too_large_error(path, RECORD_BYTES_MAX));
    }
    Ok(text)
}

/// Reads the samples next to a record of layout 1.
fn read_sample_file(record: &Path) -> Result<(Vec<Sample>, Vec<Slice>), BenchError> {
    let plain = record.with_file_name(SAMPLES_FILE);
    let packed = record.with_file_name(format!("{SAMPLES_FILE}.gz"));
    let path = if !plain.exists() && packed.exists() { packed } else { plain };
    read_sample_lines(&path, open_decompressed(&path)?)
}

/// Opens a file and decompresses it where its first two bytes say that it is compressed.
fn open_decompressed(path: &Path) -> Result<Box<dyn Read>, BenchError> {
    let file = File::open(path).map_err(BenchError::io("read", path))?;
    let mut reader = BufReader::new(file);
    let packed =
        reader.fill_buf().map_err(BenchError::io("read", path))?.starts_with(&[0x1f, 0x8b]);
    Ok(if packed { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use confide_estimate::Random;
    use confide_tests::Folder;

    use super::*;
    use crate::selftest::synthetic::{Noise, SyntheticSuite, make_loaded_record, make_slices};

    /// A record of an earlier layout.
    fn old_record(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records").join(name)
    }

    #[test]
    fn every_kept_record_reads_back_with_its_samples() {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records");
        let [kept, old] = [kept, old_record("")].map(|folder| std::fs::read_dir(folder).unwrap());
        for entry in kept.chain(old) {
            let path = entry.unwrap().path();
            if !path.is_dir() {
                continue;
            }
            let loaded = LoadedRecord::read(&path).unwrap();
            assert!(!loaded.samples.is_empty() || !loaded.slices.is_empty(), "{}", path.display());
            assert!(!loaded.record.rows.is_empty(), "{}", path.display());
        }
    }

    /// `bench/gpu/tests/test_journal.py` holds the script to this file, this test the instrument.
    #[test]
    fn a_journal_of_the_script_for_a_gpu_reads_as_a_record() {
        let kept = include_bytes!("../../gpu/tests/journal.jsonl");
        let loaded = LoadedRecord::from_journal_bytes(kept).unwrap().unwrap();
        let record = &loaded.record;
        assert_eq!((record.suite.name.as_str(), record.partial()), ("gpu", None));
        let row = |arm: &str, metric: &str| {
            let wanted = |row: &&crate::rows::row::Row| {
                (row.arm.as_str(), row.metric.as_str(), row.reference.as_str())
                    == (arm, metric, "base")
            };
            record.rows.iter().find(wanted).unwrap()
        };
        let hidden = row("final-hidden", "tokens_per_s");
        assert!((hidden.ratio.unwrap().value - 1.0 / 0.96).abs() < 1e-9);
        assert!((hidden.floor.as_ref().unwrap().value - 0.96 / 1.4).abs() < 1e-3);
        assert_eq!((hidden.blocks, hidden.marks.as_slice()), (12, &["made-up".to_owned()][..]));
        assert!(row("base", "tokens_per_s").twin);
        // One of its blocks gave a wrong answer.
        assert_eq!(row("one-graph", "tokens_per_s").blocks, 11);
        assert_eq!(record.voids.len(), 1);
        assert_eq!(record.not_run(), ["placement: cut at its budget"]);
        // A rehearsal differs by one field, and is refused.
        let text = std::str::from_utf8(kept).unwrap();
        let rehearsal =
            text.replacen("{\"kind\":\"run\"", "{\"kind\":\"run\",\"rehearsal\":\"x\"", 1);
        assert!(matches!(
            LoadedRecord::from_journal_bytes(rehearsal.as_bytes()),
            Err(BenchError::Record { .. })
        ));
    }

    #[test]
    fn a_folder_a_file_and_a_compressed_file_are_the_same() {
        let scratch = Folder::new("compressed");
        let folder = scratch.path();
        let from = old_record("layout-1");
        let text = std::fs::read(from.join(RECORD_FILE)).unwrap();
        let file = File::create(folder.join("record.json.gz")).unwrap();
        let mut packed = GzEncoder::new(file, Compression::fast());
        packed.write_all(&text).unwrap();
        packed.finish().unwrap();
        std::fs::copy(from.join("samples.jsonl.gz"), folder.join("samples.jsonl.gz")).unwrap();
        let reads = [from.clone(), from.join(RECORD_FILE), folder.to_owned()]
            .map(|path| LoadedRecord::read(&path).unwrap());
        for loaded in &reads {
            assert_eq!(loaded.samples, reads[0].samples);
            assert_eq!(loaded.slices, reads[0].slices);
        }
        assert!(reads[2].path.ends_with("record.json.gz"));
    }

    /// The text of a record of a made-up run, as `bench run` writes it.
    fn chained_text() -> String {
        let shape = SyntheticSuite::default();
        let arms = [("a", false, 0.0), ("a", true, 0.0), ("b", false, 0.1)];
        let slices = make_slices(&arms, 12, Noise::Quiet, &mut Random::new(3));
        let mut loaded = make_loaded_record(&shape, 1_000, Vec::new(), slices).unwrap();
        loaded.record.sessions.push(crate::record::Session {
            started_unix_s: 1_000,
            wall_s: 1.0,
            boot: "unknown".into(),
            ended: crate::record::SessionEnd::Completed,
            command: Vec::new(),
        });
        loaded.record.plan.sha256 = "made-up".into();
        loaded.record.commit = "abc".into();
        loaded.record.compute_hash_chain(&loaded.samples, &loaded.slices).unwrap();
        loaded.to_json_document().unwrap()
    }

    /// Changes the record by its JSON, and returns what the reader says of it.
    fn forge(change: impl FnOnce(&mut Value)) -> String {
        let mut value = serde_json::from_str(&chained_text()).unwrap();
        change(&mut value);
        match LoadedRecord::from_document(&value.to_string()) {
            Err(BenchError::Changed { part, .. }) => part,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_chained_record_reads_back_and_is_written_as_it_was() {
        let text = chained_text();
        let loaded = LoadedRecord::from_document(&text).unwrap();
        assert!(loaded.remarks().is_empty() && loaded.record.chain_end().is_some());
        assert_eq!(loaded.to_json_document().unwrap(), text);
        // Another layout of the same JSON is the same record.
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(LoadedRecord::from_document(&value.to_string()).is_ok());
    }

    #[test]
    fn a_forged_sample_block_row_machine_or_commit_is_named() {
        let sample = forge(|record| record["slices"][7]["metrics"]["work_ms"] = 1.0.into());
        assert!(sample.starts_with("samples of slice 7 (made-up, block 2, arm a)"), "{sample}");
        let cut = forge(|record| {
            record["slices"].as_array_mut().unwrap().truncate(33);
        });
        assert!(cut.contains("slices missing at the end: 3"), "{cut}");
        let row = forge(|record| record["rows"][1]["ratio"]["value"] = 0.3.into());
        assert!(
            row.starts_with("row made-up, b, work_ms: ratio.value is 0.3, its samples give 1.1"),
            "{row}"
        );
        let verdict = forge(|record| record["rows"][1]["outcome"]["verdict"] = "within".into());
        assert!(verdict.contains("outcome.verdict is \"within\""), "{verdict}");
        let machine = forge(|record| record["machine"]["cpu_model"] = "Intel Xeon TDX".into());
        assert!(machine.starts_with("machine differs"), "{machine}");
        let commit = forge(|record| record["commit"] = "f".repeat(40).into());
        assert!(commit.starts_with("commit differs"), "{commit}");
        let simulated = forge(|record| record["arms"][0]["simulated"] = true.into());
        assert!(simulated.starts_with("arms differs"), "{simulated}");
        let chainless = forge(|record| drop(record.as_object_mut().unwrap().remove("chain")));
        assert!(chainless.contains("its chain of hashes is missing"), "{chainless}");
        let unjudged = forge(|record| record["method"] = 0.into());
        assert!(unjudged.starts_with("method differs"), "{unjudged}");
    }

    #[test]
    fn a_record_that_gives_its_layout_as_an_older_one_is_marked_as_unchained() {
        let mut value: Value = serde_json::from_str(&chained_text()).unwrap();
        value["schema"] = 2.into();
        value["method"] = 0.into();
        value["rows"][1]["ratio"]["value"] = 0.3.into();
        value.as_object_mut().unwrap().remove("chain");
        let loaded = LoadedRecord::from_document(&value.to_string()).unwrap();
        assert!(
            loaded.remarks()[0].contains("it has no chain of hashes"),
            "{:?}",
            loaded.remarks()
        );
        assert!(loaded.remarks()[1].contains("ratio.value is 0.3"), "{:?}", loaded.remarks());
        assert!(loaded.record.rows[1].ratio.unwrap().value > 1.0);
        // An export does not give it a chain that its run never made.
        assert!(!loaded.to_json_document().unwrap().contains("\"chain\""));
    }

    #[test]
    fn what_is_no_record_is_a_typed_error() {
        let scratch = Folder::new("no-record");
        let folder = scratch.path();
        assert!(matches!(LoadedRecord::read(folder), Err(BenchError::Io { .. })));
        std::fs::write(folder.join(RECORD_FILE), "{}").unwrap();
        assert!(matches!(LoadedRecord::read(folder), Err(BenchError::Record { .. })));
        let text = std::fs::read_to_string(old_record("layout-1").join(RECORD_FILE)).unwrap();
        let later = text.replace("\"schema\": 1", "\"schema\": 99");
        std::fs::write(folder.join(RECORD_FILE), later).unwrap();
        assert!(matches!(LoadedRecord::read(folder), Err(BenchError::Record { .. })));
        std::fs::write(folder.join(RECORD_FILE), &text).unwrap();
        std::fs::write(folder.join(SAMPLES_FILE), "x".repeat(200_000)).unwrap();
        assert!(matches!(LoadedRecord::read(folder), Err(BenchError::Record { .. })));
    }
}
