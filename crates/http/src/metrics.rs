//! Counters, gauges and histograms of a service, in the OpenMetrics text format.
//! Prometheus prefers this format; its samples look like those of Prometheus' own format.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

pub use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, text},
    metrics::{
        MetricType,
        family::{Family, MetricConstructor},
    },
    registry::{Metric, Registry},
};

/// The media type of the text of [`MetricsRegistry::encode`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `N` labels, each with a name and a value. Values have to come from a fixed set, because each
/// combination stays in memory.
pub type MetricLabels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// A counter for each combination of `N` labels.
pub type LabelledCounter<const N: usize> = Family<MetricLabels<N>, Counter>;

/// A gauge for each combination of `N` labels.
pub type LabelledGauge<const N: usize> = Family<MetricLabels<N>, Gauge>;

/// A histogram for each combination of `N` labels.
pub type LabelledHistogram<const N: usize> = Family<MetricLabels<N>, Histogram, HistogramBounds>;

/// The upper bounds of a histogram's buckets, in rising order.
#[derive(Clone, Copy, Debug)]
pub struct HistogramBounds(&'static [f64]);

/// A gauge that can be absent: it appears once [`OptionalGauge::set`] was called with a value.
#[derive(Clone, Debug, Default)]
pub struct OptionalGauge(Arc<Mutex<Option<u64>>>);

/// The metrics of one service.
#[derive(Debug, Default)]
pub struct MetricsRegistry(Registry);

impl MetricsRegistry {
    /// Registers a counter under the name that is scraped, which ends with `_total`.
    pub fn counter(&mut self, name: &str, help: &str) -> Counter {
        self.register(name, help, Counter::default())
    }

    /// Registers a counter with labels; see [`MetricsRegistry::counter`].
    pub fn labelled_counter<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
    ) -> LabelledCounter<N> {
        self.register(name, help, Family::default())
    }

    /// Registers a gauge that is 0 at first.
    pub fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        self.register(name, help, Gauge::default())
    }

    /// Registers a gauge that is absent at first.
    pub fn optional_gauge(&mut self, name: &str, help: &str) -> OptionalGauge {
        self.register(name, help, OptionalGauge::default())
    }

    /// Registers a histogram with the upper `bounds` of its buckets, in rising order.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        bounds: impl IntoIterator<Item = f64>,
    ) -> Histogram {
        self.register(name, help, Histogram::new(bounds))
    }

    /// Registers a gauge with labels.
    pub fn labelled_gauge<const N: usize>(&mut self, name: &str, help: &str) -> LabelledGauge<N> {
        self.register(name, help, Family::default())
    }

    /// Registers a histogram with labels; see [`MetricsRegistry::histogram`].
    pub fn labelled_histogram<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        bounds: &'static [f64],
    ) -> LabelledHistogram<N> {
        self.register(name, help, Family::new_with_constructor(HistogramBounds(bounds)))
    }

    /// The text of all metrics.
    pub fn encode(&self) -> String {
        let mut encoded = String::new();
        // Writing to a string cannot fail.
        if let Err(error) = text::encode(&mut encoded, &self.0) {
            tracing::error!(%error, "metrics cannot be written");
        }
        encoded
    }

    /// Registers a metric. The registry itself adds `_total` and the full stop.
    fn register<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        let name = name.strip_suffix("_total").unwrap_or(name);
        let help = help.strip_suffix('.').unwrap_or(help);
        self.0.register(name, help, metric.clone());
        metric
    }
}

impl MetricConstructor<Histogram> for HistogramBounds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl OptionalGauge {
    /// Sets the value; `None` makes the gauge absent.
    pub fn set(&self, value: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// The value, if there is one.
    pub fn value(&self) -> Option<u64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EncodeMetric for OptionalGauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self.value() {
            Some(value) => encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
            None => Ok(()),
        }
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        self.value().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_shown_under_the_names_that_they_were_registered_with() {
        let mut registry = MetricsRegistry::default();
        let requests = registry.labelled_counter("requests_total", "Requests by outcome.");
        let failed = registry.counter("failed_total", "Requests that failed.");
        let waiting = registry.gauge("waiting", "Requests that wait.");
        let documents = registry.optional_gauge("documents", "Documents kept.");
        let seconds = registry.histogram("seconds", "Time.", [0.001, 1.0]);
        requests.get_or_create(&[("outcome", "a \"b\"".into())]).inc();
        failed.inc();
        waiting.set(7);
        for time_s in [0.0005, 0.25, 3.0] {
            seconds.observe(time_s);
        }
        let text = registry.encode();
        for line in [
            "# HELP requests Requests by outcome.",
            "# TYPE requests counter",
            "requests_total{outcome=\"a \\\"b\\\"\"} 1",
            "failed_total 1",
            "# TYPE waiting gauge",
            "waiting 7",
            "# TYPE seconds histogram",
            "seconds_sum 3.2505",
            "seconds_count 3",
            "seconds_bucket{le=\"0.001\"} 1",
            "seconds_bucket{le=\"1.0\"} 2",
            "seconds_bucket{le=\"+Inf\"} 3",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        let places = registry.labelled_gauge("places", "Places by kind.");
        let lengths = registry.labelled_histogram("lengths", "Lengths by kind.", &[1.0, 4.0]);
        places.get_or_create(&[("kind", "a".into())]).set(3);
        lengths.get_or_create(&[("kind", "a".into())]).observe(2.0);
        let labelled = registry.encode();
        for line in ["places{kind=\"a\"} 3", "lengths_bucket{le=\"4.0\",kind=\"a\"} 1"] {
            assert!(labelled.lines().any(|found| found == line), "{line}\n{labelled}");
        }
        assert!(!text.contains("documents"), "{text}");
        documents.set(Some(4));
        assert!(registry.encode().contains("\ndocuments 4\n"));
        documents.set(None);
        assert!(!registry.encode().contains("documents"));
    }
}
