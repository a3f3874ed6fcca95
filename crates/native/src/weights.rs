//! Loads safetensors as tensors of float32, one tensor at a time, so that memory holds only the
//! model and one block. Mapping the file would need `unsafe`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Display,
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

use candle_core::{Device, Tensor};
use confide_engine::text::{FolderError, read_file_limited};
use serde::Deserialize;

use crate::{config::DecoderConfig, error::NativeError};

/// The longest header, in bytes, which is the limit of the safetensors format.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The longest index, in bytes. It lists each tensor once, and 512 layers of 16 tensors take about
/// 1 MiB.
const INDEX_BYTES_MAX: u64 = 16 << 20;
/// The number of bytes that are converted at once.
const BLOCK_BYTES: usize = 1 << 20;

/// Loads the tensors of `config` that are `wanted`, from any stored float type. The names and
/// shapes of the others are checked.
pub(crate) fn load_tensors(
    dir: &Path,
    config: &DecoderConfig,
    wanted: impl Fn(&str) -> bool,
) -> Result<HashMap<String, Tensor>, NativeError> {
    let shapes: HashMap<String, Vec<usize>> = config.tensor_shapes().into_iter().collect();
    let mut found = HashMap::with_capacity(shapes.len());
    for path in list_safetensors_files(dir)? {
        load_tensor_file(&path, &shapes, &wanted, &mut found)?;
    }
    match shapes.iter().find(|(name, _)| wanted(name) && !found.contains_key(*name)) {
        None => Ok(found),
        Some((name, shape)) => Err(NativeError::missing_tensor(name, format_args!("{shape:?}"))),
    }
}

