use std::{collections::HashMap, ops::ControlFlow};

use candle_core::{Device, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss};
use tokenizers::Tokenizer;

use super::{
    Progress, corpus,
    tokenizer::{TURN_END, TURN_START},
};
use crate::{
    config::Config,
    engine::thread_pool,
    error::NativeError,
    model::{Model, Operations},
    random::Random,
};

/// Steps of a whole training: some seven seconds on one core in a release build. The answers are
/// known by heart then; more steps teach nothing else.
pub(crate) const STEPS: u32 = 180;
/// Exchanges per step.
const BATCH: usize = 12;
/// Longest exchange in tokens; the end of a longer one is not learned.
const LENGTH: usize = 64;
const WARM_UP_STEPS: u32 = 20;
const RATE_MAX: f64 = 6e-3;
const RATE_MIN: f64 = 3e-4;

/// The variables of a model being trained, by tensor name.
pub(crate) struct Trained(HashMap<String, Var>);

impl Trained {
    pub(crate) fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name).map(Var::as_tensor)
    }
}

/// Trains a model from random weights on one thread, so that the seed decides the outcome.
pub(crate) fn train(
    config: &Config,
    tokenizer: &Tokenizer,
    seed: u64,
    steps: u32,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Trained, NativeError> {
    let variables = initial(config, seed)?;
    let model = model(config, &variables)?;
    // The order of a hash map differs from run to run; the order of the sums must not.
    let mut names: Vec<&String> = variables.keys().collect();
    names.sort();
    let ordered = names.iter().map(|name| variables[*name].clone()).collect();
    let parameters = ParamsAdamW { beta2: 0.98, weight_decay: 0.01, ..ParamsAdamW::default() };
    let mut optimizer = AdamW::new(ordered, parameters)?;
    let mut batches = Batches::new(tokenizer, seed)?;
    let pool = thread_pool(1)?;
    for step in 0..steps {
        optimizer.set_learning_rate(rate(step, steps));
        let batch = batches.next()?;
        let loss = pool.install(|| {
            let loss = loss_of(&model, &batch)?;
            optimizer.backward_step(&loss)?;
            loss.to_scalar::<f32>()
        })?;
        let report = Progress::Training { step: step + 1, steps, loss };
        if progress(report).is_break() {
            return Err(NativeError::Cancelled);
        }
    }
    Ok(Trained(variables))
}

fn model(config: &Config, variables: &HashMap<String, Var>) -> Result<Model, NativeError> {
    let tensors = variables.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone()));
    Ok(Model::new(config, tensors.collect(), LENGTH, Operations::Differentiable)?)
}

/// Mean cross-entropy of the answers' tokens, in nats. A question is there to be answered, not to be
/// learned, so no logits are computed for it.
fn loss_of(model: &Model, batch: &Batch) -> candle_core::Result<Tensor> {
    let hidden = model.forward(&batch.inputs, None)?.index_select(&batch.rows, 0)?;
    loss::cross_entropy(&model.logits(&hidden)?, &batch.targets)
}

/// Normal weights, ones for the norms, zeros for the biases.
fn initial(config: &Config, seed: u64) -> Result<HashMap<String, Var>, NativeError> {
    const EMBEDDING_DEVIATION: f64 = 0.05;
    let mut variables = HashMap::new();
    for (name, shape) in config.tensors() {
        let count = shape.iter().product();
        let mut random = Random::new(seed, &name);
        let values: Vec<f32> = match &shape[..] {
            [_] => vec![if name.ends_with("norm.weight") { 1.0 } else { 0.0 }; count],
            [_, inputs, ..] => {
                let fan_in = (1.0 / *inputs as f64).sqrt();
                let deviation =
                    if name.contains("embed_tokens") { EMBEDDING_DEVIATION } else { fan_in };
                (0..count).map(|_| (random.normal() * deviation) as f32).collect()
            }
            [] => Vec::new(),
        };
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?;
        variables.insert(name, Var::from_tensor(&tensor)?);
    }
    Ok(variables)
}

