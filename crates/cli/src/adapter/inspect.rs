//! `confide adapter inspect`: what an adapter contains, and what its protection costs.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::ExitCode,
};

use confide_lora::{
    Adapter, AnswerAllowance, ENTRIES_MAX, Guarantee, LayerInput, LoraPair, PeftError, Projection,
    ProjectionSite, ProjectionWidth, ProtectedMatrices, QuantisedWeights, RANK_MAX, WIDTH_MAX,
    peft::{BaseFolder, Config},
};
use confide_rlwe::ParameterSet;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{error::CliError, process::print_text};

/// The parameter set whose capacity decides what fits.
const SET: &str = "rlwe-4096-q100-flood40";
/// Slots of report 003's parameters, N = 16384: the whole input must fit into them.
const TENSAFE_SLOTS: usize = 8192;

/// Shows what an adapter of PEFT contains, and what its protection costs.
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
    let config = Config::load(&args.dir).map_err(explain_error)?;
    let adapter = match &args.base {
        None => Adapter::load(&args.dir),
        Some(base) => {
            let base = BaseFolder::open(base).map_err(explain_error)?;
            Adapter::load_with_base(&args.dir, &base)
        }
    };
    let adapter = adapter.map_err(explain_error)?;
    let view = AdapterView::new(&config, &adapter)?;
    let text = if args.json { format!("{:#}\n", view.to_json()) } else { view.to_text() };
    print_text(&text).map(|()| ExitCode::SUCCESS)
}

/// Explains why an adapter cannot be read, and what to try.
fn explain_error(error: PeftError) -> CliError {
    let hint = match &error {
        PeftError::Pickle { .. } => {
            "write it again with PEFT: model.save_pretrained(DIR, safe_serialization=True)"
        }
        PeftError::BaseNeeded => {
            "give the base model's folder with --base: DoRA's magnitudes depend on its weights"
        }
        PeftError::Field { field, .. } if field == "init_lora_weights" => {
            "this initialisation changed the base model: let PEFT convert the adapter \
             (path_initial_model_for_weight_conversion)"
        }
        PeftError::Field { field, .. } if field == "modules_to_save" || field == "bias" => {
            "an adapter host holds LoRA matrices only: train without this option"
        }
        PeftError::Read { .. } => "an adapter is the folder that PEFT's save_pretrained wrote",
        _ => return CliError::new(error),
    };
    CliError::new(&error).with_hint(hint)
}

/// An adapter as it is shown.
struct AdapterView<'a> {
    config: &'a Config,
    adapter: &'a Adapter,
    pairs: Vec<PairView>,
    inputs: Vec<InputView>,
    fits: Vec<SchemeFit>,
}

/// A pair of matrices, A of `rank × input_width` and B of `output_width × rank` numbers.
#[derive(Clone, PartialEq, Serialize)]
struct PairView {
    layer: u32,
    projection: &'static str,
    input_width: usize,
    output_width: usize,
    rank: usize,
    scale: f64,
}

/// An input vector, which is sent once for all projections that read it.
#[derive(Clone, PartialEq, Serialize)]
struct InputView {
    layer: u32,
    input: &'static str,
    width: usize,
    projections: Vec<&'static str>,
    answers_that_determine: usize,
    answers_packed: u64,
    default_budget: u64,
    rows_a: usize,
    rows_ba: usize,
}

/// Whether a scheme can run the adapter, with its cost or the reason why it cannot.
#[derive(Serialize)]
struct SchemeFit {
    scheme: &'static str,
    protect: Option<&'static str>,
    fits: bool,
    why: String,
}

impl SchemeFit {
    fn new(
        scheme: &'static str,
        protect: Option<&'static str>,
        outcome: Result<String, String>,
    ) -> Self {
        let fits = outcome.is_ok();
        Self { scheme, protect, fits, why: outcome.unwrap_or_else(|reason| reason) }
    }
}

impl<'a> AdapterView<'a> {
    fn new(config: &'a Config, adapter: &'a Adapter) -> Result<Self, CliError> {
        let set = ParameterSet::from_name(SET).map_err(CliError::new)?;
        let groups = group_by_input(adapter);
        let inputs: Vec<InputView> = groups
            .iter()
            .map(|((layer, input), pairs)| InputView::new(*layer, *input, pairs))
            .collect();
        let pairs = adapter.modules.iter().map(|(site, pair)| PairView::new(*site, pair)).collect();
        let fits = assess_schemes(adapter, &groups, &inputs, &set);
        Ok(Self { config, adapter, pairs, inputs, fits })
    }

    fn layer_count(&self) -> usize {
        self.adapter.modules.keys().map(|site| site.layer).collect::<BTreeSet<_>>().len()
    }

