//! The digest of a model's files, and the check that they stay as they were.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use confide_evidence::weights_claim::{MeasuredWeights, WeightsSource};
use sha2::{Digest, Sha256};

use crate::{
    error::WeightsError,
    file_stamp::{FileIdentity, FileStamp},
    folder::list_files,
    readers::WeightsReaders,
};

/// The bytes that are read and hashed at a time.
const BLOCK_BYTES: usize = 1 << 20;
/// The largest number of files that are hashed at once.
const THREADS_MAX: usize = 16;
/// More than the longest tick of the clock by which a file system stamps changes (10 ms). A file is
/// read so long after its stamp was, so that each later change has another one.
const TICK: Duration = Duration::from_millis(25);

/// The files of a model and their digest.
///
/// The digest of a single file is its SHA-256. That of a folder is the SHA-256 of the list that
/// `sha256sum` prints for its files, sorted by name.
#[derive(Debug)]
pub struct WeightsMeasurement {
    path: PathBuf,
    digest: [u8; 32],
    files: Vec<MeasuredFile>,
    is_folder: bool,
    readers: WeightsReaders,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    /// Open for as long as the measurement lives, so that no other file can get the same inode.
    file: File,
    stamp: FileStamp,
}

#[derive(Debug)]
struct MeasuredFile {
    opened: OpenFile,
    sha256: [u8; 32],
}

impl WeightsMeasurement {
    /// Hashes the file or the folder at `path`. This blocks while the files are read; several are
    /// read at once.
    ///
    /// # Errors
    /// [`WeightsError`] if there is no file, one cannot be read or listed, or one changed meanwhile.
    pub fn measure(path: &Path) -> Result<Self, WeightsError> {
        let read = |source| WeightsError::Read { path: path.into(), source };
        let path = path.canonicalize().map_err(read)?;
        let metadata = std::fs::metadata(&path).map_err(read)?;
        if metadata.is_file() {
            let files = measure_files(vec![OpenFile::open(path.clone())?])?;
            let (digest, readers) = (files[0].sha256, WeightsReaders::default());
            return Ok(Self { path, digest, files, is_folder: false, readers });
        }
        if !metadata.is_dir() {
            return Err(WeightsError::Kind { path });
        }
        let names = list_files(&path)?;
        let opened: Result<_, _> =
            names.iter().map(|name| OpenFile::open(path.join(name))).collect();
        let files = measure_files(opened?)?;
        let mut list = Sha256::new();
        for (name, file) in names.iter().zip(&files) {
            list.update(format!("{}  {name}\n", hex::encode(file.sha256)));
        }
        let (digest, readers) = (list.finalize().into(), WeightsReaders::default());
        Ok(Self { path, digest, files, is_folder: true, readers })
    }

    /// The path that was measured, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The measurement as it stands in claims.
    pub fn claim(&self) -> MeasuredWeights {
        MeasuredWeights { source: WeightsSource::HashedAtStart, digest: self.digest }
    }

    /// The number of bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.opened.stamp.bytes).sum()
    }

    /// Checks that every file is still in its place and was not written to, and that none was added
    /// to a folder. It reads no contents.
    ///
    /// # Errors
    /// [`WeightsError::Changed`] for the first difference, [`WeightsError::Read`] for a file that
    /// is gone.
    pub fn check_unchanged(&self) -> Result<(), WeightsError> {
        for file in &self.files {
            file.opened.check_unchanged()?;
        }
        if !self.is_folder {
            return Ok(());
        }
        let is_measured =
            |name: &String| self.files.iter().any(|file| file.opened.path == self.path.join(name));
        match list_files(&self.path)?.into_iter().find(|name| !is_measured(name)) {
            None => Ok(()),
            Some(name) => Err(WeightsError::Changed {
                path: self.path.join(name),
                what: "it was added to the folder",
            }),
        }
    }

    /// The processes that were seen with the files, for as long as this measurement is in use.
    pub(crate) fn readers(&self) -> &WeightsReaders {
        &self.readers
    }

    /// Whether a file is one of the measured ones.
    pub(crate) fn has_file(&self, identity: FileIdentity) -> bool {
        self.files.iter().any(|file| file.opened.stamp.identity == identity)
    }
}

