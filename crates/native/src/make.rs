//! Makes models: published shapes with random weights, and a tiny model trained on this project's
//! text. Also trains adapters for the tiny model. Nothing is downloaded, and a seed determines the
//! weights.

mod adapter;
mod corpus;
mod new_folder;
mod progress;
mod shape;
mod tokenizer;
mod train;
mod writer;

use std::path::{Path, PathBuf};

use confide_engine::text::{
    CHATML, FolderError,
    manifest::{self, Manifest},
};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

pub use adapter::{AdapterTrainingSpec, Corpus, TRAINING_FILE, TrainedAdapter, make_adapter};
pub use progress::{MakeProgress, OnProgress};
pub use shape::ModelShape;

use crate::{config::DecoderConfig, error::NativeError};
use new_folder::create_folder_atomically;
pub(crate) use tokenizer::train_tokenizer;
use writer::ModelFolderWriter;

/// The parameters of a model to make.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// The shape of the model.
    pub shape: ModelShape,
    /// The random seed of the weights. The same seed produces the same files on the same machine.
    pub seed: u64,
    /// The folder to make; one that exists must be empty.
    pub dir: PathBuf,
    /// The number of training steps, for tests; `None` trains the tiny model until it knows its
    /// corpus.
    pub steps: Option<u32>,
}

/// Makes a model in a temporary folder, which is renamed to the requested one once it is complete.
///
/// `progress` is called often; when it returns `Break`, the unfinished folder is removed.
///
/// # Errors
/// [`NativeError::Exists`], [`NativeError::Cancelled`], [`NativeError::Folder`] and the errors of
/// the tensor library and the tokenizer.
pub fn make_model(
    order: &ModelSpec,
    progress: &mut OnProgress<'_>,
) -> Result<Manifest, NativeError> {
    create_folder_atomically(&order.dir, |partial| write_model_folder(order, partial, progress))
}

/// Makes a folder with all files of a shape except the weights. An engine may draw the weights from
/// a seed itself, since a model's speed does not depend on their values.
///
/// # Errors
/// Those of [`make_model`].
pub fn make_model_without_weights(shape: ModelShape, dir: &Path) -> Result<Manifest, NativeError> {
    create_folder_atomically(dir, |partial| {
        let mut folder = ModelFolderWriter::new(partial);
        let (_, config) = write_tokenizer_and_config(&mut folder, shape)?;
        write_manifest(folder, shape, 0, NO_WEIGHTS.into(), &config)
    })
}

/// The value of `weights` in the manifest of a folder without weights.
pub const NO_WEIGHTS: &str = "none";

fn write_model_folder(
    order: &ModelSpec,
    dir: &Path,
    progress: &mut OnProgress<'_>,
) -> Result<Manifest, NativeError> {
    let mut folder = ModelFolderWriter::new(dir);
    let (tokenizer, config) = write_tokenizer_and_config(&mut folder, order.shape)?;
    let weights = match order.shape {
        ModelShape::Tiny => {
            let steps = order.steps.unwrap_or(train::STEPS);
            let trained = train::train(&config, &tokenizer, order.seed, steps, progress)?;
            writer::write_trained_weights(&mut folder, &config, &trained, progress)?;
            "trained".to_owned()
        }
        _ => {
            writer::write_random_weights(&mut folder, &config, order.seed, progress)?;
            format!("random({})", order.seed)
        }
    };
    write_manifest(folder, order.shape, order.seed, weights, &config)
}

/// Writes tokenizer and configuration.
fn write_tokenizer_and_config(
    folder: &mut ModelFolderWriter,
    shape: ModelShape,
) -> Result<(Tokenizer, DecoderConfig), NativeError> {
    let tokenizer = train_tokenizer()?;
    folder.write("tokenizer.json", tokenizer.to_string(true)?.as_bytes())?;
    folder.write_json("tokenizer_config.json", &tokenizer_config_json(shape))?;
    let end = tokenizer::token_id(&tokenizer, tokenizer::TURN_END)?;
    let config_json = shape.config_json(end);
    let config = DecoderConfig::parse(config_json.to_string().as_bytes())
        .map_err(|error| FolderError::malformed_file(Path::new("config.json"), error))?;
    folder.write_json("config.json", &config_json)?;
    folder.write_json("generation_config.json", &json!({ "eos_token_id": [end] }))?;
    Ok((tokenizer, config))
}

/// Writes the manifest of all written files.
fn write_manifest(
    mut folder: ModelFolderWriter,
    shape: ModelShape,
    seed: u64,
    weights: String,
    config: &DecoderConfig,
) -> Result<Manifest, NativeError> {
    let manifest = Manifest {
        version: 1,
        shape: shape.name().into(),
        seed,
        weights,
        parameters: config.parameter_count(),
        made_by: concat!("confide ", env!("CARGO_PKG_VERSION")).into(),
        files: folder.entries().to_vec(),
    };
    let value = serde_json::to_value(&manifest)
        .map_err(|error| FolderError::malformed_file(Path::new(manifest::FILE_NAME), error))?;
    folder.write_json(manifest::FILE_NAME, &value)?;
    Ok(manifest)
}

fn tokenizer_config_json(shape: ModelShape) -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": shape.context_tokens(),
        "eos_token": tokenizer::TURN_END,
        "pad_token": tokenizer::TEXT_END,
        "chat_template": CHATML,
    })
}