fn list_safetensors_files(dir: &Path) -> Result<Vec<PathBuf>, NativeError> {
    let path = dir.join("model.safetensors.index.json");
    if !path.exists() {
        return Ok(vec![dir.join("model.safetensors")]);
    }
    #[derive(Deserialize)]
    struct SafetensorsIndex {
        weight_map: BTreeMap<String, String>,
    }
    let bytes = read_file_limited(&path, INDEX_BYTES_MAX)?;
    let index: SafetensorsIndex =
        serde_json::from_slice(&bytes).map_err(|error| malformed_file(&path, error))?;
    let names: BTreeSet<String> = index.weight_map.into_values().collect();
    for name in &names {
        // An index may name files of its own folder only.
        if Path::new(name).file_name() != Some(name.as_ref()) {
            return Err(malformed_file(&path, format!("{name:?} is not a plain file name")));
        }
    }
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

fn load_tensor_file(
    path: &Path,
    shapes: &HashMap<String, Vec<usize>>,
    wanted: &dyn Fn(&str) -> bool,
    found: &mut HashMap<String, Tensor>,
) -> Result<(), NativeError> {
    let file = File::open(path).map_err(FolderError::file(path))?;
    let length = file.metadata().map_err(FolderError::file(path))?.len();
    let mut reader = BufReader::with_capacity(BLOCK_BYTES, file);
    let (entries, data_bytes) = read_header(path, &mut reader, length)?;
    let end = entries.iter().map(|(_, entry)| entry.data_offsets.1).max().unwrap_or(0);
    if end > data_bytes {
        return Err(truncation_error(path, (length - data_bytes).saturating_add(end), length));
    }
    let mut at = 0;
    for (name, entry) in entries {
        if entry.data_offsets.0 != at || entry.data_offsets.1 < at {
            return Err(malformed_file(path, format!("{name} overlaps or leaves a gap")));
        }
        at = entry.data_offsets.1;
        let bytes = entry.data_offsets.1 - entry.data_offsets.0;
        match shapes.get(&name) {
            Some(shape) if *shape == entry.shape && wanted(&name) => {
                let values = read_floats(path, &mut reader, &name, &entry, bytes)?;
                let tensor = Tensor::from_vec(values, entry.shape, &Device::Cpu)?;
                if found.insert(name.clone(), tensor).is_some() {
                    return Err(malformed_file(path, format!("{name} appears twice")));
                }
            }
            Some(shape) if *shape == entry.shape => skip_bytes(path, &mut reader, bytes)?,
            Some(shape) => {
                let (wanted, got) = (format!("{shape:?}"), format!("{:?}", entry.shape));
                return Err(NativeError::Tensor { name, wanted, got });
            }
            // Tied models often carry the output matrix again, old ones the rotary table.
            None if name == "lm_head.weight" || name.ends_with("rotary_emb.inv_freq") => {
                skip_bytes(path, &mut reader, bytes)?;
            }
            None => {
                let (wanted, got) = ("no such tensor".into(), format!("{:?}", entry.shape));
                return Err(NativeError::Tensor { name, wanted, got });
            }
        }
    }
    if at != data_bytes {
        return Err(malformed_file(
            path,
            format!("only {at} of its {data_bytes} bytes of data belong to tensors"),
        ));
    }
    Ok(())
}

fn malformed_file(path: &Path, reason: impl Display) -> NativeError {
    FolderError::malformed_file(path, reason).into()
}

fn truncation_error(path: &Path, wanted: u64, got: u64) -> NativeError {
    NativeError::Truncated { path: path.into(), wanted, got }
}

fn skip_bytes(path: &Path, reader: &mut BufReader<File>, bytes: u64) -> Result<(), NativeError> {
    // The header was checked against the length of the file, so this stays inside it.
    let bytes = i64::try_from(bytes)
        .map_err(|_| malformed_file(path, format!("a tensor of {bytes} bytes is too long")))?;
    Ok(reader.seek_relative(bytes).map_err(FolderError::file(path))?)
}

/// Reads the header; returns the tensors in the order of their bytes, and the number of bytes after
/// the header.
fn read_header(
    path: &Path,
    reader: &mut impl Read,
    length: u64,
) -> Result<(Vec<(String, TensorEntry)>, u64), NativeError> {
    let mut size = [0u8; 8];
    if length < 8 {
        return Err(truncation_error(path, 8, length));
    }
    reader.read_exact(&mut size).map_err(FolderError::file(path))?;
    let size = u64::from_le_bytes(size);
    let rest = length.saturating_sub(8);
    if size > HEADER_BYTES_MAX {
        let reason = format!("header: wanted at most {HEADER_BYTES_MAX} bytes, got {size}");
        return Err(malformed_file(path, reason));
    }
    if size > rest {
        return Err(truncation_error(path, size + 8, length));
    }
    let mut header = vec![0u8; size as usize];
    reader.read_exact(&mut header).map_err(FolderError::file(path))?;
    let mut header: HashMap<String, serde_json::Value> =
        serde_json::from_slice(&header).map_err(|error| malformed_file(path, error))?;
    header.remove("__metadata__");
    let mut entries = Vec::with_capacity(header.len());
    for (name, value) in header {
        let entry: TensorEntry = serde_json::from_value(value)
            .map_err(|error| malformed_file(path, format!("{name}: {error}")))?;
        entries.push((name, entry));
    }
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    Ok((entries, rest - size))
}

fn read_floats(
    path: &Path,
    reader: &mut impl Read,
    name: &str,
    entry: &TensorEntry,
    bytes: u64,
) -> Result<Vec<f32>, NativeError> {
    let (width, convert): (usize, fn(&[u8]) -> f32) = match entry.dtype.as_str() {
        "F32" => (4, |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        "BF16" => (2, |b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()),
        "F16" => (2, |b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()),
        other => {
            let wanted = "F32, BF16 or F16".into();
            return Err(NativeError::Tensor { name: name.into(), wanted, got: other.into() });
        }
    };
    // The shape was checked against the configuration, so the product fits.
    let count: usize = entry.shape.iter().product();
    if bytes != (count * width) as u64 {
        return Err(malformed_file(path, format!("{name}: {bytes} bytes do not match its shape")));
    }
    let mut values = Vec::with_capacity(count);
    let mut block = vec![0u8; BLOCK_BYTES.min(count * width)];
    let mut left = count * width;
    while left > 0 {
        let part = left.min(block.len());
        reader.read_exact(&mut block[..part]).map_err(FolderError::file(path))?;
        values.extend(block[..part].chunks_exact(width).map(convert));
        left -= part;
    }
    Ok(values)
}