/// Measurements are equal if the same path had the same contents.
impl PartialEq for WeightsMeasurement {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, self.digest) == (&other.path, other.digest)
    }
}

impl Eq for WeightsMeasurement {}

impl OpenFile {
    fn open(path: PathBuf) -> Result<Self, WeightsError> {
        let read = |source| WeightsError::Read { path: path.clone(), source };
        let file = File::open(&path).map_err(read)?;
        let stamp = FileStamp::from_metadata(&file.metadata().map_err(read)?);
        Ok(Self { path, file, stamp })
    }

    /// Reads the whole file. It has to have been open for a [`TICK`].
    fn measure(self) -> Result<MeasuredFile, WeightsError> {
        let mut block = vec![0; BLOCK_BYTES];
        let mut hash = Sha256::new();
        loop {
            match (&self.file).read(&mut block).map_err(|error| self.read_error(error))? {
                0 => break,
                count => hash.update(&block[..count]),
            }
        }
        self.check_unchanged()?;
        Ok(MeasuredFile { sha256: hash.finalize().into(), opened: self })
    }

    fn check_unchanged(&self) -> Result<(), WeightsError> {
        let in_place = std::fs::metadata(&self.path).map_err(|error| self.read_error(error))?;
        // A file system may know more of an open file than of its name.
        let open = self.file.metadata().map_err(|error| self.read_error(error))?;
        let differs = |later| self.stamp.find_difference(&FileStamp::from_metadata(later));
        match differs(&in_place).or_else(|| differs(&open)) {
            None => Ok(()),
            Some(what) => Err(WeightsError::Changed { path: self.path.clone(), what }),
        }
    }

    fn read_error(&self, source: std::io::Error) -> WeightsError {
        WeightsError::Read { path: self.path.clone(), source }
    }
}

