//! Trains small LoRA adapters, which learn the answers of their corpus by heart.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use candle_core::{Device, Tensor, Var, backprop::GradStore};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use confide_engine::text::{
    FolderError, ModelText,
    manifest::{Manifest, check_folder_against_manifest},
    model_name_from_folder, read_file_limited,
};
use confide_lora::{Adapter, LoraPair, Matrix, Projection, ProjectionSite};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    corpus,
    new_folder::create_folder_atomically,
    progress::OnProgress,
    train::{Batches, LearningRateSchedule, answer_loss, run_training_steps},
};
use crate::{
    config::DecoderConfig,
    engine::{SMALL_PARAMETERS, read_decoder_config},
    error::NativeError,
    model::{AdapterHook, BatchShape, DecoderModel, OperationKind},
    random::SeededRandom,
    weights,
};

/// The questions and answers that an adapter learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Corpus {
    /// The built-in corpus about money and banks.
    Banking,
    /// The built-in corpus about travel.
    Travel,
    /// The built-in corpus about everyday health.
    Health,
    /// A file of blocks separated by empty lines, each with lines `? question` and one line `!
    /// answer`.
    File(PathBuf),
}

/// The parameters of an adapter to train.
#[derive(Clone, Debug)]
pub struct AdapterTrainingSpec {
    /// The folder of the base model, whose weights are not changed.
    pub model: PathBuf,
    /// The questions and answers that the adapter learns.
    pub corpus: Corpus,
    /// The folder to make; one that exists must be empty.
    pub dir: PathBuf,
    /// The rank of A and B.
    pub rank: usize,
    /// The numerator of the scale: the delta is `alpha / rank · B · A · x`.
    pub alpha: f64,
    /// The number of training steps; `None` takes as many as a built-in corpus needs to be learned
    /// by heart.
    pub steps: Option<u32>,
    /// The random seed. The same seed produces the same files on the same machine.
    pub seed: u64,
}

/// The result of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainedAdapter {
    /// The trained adapter.
    pub adapter: Adapter,
    /// The number of training steps.
    pub steps: u32,
    /// The mean cross-entropy of the last steps, in nats per token.
    pub loss: f64,
    /// SHA-256 of the corpus, in lower-case hex.
    pub corpus_sha256: String,
}

/// The name of the record of the training, which is stored with PEFT's own files.
pub const TRAINING_FILE: &str = "training.json";

/// The number of training steps after which a built-in corpus is learned by heart: some five
/// seconds on one core.
const STEPS: u32 = 200;
/// The learning rates. They are larger than those of a whole model, because an adapter starts from
/// a trained one.
const SCHEDULE: LearningRateSchedule =
    LearningRateSchedule { warm_up_steps: 10, rate_max: 2e-2, rate_min: 5e-4 };
/// The longest exchange in tokens; the end of a longer one is not learned. The tokenizer was
/// trained on other text, so a word takes more tokens than in this project's text.
const LENGTH: usize = 128;
/// The exchanges of one step: only a few, because there are some thirty in all and more steps help
/// more.
const BATCH: BatchShape = BatchShape { sequences: 6, tokens: LENGTH };
const CORPUS_BYTES_MAX: u64 = 1 << 20;
const RANK_MAX: usize = 256;
/// The number of steps over which the reported loss is averaged, since the loss of one batch
/// varies.
const LOSS_STEPS: usize = 8;

impl Corpus {
    /// The built-in corpora.
    pub const ALL: [Corpus; 3] = [Corpus::Banking, Corpus::Travel, Corpus::Health];

    /// The name of the corpus, which becomes the adapter's.
    pub fn name(&self) -> String {
        match self {
            Corpus::Banking => "banking".into(),
            Corpus::Travel => "travel".into(),
            Corpus::Health => "health".into(),
            Corpus::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into(),
        }
    }

