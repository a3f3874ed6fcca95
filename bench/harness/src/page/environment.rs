//! Where and how a record was measured: the command, the machine, its quiet, the voids, every process, the suite.

use confide_estimate::quantile;

use super::view::RecordView;
use crate::{
    document::{Block, Section},
    format::format_number,
    host::facts::Fact,
    record::Record,
    samples::Slice,
    utc::format_utc,
};

/// The most voids that are listed; more than these have one cause.
const VOIDS_SHOWN: usize = 60;

/// Builds the section of the command, the machine and the voids. A page folds the machine where it
/// has `many` records.
pub(super) fn environment_section(view: &RecordView<'_>, many: bool) -> Section {
    let record = view.record;
    let mut blocks = vec![
        Block::Code(format_command_line(record)),
        Block::Folded {
            summary: "The machine and the run".to_owned(),
            is_open: !many,
            blocks: fact_blocks(record, view.slices),
        },
    ];
    if !record.voids.is_empty() {
        let blocks_of_voids = vec![Block::Code(describe_voids(record))];
        let summary = "Excluded runs".to_owned();
        blocks.push(Block::Folded { summary, is_open: true, blocks: blocks_of_voids });
    }
    Section::new("Environment, and the command that repeats this run", blocks)
}

/// Builds what only a page has room for: every process, and the suite's text.
pub(super) fn source_blocks(record: &Record) -> Vec<Block> {
    let fold = |summary: &str, text: String| Block::Folded {
        summary: summary.to_owned(),
        is_open: false,
        blocks: vec![Block::Code(text)],
    };
    vec![
        fold("Commands of all processes", describe_processes(record)),
        fold("The suite", record.suite.text.clone()),
    ]
}

/// Returns the command as it was given, for a shell.
pub(super) fn format_command_line(record: &Record) -> String {
    record.command.iter().map(|word| quote_word(word)).collect::<Vec<_>>().join(" ")
}

/// Quotes a word where a shell would not read it as one word.
fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Lists the facts of the run and of the machine, group by group.
fn fact_blocks(record: &Record, slices: &[Slice]) -> Vec<Block> {
    let run = [
        ("started", format_utc(record.started_unix_s)),
        ("seed of the plan", record.seed.to_string()),
        ("version", format!("confide {}", record.version)),
        ("commit of the working folder", record.commit.clone()),
        ("suite, SHA-256", format!("{} {}", record.suite.name, record.suite.sha256)),
        (
            "end of the chain of hashes",
            record.chain_end().unwrap_or("none: the record is of an older layout").to_owned(),
        ),
        ("disturbance during the run", describe_interference(slices)),
    ];
    let run = run.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
    let mut blocks = vec![Block::Heading("The run".to_owned()), Block::Facts(run)];
    for group in record.machine.facts() {
        let fact = |Fact { name, value, note, .. }: Fact| {
            let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
            (name, format!("{value}{note}"))
        };
        blocks.push(Block::Heading(group.title.to_owned()));
        blocks.push(Block::Facts(group.facts.into_iter().map(fact).collect()));
    }
    blocks
}

/// Describes how quiet the machine was while slices ran.
fn describe_interference(slices: &[Slice]) -> String {
    let measured = || slices.iter().filter(|slice| !slice.warmup);
    let centre = |values: Vec<f64>| quantile(&values, 0.5);
    let percent = |share: Option<f64>| {
        share
            .map_or_else(|| "unknown".into(), |share| format!("{} %", format_number(share * 100.0)))
    };
    let psi: Vec<f64> = measured().filter_map(|slice| slice.quiet.psi_cpu).collect();
    let steal: Vec<f64> = measured().filter_map(|slice| slice.quiet.steal).collect();
    let mut loops: Vec<f64> = measured().map(|slice| slice.quiet.calibration_us).collect();
    loops.sort_by(f64::total_cmp);
    let spread = quantile(&loops, 0.05).zip(quantile(&loops, 0.95));
    let spread = spread.map_or_else(String::new, |(low, high)| {
        format!(
            "; calibration loop {} to {} µs (p5 to p95)",
            format_number(low),
            format_number(high)
        )
    });
    let mean_steal = confide_estimate::mean(&steal);
    format!(
        "PSI cpu {} (median slice); steal {} (mean){spread}",
        percent(centre(psi)),
        percent(mean_steal)
    )
}

fn describe_processes(record: &Record) -> String {
    let services = record.services.iter().map(|service| {
        let ready = serde_json::to_string(&service.ready).unwrap_or_default();
        format!("{}\n    {ready}", service.command.join(" "))
    });
    let arms = record.arms.iter().filter(|arm| !arm.twin);
    let arms = arms.map(|arm| format!("{}: {}", arm.bench, arm.command.join(" ")));
    services.chain(arms).collect::<Vec<_>>().join("\n")
}

fn describe_voids(record: &Record) -> String {
    let voids = record.voids.iter().take(VOIDS_SHOWN).map(|void| {
        format!("{} {} block {} {}: {}", void.bench, void.case, void.block, void.arm, void.reason)
    });
    let more = record.voids.len().saturating_sub(VOIDS_SHOWN);
    let more = (more > 0).then(|| format!("and {more} more, in record.json"));
    voids.chain(more).collect::<Vec<_>>().join("\n")
}
