//! `confide-arm adapter-token`: a complete LoRA, one token after the other, without a base model.
//!
//! A decode loop asks input after input, and each needs what the one before gave. So does this: one
//! question is open at a time.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Instant};

use clap::ValueEnum;
use confide_arm_line::{Hello, Outcome, Report, Run, Sample, serve_runs};
use confide_lora::{
    Adapter, DeltaProvider, DeltaSession, LayerInput, Projection, ProjectionSite,
    holder::RemoteAdapter,
    plain::{self, LocalAdapter},
    protocol,
};
use serde_json::json;

use super::{
    floor, masked::combined_guarantee, problem::Random, remote, spans::duration_differences,
};
use crate::version::VERSION;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The adapter, in PEFT's format: the plain scheme applies it, and answers are compared with it.
    #[arg(long)]
    adapter: PathBuf,
    /// The scheme that protects the adapter's inputs.
    #[arg(long, value_enum)]
    scheme: Scheme,
    /// Address of the adapter host; without it, a host in this process answers.
    #[arg(long)]
    host: Option<SocketAddr>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scheme {
    /// Plain LoRA in this process.
    Plain,
    /// Masks that are prepared ahead of time.
    Masked,
    /// Each vector is encrypted when it arrives.
    Direct,
}

/// Relative distance of a delta from float64 beyond which an answer is wrong.
const ERROR_MAX: f64 = 2e-3;

/// A vector of the model, by layer and place, with the projections that read it.
struct InputSite {
    layer: u32,
    input: LayerInput,
    width: usize,
    outputs: Vec<(Projection, usize)>,
}

struct TokenArm {
    adapter: Arc<Adapter>,
    stages: Vec<InputSite>,
    deltas: Box<dyn DeltaSession>,
    /// The holder that makes the masks, for the masked scheme.
    mask_source: Option<Arc<RemoteAdapter>>,
    /// Time in ms that the masks of one token took, once it is known.
    offline_ms: Option<f64>,
    /// The instant at which the preparers began.
    connected: Instant,
    read_bytes_per_s: f64,
}

pub(crate) fn run(args: Args) -> Outcome {
    let adapter = Adapter::load(&args.adapter)?;
    let adapter = Arc::new(adapter);
    let connected = Instant::now();
    let connect = |scheme| remote::connect(&adapter, args.host, scheme).map(Arc::new);
    let (adapt, mask_source): (Arc<dyn DeltaProvider>, _) = match args.scheme {
        Scheme::Plain => (Arc::new(LocalAdapter::new(Arc::clone(&adapter))), None),
        Scheme::Masked => {
            let remote = connect(protocol::Scheme::Masked)?;
            (Arc::clone(&remote) as _, Some(remote))
        }
        Scheme::Direct => (connect(protocol::Scheme::Direct)?, None),
    };
    let guarantee = match (args.scheme, args.host) {
        (Scheme::Plain, _) | (_, Some(_)) => adapt.guarantee().to_string(),
        (_, None) => combined_guarantee(adapt.guarantee()),
    };
    let hello = Hello {
        simulated: adapt.guarantee().simulated,
        guarantee: Some(guarantee),
        ..Hello::new("complete LoRA, one token at a time", VERSION)
    };
    let mut arm = TokenArm {
        stages: input_sites(adapt.as_ref()),
        adapter,
        deltas: adapt.open_session()?,
        mask_source,
        offline_ms: None,
        connected,
        read_bytes_per_s: floor::measure_memory_read_bytes_per_s(),
    };
    serve_runs(&hello, |order| arm.measure(order))
}

fn input_sites(adapt: &dyn DeltaProvider) -> Vec<InputSite> {
    let mut stages: BTreeMap<(u32, LayerInput), InputSite> = BTreeMap::new();
    for (site, width) in adapt.sites() {
        let input = site.projection.input();
        let stage = stages.entry((site.layer, input)).or_insert_with(|| InputSite {
            layer: site.layer,
            input,
            width: width.input,
            outputs: Vec::new(),
        });
        stage.outputs.push((site.projection, width.output));
    }
    stages.into_values().collect()
}