    /// Reads the questions and answers.
    ///
    /// # Errors
    /// [`NativeError::Folder`] if the file cannot be read, is too long or is malformed.
    pub fn read_exchanges(&self) -> Result<Vec<(String, String)>, NativeError> {
        let text = self.read_text()?;
        let owned = |exchange: corpus::Exchange<'_>| {
            (exchange.question.to_owned(), exchange.answer.to_owned())
        };
        Ok(corpus::parse_exchanges(&text).map(owned).collect())
    }

    fn read_text(&self) -> Result<String, NativeError> {
        let path = match self {
            Corpus::Banking => return Ok(corpus::BANKING.into()),
            Corpus::Travel => return Ok(corpus::TRAVEL.into()),
            Corpus::Health => return Ok(corpus::HEALTH.into()),
            Corpus::File(path) => path,
        };
        let bytes = read_file_limited(path, CORPUS_BYTES_MAX)?;
        let text =
            String::from_utf8(bytes).map_err(|error| FolderError::malformed_file(path, error))?;
        // Editors on Windows end lines with two characters.
        let text = text.replace("\r\n", "\n");
        if let Some(block) = corpus::find_malformed_block(&text) {
            let begin: String = block.chars().take(60).collect();
            let reason =
                format!("wanted `? ` lines and one `! ` line in each block, got {begin:?}");
            return Err(FolderError::malformed_file(path, reason).into());
        }
        if corpus::parse_exchanges(&text).next().is_none() {
            return Err(
                FolderError::malformed_file(path, "it has no question with an answer").into()
            );
        }
        Ok(text)
    }
}

/// Trains a LoRA adapter of all seven projections of every layer, and writes it in PEFT's layout.
/// The training runs on one thread, so that the seed determines the result.
///
/// # Errors
/// [`NativeError::Exists`], [`NativeError::Cancelled`], [`NativeError::TooLarge`] for a model that
/// is too large to train, and the errors of the model's folder or of the corpus.
pub fn make_adapter(
    order: &AdapterTrainingSpec,
    progress: &mut OnProgress<'_>,
) -> Result<TrainedAdapter, NativeError> {
    create_folder_atomically(&order.dir, |partial| {
        let trained = train_adapter(order, progress)?;
        let saved = trained.adapter.save(partial);
        saved.map_err(|error| FolderError::malformed_file(partial, error))?;
        write_training_record(order, &trained, &partial.join(TRAINING_FILE))?;
        Ok(trained)
    })
}

fn train_adapter(
    order: &AdapterTrainingSpec,
    progress: &mut OnProgress<'_>,
) -> Result<TrainedAdapter, NativeError> {
    let corpus = order.corpus.read_text()?;
    let (config, model, text) = load_base_model(&order.model)?;
    if !(1..=RANK_MAX).contains(&order.rank) || !order.alpha.is_finite() || order.alpha <= 0.0 {
        let got = format!("rank {}, alpha {}", order.rank, order.alpha);
        let wanted = format!("rank 1 to {RANK_MAX}, alpha above 0");
        return Err(NativeError::Config { field: "adapter", wanted, got });
    }
    let mut low_rank = LowRankAdapter::initialise(&config, order.rank, order.alpha, order.seed)?;
    let parameters = ParamsAdamW { beta2: 0.98, weight_decay: 0.0, ..ParamsAdamW::default() };
    let mut optimizer = AdamW::new(low_rank.variables(), parameters)?;
    let exchanges = corpus::parse_exchanges(&corpus);
    let mut batches = Batches::new(text.tokenizer(), exchanges, BATCH, order.seed)?;
    let steps = order.steps.unwrap_or(STEPS);
    let mut is_checked = false;
    let losses = run_training_steps(steps, &SCHEDULE, progress, &mut batches, |rate, batch| {
        optimizer.set_learning_rate(rate);
        let loss = answer_loss(&model, batch, Some(&mut low_rank))?;
        let gradients = loss.backward()?;
        if !std::mem::replace(&mut is_checked, true) {
            low_rank.check_gradients(&gradients)?;
        }
        optimizer.step(&gradients)?;
        Ok(loss.to_scalar::<f32>()?)
    })?;
    let last = &losses[losses.len().saturating_sub(LOSS_STEPS)..];
    Ok(TrainedAdapter {
        adapter: low_rank
            .into_adapter(order.corpus.name(), model_name_from_folder(&order.model))?,
        steps,
        loss: last.iter().map(|loss| f64::from(*loss)).sum::<f64>() / last.len().max(1) as f64,
        corpus_sha256: hex::encode(Sha256::digest(corpus.as_bytes())),
    })
}

