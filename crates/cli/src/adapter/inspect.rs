//! `confide adapter inspect`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::ExitCode,
};

use confide_lora::{
    Adapter, Allowance, ENTRIES_MAX, Guarantee, Input, Pair, PeftError, Projection, Protect,
    RANK_MAX, Site, WIDTH_MAX, Weights,
    peft::{BaseFolder, Config},
};
use confide_rlwe::ParameterSet;
use serde_json::{Value, json};

use crate::error::CliError;

/// The set whose room decides what fits.
const SET: &str = "rlwe-4096-q100-flood40";
/// Slots of report 003's parameters, N = 16384: the whole input must fit into them.
const TENSAFE_SLOTS: usize = 8192;

/// Says what an adapter of PEFT's holds, and what protecting it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of the adapter: adapter_config.json and adapter_model.safetensors.
    dir: PathBuf,
    /// Folder of the base model, whose weights DoRA needs.
    #[arg(long)]
    base: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let config = Config::load(&args.dir).map_err(explained)?;
    let adapter = match &args.base {
        None => Adapter::load(&args.dir),
        Some(base) => {
            let base = BaseFolder::open(base).map_err(explained)?;
            Adapter::load_with_base(&args.dir, &base)
        }
    };
    let view = View::of(&config, &adapter.map_err(explained)?)?;
    match args.json {
        true => println!("{:#}", view.json()),
        false => view.print(),
    }
    Ok(ExitCode::SUCCESS)
}

/// The library's refusal, with what to try.
pub(crate) fn explained(error: PeftError) -> CliError {
    let hint = match &error {
        PeftError::Pickle { .. } => {
            "write it again with PEFT: model.save_pretrained(DIR, safe_serialization=True)"
        }
        PeftError::BaseNeeded => "give the base model's folder with --base, to fold the magnitudes",
        PeftError::Field { field, .. } if field == "init_lora_weights" => {
            "it changed the base model: let PEFT convert it (path_initial_model_for_weight_conversion)"
        }
        PeftError::Field { field, .. } if field == "modules_to_save" || field == "bias" => {
            "only LoRA matrices can stay with a host: train without it"
        }
        PeftError::Read { .. } => "an adapter is the folder that PEFT's save_pretrained wrote",
        _ => return CliError::new(error),
    };
    CliError::new(&error).hint(hint)
}

/// What is shown.
struct View {
    name: String,
    base_model: Option<String>,
    rank: usize,
    alpha: f64,
    rslora: bool,
    dora: bool,
    parameters: u64,
    layers: usize,
    pairs: Vec<(Site, Shape)>,
    inputs: Vec<(u32, InputView)>,
    fits: Vec<Fit>,
}

#[derive(Clone, Copy, PartialEq)]
struct Shape {
    input: usize,
    output: usize,
    rank: usize,
    scale: f64,
}

/// A vector that is sent once for all that read it.
#[derive(Clone)]
struct InputView {
    input: Input,
    readers: Vec<Projection>,
    width: usize,
    rows_a: usize,
    rows_ba: usize,
}

/// Whether a scheme can run the adapter, and what it takes or why not.
struct Fit {
    scheme: &'static str,
    protect: Option<&'static str>,
    outcome: Result<String, String>,
}

impl View {
    fn of(config: &Config, adapter: &Adapter) -> Result<View, CliError> {
        let set = ParameterSet::from_name(SET).map_err(CliError::new)?;
        let groups = groups(adapter);
        let inputs: Vec<(u32, InputView)> = groups
            .iter()
            .map(|((layer, input), pairs)| (*layer, input_view(*input, pairs)))
            .collect();
        Ok(View {
            name: adapter.name.clone(),
            base_model: adapter.base_model.clone(),
            rank: config.rank(),
            alpha: config.alpha(),
            rslora: config.is_rslora(),
            dora: config.is_dora(),
            parameters: adapter.parameters(),
            layers: adapter.modules.keys().map(|site| site.layer).collect::<BTreeSet<_>>().len(),
            pairs: adapter.modules.iter().map(|(site, pair)| (*site, shape(pair))).collect(),
            fits: fits(adapter, &groups, &inputs, &set),
            inputs,
        })
    }

    fn print(&self) {
        let base = self.base_model.as_deref().unwrap_or("not named");
        println!("{}\n  base model  {base}", self.name);
        let root = if self.rslora { " over the rank's root" } else { " over the rank" };
        let dora = if self.dora { ", DoRA's magnitudes folded: pairs of full rank" } else { "" };
        println!("  rank {}, alpha {}{root}{dora}", self.rank, self.alpha);
        println!(
            "  {} pairs in {} layers, {} parameters, {} in 32-bit floats\n",
            self.pairs.len(),
            self.layers,
            self.parameters,
            bytes(self.parameters * 4)
        );
        table(&["projection", "layers", "input", "output", "rank", "scale"], self.pair_rows());
        println!();
        table(&["input", "read by", "layers", "width", "answers", "budget"], self.input_rows());
        println!(
            "\n  answers: so many packed ones tell all that reads the input, and fewer honest ones may.\n  \
             budget: how many a client has by default, one for each token.\n  \
             guarantee: {}; with accepted attestation of the key holder\n  {}.\n",
            guarantee(false),
            guarantee(true)
        );
        table(&["scheme", "protect", "fits", "what it takes"], self.fit_rows());
    }

