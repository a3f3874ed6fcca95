//! AIPerf's `profile_export_aiperf.json`: one object of metrics, each with its unit.

use serde::Deserialize;

use crate::views::{Figure, Quantiles, Quantity, Tool, View};

#[derive(Deserialize)]
pub(super) struct File {
    aiperf_version: Option<String>,
    request_count: Option<Metric>,
    error_request_count: Option<Metric>,
    time_to_first_token: Option<Metric>,
    inter_chunk_latency: Option<Metric>,
    inter_token_latency: Option<Metric>,
    request_latency: Option<Metric>,
    effective_latency: Option<Metric>,
    credit_to_start_latency: Option<Metric>,
    request_throughput: Option<Metric>,
    output_token_throughput: Option<Metric>,
    output_token_throughput_per_user: Option<Metric>,
}

#[derive(Deserialize)]
struct Metric {
    unit: Option<String>,
    count: Option<u64>,
    avg: Option<f64>,
    min: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

pub(super) fn view(file: &File) -> View {
    let mut view = View::new(Tool::AiPerf);
    view.version.clone_from(&file.aiperf_version);
    view.completed = count_of(file.request_count.as_ref());
    view.failed = count_of(file.error_request_count.as_ref());
    for (quantity, metric) in [
        (Quantity::First, &file.time_to_first_token),
        (Quantity::ChunkGap, &file.inter_chunk_latency),
        (Quantity::PerTokenAfterFirst, &file.inter_token_latency),
        (Quantity::Whole, &file.request_latency),
        (Quantity::WholeFromSchedule, &file.effective_latency),
        (Quantity::DispatchDelay, &file.credit_to_start_latency),
        (Quantity::TokensOfOne, &file.output_token_throughput_per_user),
    ] {
        view.put(quantity, metric.as_ref().and_then(spread));
    }
    for (quantity, metric) in [
        (Quantity::Requests, &file.request_throughput),
        (Quantity::Tokens, &file.output_token_throughput),
    ] {
        let mean = metric.as_ref().and_then(|metric| metric.avg);
        view.put(quantity, mean.map(Figure::Rate));
    }
    view
}

/// A count is written as a metric whose mean it is.
fn count_of(metric: Option<&Metric>) -> Option<u64> {
    // Beyond 2^53 the file's own number is no longer exact.
    metric?.avg.filter(|count| (0.0..9.0e15).contains(count)).map(|count| count.round() as u64)
}

/// In milliseconds or per second; a unit that is not known here makes no figure.
fn spread(metric: &Metric) -> Option<Figure> {
    let to_unit = match metric.unit.as_deref()? {
        "ms" | "tokens/sec/user" => 1.0,
        "ns" => 1e-6,
        "us" => 1e-3,
        "s" | "sec" => 1e3,
        _ => return None,
    };
    let unit = |value: Option<f64>| value.map(|value| value * to_unit);
    Some(Figure::Spread(Quantiles {
        count: metric.count,
        mean: unit(metric.avg),
        min: unit(metric.min),
        p50: unit(metric.p50),
        p90: unit(metric.p90),
        p95: unit(metric.p95),
        p99: unit(metric.p99),
        max: unit(metric.max),
    }))
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
        let views = read_results(&example("aiperf-0.13.0.json")).expect("a result file");
        let [view] = views.as_slice() else { panic!("one run") };
        assert_eq!((view.tool, view.version.as_deref()), (Tool::AiPerf, Some("0.13.0")));
        assert_eq!((view.completed, view.failed), (Some(30), None));
        // The engine was told 40 ms and 100 tokens per second.
        let ttft = spread(view, Quantity::First);
        assert!((ttft.mean.expect("a mean") - 40.0).abs() < 1.0, "{ttft:?}");
        let icl = spread(view, Quantity::ChunkGap);
        assert_eq!(icl.count, Some(30 * 15));
        assert!((icl.p50.expect("a median") - 10.0).abs() < 0.1, "{icl:?}");
        let delay = spread(view, Quantity::DispatchDelay);
        assert!(delay.mean.is_some_and(|mean| mean < 2.0), "{delay:?}");
        let requests = view.about(Quantity::Requests);
        assert!(matches!(requests, Some((_, Figure::Rate(rate))) if rate > 7.0), "{requests:?}");
    }

    #[test]
    fn a_unit_that_is_not_known_makes_no_figure() {
        let file = br#"{"request_latency":{"unit":"fortnights","avg":1.0}}"#;
        assert_eq!(read_results(file).expect("a result file")[0].figures, []);
    }
}