    fn to_text(&self) -> String {
        let Self { config, adapter, .. } = self;
        let base = adapter.base_model.as_deref().unwrap_or("not named");
        let root = if config.is_rslora() { " over the rank's root" } else { " over the rank" };
        let dora =
            if config.is_dora() { ", DoRA's magnitudes folded: pairs of full rank" } else { "" };
        format!(
            "{}\n  base model  {base}\n  rank {}, alpha {}{root}{dora}\n  \
             {} pairs in {} layers, {} parameters, {} in 32-bit floats\n\n{}\n{}\n  \
             answers: this many packed answers reveal every matrix that reads the input; honest \
             queries may reveal it with fewer.\n  \
             budget: the default number of answers for a client, one for each token.\n  \
             guarantee: {}; with accepted attestation of the key holder\n  {}.\n\n{}",
            adapter.name,
            config.rank(),
            config.alpha(),
            self.pairs.len(),
            self.layer_count(),
            adapter.parameter_count(),
            format_bytes(adapter.parameter_count() * 4),
            format_table(
                &["projection", "layers", "input", "output", "rank", "scale"],
                self.pair_rows()
            ),
            format_table(
                &["input", "read by", "layers", "width", "answers", "budget"],
                self.input_rows()
            ),
            default_guarantee(false),
            default_guarantee(true),
            format_table(&["scheme", "protect", "fits", "cost or reason"], self.fit_rows()),
        )
    }

    fn pair_rows(&self) -> Vec<Vec<String>> {
        let pairs =
            self.pairs.iter().map(|pair| (pair.layer, PairView { layer: 0, ..pair.clone() }));
        let row = |(layers, pair): (Vec<u32>, PairView)| {
            let PairView { projection, input_width, output_width, rank, scale, .. } = pair;
            let mut row = vec![projection.to_owned(), format_ranges(&layers)];
            row.extend([input_width, output_width, rank].map(|number| number.to_string()));
            row.push(format!("{scale:.4}").trim_end_matches('0').trim_end_matches('.').into());
            row
        };
        group_layers_by_value(pairs).into_iter().map(row).collect()
    }

    fn input_rows(&self) -> Vec<Vec<String>> {
        // What the table does not show must not keep layers apart.
        let inputs = self.inputs.iter().map(|view| {
            (view.layer, InputView { layer: 0, rows_a: 0, rows_ba: 0, ..view.clone() })
        });
        let row = |(layers, view): (Vec<u32>, InputView)| {
            let numbers = [view.width as u64, view.answers_packed, view.default_budget];
            let mut row =
                vec![view.input.into(), view.projections.join(" "), format_ranges(&layers)];
            row.extend(numbers.map(|number| number.to_string()));
            row
        };
        group_layers_by_value(inputs).into_iter().map(row).collect()
    }

    fn fit_rows(&self) -> Vec<Vec<String>> {
        let row = |fit: &SchemeFit| {
            let fits = if fit.fits { "yes" } else { "no" };
            vec![fit.scheme.into(), fit.protect.unwrap_or("-").into(), fits.into(), fit.why.clone()]
        };
        self.fits.iter().map(row).collect()
    }

    fn to_json(&self) -> Value {
        let Self { config, adapter, pairs, inputs, fits } = self;
        json!({
            "name": adapter.name, "base_model": adapter.base_model, "rank": config.rank(),
            "alpha": config.alpha(), "use_rslora": config.is_rslora(), "use_dora": config.is_dora(),
            "layers": self.layer_count(), "parameters": adapter.parameter_count(),
            "f32_bytes": adapter.parameter_count() * 4, "pairs": pairs, "inputs": inputs, "fits": fits,
            "guarantee_without_attestation": default_guarantee(false).to_string(),
            "guarantee_with_attestation": default_guarantee(true).to_string(),
        })
    }
}

impl PairView {
    fn new(site: ProjectionSite, pair: &LoraPair) -> Self {
        let ProjectionWidth { input, output } = pair.width();
        Self {
            layer: site.layer,
            projection: site.projection.name(),
            input_width: input,
            output_width: output,
            rank: pair.rank(),
            scale: pair.scale,
        }
    }
}

impl InputView {
    fn new(layer: u32, input: LayerInput, pairs: &[(Projection, &LoraPair)]) -> Self {
        let width = pairs.first().map_or(0, |(_, pair)| pair.width().input);
        Self {
            layer,
            input: input_name(input),
            width,
            projections: pairs.iter().map(|(projection, _)| projection.name()).collect(),
            answers_that_determine: width,
            // An answer has 33 bits, an entry of A 13, so two entries fit into one answer.
            answers_packed: width.div_ceil(2) as u64,
            default_budget: AnswerAllowance::BelowWidth.limit(width).unwrap_or(0),
            rows_a: pairs.iter().map(|(_, pair)| pair.rank()).sum(),
            rows_ba: pairs.iter().map(|(_, pair)| pair.width().output).sum(),
        }
    }
}

type PairsByInput<'a> = BTreeMap<(u32, LayerInput), Vec<(Projection, &'a LoraPair)>>;

fn group_by_input(adapter: &Adapter) -> PairsByInput<'_> {
    let mut groups = PairsByInput::new();
    for (site, pair) in &adapter.modules {
        let group = groups.entry((site.layer, site.projection.input())).or_default();
        group.push((site.projection, pair));
    }
    groups
}

