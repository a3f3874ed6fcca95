//! The manifest of a model's folder. It lists every file, so that its digest identifies the whole
//! model.

use std::{fs::File, io::Read, path::Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::FolderError;

/// The name of the manifest in a model's folder.
pub const FILE_NAME: &str = "manifest.json";
/// The longest manifest, in bytes. A manifest lists some dozens of files.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// The manifest of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this format, 1.
    pub version: u32,
    /// The name of the model shape.
    pub shape: String,
    /// The seed of weights and training.
    pub seed: u64,
    /// `random(SEED)` or `trained`.
    pub weights: String,
    /// The number of weights.
    pub parameters: u64,
    /// The program and version that made the model.
    pub made_by: String,
    /// Every other file of the folder, by name.
    pub files: Vec<ManifestEntry>,
}

/// A file of a model, as its manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestEntry {
    /// The name of the file in the folder.
    pub name: String,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Reads the folder's manifest and its SHA-256 in hex; `None` if there is none.
    ///
    /// # Errors
    /// [`FolderError::File`], [`FolderError::TooLong`], [`FolderError::Malformed`].
    pub fn read(dir: &Path) -> Result<Option<(Manifest, String)>, FolderError> {
        let path = dir.join(FILE_NAME);
        if !path.exists() {
            return Ok(None);
        }
        let bytes = read_file_limited(&path, MANIFEST_BYTES_MAX)?;
        let manifest: Manifest = serde_json::from_slice(&bytes)
            .map_err(|error| FolderError::malformed_file(&path, error))?;
        if manifest.version != 1 {
            let reason = format!("wanted version 1, got {}", manifest.version);
            return Err(FolderError::malformed_file(&path, reason));
        }
        Ok(Some((manifest, hex::encode(Sha256::digest(&bytes)))))
    }

    /// Checks that the folder contains exactly these files.
    ///
    /// # Errors
    /// [`FolderError::Manifest`] for the first difference, [`FolderError::File`].
    pub fn check_files(&self, dir: &Path) -> Result<(), FolderError> {
        for entry in &self.files {
            if Path::new(&entry.name).file_name() != Some(entry.name.as_ref()) {
                let wanted = "a plain file name".into();
                let got = entry.name.clone();
                return Err(FolderError::Manifest { file: entry.name.clone(), wanted, got });
            }
            let (bytes, sha256) = digest_file(&dir.join(&entry.name))?;
            let differs = |wanted: String, got: String| {
                Err(FolderError::Manifest { file: entry.name.clone(), wanted, got })
            };
            if bytes != entry.bytes {
                return differs(format!("{} bytes", entry.bytes), format!("{bytes} bytes"));
            }
            if sha256 != entry.sha256 {
                return differs(entry.sha256.clone(), sha256);
            }
        }
        self.refuse_unlisted_files(dir)
    }

    /// Refuses files that the manifest does not list, since they could change what is loaded.
    fn refuse_unlisted_files(&self, dir: &Path) -> Result<(), FolderError> {
        for found in dir.read_dir().map_err(FolderError::file(dir))? {
            let name = found.map_err(FolderError::file(dir))?.file_name();
            let name = name.to_string_lossy();
            if name != FILE_NAME && !self.files.iter().any(|entry| entry.name == name) {
                let (wanted, got) = ("no such file".into(), "a file".into());
                return Err(FolderError::Manifest { file: name.into_owned(), wanted, got });
            }
        }
        Ok(())
    }
}

/// Checks the files of a model's folder against its manifest; returns the manifest's SHA-256 in
/// lower-case hex, or `None` if the folder has none.
///
/// # Errors
/// Those of [`Manifest::read`] and [`Manifest::check_files`].
pub fn check_folder_against_manifest(dir: &Path) -> Result<Option<String>, FolderError> {
    let Some((manifest, sha256)) = Manifest::read(dir)? else { return Ok(None) };
    manifest.check_files(dir)?;
    Ok(Some(sha256))
}

/// Reads a whole file of at most `limit` bytes.
///
/// # Errors
/// [`FolderError::File`], [`FolderError::TooLong`].
pub fn read_file_limited(path: &Path, limit: u64) -> Result<Vec<u8>, FolderError> {
    let file = File::open(path).map_err(FolderError::file(path))?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(FolderError::file(path))?;
    if bytes.len() as u64 > limit {
        return Err(FolderError::TooLong { path: path.into(), limit });
    }
    Ok(bytes)
}

fn digest_file(path: &Path) -> Result<(u64, String), FolderError> {
    let mut file = File::open(path).map_err(FolderError::file(path))?;
    let mut block = vec![0u8; 1 << 20];
    let (mut bytes, mut hash) = (0u64, Sha256::new());
    loop {
        let count = file.read(&mut block).map_err(FolderError::file(path))?;
        if count == 0 {
            return Ok((bytes, hex::encode(hash.finalize())));
        }
        hash.update(&block[..count]);
        bytes += count as u64;
    }
}