/// Warm-up, then half a cosine.
fn rate(step: u32, steps: u32) -> f64 {
    if step < WARM_UP_STEPS {
        return RATE_MAX * f64::from(step + 1) / f64::from(WARM_UP_STEPS);
    }
    let share = f64::from(step - WARM_UP_STEPS) / f64::from((steps - WARM_UP_STEPS).max(1));
    RATE_MIN + (RATE_MAX - RATE_MIN) * 0.5 * (1.0 + (std::f64::consts::PI * share).cos())
}

/// What one step learns from.
struct Batch {
    /// Tokens `[BATCH, T]`, `T` being the longest of them.
    inputs: Tensor,
    /// Which of the `BATCH * T` hidden states tell a token of an answer, `[N]`.
    rows: Tensor,
    /// Those tokens, `[N]`.
    targets: Tensor,
}

/// Exchanges in random order, one per row: as a chat begins.
struct Batches {
    exchanges: Vec<Encoded>,
    /// What is left of this pass over the exchanges.
    order: Vec<usize>,
    random: Random,
}

struct Encoded {
    ids: Vec<u32>,
    /// Where the answer begins.
    answer_at: usize,
}

impl Batches {
    fn new(tokenizer: &Tokenizer, seed: u64) -> Result<Self, NativeError> {
        let exchanges = corpus::exchanges()
            .map(|corpus::Exchange { question, answer }| {
                let asked =
                    format!("{TURN_START}user\n{question}{TURN_END}\n{TURN_START}assistant\n");
                let mut ids = tokenizer.encode(asked, false)?.get_ids().to_vec();
                let answer_at = ids.len();
                let answered = tokenizer.encode(format!("{answer}{TURN_END}"), false)?;
                ids.extend_from_slice(answered.get_ids());
                Ok(Encoded { ids, answer_at })
            })
            .collect::<Result<_, NativeError>>()?;
        Ok(Self { exchanges, order: Vec::new(), random: Random::new(seed, "batches") })
    }

    fn next(&mut self) -> Result<Batch, NativeError> {
        let drawn: Vec<usize> = (0..BATCH).map(|_| self.draw()).collect();
        let drawn: Vec<&Encoded> = drawn.iter().map(|index| &self.exchanges[*index]).collect();
        // The last token is only told, not read.
        let length = drawn.iter().map(|it| it.ids.len() - 1).max().unwrap_or(1).min(LENGTH);
        let (mut inputs, mut rows, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for (row, Encoded { ids, answer_at }) in drawn.into_iter().enumerate() {
            inputs.extend((0..length).map(|at| ids.get(at).copied().unwrap_or(0)));
            for at in answer_at - 1..length.min(ids.len() - 1) {
                rows.push((row * length + at) as u32);
                targets.push(ids[at + 1]);
            }
        }
        let told = targets.len();
        Ok(Batch {
            inputs: Tensor::from_vec(inputs, (BATCH, length), &Device::Cpu)?,
            rows: Tensor::from_vec(rows, told, &Device::Cpu)?,
            targets: Tensor::from_vec(targets, told, &Device::Cpu)?,
        })
    }

    /// Every exchange once before any twice.
    fn draw(&mut self) -> usize {
        if self.order.is_empty() {
            self.order = (0..self.exchanges.len()).collect();
        }
        let at = self.random.below(self.order.len());
        self.order.swap_remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make::{Shape, train_tokenizer};

    fn tiny() -> Config {
        Config::parse(Shape::Tiny.config(2).to_string().as_bytes()).expect("a configuration")
    }

    #[test]
    fn every_variable_has_a_gradient() {
        let (config, tokenizer) = (tiny(), train_tokenizer().expect("a tokenizer"));
        let variables = initial(&config, 1).expect("variables");
        let model = model(&config, &variables).expect("a model");
        let batch = Batches::new(&tokenizer, 1).and_then(|mut batches| batches.next());
        let loss = loss_of(&model, &batch.expect("a batch")).expect("a loss");
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
                if let Progress::Training { loss, .. } = progress {
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
