//! Training of the tiny model.

use std::collections::HashMap;

use candle_core::{Device, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss};
use tokenizers::Tokenizer;

use super::{
    corpus,
    progress::{MakeProgress, OnProgress},
    tokenizer::{TURN_END, TURN_START},
};
use crate::{
    config::DecoderConfig,
    engine::build_thread_pool,
    error::NativeError,
    model::{AdapterHook, BatchShape, DecoderModel, OperationKind},
    random::SeededRandom,
};

/// The number of steps of a whole training, some seven seconds on one core in a release build. The
/// answers are then learned by heart, and more steps have no effect.
pub(crate) const STEPS: u32 = 180;
/// The longest exchange in tokens; the end of a longer one is not learned.
const LENGTH: usize = 64;
/// The exchanges of one step.
const BATCH: BatchShape = BatchShape { sequences: 12, tokens: LENGTH };
const SCHEDULE: LearningRateSchedule =
    LearningRateSchedule { warm_up_steps: 20, rate_max: 6e-3, rate_min: 3e-4 };

/// The variables of a trained model, by tensor name.
pub(crate) struct TrainedModel(HashMap<String, Var>);

impl TrainedModel {
    pub(crate) fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name).map(Var::as_tensor)
    }
}

/// Trains a model from random weights on one thread, so that the seed determines the result.
pub(crate) fn train(
    config: &DecoderConfig,
    tokenizer: &Tokenizer,
    seed: u64,
    steps: u32,
    progress: &mut OnProgress<'_>,
) -> Result<TrainedModel, NativeError> {
    let variables = initialise_variables(config, seed)?;
    let model = build_model(config, &variables)?;
    // The order of a hash map differs between runs, but the order of the sums must not.
    let mut names: Vec<&String> = variables.keys().collect();
    names.sort();
    let ordered = names.iter().map(|name| variables[*name].clone()).collect();
    let parameters = ParamsAdamW { beta2: 0.98, weight_decay: 0.01, ..ParamsAdamW::default() };
    let mut optimizer = AdamW::new(ordered, parameters)?;
    let exchanges = corpus::parse_exchanges(corpus::PROJECT);
    let mut batches = Batches::new(tokenizer, exchanges, BATCH, seed)?;
    run_training_steps(steps, &SCHEDULE, progress, &mut batches, |rate, batch| {
        optimizer.set_learning_rate(rate);
        let loss = answer_loss(&model, batch, None)?;
        optimizer.backward_step(&loss)?;
        Ok(loss.to_scalar::<f32>()?)
    })?;
    Ok(TrainedModel(variables))
}

/// Runs the steps of a training on one thread, so that the seed determines the result. `learn` gets
/// the learning rate and a batch, and returns the loss in nats per token. Returns the losses of all
/// steps.
pub(crate) fn run_training_steps(
    steps: u32,
    schedule: &LearningRateSchedule,
    progress: &mut OnProgress<'_>,
    batches: &mut Batches,
    mut learn: impl FnMut(f64, &TrainingBatch) -> Result<f32, NativeError> + Send,
) -> Result<Vec<f32>, NativeError> {
    let pool = build_thread_pool(1)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let batch = batches.next_batch()?;
        let loss = pool.install(|| learn(schedule.rate(step, steps), &batch))?;
        losses.push(loss);
        if progress(MakeProgress::Training { step: step + 1, steps, loss }).is_break() {
            return Err(NativeError::Cancelled);
        }
    }
    Ok(losses)
}

fn build_model(
    config: &DecoderConfig,
    variables: &HashMap<String, Var>,
) -> Result<DecoderModel, NativeError> {
    let tensors = variables.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone()));
    Ok(DecoderModel::new(config, tensors.collect(), LENGTH, OperationKind::Differentiable)?)
}