    fn pair_rows(&self) -> Vec<Vec<String>> {
        let same = |shape: &Shape, other: &Shape| shape == other;
        let by = self.pairs.iter().map(|(site, shape)| (site.projection, site.layer, *shape));
        merged(by, same)
            .into_iter()
            .map(|(projection, layers, shape)| {
                let Shape { input, output, rank, scale } = shape;
                let numbers = [input, output, rank].map(|number| number.to_string());
                let mut row = vec![projection.to_string(), ranges(&layers)];
                row.extend(numbers);
                row.push(format!("{scale:.4}").trim_end_matches('0').trim_end_matches('.').into());
                row
            })
            .collect()
    }

    fn input_rows(&self) -> Vec<Vec<String>> {
        let by = self.inputs.iter().map(|(layer, view)| (view.input, *layer, view.clone()));
        merged(by, |view, other| (&view.readers, view.width) == (&other.readers, other.width))
            .into_iter()
            .map(|(input, layers, view)| {
                let readers: Vec<&str> = view.readers.iter().map(|reader| reader.name()).collect();
                let numbers = [view.width as u64, packed_answers(view.width), budget(view.width)];
                let mut row = vec![name(input).into(), readers.join(" "), ranges(&layers)];
                row.extend(numbers.map(|number| number.to_string()));
                row
            })
            .collect()
    }

    fn fit_rows(&self) -> Vec<Vec<String>> {
        let row = |fit: &Fit| {
            let (fits, what) = match &fit.outcome {
                Ok(what) => ("yes", what),
                Err(reason) => ("no", reason),
            };
            vec![fit.scheme.into(), fit.protect.unwrap_or("-").into(), fits.into(), what.clone()]
        };
        self.fits.iter().map(row).collect()
    }

    fn json(&self) -> Value {
        let pairs: Vec<Value> = self
            .pairs
            .iter()
            .map(|(site, shape)| {
                json!({
                    "layer": site.layer, "projection": site.projection.name(),
                    "input_width": shape.input, "output_width": shape.output,
                    "rank": shape.rank, "scale": shape.scale,
                })
            })
            .collect();
        let inputs: Vec<Value> = self.inputs.iter().map(|(layer, view)| json!({
            "layer": layer, "input": name(view.input), "width": view.width,
            "projections": view.readers.iter().map(|reader| reader.name()).collect::<Vec<_>>(),
            "answers_that_determine": view.width, "answers_packed": packed_answers(view.width),
            "default_budget": budget(view.width),
            "rows_a": view.rows_a, "rows_ba": view.rows_ba,
        })).collect();
        let fits: Vec<Value> = self
            .fits
            .iter()
            .map(|fit| {
                json!({
                    "scheme": fit.scheme, "protect": fit.protect, "fits": fit.outcome.is_ok(),
                    "why": match &fit.outcome { Ok(what) => what, Err(reason) => reason },
                })
            })
            .collect();
        json!({
            "name": self.name, "base_model": self.base_model, "rank": self.rank,
            "alpha": self.alpha, "use_rslora": self.rslora, "use_dora": self.dora,
            "layers": self.layers, "parameters": self.parameters,
            "f32_bytes": self.parameters * 4, "pairs": pairs, "inputs": inputs, "fits": fits,
            "guarantee_without_attestation": guarantee(false).to_string(),
            "guarantee_with_attestation": guarantee(true).to_string(),
        })
    }
}

type Groups<'a> = BTreeMap<(u32, Input), Vec<(Projection, &'a Pair)>>;

fn groups(adapter: &Adapter) -> Groups<'_> {
    let mut groups = Groups::new();
    for (site, pair) in &adapter.modules {
        let group = groups.entry((site.layer, site.projection.input())).or_default();
        group.push((site.projection, pair));
    }
    groups
}

fn input_view(input: Input, pairs: &[(Projection, &Pair)]) -> InputView {
    InputView {
        input,
        readers: pairs.iter().map(|(projection, _)| *projection).collect(),
        width: pairs.first().map_or(0, |(_, pair)| pair.width().input),
        rows_a: pairs.iter().map(|(_, pair)| pair.rank()).sum(),
        rows_ba: pairs.iter().map(|(_, pair)| pair.width().output).sum(),
    }
}

fn shape(pair: &Pair) -> Shape {
    let width = pair.width();
    Shape { input: width.input, output: width.output, rank: pair.rank(), scale: pair.scale }
}

fn budget(width: usize) -> u64 {
    Allowance::BelowWidth.limit(width).unwrap_or(0)
}

/// Answers that tell every entry of A: an answer has 33 bits, an entry 13, so two fit into one.
fn packed_answers(width: usize) -> u64 {
    width.div_ceil(2) as u64
}