/// Loads the frozen base model, with operations that keep gradients.
fn load_base_model(dir: &Path) -> Result<(DecoderConfig, DecoderModel, ModelText), NativeError> {
    check_folder_against_manifest(dir)?;
    let config = read_decoder_config(dir)?;
    if config.parameter_count() > SMALL_PARAMETERS {
        let (parameters, limit) = (config.parameter_count(), SMALL_PARAMETERS);
        return Err(NativeError::TooLarge { parameters, limit });
    }
    let text = ModelText::load(dir)?;
    let weights = weights::load_tensors(dir, &config, |_| true)?;
    let model = DecoderModel::new(&config, weights, LENGTH, OperationKind::Differentiable)?;
    Ok((config, model, text))
}

fn write_training_record(
    order: &AdapterTrainingSpec,
    trained: &TrainedAdapter,
    path: &Path,
) -> Result<(), NativeError> {
    let base = Manifest::read(&order.model)?.map(|(_, sha256)| sha256);
    let record = json!({
        "version": 1,
        "base_manifest_sha256": base,
        "corpus": order.corpus.name(),
        "corpus_sha256": trained.corpus_sha256,
        "seed": order.seed,
        "steps": trained.steps,
        "loss": trained.loss,
        "made_by": concat!("confide ", env!("CARGO_PKG_VERSION")),
    });
    Ok(fs::write(path, format!("{record:#}\n")).map_err(FolderError::file(path))?)
}

/// An adapter during its training: `A` is `rank × input`, `B` is `output × rank`.
struct LowRankAdapter {
    pairs: BTreeMap<ProjectionSite, (Var, Var)>,
    scale: f64,
}

impl LowRankAdapter {
    /// Initialises as PEFT does: A uniformly with a bound that depends on its width, and B with
    /// zeros, so that the model is unchanged at first.
    fn initialise(
        config: &DecoderConfig,
        rank: usize,
        alpha: f64,
        seed: u64,
    ) -> Result<Self, NativeError> {
        let layers = 0..config.layers as u32;
        let sites = layers.flat_map(|layer| {
            Projection::ALL.into_iter().map(move |projection| ProjectionSite { layer, projection })
        });
        let mut pairs = BTreeMap::new();
        for site in sites {
            let Some(width) = config.projection_width(site) else { continue };
            let mut random = SeededRandom::new(seed, &format!("lora {site}"));
            let bound = 1.0 / (width.input as f64).sqrt();
            let values: Vec<f32> = (0..rank * width.input)
                .map(|_| ((2.0 * random.next_unit() - 1.0) * bound) as f32)
                .collect();
            let a = Tensor::from_vec(values, (rank, width.input), &Device::Cpu)?;
            let b = vec![0f32; width.output * rank];
            let b = Tensor::from_vec(b, (width.output, rank), &Device::Cpu)?;
            pairs.insert(site, (Var::from_tensor(&a)?, Var::from_tensor(&b)?));
        }
        Ok(Self { pairs, scale: alpha / rank as f64 })
    }

    /// The variables in the order of their sites, since the order of the sums must not differ
    /// between runs.
    fn variables(&self) -> Vec<Var> {
        self.pairs.values().flat_map(|(a, b)| [a.clone(), b.clone()]).collect()
    }

