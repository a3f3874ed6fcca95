//! Noise on the embeddings that leave, and a table of what it costs.

use std::process::ExitCode;

use confide_engine::{EngineError, Request};
use confide_report_003::{
    privacy::{GaussianMechanism, PrivacyLoss},
    split_mode::ClientHead,
};
use serde_json::json;

use super::remote::{RemoteTransformer, TokenInput};
use crate::{error::CliError, process::print_text, report_003::head::ModelHead};

/// The arguments of the noise on embeddings, which is off by default because it costs quality.
#[derive(clap::Args)]
pub(super) struct NoiseArgs {
    /// Add Gaussian noise to each embedding that is sent, so that each one alone has differential privacy
    /// with this epsilon. The losses of a text's tokens compose; the resulting epsilon is shown after each token
    #[arg(long, value_name = "E")]
    dp_epsilon_per_token: Option<f64>,
    /// The delta for every epsilon
    #[arg(long, value_name = "D", default_value_t = 1e-6)]
    dp_delta: f64,
    /// Clip embeddings to this length; by default the longest of the first 256 rows of the model's table,
    /// which is public
    #[arg(long, value_name = "C")]
    dp_clip: Option<f64>,
    /// Generate no answer: show the cost of noise with these epsilons per token, as JSON lines
    #[arg(long = "dp-table", value_name = "E,E,...", value_delimiter = ',')]
    pub(super) table: Vec<f64>,
}

/// The mechanism that adds noise, for embeddings of `width` elements.
pub(super) struct Noise {
    mechanism: GaussianMechanism,
    width: usize,
}

/// Rows of the embedding table from which the default clip is taken.
const CLIP_ROWS: u32 = 256;

impl NoiseArgs {
    pub(super) fn build_noise(&self, head: &ModelHead) -> Result<Option<Noise>, CliError> {
        self.dp_epsilon_per_token.map(|epsilon| self.noise_with_epsilon(epsilon, head)).transpose()
    }

    fn noise_with_epsilon(&self, epsilon: f64, head: &ModelHead) -> Result<Noise, CliError> {
        let clip = match self.dp_clip {
            Some(clip) => clip,
            None => longest_embedding_length(head)?,
        };
        let mechanism = GaussianMechanism::new(epsilon, self.dp_delta, clip)
            .map_err(|error| CliError::new(format!("noise: {error}")))?;
        Ok(Noise { mechanism, width: head.width() })
    }
}

impl Noise {
    /// Clips each row and adds the noise.
    pub(super) fn add_noise(&mut self, mut rows: Vec<f32>) -> Result<Vec<f32>, EngineError> {
        let mut failure = None;
        let mut random = |bytes: &mut [u8]| {
            if let Err(error) = getrandom::fill(bytes) {
                failure = Some(error);
            }
        };
        for row in rows.chunks_mut(self.width) {
            self.mechanism.release(row, &mut random);
        }
        match failure {
            // Without noise nothing may be sent.
            Some(error) => Err(EngineError::failure(format!("randomness: {error}"))),
            None => Ok(rows),
        }
    }

    pub(super) fn privacy_loss(&self) -> PrivacyLoss {
        self.mechanism.privacy_loss()
    }

    /// What the server learns, with the epsilon of all that was sent until now.
    pub(super) fn guarantee(&self) -> String {
        let (one, all) = (self.mechanism.privacy_loss_after(1), self.privacy_loss());
        format!(
            "differential privacy of what is sent: epsilon {:.3} for one token, {:.3} for all {} \
             sent, at delta {:e}",
            one.epsilon, all.epsilon, all.released, all.delta
        )
    }
}

/// Prints what noise costs: the tokens of an answer without noise are read again with noise, and the logits of each are
/// compared.
pub(super) fn print_noise_costs(
    args: &NoiseArgs,
    head: &ModelHead,
    remote: &mut RemoteTransformer,
    request: &Request,
) -> Result<ExitCode, CliError> {
    let explain = |error: EngineError| CliError::new(error).with_status(1);
    let plain = generate_plain(head, remote, request).map_err(explain)?;
    for epsilon in &args.table {
        let mut noise = args.noise_with_epsilon(*epsilon, head)?;
        let cost = measure_cost(head, remote, &plain, &mut noise).map_err(explain)?;
        let spent = noise.privacy_loss();
        let line = json!({
            "epsilon_per_token": epsilon,
            "delta": spent.delta,
            "sigma": noise.mechanism.sigma(noise.width),
            "tokens": plain.logits.len(),
            "top1_agreement": cost.agreement,
            "logits_relative_error_mean": cost.error,
            "epsilon_of_the_text": spent.epsilon,
            "vectors_sent": spent.released,
        });
        print_text(&format!("{line}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Greedy tokens without noise, and the logits that led to each.
struct PlainRun {
    prompt: Vec<u32>,
    chosen: Vec<u32>,
    logits: Vec<Vec<f32>>,
}

/// Share of the tokens that stay the likeliest, and mean relative error of the logits.
struct NoiseCost {
    agreement: f64,
    error: f64,
}

fn generate_plain(
    head: &ModelHead,
    remote: &mut RemoteTransformer,
    request: &Request,
) -> Result<PlainRun, EngineError> {
    let prompt = head.encode(&request.prompt)?;
    let (mut chosen, mut logits) = (Vec::new(), Vec::new());
    let mut next = prompt.clone();
    remote.restart();
    for _ in 0..request.max_tokens.unwrap_or_default().max(1) {
        let row = head.logits(&remote.forward(TokenInput::Ids(next))?)?;
        let best = likeliest_token(&row);
        logits.push(row);
        chosen.push(best);
        next = vec![best];
    }
    Ok(PlainRun { prompt, chosen, logits })
}

fn measure_cost(
    head: &ModelHead,
    remote: &mut RemoteTransformer,
    plain: &PlainRun,
    noise: &mut Noise,
) -> Result<NoiseCost, EngineError> {
    let (mut same, mut error) = (0usize, 0.0);
    remote.restart();
    for (index, wanted) in plain.logits.iter().enumerate() {
        let next = match index {
            0 => &plain.prompt[..],
            _ => &plain.chosen[index - 1..index],
        };
        let rows = noise.add_noise(head.embed(next)?)?;
        let got = head.logits(&remote.forward(TokenInput::Rows(rows))?)?;
        same += usize::from(likeliest_token(&got) == plain.chosen[index]);
        error += relative_error(&got, wanted);
    }
    let count = plain.logits.len().max(1) as f64;
    Ok(NoiseCost { agreement: same as f64 / count, error: error / count })
}

fn likeliest_token(logits: &[f32]) -> u32 {
    let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    best.unwrap_or_default() as u32
}

fn relative_error(got: &[f32], wanted: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let far: f64 = got.iter().zip(wanted).map(|(g, w)| square(f64::from(*g) - f64::from(*w))).sum();
    let long: f64 = wanted.iter().map(|w| square(f64::from(*w))).sum();
    (far / long.max(f64::MIN_POSITIVE)).sqrt()
}

fn longest_embedding_length(head: &ModelHead) -> Result<f64, CliError> {
    let ids: Vec<u32> = (0..CLIP_ROWS).collect();
    let rows = head.embed(&ids).map_err(CliError::new)?;
    let length = |row: &[f32]| row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
    Ok(rows.chunks(head.width().max(1)).map(length).fold(0.0, f64::max))
}