/// What a host says by default to key holders of either kind.
fn guarantee(is_attested: bool) -> Guarantee {
    let allowance = if is_attested { Allowance::Attested } else { Allowance::BelowWidth };
    Guarantee {
        host_is_blind: true,
        adapter_stays: true,
        b_is_handed_over: true,
        adapter_can_be_learned: allowance.lets_learn(),
        simulated: false,
    }
}

fn fits(
    adapter: &Adapter,
    groups: &Groups<'_>,
    inputs: &[(u32, InputView)],
    set: &ParameterSet,
) -> Vec<Fit> {
    let bits = set.plaintext_bits() as usize;
    let wire = |rows: fn(&InputView) -> usize| {
        let up: usize = inputs.iter().map(|(_, view)| (view.width * bits).div_ceil(8)).sum();
        let down: usize = inputs.iter().map(|(_, view)| (rows(view) * bits).div_ceil(8)).sum();
        let (up, down, trips) = (bytes(up as u64), bytes(down as u64), inputs.len());
        format!("{up} up and {down} down in {trips} round trips for each token, online")
    };
    // A is cheap to quantise, so it is done; the merged product is judged by its size.
    let a = groups.iter().try_for_each(|((layer, _), pairs)| {
        let weights = Weights::new(*layer, pairs, Protect::A, set);
        weights.map(|_| ()).map_err(|error| format!("layer {layer}: {error}"))
    });
    let ba = groups.iter().zip(inputs).try_for_each(|((_, pairs), (layer, view))| {
        let too_wide = pairs.iter().any(|(_, pair)| {
            pair.width().input.max(pair.width().output) > WIDTH_MAX || pair.rank() > RANK_MAX
        });
        match too_wide || view.width * view.rows_ba > ENTRIES_MAX {
            true => Err(format!("layer {layer}: {} x {} is too large", view.rows_ba, view.width)),
            false => Ok(()),
        }
    });
    let slots = match inputs.iter().map(|(_, view)| view.width).max() {
        Some(width) if width > TENSAFE_SLOTS => {
            Err(format!("an input of {width} is wider than {TENSAFE_SLOTS} slots"))
        }
        _ => Ok("report 003's layout, in one process; guarantee: none".into()),
    };
    let one = adapter.clone().into_final_hidden();
    let one = one.map(|_| "report 003's single delta, which is no LoRA".into());
    let direct = "encrypted online, nothing beforehand";
    vec![
        Fit {
            scheme: "masked",
            protect: Some("A"),
            outcome: a.clone().map(|()| wire(|v| v.rows_a)),
        },
        Fit {
            scheme: "masked",
            protect: Some("BA"),
            outcome: ba.clone().map(|()| wire(|v| v.rows_ba)),
        },
        Fit { scheme: "direct", protect: Some("A"), outcome: a.map(|()| direct.into()) },
        Fit { scheme: "direct", protect: Some("BA"), outcome: ba.map(|()| direct.into()) },
        Fit { scheme: "ckks-slots", protect: None, outcome: slots },
        Fit {
            scheme: "final-hidden",
            protect: None,
            outcome: one.map_err(|error| error.to_string()),
        },
        Fit {
            scheme: "local-parity",
            protect: None,
            outcome: Ok("plain LoRA in one process; guarantee: none".into()),
        },
    ]
}

fn name(input: Input) -> &'static str {
    match input {
        Input::Attention => "attention",
        Input::AttentionOutput => "attention-output",
        Input::FeedForward => "feed-forward",
        Input::FeedForwardInner => "feed-forward-inner",
        Input::FinalHidden => "final-hidden",
    }
}

/// Layers that say the same, together.
fn merged<K: Ord + Copy, V>(
    all: impl Iterator<Item = (K, u32, V)>,
    same: fn(&V, &V) -> bool,
) -> Vec<(K, Vec<u32>, V)> {
    let mut rows: Vec<(K, Vec<u32>, V)> = Vec::new();
    for (key, layer, value) in all {
        match rows.iter_mut().find(|(other, _, like)| *other == key && same(like, &value)) {
            Some((_, layers, _)) => layers.push(layer),
            None => rows.push((key, vec![layer], value)),
        }
    }
    rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    rows
}

/// `0-3 7`.
fn ranges(layers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for layer in layers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *layer => *last = *layer,
            _ => parts.push((*layer, *layer)),
        }
    }
    let part = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" ")
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} KB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

fn table(head: &[&str], rows: Vec<Vec<String>>) {
    let head = head.iter().map(|word| word.to_string()).collect();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let columns = all[0].len();
    let width = |column: usize| all.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in &all {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_written_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2 5 7-8");
        assert_eq!(ranges(&[3]), "3");
    }

    #[test]
    fn layers_that_say_the_same_share_a_row() {
        let all = [('q', 0, 1), ('k', 0, 2), ('q', 1, 1), ('q', 2, 9)];
        let rows = merged(all.into_iter(), |value, other| value == other);
        assert_eq!(rows, [('k', vec![0], 2), ('q', vec![0, 1], 1), ('q', vec![2], 9)]);
    }
}