/// Measures files, several at once, and returns them in the same order.
fn measure_files(opened: Vec<OpenFile>) -> Result<Vec<MeasuredFile>, WeightsError> {
    thread::sleep(TICK);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(THREADS_MAX).min(opened.len());
    let waiting = Mutex::new(opened.into_iter().enumerate());
    let measured = Mutex::new(Vec::new());
    let has_failed = AtomicBool::new(false);
    let take_turns = || {
        while !has_failed.load(Ordering::Relaxed) {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((index, file)) = next else { break };
            let file = file.measure();
            has_failed.fetch_or(file.is_err(), Ordering::Relaxed);
            measured.lock().unwrap_or_else(PoisonError::into_inner).push((index, file));
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(take_turns);
        }
    });
    let mut measured = measured.into_inner().unwrap_or_else(PoisonError::into_inner);
    measured.sort_by_key(|(index, _)| *index);
    measured.into_iter().map(|(_, file)| file).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, process::Command};

    use super::*;

    fn model() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("onnx")).unwrap();
        fs::create_dir_all(folder.path().join(".cache")).unwrap();
        for (name, contents) in [
            ("config.json", "{}"),
            ("model-00001.safetensors", "one"),
            ("model-00002.safetensors", "two"),
            ("onnx/a b.bin", "three"),
            (".cache/downloaded", "today"),
        ] {
            fs::write(folder.path().join(name), contents).unwrap();
        }
        folder
    }

    fn measure(path: &Path) -> WeightsMeasurement {
        WeightsMeasurement::measure(path).unwrap()
    }

    /// The command that `docs/weights.md` gives.
    fn digest_by_sha256sum(folder: &Path) -> String {
        let script = "find -L . -name '.?*' -prune -o -type f -printf '%P\\0' | LC_ALL=C sort -z \
                      | xargs -0 sha256sum | sha256sum";
        let output = Command::new("sh").args(["-c", script]).current_dir(folder).output().unwrap();
        String::from_utf8(output.stdout).unwrap()[..64].to_owned()
    }

    #[test]
    fn the_digest_of_a_folder_is_that_of_the_list_of_sha256sum() {
        let folder = model();
        assert_eq!(hex::encode(measure(folder.path()).digest), digest_by_sha256sum(folder.path()));
    }

    #[test]
    fn the_digest_of_a_file_is_its_sha256() {
        let folder = model();
        let file = folder.path().join("config.json");
        let measured = measure(&file);
        assert_eq!(measured.digest, <[u8; 32]>::from(Sha256::digest("{}")));
        assert_eq!(measured.bytes(), 2);
    }

    #[test]
    fn a_link_to_a_file_counts_as_the_file() {
        let (folder, cache) = (model(), tempfile::tempdir().unwrap());
        let digest = measure(folder.path()).digest;
        let (file, blob) = (folder.path().join("config.json"), cache.path().join("blob"));
        fs::rename(&file, &blob).unwrap();
        symlink(&blob, &file).unwrap();
        let measured = measure(folder.path());
        assert_eq!(measured.digest, digest);
        assert_eq!(hex::encode(digest), digest_by_sha256sum(folder.path()));
        fs::write(&blob, "[]").unwrap();
        assert!(measured.check_unchanged().is_err());
    }

    #[test]
    fn every_file_and_name_counts_and_hidden_ones_do_not() {
        let folder = model();
        let digest = measure(folder.path()).digest;
        fs::write(folder.path().join(".cache/downloaded"), "yesterday").unwrap();
        assert_eq!(measure(folder.path()).digest, digest);
        let renamed = folder.path().join("model-00003.safetensors");
        fs::rename(folder.path().join("model-00002.safetensors"), renamed).unwrap();
        assert_ne!(measure(folder.path()).digest, digest);
    }

    #[test]
    fn a_measured_file_that_changes_is_noticed() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 6] = [
            ("another byte", |folder| fs::write(folder.join("config.json"), "[]").unwrap()),
            ("another length", |folder| fs::write(folder.join("config.json"), "").unwrap()),
            ("a time set back", |folder| {
                let path = folder.join("config.json");
                let before = fs::metadata(&path).unwrap().modified().unwrap();
                fs::write(&path, "[]").unwrap();
                let file = File::options().write(true).open(&path).unwrap();
                file.set_modified(before).unwrap();
            }),
            ("another file in its place", |folder| {
                fs::write(folder.join(".new"), "{}").unwrap();
                fs::rename(folder.join(".new"), folder.join("config.json")).unwrap();
            }),
            ("a removed file", |folder| fs::remove_file(folder.join("config.json")).unwrap()),
            ("an added file", |folder| fs::write(folder.join("adapter.bin"), "").unwrap()),
        ];
        for (change, make) in changes {
            let folder = model();
            let measured = measure(folder.path());
            measured.check_unchanged().unwrap();
            make(folder.path());
            assert!(measured.check_unchanged().is_err(), "{change}");
        }
    }

    #[test]
    fn what_is_no_model_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| WeightsMeasurement::measure(path).unwrap_err().to_string();
        assert!(refused(folder.path()).contains("got none"));
        assert!(refused(&folder.path().join("no")).contains("cannot be read"));
        assert!(refused(Path::new("/dev/null")).contains("a plain file or a folder"));
        fs::write(folder.path().join("a\\b"), "").unwrap();
        assert!(refused(folder.path()).contains("without control characters"));
        fs::remove_file(folder.path().join("a\\b")).unwrap();
        symlink("/etc", folder.path().join("etc")).unwrap();
        assert!(refused(folder.path()).contains("a plain file or a folder"));
    }
}