/// Computes the mean cross-entropy of the answers' tokens, in nats. The questions are not learned,
/// so no logits are computed for their tokens.
pub(crate) fn answer_loss(
    model: &DecoderModel,
    batch: &TrainingBatch,
    hook: Option<&mut (dyn AdapterHook + '_)>,
) -> candle_core::Result<Tensor> {
    let embedded = model.embed(&batch.inputs)?;
    let (sequences, tokens) = batch.inputs.dims2()?;
    let hidden = model.forward(embedded, BatchShape { sequences, tokens }, None, hook)?;
    let hidden = hidden.index_select(&batch.rows, 0)?;
    loss::cross_entropy(&model.logits(&hidden)?, &batch.targets)
}

/// Makes the initial variables: normal weights, ones for the norms, zeros for the biases.
fn initialise_variables(
    config: &DecoderConfig,
    seed: u64,
) -> Result<HashMap<String, Var>, NativeError> {
    const EMBEDDING_DEVIATION: f64 = 0.05;
    let mut variables = HashMap::new();
    for (name, shape) in config.tensor_shapes() {
        let count = shape.iter().product();
        let mut random = SeededRandom::new(seed, &name);
        let values: Vec<f32> = match &shape[..] {
            [_] => vec![if name.ends_with("norm.weight") { 1.0 } else { 0.0 }; count],
            [_, inputs, ..] => {
                let fan_in = (1.0 / *inputs as f64).sqrt();
                let deviation =
                    if name.contains("embed_tokens") { EMBEDDING_DEVIATION } else { fan_in };
                (0..count).map(|_| (random.next_normal() * deviation) as f32).collect()
            }
            [] => Vec::new(),
        };
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?;
        variables.insert(name, Var::from_tensor(&tensor)?);
    }
    Ok(variables)
}

/// The learning rate over a training: a warm-up, then half a cosine wave.
pub(crate) struct LearningRateSchedule {
    pub(crate) warm_up_steps: u32,
    pub(crate) rate_max: f64,
    pub(crate) rate_min: f64,
}

impl LearningRateSchedule {
    pub(crate) fn rate(&self, step: u32, steps: u32) -> f64 {
        let LearningRateSchedule { warm_up_steps, rate_max, rate_min } = *self;
        if step < warm_up_steps {
            return rate_max * f64::from(step + 1) / f64::from(warm_up_steps);
        }
        let share =
            f64::from(step - warm_up_steps) / f64::from(steps.saturating_sub(warm_up_steps).max(1));
        rate_min + (rate_max - rate_min) * 0.5 * (1.0 + (std::f64::consts::PI * share).cos())
    }
}

/// The training data of one step, from `B` exchanges.
pub(crate) struct TrainingBatch {
    /// The tokens `[B, T]`, where `T` is the length of the longest exchange.
    inputs: Tensor,
    /// The indices `[N]` of the hidden states, out of `B * T`, that predict a token of an answer.
    rows: Tensor,
    /// The predicted tokens, `[N]`.
    targets: Tensor,
}

/// Batches of exchanges in random order. Each row is one exchange in the format of a chat.
pub(crate) struct Batches {
    exchanges: Vec<EncodedExchange>,
    shape: BatchShape,
    /// The indices of the exchanges that this pass has not drawn yet.
    order: Vec<usize>,
    random: SeededRandom,
}

struct EncodedExchange {
    ids: Vec<u32>,
    /// The index of the answer's first token in `ids`.
    answer_at: usize,
}

impl Batches {
    /// Batches of `shape.sequences` exchanges, each of at most `shape.tokens` tokens.
    pub(crate) fn new<'a>(
        tokenizer: &Tokenizer,
        exchanges: impl Iterator<Item = corpus::Exchange<'a>>,
        shape: BatchShape,
        seed: u64,
    ) -> Result<Self, NativeError> {
        let exchanges = exchanges
            .map(|corpus::Exchange { question, answer }| {
                let asked =
                    format!("{TURN_START}user\n{question}{TURN_END}\n{TURN_START}assistant\n");
                let mut ids = tokenizer.encode(asked, false)?.get_ids().to_vec();
                let answer_at = ids.len();
                let answered = tokenizer.encode(format!("{answer}{TURN_END}"), false)?;
                ids.extend_from_slice(answered.get_ids());
                Ok(EncodedExchange { ids, answer_at })
            })
            .collect::<Result<_, NativeError>>()?;
        let random = SeededRandom::new(seed, "batches");
        Ok(Self { exchanges, shape, order: Vec::new(), random })
    }

    pub(crate) fn next_batch(&mut self) -> Result<TrainingBatch, NativeError> {
        let drawn: Vec<usize> = (0..self.shape.sequences).map(|_| self.draw_exchange()).collect();
        let drawn: Vec<&EncodedExchange> =
            drawn.iter().map(|index| &self.exchanges[*index]).collect();
        // The last token is only predicted, not read.
        let length = drawn.iter().map(|it| it.ids.len() - 1).max().unwrap_or(1);
        let length = length.min(self.shape.tokens);
        let (mut inputs, mut rows, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for (row, EncodedExchange { ids, answer_at }) in drawn.into_iter().enumerate() {
            inputs.extend((0..length).map(|at| ids.get(at).copied().unwrap_or(0)));
            // A question that is longer than the batch leaves no room for its answer.
            for at in answer_at - 1..length.min(ids.len() - 1) {
                rows.push((row * length + at) as u32);
                targets.push(ids[at + 1]);
            }
        }
        let count = targets.len();
        Ok(TrainingBatch {
            inputs: Tensor::from_vec(inputs, (self.shape.sequences, length), &Device::Cpu)?,
            rows: Tensor::from_vec(rows, count, &Device::Cpu)?,
            targets: Tensor::from_vec(targets, count, &Device::Cpu)?,
        })
    }

    /// Draws an exchange. Every exchange is drawn once before any is drawn twice.
    fn draw_exchange(&mut self) -> usize {
        if self.order.is_empty() {
            self.order = (0..self.exchanges.len()).collect();
        }
        let at = self.random.uniform_below(self.order.len());
        self.order.swap_remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make::{ModelShape, tokenizer::train_tokenizer};
    use std::ops::ControlFlow;

    fn tiny() -> DecoderConfig {
        DecoderConfig::parse(ModelShape::Tiny.config_json(2).to_string().as_bytes())
            .expect("a configuration")
    }

    #[test]
    fn every_variable_has_a_gradient() {
        let (config, tokenizer) = (tiny(), train_tokenizer().expect("a tokenizer"));
        let variables = initialise_variables(&config, 1).expect("variables");
        let model = build_model(&config, &variables).expect("a model");
        let exchanges = corpus::parse_exchanges(corpus::PROJECT);
        let batches = Batches::new(&tokenizer, exchanges, BATCH, 1);
        let batch = batches.and_then(|mut batches| batches.next_batch()).expect("a batch");
        let loss = answer_loss(&model, &batch, None).expect("a loss");
        let gradients = loss.backward().expect("gradients");
        for (name, variable) in &variables {
            let gradient = gradients.get(variable).unwrap_or_else(|| panic!("none for {name}"));
            let sum =
                gradient.abs().and_then(|it| it.sum_all()).and_then(|it| it.to_scalar::<f32>());
            // A key's bias moves all scores of a query alike, which softmax does not see.
            let blind = name.ends_with("k_proj.bias");
            assert!(blind || sum.expect("a number") > 0.0, "the gradient of {name} is zero");
        }
    }

    #[test]
    fn some_steps_lower_the_loss_and_a_seed_repeats_them() {
        let (config, tokenizer) = (tiny(), train_tokenizer().expect("a tokenizer"));
        let losses = || {
            let mut losses = Vec::new();
            train(&config, &tokenizer, 3, 6, &mut |progress| {
                if let MakeProgress::Training { loss, .. } = progress {
                    losses.push(loss);
                }
                ControlFlow::Continue(())
            })
            .expect("a model");
            losses
        };
        let first = losses();
        assert!(first[5] < first[0] - 0.1, "{first:?}");
        assert_eq!(first, losses());
    }
}
