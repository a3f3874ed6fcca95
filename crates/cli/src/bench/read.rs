//! `confide bench read`: other tools' figures, and their definitions over an event log of ours.

use std::{
    fs::File,
    io::{BufReader, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_load::{
    Limits, Spread, Summary,
    readers::{FILE_BYTES_MAX, read_results},
    views::{Figure, Quantiles, Quantity, Tool, View},
};

use crate::{error::CliError, files::read_file};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Result files of `vllm bench serve`, GuideLLM, AIPerf or inference-perf (.json), and event logs
    /// of `confide bench load` (.jsonl), which are shown by our definitions and by theirs
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let mut columns = Vec::new();
    for path in &args.files {
        columns.extend(sources(path)?);
    }
    let mut out = std::io::stdout().lock();
    out.write_all(table(&columns).as_bytes()).map_err(CliError::new)?;
    Ok(ExitCode::SUCCESS)
}

/// Figures of one run by the definitions of one tool.
struct Source {
    label: String,
    remark: String,
    completed: Option<u64>,
    figures: Vec<(Quantity, &'static str, Figure)>,
}

impl Source {
    /// How many values there are that know nothing of each other: figures per token of one request
    /// are one value, whatever they are weighed by.
    fn values(&self, quantity: Quantity, figure: &Figure) -> Option<u64> {
        let Figure::Spread(spread) = figure else { return None };
        match quantity {
            Quantity::PerToken | Quantity::PerTokenAfterFirst => {
                spread.count.into_iter().chain(self.completed).min()
            }
            _ => spread.count,
        }
    }
}

fn sources(path: &Path) -> Result<Vec<Source>, CliError> {
    let shown = path.display();
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        let file =
            File::open(path).map_err(|e| CliError::new(format!("cannot read {shown}: {e}")))?;
        let logged = confide_load::read(BufReader::new(file))
            .map_err(|error| CliError::new(format!("{shown}: {error}")))?;
        let summary = Summary::of(&logged.events, Limits::default());
        let views = Tool::ALL.map(|tool| of_log(&View::of(tool, &logged.events)));
        return Ok([ours(&summary, path)].into_iter().chain(views).collect());
    }
    let bytes = read_file(path, FILE_BYTES_MAX)?;
    let views = read_results(&bytes).map_err(|error| {
        CliError::new(format!("{shown}: {error}"))
            .hint("an event log of `confide bench load` ends in .jsonl")
    })?;
    Ok(views.iter().map(|view| of_file(view, path)).collect())
}

fn ours(summary: &Summary, path: &Path) -> Source {
    let spread = |quantity, id, spread: &Spread| {
        (spread.count > 0).then(|| (quantity, id, Figure::Spread(quantiles(spread))))
    };
    let rate = |quantity, id, rate: Option<f64>| Some((quantity, id, Figure::Rate(rate?)));
    let figures = [
        spread(Quantity::First, "llm.ttft", &summary.ttft),
        spread(Quantity::ChunkGap, "llm.itl", &summary.itl),
        spread(Quantity::PerTokenAfterFirst, "llm.tpot", &summary.tpot),
        spread(Quantity::PerToken, "llm.ntpot", &summary.ntpot),
        spread(Quantity::WholeFromSchedule, "llm.e2e", &summary.e2e),
        spread(Quantity::DispatchDelay, "llm.dispatch-delay", &summary.dispatch_delay),
        rate(Quantity::Requests, "llm.qps", summary.qps),
        rate(Quantity::Tokens, "llm.tps", summary.tps),
    ];
    Source {
        label: "confide".into(),
        completed: Some(summary.complete),
        remark: remark(Some(summary.complete), Some(summary.failed), &path.display().to_string()),
        figures: figures.into_iter().flatten().collect(),
    }
}

fn quantiles(spread: &Spread) -> Quantiles {
    Quantiles {
        count: Some(spread.count),
        mean: spread.mean_ms,
        min: None,
        p50: spread.p50_ms,
        p90: spread.p90_ms,
        p95: spread.p95_ms,
        p99: spread.p99_ms,
        max: spread.max_ms,
    }
}

fn of_log(view: &View) -> Source {
    let label = format!("as {}", view.tool.label());
    of_view(view, label, "its definitions over the same log")
}

fn of_file(view: &View, path: &Path) -> Source {
    let version = view.version.as_ref().map_or(String::new(), |version| format!(" {version}"));
    of_view(view, format!("{}{version}", view.tool.label()), &path.display().to_string())
}

fn of_view(view: &View, label: String, from: &str) -> Source {
    let figures = view.figures.iter().map(|(d, figure)| (d.quantity, d.id, *figure)).collect();
    let (completed, remark) = (view.completed, remark(view.completed, view.failed, from));
    Source { label, remark, completed, figures }
}

fn remark(completed: Option<u64>, failed: Option<u64>, from: &str) -> String {
    let counted = |count: Option<u64>, what: &str| count.map(|count| format!("{count} {what}, "));
    let completed = counted(completed, "completed").unwrap_or_default();
    let failed = counted(failed, "failed").unwrap_or_default();
    format!("{completed}{failed}{from}")
}

/// By quantity, so that what tools call by other names stands together.
fn table(sources: &[Source]) -> String {
    let wide = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
    let labels = wide(&mut sources.iter().map(|source| source.label.chars().count()));
    let figures = || sources.iter().flat_map(|source| &source.figures);
    let ids = wide(&mut figures().map(|(_, id, _)| id.len()));
    let mut text = String::new();
    for source in sources {
        text += &format!("{:labels$}  {}\n", source.label, source.remark);
    }
    for quantity in Quantity::ALL.into_iter().filter(|q| figures().any(|figure| figure.0 == *q)) {
        text += &format!("\n{}, {}\n", quantity.label(), quantity.unit());
        text += &format!("  {:labels$}  {:ids$}{}\n", "", "", heading(quantity));
        for source in sources {
            for (_, id, figure) in source.figures.iter().filter(|figure| figure.0 == quantity) {
                let values = source.values(quantity, figure);
                text +=
                    &format!("  {:labels$}  {id:ids$}{}\n", source.label, cells(figure, values));
            }
        }
    }
    text += "\n* fewer than ten values lie beyond it\n";
    text
}

fn heading(quantity: Quantity) -> String {
    if matches!(quantity, Quantity::Requests | Quantity::Tokens) {
        return format!("{:>11} ", "run");
    }
    ["mean", "p50", "p90", "p95", "p99", "max"].map(|name| format!("{name:>11} ")).concat()
        + &format!("{:>9}", "n")
}

fn cells(figure: &Figure, values: Option<u64>) -> String {
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
        let mut columns = sources(&example("guidellm-0.8.1.json")).expect("readable");
        columns.extend(sources(&example("vllm-written-by-hand.json")).expect("readable"));
        let text = table(&columns);
        let (_, per_token) = text.split_once("per token after the first, ms\n").expect("a group");
        let group: Vec<&str> = per_token.lines().skip(1).take(2).collect();
        assert!(group[0].contains("guidellm.itl") && group[1].contains("vllm.tpot"), "{text}");
    }

    #[test]
    fn a_percentile_without_a_tail_is_marked() {
        let text = table(&sources(&example("guidellm-0.8.1.json")).expect("readable"));
        let ttft = text.lines().find(|line| line.contains("guidellm.ttft")).expect("a row");
        // 29 requests hold a median, and nothing beyond.
        assert_eq!(ttft.matches('*').count(), 3, "{ttft}");
    }

    #[test]
    fn weights_make_no_tail() {
        let text = table(&sources(&example("guidellm-0.8.1.json")).expect("readable"));
        let itl = text.lines().find(|line| line.contains("guidellm.itl")).expect("a row");
        // 435 tokens of 29 requests.
        assert_eq!(itl.matches('*').count(), 3, "{itl}");
    }

    #[test]
    fn a_file_of_no_tool_is_refused() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(sources(&path).is_err());
    }
}
