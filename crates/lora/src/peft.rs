//! Adapters in PEFT's format: reading of what PEFT writes, and writing of what PEFT loads.
//!
//! A folder holds `adapter_config.json` and `adapter_model.safetensors`. An adapter is accepted only
//! if it leads to the same output as in PEFT. Everything else is refused with an error that names
//! it: an unused tensor, a missing matrix, an unknown field that could change the result.

mod base;
mod config;
mod dora;
mod error;
mod limits;
mod pattern;
mod target;
mod tensors;
mod weights;
mod write;

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

pub use base::{BaseFolder, BaseWeights};
pub use config::Config;
pub use error::PeftError;
pub use limits::{CONFIG_FILE, RANK_MAX, WEIGHTS_FILE};

use self::limits::{CONFIG_BYTES_MAX, WEIGHTS_BYTES_MAX};
use crate::adapter::Adapter;

// Files that torch writes with pickle. Opening one could run code.
const PICKLES: [&str; 4] =
    ["adapter_model.bin", "adapter_model.pt", "adapter_model.pth", "pytorch_model.bin"];

impl Adapter {
    /// Reads the PEFT adapter in folder `dir`, whose last part becomes its name.
    ///
    /// # Errors
    /// If a file cannot be read, or if its content is invalid in PEFT or not supported here.
    /// [`PeftError::BaseNeeded`] for DoRA: see [`Adapter::load_with_base`].
    pub fn load(dir: impl AsRef<Path>) -> Result<Adapter, PeftError> {
        Self::load_with_optional_base(dir.as_ref(), None)
    }

    /// Reads the PEFT adapter in `dir` and folds DoRA's magnitudes with the base model's weights.
    ///
    /// A folded pair has A of `output × input` and an identity for B, because the change that a
    /// magnitude makes has full rank. A contains the whole adapter, so `protect = A` protects it.
    ///
    /// # Errors
    /// As [`Adapter::load`], and if `base` lacks a weight or has one of another shape.
    pub fn load_with_base(
        dir: impl AsRef<Path>,
        base: &dyn BaseWeights,
    ) -> Result<Adapter, PeftError> {
        Self::load_with_optional_base(dir.as_ref(), Some(base))
    }

    /// Reads an adapter from the bytes of its two files.
    ///
    /// # Errors
    /// As [`Adapter::load`].
    pub fn from_bytes(
        name: &str,
        config: &[u8],
        weights: &[u8],
        base: Option<&dyn BaseWeights>,
    ) -> Result<Adapter, PeftError> {
        let config = Config::parse(config)?;
        let modules = weights::parse_pairs(&config, weights, base)?;
        Ok(Adapter { name: name.into(), base_model: config.base_model().map(Into::into), modules })
    }

    /// Writes the adapter as PEFT does, in 32-bit floats. Creates the folder if it is missing.
    ///
    /// # Errors
    /// If the folder already has an adapter, if a file cannot be written, or if the adapter is of
    /// the last hidden state, which PEFT does not support.
    pub fn save(&self, dir: impl AsRef<Path>) -> Result<(), PeftError> {
        write::save(self, dir.as_ref())
    }

    fn load_with_optional_base(
        dir: &Path,
        base: Option<&dyn BaseWeights>,
    ) -> Result<Adapter, PeftError> {
        let config = read_config(dir)?;
        let path = dir.join(WEIGHTS_FILE);
        if !path.exists() {
            let pickle = PICKLES.into_iter().find(|name| dir.join(name).exists());
            if let Some(name) = pickle {
                return Err(PeftError::Pickle { path: dir.join(name) });
            }
        }
        let weights = read_file(&path, WEIGHTS_BYTES_MAX)?;
        Adapter::from_bytes(&adapter_name(dir), &config, &weights, base)
    }
}

impl Config {
    /// Reads the configuration in folder `dir`.
    ///
    /// # Errors
    /// If it cannot be read or is not supported.
    pub fn load(dir: impl AsRef<Path>) -> Result<Config, PeftError> {
        Config::parse(&read_config(dir.as_ref())?)
    }
}

fn read_config(dir: &Path) -> Result<Vec<u8>, PeftError> {
    read_file(&dir.join(CONFIG_FILE), CONFIG_BYTES_MAX)
}

fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, PeftError> {
    let unread = |error: std::io::Error| PeftError::Read {
        path: path.to_path_buf(),
        reason: error.to_string(),
    };
    // Reading a pipe or a device could block for ever.
    if !fs::metadata(path).map_err(unread)?.is_file() {
        return Err(PeftError::Read {
            path: path.to_path_buf(),
            reason: "it is not a plain file".into(),
        });
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(unread)?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > limit {
        return Err(PeftError::TooLong { path: path.to_path_buf(), limit });
    }
    Ok(bytes)
}

fn adapter_name(dir: &Path) -> String {
    let absolute: PathBuf = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    absolute.file_name().map_or_else(|| "adapter".into(), |name| name.to_string_lossy().into())
}