impl TokenArm {
    fn measure(&mut self, order: &Run) -> Outcome<Report> {
        order.refuse_unknown_params(&["layers"])?;
        let here = self.stages.iter().map(|stage| stage.layer + 1).max().unwrap_or(0);
        let layers = order.integer_param("layers", u64::from(here))?;
        if layers != u64::from(here) {
            return Err(format!("param layers: wanted the adapter's {here}, got {layers}").into());
        }
        let offline_ms = self.await_masks()?;
        let mut report =
            order.measure_each(|number| self.measure_token(order.seed ^ number, offline_ms))?;
        let rate = self.read_bytes_per_s / floor::BASE_BYTES;
        let name = "base model in bf16 at this machine's rate of reading memory";
        report.floor = Some((name.into(), "tokens_per_s".into(), rate));
        Ok(report)
    }

    /// Waits for one batch of each input, and says what its masks cost a token. The preparers began
    /// when the connection was opened, a moment ago: the first run's arm does nothing else.
    fn await_masks(&mut self) -> Outcome<f64> {
        if let Some(known) = self.offline_ms {
            return Ok(known);
        }
        let Some(remote) = &self.mask_source else { return Ok(0.0) };
        let progress = remote.wait_until_prepared(1, remote::PREPARE_DEADLINE, |_| ());
        progress?;
        let tokens = remote::batch_tokens()? as f64;
        let offline_ms = self.connected.elapsed().as_secs_f64() * 1e3 / tokens;
        Ok(*self.offline_ms.insert(offline_ms))
    }

    /// Every stage once, in the order of a decode loop.
    fn measure_token(&mut self, seed: u64, offline_ms: f64) -> Outcome<Sample> {
        let mut random = Random(seed);
        let inputs: Vec<Vec<f32>> = self
            .stages
            .iter()
            .map(|stage| (0..stage.width).map(|_| random.normal()).collect())
            .collect();
        let mut outputs: Vec<Vec<(Projection, Vec<f32>)>> = self
            .stages
            .iter()
            .map(|stage| stage.outputs.iter().map(|(p, width)| (*p, vec![0.0; *width])).collect())
            .collect();
        let before = self.deltas.report();
        let began = Instant::now();
        for ((stage, input), outputs) in self.stages.iter().zip(&inputs).zip(&mut outputs) {
            let mut room: Vec<(Projection, &mut [f32])> =
                outputs.iter_mut().map(|(p, values)| (*p, values.as_mut_slice())).collect();
            self.deltas.add_deltas(stage.layer, stage.input, input, &mut room)?;
        }
        let token_ms = began.elapsed().as_secs_f64() * 1e3;
        let after = self.deltas.report();
        let parts = duration_differences(&before.steps_ms, &after.steps_ms);
        let mut sample = Sample::new([
            ("token_ms", token_ms),
            ("offline_ms", offline_ms),
            ("remainder_ms", token_ms - parts.values().sum::<f64>()),
            ("online_tokens_per_s", 1e3 / token_ms),
            ("tokens_per_s", 1e3 / (token_ms + offline_ms)),
            ("online_bytes", (after.online_bytes - before.online_bytes) as f64),
            ("round_trips_ratio", (after.round_trips - before.round_trips) as f64),
        ]);
        parts.into_iter().for_each(|(name, ms)| sample.set(name, ms));
        let error = self.largest_relative_error(seed, &inputs, &outputs);
        sample.set("delta_error_ratio", error);
        sample.answer = json!({ "close": error <= ERROR_MAX });
        Ok(sample)
    }

    /// The greatest relative error of one stage of the token, another one each time: float64 takes
    /// longer than the token.
    fn largest_relative_error(
        &self,
        seed: u64,
        inputs: &[Vec<f32>],
        outputs: &[Vec<(Projection, Vec<f32>)>],
    ) -> f64 {
        let at = seed as usize % self.stages.len().max(1);
        let input: Vec<f64> = inputs[at].iter().copied().map(f64::from).collect();
        let layer = self.stages[at].layer;
        let mut worst = 0.0f64;
        for (projection, got) in &outputs[at] {
            let site = ProjectionSite { layer, projection: *projection };
            let Some(pair) = self.adapter.modules.get(&site) else { return f64::INFINITY };
            let exact = plain::delta(pair, &input);
            let apart: f64 =
                exact.iter().zip(got).map(|(right, got)| (right - f64::from(*got)).powi(2)).sum();
            let size: f64 = exact.iter().map(|right| right * right).sum();
            worst = worst.max((apart / size).sqrt());
        }
        worst
    }
}
