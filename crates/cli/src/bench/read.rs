//! `confide bench read`: other tools' figures, and their definitions over an event log of ours.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_load::{
    Figure, Quantity, Tool, ToolView,
    readers::{FILE_BYTES_MAX, read_results},
};

use crate::{error::CliError, files::read_file, process};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Result files of `vllm bench serve`, GuideLLM, AIPerf or inference-perf (.json), and event logs
    /// of `confide bench load` (.jsonl), which are shown by confide's definitions and by each tool's
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let mut columns = Vec::new();
    for path in &args.files {
        columns.extend(read_sources(path)?);
    }
    process::print_text(&render_table(&columns))?;
    Ok(ExitCode::SUCCESS)
}

/// Figures of one run by the definitions of one tool.
struct ResultSource {
    label: String,
    remark: String,
    view: ToolView,
}

impl ResultSource {
    fn new(view: ToolView, label: String, origin: &str) -> Self {
        let word = |count: Option<u64>, what: &str| count.map(|count| format!("{count} {what}, "));
        let completed = word(view.completed, "completed").unwrap_or_default();
        let failed = word(view.failed, "failed").unwrap_or_default();
        Self { label, remark: format!("{completed}{failed}{origin}"), view }
    }

    /// The number of independent values: the figures per token of one request are one value, whatever their weights.
    fn independent_value_count(&self, quantity: Quantity, figure: &Figure) -> Option<u64> {
        let Figure::Spread(spread) = figure else { return None };
        match quantity {
            Quantity::PerToken | Quantity::PerTokenAfterFirst => {
                spread.count.into_iter().chain(self.view.completed).min()
            }
            _ => spread.count,
        }
    }
}

fn read_sources(path: &Path) -> Result<Vec<ResultSource>, CliError> {
    let name = path.display().to_string();
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        let file =
            File::open(path).map_err(|e| CliError::new(format!("cannot read {name}: {e}")))?;
        let logged = confide_load::read_log(BufReader::new(file))
            .map_err(|error| CliError::new(format!("{name}: {error}")))?;
        let view = |tool| ToolView::from_events(tool, &logged.events);
        let own = ResultSource::new(view(Tool::Confide), Tool::Confide.to_string(), &name);
        let origin = "its definitions over the same log";
        let others =
            Tool::OTHERS.map(|tool| ResultSource::new(view(tool), format!("as {tool}"), origin));
        return Ok([own].into_iter().chain(others).collect());
    }
    let bytes = read_file(path, FILE_BYTES_MAX)?;
    let views = read_results(&bytes).map_err(|error| {
        CliError::new(format!("{name}: {error}"))
            .with_hint("an event log of `confide bench load` ends in .jsonl")
    })?;
    let source = |view: ToolView| {
        let version = view.version.as_ref().map_or(String::new(), |version| format!(" {version}"));
        let label = format!("{}{version}", view.tool);
        ResultSource::new(view, label, &name)
    };
    Ok(views.into_iter().map(source).collect())
}

/// Renders the figures by quantity, so that those which tools name differently stand together.
fn render_table(sources: &[ResultSource]) -> String {
    let wide = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
    let labels = wide(&mut sources.iter().map(|source| source.label.chars().count()));
    let definitions = || sources.iter().flat_map(|s| &s.view.figures).map(|(found, _)| found);
    let ids = wide(&mut definitions().map(|definition| definition.id.len()));
    let mut text = String::new();
    for source in sources {
        text += &format!("{:labels$}  {}\n", source.label, source.remark);
    }
    for quantity in Quantity::ALL {
        if !definitions().any(|definition| definition.quantity == quantity) {
            continue;
        }
        text += &format!("\n{}, {}\n", quantity.label(), quantity.unit());
        text += &format!("  {:labels$}  {:ids$}{}\n", "", "", quantity_heading(quantity));
        for source in sources {
            if let Some((definition, figure)) = source.view.figure(quantity) {
                let cells =
                    format_cells(&figure, source.independent_value_count(quantity, &figure));
                text += &format!("  {:labels$}  {:ids$}{cells}\n", source.label, definition.id);
            }
        }
    }
    text += "\n* fewer than ten values lie beyond this percentile\n";
    text
}

fn quantity_heading(quantity: Quantity) -> String {
    if quantity.is_rate() {
        return format!("{:>11} ", "run");
    }
    ["mean", "p50", "p90", "p95", "p99", "max"].map(|name| format!("{name:>11} ")).concat()
        + &format!("{:>9}", "n")
}

fn format_cells(figure: &Figure, values: Option<u64>) -> String {
    let spread = match figure {
        Figure::Rate(rate) => return format!("{rate:>11.2} "),
        Figure::Spread(spread) => spread,
    };
    let cell = |value: Option<f64>, share: f64| {
        let value = value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        // The product of 200 and 0.05 is a hair off 10.
        let thin = values.is_some_and(|count| count as f64 * share + 1e-9 < 10.0);
        format!("{value:>11}{}", if thin && value != "-" { '*' } else { ' ' })
    };
    let count = spread.count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    [
        cell(spread.mean, 1e9),
        cell(spread.p50, 0.5),
        cell(spread.p90, 0.1),
        cell(spread.p95, 0.05),
        cell(spread.p99, 0.01),
        cell(spread.max, 1e9),
    ]
    .concat()
        + &format!("{count:>9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/load/examples").join(name)
    }

    #[test]
    fn what_tools_call_by_other_names_stands_together() {
        let mut columns = read_sources(&example("guidellm-0.8.1.json")).expect("readable");
        columns.extend(read_sources(&example("vllm-written-by-hand.json")).expect("readable"));
        let text = render_table(&columns);
        let (_, per_token) = text.split_once("per token after the first, ms\n").expect("a group");
        let group: Vec<&str> = per_token.lines().skip(1).take(2).collect();
        assert!(group[0].contains("guidellm.itl") && group[1].contains("vllm.tpot"), "{text}");
    }

    #[test]
    fn a_percentile_without_a_tail_is_marked() {
        let text = render_table(&read_sources(&example("guidellm-0.8.1.json")).expect("readable"));
        let ttft = text.lines().find(|line| line.contains("guidellm.ttft")).expect("a row");
        // 29 requests hold a median, and nothing beyond.
        assert_eq!(ttft.matches('*').count(), 3, "{ttft}");
    }

    #[test]
    fn weights_make_no_tail() {
        let text = render_table(&read_sources(&example("guidellm-0.8.1.json")).expect("readable"));
        let itl = text.lines().find(|line| line.contains("guidellm.itl")).expect("a row");
        // 435 tokens of 29 requests.
        assert_eq!(itl.matches('*').count(), 3, "{itl}");
    }

    #[test]
    fn a_file_of_no_tool_is_refused() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(read_sources(&path).is_err());
    }
}