/// The default guarantee of a host, for key holders with or without attestation.
fn default_guarantee(is_attested: bool) -> Guarantee {
    let allowance =
        if is_attested { AnswerAllowance::Attested } else { AnswerAllowance::BelowWidth };
    Guarantee {
        host_is_blind: true,
        adapter_stays: true,
        b_is_handed_over: true,
        adapter_can_be_learned: allowance.permits_extraction(),
        simulated: false,
    }
}

fn assess_schemes(
    adapter: &Adapter,
    groups: &PairsByInput<'_>,
    inputs: &[InputView],
    set: &ParameterSet,
) -> Vec<SchemeFit> {
    let bits = set.plaintext_bits() as usize;
    let wire = |rows: fn(&InputView) -> usize| {
        let up: usize = inputs.iter().map(|view| (view.width * bits).div_ceil(8)).sum();
        let down: usize = inputs.iter().map(|view| (rows(view) * bits).div_ceil(8)).sum();
        let (up, down, trips) = (format_bytes(up as u64), format_bytes(down as u64), inputs.len());
        format!("{up} up and {down} down in {trips} round trips for each token, online")
    };
    // A is cheap to quantise, so that is tried; the merged product is judged by its size.
    let a = groups.iter().try_for_each(|((layer, _), pairs)| {
        let weights = QuantisedWeights::new(*layer, pairs, ProtectedMatrices::A, set);
        weights.map(|_| ()).map_err(|error| format!("layer {layer}: {error}"))
    });
    let ba = groups.iter().zip(inputs).try_for_each(|((_, pairs), view)| {
        let too_wide = pairs.iter().any(|(_, pair)| {
            pair.width().input.max(pair.width().output) > WIDTH_MAX || pair.rank() > RANK_MAX
        });
        if too_wide || view.width * view.rows_ba > ENTRIES_MAX {
            let InputView { layer, rows_ba, width, .. } = view;
            return Err(format!("layer {layer}: {rows_ba} x {width} is too large"));
        }
        Ok(())
    });
    let slots = match inputs.iter().map(|view| view.width).max() {
        Some(width) if width > TENSAFE_SLOTS => {
            Err(format!("an input of {width} is wider than {TENSAFE_SLOTS} slots"))
        }
        _ => Ok("report 003's layout, in one process; guarantee: none".into()),
    };
    let delta = adapter.clone().into_final_hidden_adapter();
    let delta = delta.map(|_| "report 003's single delta, which is not LoRA".into());
    let direct = |fits: Result<(), String>| fits.map(|()| DIRECT.to_owned());
    let local = Ok("plain LoRA in one process; guarantee: none".into());
    vec![
        SchemeFit::new("masked", Some("A"), a.clone().map(|()| wire(|view| view.rows_a))),
        SchemeFit::new("masked", Some("BA"), ba.clone().map(|()| wire(|view| view.rows_ba))),
        SchemeFit::new("direct", Some("A"), direct(a)),
        SchemeFit::new("direct", Some("BA"), direct(ba)),
        SchemeFit::new("ckks-slots", None, slots),
        SchemeFit::new("final-hidden", None, delta.map_err(|error| error.to_string())),
        SchemeFit::new("local-parity", None, local),
    ]
}

/// The cost of the scheme `direct`.
const DIRECT: &str = "encrypted online, nothing in advance";

fn input_name(input: LayerInput) -> &'static str {
    match input {
        LayerInput::Attention => "attention",
        LayerInput::AttentionOutput => "attention-output",
        LayerInput::FeedForward => "feed-forward",
        LayerInput::FeedForwardInner => "feed-forward-inner",
        LayerInput::FinalHidden => "final-hidden",
    }
}

/// Merges equal values of several layers, in the order of their first layers.
fn group_layers_by_value<V: PartialEq>(
    values: impl Iterator<Item = (u32, V)>,
) -> Vec<(Vec<u32>, V)> {
    let mut rows: Vec<(Vec<u32>, V)> = Vec::new();
    for (layer, value) in values {
        match rows.iter_mut().find(|(_, known)| *known == value) {
            Some((layers, _)) => layers.push(layer),
            None => rows.push((vec![layer], value)),
        }
    }
    rows
}

/// Layers as ranges: `0-3 7`.
fn format_ranges(layers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for layer in layers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *layer => *last = *layer,
            _ => parts.push((*layer, *layer)),
        }
    }
    let part = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" ")
}

fn format_bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} KB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

fn format_table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let head = head.iter().map(|word| word.to_string()).collect();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..all[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_written_as_ranges() {
        assert_eq!(format_ranges(&[0, 1, 2, 5, 7, 8]), "0-2 5 7-8");
        assert_eq!(format_ranges(&[3]), "3");
    }

    #[test]
    fn layers_that_say_the_same_share_a_row() {
        let all = [(0, ('q', 1)), (0, ('k', 2)), (1, ('q', 1)), (2, ('q', 9))];
        let rows = group_layers_by_value(all.into_iter());
        assert_eq!(rows, [(vec![0, 1], ('q', 1)), (vec![0], ('k', 2)), (vec![2], ('q', 9))]);
    }
}
