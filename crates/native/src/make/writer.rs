//! Writes safetensors and the other files of a model's folder, and records their digests.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use confide_engine::text::{FolderError, manifest::ManifestEntry};
use half::bf16;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    progress::{MakeProgress, OnProgress},
    train::TrainedModel,
};
use crate::{config::DecoderConfig, error::NativeError, random::SeededRandom};

/// Writes the files of a model's folder, and records their digests.
pub(crate) struct ModelFolderWriter {
    dir: PathBuf,
    entries: Vec<ManifestEntry>,
}

impl ModelFolderWriter {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.into(), entries: Vec::new() }
    }

    pub(crate) fn entries(&self) -> &[ManifestEntry] {
        &self.entries
    }

    pub(crate) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), NativeError> {
        let mut file = self.create(name)?;
        file.append(bytes)?;
        self.close(file)
    }

    pub(crate) fn write_json(&mut self, name: &str, value: &Value) -> Result<(), NativeError> {
        self.write(name, format!("{value:#}\n").as_bytes())
    }

    fn create(&self, name: &str) -> Result<HashedFile, NativeError> {
        let path = self.dir.join(name);
        let file = File::create_new(&path).map_err(FolderError::file(&path))?;
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(HashedFile { name: name.into(), path, file, bytes: 0, hash: Sha256::new() })
    }

    fn close(&mut self, mut file: HashedFile) -> Result<(), NativeError> {
        file.file.flush().map_err(FolderError::file(&file.path))?;
        let sha256 = hex::encode(file.hash.finalize());
        self.entries.push(ManifestEntry { name: file.name, bytes: file.bytes, sha256 });
        Ok(())
    }
}

struct HashedFile {
    name: String,
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    hash: Sha256,
}

impl HashedFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), NativeError> {
        self.file.write_all(bytes).map_err(FolderError::file(&self.path))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Writes trained weights, rounded to bfloat16.
pub(crate) fn write_trained_weights(
    folder: &mut ModelFolderWriter,
    config: &DecoderConfig,
    trained: &TrainedModel,
    progress: &mut OnProgress<'_>,
) -> Result<(), NativeError> {
    write_tensors(folder, config, progress, |name, _count, put| {
        let tensor = trained.tensor(name);
        let tensor = tensor.ok_or_else(|| NativeError::missing_tensor(name, "a trained tensor"))?;
        let values: Vec<f32> = tensor.flatten_all()?.to_vec1()?;
        put(&values.iter().flat_map(|it| bf16::from_f32(*it).to_le_bytes()).collect::<Vec<u8>>())
    })
}

/// Draws and writes random weights block by block, so that only one block is in memory.
///
/// The standard deviation is 0.02, which both model families use for initialisation; norms are 1.
pub(crate) fn write_random_weights(
    folder: &mut ModelFolderWriter,
    config: &DecoderConfig,
    seed: u64,
    progress: &mut OnProgress<'_>,
) -> Result<(), NativeError> {
    const DEVIATION: f64 = 0.02;
    const BLOCK_VALUES: usize = 1 << 18;
    // Drawing from a table of normal numbers takes a quarter of a generator's step per weight, so
    // that eight billion weights are drawn as fast as a disk can write them.
    let mut table_random = SeededRandom::new(seed, "table");
    let table: Vec<[u8; 2]> = (0..=u16::MAX)
        .map(|_| bf16::from_f64(table_random.next_normal() * DEVIATION).to_le_bytes())
        .collect();
    write_tensors(folder, config, progress, |name, count, put| {
        let mut random = SeededRandom::new(seed, name);
        let one = bf16::ONE.to_le_bytes();
        let mut left = count;
        let mut block = Vec::with_capacity(BLOCK_VALUES * 2);
        while left > 0 {
            let part = left.min(BLOCK_VALUES);
            block.clear();
            if name.ends_with("norm.weight") {
                (0..part).for_each(|_| block.extend_from_slice(&one));
            }
            while block.len() < part * 2 {
                let bits = random.next_bits();
                for shift in [0, 16, 32, 48] {
                    block.extend_from_slice(&table[usize::from((bits >> shift) as u16)]);
                }
            }
            put(&block[..part * 2])?;
            left -= part;
        }
        Ok(())
    })
}

/// The longest file of weights, in bytes. Published models use about the same limit, since larger
/// files are awkward to copy and to check.
const SHARD_BYTES_MAX: u64 = 4 << 30;
const BYTES_PER_WEIGHT: u64 = 2;

type PutBytes<'a> = dyn FnMut(&[u8]) -> Result<(), NativeError> + 'a;

/// Writes every tensor of the shape as bfloat16, in one file or in shards with an index.
fn write_tensors(
    folder: &mut ModelFolderWriter,
    config: &DecoderConfig,
    progress: &mut OnProgress<'_>,
    mut fill: impl FnMut(&str, usize, &mut PutBytes<'_>) -> Result<(), NativeError>,
) -> Result<(), NativeError> {
    let shards = split_shards(config.tensor_shapes());
    let total = config.parameter_count() * BYTES_PER_WEIGHT;
    let mut done = 0;
    let mut weight_map = Map::new();
    for (index, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
        };
        let mut file = folder.create(&name)?;
        file.append(&encode_header(shard))?;
        for (tensor, shape) in shard {
            weight_map.insert(tensor.clone(), name.clone().into());
            fill(tensor, shape.iter().product(), &mut |bytes| {
                file.append(bytes)?;
                done += bytes.len() as u64;
                if progress(MakeProgress::Writing { done, total }).is_break() {
                    return Err(NativeError::Cancelled);
                }
                Ok(())
            })?;
        }
        folder.close(file)?;
    }
    if shards.len() > 1 {
        let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
        folder.write_json("model.safetensors.index.json", &index)?;
    }
    Ok(())
}

type TensorShapes = Vec<(String, Vec<usize>)>;

fn tensor_byte_count(shape: &[usize]) -> u64 {
    shape.iter().product::<usize>() as u64 * BYTES_PER_WEIGHT
}

fn split_shards(tensors: TensorShapes) -> Vec<TensorShapes> {
    let mut shards: Vec<TensorShapes> = vec![Vec::new()];
    let mut filled = 0;
    for (name, shape) in tensors {
        let bytes = tensor_byte_count(&shape);
        if filled > 0 && filled + bytes > SHARD_BYTES_MAX {
            shards.push(Vec::new());
            filled = 0;
        }
        filled += bytes;
        if let Some(shard) = shards.last_mut() {
            shard.push((name, shape));
        }
    }
    shards
}

/// The header of a safetensors file: its length, then JSON, padded with spaces to eight bytes.
fn encode_header(tensors: &TensorShapes) -> Vec<u8> {
    let mut fields = Map::new();
    fields.insert("__metadata__".into(), json!({ "format": "pt" }));
    let mut at = 0;
    for (name, shape) in tensors {
        let end = at + tensor_byte_count(shape);
        let entry = json!({ "dtype": "BF16", "shape": shape, "data_offsets": [at, end] });
        fields.insert(name.clone(), entry);
        at = end;
    }
    let mut json = Value::Object(fields).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.extend(json);
    header
}