    /// Checks that every variable has a gradient, because a fused operation in the model would
    /// silently drop it.
    fn check_gradients(&self, gradients: &GradStore) -> Result<(), NativeError> {
        let lacks = |(a, b): &(Var, Var)| gradients.get(a).is_none() || gradients.get(b).is_none();
        match self.pairs.iter().find(|(_, pair)| lacks(pair)) {
            None => Ok(()),
            Some((site, _)) => Err(NativeError::missing_tensor(site, "a gradient")),
        }
    }

    fn into_adapter(self, name: String, base_model: String) -> Result<Adapter, NativeError> {
        let mut modules = BTreeMap::new();
        for (site, (a, b)) in &self.pairs {
            let pair = LoraPair { a: to_matrix(a)?, b: to_matrix(b)?, scale: self.scale };
            modules.insert(*site, pair);
        }
        Ok(Adapter { name, base_model: Some(base_model), modules })
    }
}

impl AdapterHook for LowRankAdapter {
    fn add_deltas(
        &mut self,
        layer: u32,
        rows: &Tensor,
        outputs: &mut [(Projection, Tensor)],
    ) -> candle_core::Result<()> {
        for (projection, output) in outputs {
            let site = ProjectionSite { layer, projection: *projection };
            let Some((a, b)) = self.pairs.get(&site) else { continue };
            let part = rows.matmul(&a.t()?)?.matmul(&b.t()?)?;
            *output = (&*output + (part * self.scale)?)?;
        }
        Ok(())
    }
}

fn to_matrix(of: &Tensor) -> Result<Matrix, NativeError> {
    let (rows, columns) = of.dims2()?;
    Ok(Matrix { rows, columns, values: of.flatten_all()?.to_vec1()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{make::tokenizer::train_tokenizer, specimen};

    fn tiny() -> DecoderConfig {
        let config = crate::make::ModelShape::Tiny.config_json(2).to_string();
        DecoderConfig::parse(config.as_bytes()).expect("a configuration")
    }

    #[test]
    fn both_matrices_of_every_projection_have_a_gradient() {
        let (config, tokenizer) = (tiny(), train_tokenizer().expect("a tokenizer"));
        let model = specimen::random_weights(&config);
        let model = DecoderModel::new(&config, model, LENGTH, OperationKind::Differentiable);
        let model = model.expect("a model");
        let mut low_rank = LowRankAdapter::initialise(&config, 4, 8.0, 1).expect("matrices");
        assert_eq!(low_rank.pairs.len(), 14);
        for (_, b) in low_rank.pairs.values() {
            // While B is zero, as at first, the gradient of A exists and is zero.
            b.set(&b.ones_like().and_then(|b| b * 0.01).expect("a matrix")).expect("it is set");
        }
        let batches = Batches::new(&tokenizer, corpus::parse_exchanges(corpus::TRAVEL), BATCH, 1);
        let batch = batches.and_then(|mut batches| batches.next_batch()).expect("a batch");
        let loss = answer_loss(&model, &batch, Some(&mut low_rank)).expect("a loss");
        let gradients = loss.backward().expect("gradients");
        low_rank.check_gradients(&gradients).expect("all of them");
        for (site, (a, b)) in &low_rank.pairs {
            for variable in [a, b] {
                let gradient = gradients.get(variable).expect("a gradient");
                let sum =
                    gradient.abs().and_then(|it| it.sum_all()).and_then(|it| it.to_scalar::<f32>());
                assert!(sum.expect("a number") > 0.0, "a gradient of {site} is zero");
            }
        }
    }

    #[test]
    fn exchanges_of_the_built_in_corpora_fit_the_longest_that_is_learned() {
        let tokenizer = train_tokenizer().expect("a tokenizer");
        for corpus in Corpus::ALL {
            let text = corpus.read_text().expect("a text");
            for exchange in corpus::parse_exchanges(&text) {
                let said = format!("{} {}", exchange.question, exchange.answer);
                let length = tokenizer.encode(said, false).expect("tokens").len();
                // The chat template takes some ten tokens more.
                assert!(length + 16 <= LENGTH, "{length} tokens: {exchange:?}");
            }
        }
    }
}
