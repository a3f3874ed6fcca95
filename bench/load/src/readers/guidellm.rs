//! GuideLLM's `benchmarks.json`: a list of runs, each with summaries of those that succeeded.

use serde::Deserialize;

use super::{RUNS_MAX, ReadError};
use crate::views::{Figure, Quantiles, Quantity, Tool, View};

#[derive(Deserialize)]
pub(super) struct File {
    metadata: Option<Metadata>,
    benchmarks: Vec<Run>,
}

#[derive(Deserialize)]
struct Metadata {
    guidellm_version: Option<String>,
}

#[derive(Deserialize)]
struct Run {
    #[serde(default)]
    metrics: Metrics,
}

#[derive(Default, Deserialize)]
struct Metrics {
    request_totals: Option<Totals>,
    requests_per_second: Option<ByStatus>,
    request_latency: Option<ByStatus>,
    request_dispatch_delay: Option<ByStatus>,
    request_scheduled_latency: Option<ByStatus>,
    time_to_first_token_ms: Option<ByStatus>,
    time_per_output_token_ms: Option<ByStatus>,
    inter_token_latency_ms: Option<ByStatus>,
    output_tokens_per_second: Option<ByStatus>,
}

#[derive(Deserialize)]
struct Totals {
    successful: Option<u64>,
    errored: Option<u64>,
}

#[derive(Deserialize)]
struct ByStatus {
    successful: Option<Summary>,
}

#[derive(Deserialize)]
struct Summary {
    mean: Option<f64>,
    median: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    count: Option<u64>,
    #[serde(default)]
    percentiles: Percentiles,
}

#[derive(Default, Deserialize)]
struct Percentiles {
    p90: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
}

pub(super) fn views(file: &File) -> Result<Vec<View>, ReadError> {
    let got = file.benchmarks.len();
    if got > RUNS_MAX {
        return Err(ReadError::TooManyRuns { got });
    }
    let version = file.metadata.as_ref().and_then(|metadata| metadata.guidellm_version.as_ref());
    let views = file.benchmarks.iter().map(|run| View { version: version.cloned(), ..view(run) });
    Ok(views.collect())
}

fn view(run: &Run) -> View {
    let metrics = &run.metrics;
    let mut view = View::new(Tool::GuideLlm);
    if let Some(totals) = &metrics.request_totals {
        (view.completed, view.failed) = (totals.successful, totals.errored);
    }
    for (quantity, summary, to_ms) in [
        (Quantity::First, &metrics.time_to_first_token_ms, 1.0),
        (Quantity::PerTokenAfterFirst, &metrics.inter_token_latency_ms, 1.0),
        (Quantity::PerToken, &metrics.time_per_output_token_ms, 1.0),
        // Seconds, unlike the rest.
        (Quantity::Whole, &metrics.request_latency, 1e3),
        (Quantity::WholeFromSchedule, &metrics.request_scheduled_latency, 1e3),
        (Quantity::DispatchDelay, &metrics.request_dispatch_delay, 1e3),
    ] {
        view.put(quantity, counted(summary.as_ref()).map(|summary| spread(summary, to_ms)));
    }
    for (quantity, summary) in [
        (Quantity::Requests, &metrics.requests_per_second),
        (Quantity::Tokens, &metrics.output_tokens_per_second),
    ] {
        let mean = counted(summary.as_ref()).and_then(|summary| summary.mean);
        view.put(quantity, mean.map(Figure::Rate));
    }
    view
}

/// A summary over no request is all zeros.
fn counted(by_status: Option<&ByStatus>) -> Option<&Summary> {
    by_status?.successful.as_ref().filter(|summary| summary.count != Some(0))
}

fn spread(summary: &Summary, to_ms: f64) -> Figure {
    let ms = |value: Option<f64>| value.map(|value| value * to_ms);
    Figure::Spread(Quantiles {
        count: summary.count,
        mean: ms(summary.mean),
        min: ms(summary.min),
        p50: ms(summary.median),
        p90: ms(summary.percentiles.p90),
        p95: ms(summary.percentiles.p95),
        p99: ms(summary.percentiles.p99),
        max: ms(summary.max),
    })
}

#[cfg(test)]
mod tests {
    use crate::{
        readers::{
            read_results,
            tests::{example, spread},
        },
        views::{Figure, Quantity, Tool},
    };

    #[test]
    fn a_recorded_file_is_read_by_its_own_names() {
        let views = read_results(&example("guidellm-0.8.1.json")).expect("a result file");
        let [view] = views.as_slice() else { panic!("one run") };
        assert_eq!((view.tool, view.version.as_deref()), (Tool::GuideLlm, Some("0.8.1")));
        assert_eq!((view.completed, view.failed), (Some(29), Some(0)));
        // The engine was told 40 ms and 100 tokens per second.
        let ttft = spread(view, Quantity::First);
        assert!((ttft.mean.expect("a mean") - 40.0).abs() < 1.0, "{ttft:?}");
        let itl = spread(view, Quantity::PerTokenAfterFirst);
        assert_eq!(itl.count, Some(29 * 15));
        assert!((itl.p50.expect("a median") - 10.0).abs() < 0.1, "{itl:?}");
        // Written in seconds there, in milliseconds here.
        let whole = spread(view, Quantity::Whole);
        assert!((whole.mean.expect("a mean") - 191.0).abs() < 1.0, "{whole:?}");
        let tokens = view.about(Quantity::Tokens);
        assert!(matches!(tokens, Some((_, Figure::Rate(rate))) if rate > 150.0), "{tokens:?}");
    }

    #[test]
    fn summaries_over_no_request_are_no_figures() {
        let file = br#"{"benchmarks":[{"metrics":{"time_to_first_token_ms":
            {"successful":{"mean":0.0,"median":0.0,"count":0}}}}]}"#;
        assert_eq!(read_results(file).expect("a result file")[0].figures, []);
    }
}
