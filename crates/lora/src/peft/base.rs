//! The base model's weights, which folding DoRA's magnitudes needs.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use safetensors::tensor::{Metadata, TensorView};

use super::{error::PeftError, limits::WIDTH_MAX, tensors};
use crate::{adapter::Matrix, site::ProjectionSite};

// The longest header of one file of a base model: a mixture of experts has some ten thousand
// tensors.
const HEADER_BYTES_MAX: u64 = 16 << 20;
// The greatest number of files of one base model.
const FILES_MAX: usize = 512;

/// The base model's weights, which folding DoRA's magnitudes needs.
pub trait BaseWeights {
    /// Reads the weight of `site`, `output × input`.
    ///
    /// # Errors
    /// If there is no such weight, or it cannot be read.
    fn weight(&self, site: ProjectionSite) -> Result<Matrix, PeftError>;
}

/// The base model's folder, with one or more `*.safetensors` files. Weights are read one at a time.
#[derive(Debug)]
pub struct BaseFolder {
    files: Vec<PathBuf>,
}

impl BaseFolder {
    /// Finds the files of the model in `dir`.
    ///
    /// # Errors
    /// If the folder cannot be read, or has no such file or too many.
    pub fn open(dir: impl AsRef<Path>) -> Result<BaseFolder, PeftError> {
        let dir = dir.as_ref();
        let unread = |reason: String| PeftError::Read { path: dir.to_path_buf(), reason };
        let entries = std::fs::read_dir(dir).map_err(|error| unread(error.to_string()))?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "safetensors"))
            .filter(|path| path.is_file())
            .take(FILES_MAX + 1)
            .collect();
        files.sort();
        match files.len() {
            0 => Err(unread("wanted *.safetensors, got none".into())),
            1..=FILES_MAX => Ok(BaseFolder { files }),
            got => Err(PeftError::Limit {
                what: "files of the base model".into(),
                limit: FILES_MAX as u64,
                got: got as u64,
            }),
        }
    }
}

impl BaseWeights for BaseFolder {
    fn weight(&self, site: ProjectionSite) -> Result<Matrix, PeftError> {
        let names =
            tensors::STACKS.map(|stack| format!("{}.weight", tensors::module_path(stack, site)));
        for path in &self.files {
            let unread = |reason: String| PeftError::Read { path: path.clone(), reason };
            if let Some(found) =
                read_weight(path, &names).map_err(|error| unread(error.to_string()))?
            {
                return found;
            }
        }
        Err(PeftError::BaseWeight { site })
    }
}

/// Reads the first of `names` that the file has.
fn read_weight(
    path: &Path,
    names: &[String],
) -> std::io::Result<Option<Result<Matrix, PeftError>>> {
    let bad = |reason: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, reason);
    let mut file = File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_BYTES_MAX {
        return Err(bad("its header is too long"));
    }
    let mut header = Vec::new();
    (&mut file).take(length).read_to_end(&mut header)?;
    let header: Metadata = serde_json::from_slice(&header)?;
    let Some((name, info)) = names.iter().find_map(|name| Some((name, header.info(name)?))) else {
        return Ok(None);
    };
    let &[rows, columns] = &info.shape[..] else {
        return Err(bad("a projection's weight does not have two dimensions"));
    };
    if rows > WIDTH_MAX || columns > WIDTH_MAX {
        return Err(bad("a projection's weight is too wide"));
    }
    // `Metadata` has checked the offsets against the shapes and each other.
    let (start, end) = info.data_offsets;
    file.seek(SeekFrom::Start(8 + length + start as u64))?;
    let mut data = Vec::new();
    file.take((end - start) as u64).read_to_end(&mut data)?;
    let view = TensorView::new(info.dtype, info.shape.clone(), &data);
    let view = view.map_err(|error| bad(&error.to_string()))?;
    let values = tensors::to_floats(name, &view);
    Ok(Some(values.map(|values| Matrix { rows, columns, values })))
}
