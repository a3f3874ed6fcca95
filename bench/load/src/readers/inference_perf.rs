//! inference-perf's `summary_lifecycle_metrics.json`: seconds throughout.

use serde::Deserialize;

use crate::views::{Figure, Quantiles, Quantity, Tool, View};

#[derive(Deserialize)]
pub(super) struct File {
    load_summary: Load,
    successes: Successes,
    failures: Option<Failures>,
}

#[derive(Deserialize)]
struct Load {
    schedule_delay: Option<Summary>,
}

#[derive(Deserialize)]
struct Failures {
    count: Option<u64>,
}

#[derive(Deserialize)]
struct Successes {
    count: Option<u64>,
    #[serde(default)]
    latency: Latency,
    #[serde(default)]
    throughput: Throughput,
}

#[derive(Default, Deserialize)]
struct Latency {
    request_latency: Option<Summary>,
    normalized_time_per_output_token: Option<Summary>,
    time_per_output_token: Option<Summary>,
    time_to_first_token: Option<Summary>,
    inter_token_latency: Option<Summary>,
}

#[derive(Default, Deserialize)]
struct Throughput {
    output_tokens_per_sec: Option<f64>,
    requests_per_sec: Option<f64>,
}

/// Percentiles are those that its configuration asks for.
#[derive(Deserialize)]
struct Summary {
    mean: Option<f64>,
    min: Option<f64>,
    median: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

pub(super) fn view(file: &File) -> View {
    let mut view = View::new(Tool::InferencePerf);
    let (latency, throughput) = (&file.successes.latency, &file.successes.throughput);
    view.completed = file.successes.count;
    view.failed = file.failures.as_ref().and_then(|failures| failures.count);
    if view.completed == Some(0) {
        return view;
    }
    for (quantity, summary) in [
        (Quantity::First, &latency.time_to_first_token),
        (Quantity::ChunkGap, &latency.inter_token_latency),
        (Quantity::PerTokenAfterFirst, &latency.time_per_output_token),
        (Quantity::PerToken, &latency.normalized_time_per_output_token),
        (Quantity::Whole, &latency.request_latency),
        (Quantity::DispatchDelay, &file.load_summary.schedule_delay),
    ] {
        view.put(quantity, summary.as_ref().map(spread));
    }
    view.put(Quantity::Requests, throughput.requests_per_sec.map(Figure::Rate));
    view.put(Quantity::Tokens, throughput.output_tokens_per_sec.map(Figure::Rate));
    view
}

fn spread(summary: &Summary) -> Figure {
    let ms = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e3);
    Figure::Spread(Quantiles {
        count: None,
        mean: ms(summary.mean),
        min: ms(summary.min),
        p50: ms(summary.median),
        p90: ms(summary.p90),
        p95: ms(summary.p95),
        p99: ms(summary.p99),
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
        views::{Quantity, Tool},
    };

    #[test]
    fn a_file_in_its_format_is_read_by_its_own_names() {
        let file = example("inference-perf-written-by-hand.json");
        let views = read_results(&file).expect("a result file");
        let [view] = views.as_slice() else { panic!("one run") };
        assert_eq!((view.tool, view.completed), (Tool::InferencePerf, Some(30)));
        assert_eq!(view.failed, Some(0));
        let ttft = spread(view, Quantity::First);
        assert_eq!((ttft.mean, ttft.p50, ttft.count), (Some(41.5), Some(41.0), None));
        assert_eq!(spread(view, Quantity::DispatchDelay).max, Some(2.0));
    }
}
