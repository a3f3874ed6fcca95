//! The metrics of the gateway.
//!
//! A label's value is a word of this program or of the configuration, never of a request. The
//! number of series is therefore bounded, whatever clients send, and no series can contain a prompt,
//! a query, an address or a key.

mod model;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use confide_channel::{EVIDENCE_PATH, ErrorOrigin};
use confide_http::metrics::{
    Counter, Gauge, Histogram, LabelledCounter, LabelledGauge, MetricsRegistry, OptionalGauge,
};
use http::StatusCode;
pub(crate) use model::{ModelMetrics, PROVIDER, RequestTimes};

use crate::{
    configuration::{GatewayConfiguration, WELL_KNOWN_PATH},
    operation::Operation,
    outcome::RequestOutcome,
};

/// The largest number of models with series of their own: each has about 60, and 250 for an
/// operation. The requests of others are counted together.
const MODELS_MAX: usize = 64;
/// The largest number of bytes of a model's name as a label; a longer one counts as `other`.
const MODEL_NAME_BYTES_MAX: usize = 256;
/// The label for models and routes that the configuration does not name.
const OTHER: &str = "other";

/// The upper bounds of handshakes and quotes, in seconds. A quote takes 39 ms on TDX hardware, and
/// connections queue for it.
const HANDSHAKE_S: [f64; 12] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 2.0, 10.0];

/// The classes of status codes, and `none` for a request whose client left before its answer.
const STATUS_CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The metrics of a gateway, which may have several listeners.
pub struct GatewayMetrics {
    registry: MetricsRegistry,
    began: Instant,
    config_info: LabelledGauge<1>,
    channel: ChannelMetrics,
    faults: FaultMetrics,
    routes: HashMap<Box<str>, Arc<RouteMetrics>>,
    other_route: Arc<RouteMetrics>,
    models: HashMap<Box<str>, Arc<ModelMetrics>>,
    other_model: Arc<ModelMetrics>,
    families: model::ModelFamilies,
}

struct ChannelMetrics {
    connections: Gauge,
    handshakes: LabelledCounter<1>,
    handshake: Histogram,
    quote: Histogram,
    key_not_after: OptionalGauge,
}

struct FaultMetrics {
    upstream_failures: LabelledCounter<1>,
    refusals: LabelledCounter<1>,
    model_changed: Gauge,
    spans_exported: Counter,
    spans_lost: LabelledCounter<1>,
}

/// The series of one route, by the class of the status code.
pub(crate) struct RouteMetrics {
    /// The pattern of the route, as in the configuration.
    pub(crate) pattern: Arc<str>,
    requests: [Counter; STATUS_CLASSES.len()],
}

/// Counts a connection, or a configuration with a false digest, until it is dropped.
pub(crate) struct GaugeCount(Gauge);

impl GatewayMetrics {
    /// Makes the series of every route of `configurations` and of every model in `models`, up to
    /// 64. Requests of other routes and models are counted as `other`.
    pub fn new<'a>(
        configurations: impl IntoIterator<Item = &'a GatewayConfiguration>,
        models: impl IntoIterator<Item = String>,
    ) -> Self {
        let mut registry = MetricsRegistry::default();
        let config_info = registry
            .labelled_gauge("confide_gateway_config_info", "1, with the configuration's digest.");
        let requests = registry.labelled_counter(
            "confide_gateway_requests_total",
            "Requests by the pattern of their route and the class of their status.",
        );
        let route = |pattern: &str| {
            let count = |class: &'static str| {
                let pattern = ("route", pattern.to_owned().into());
                requests.get_or_create_owned(&[pattern, ("status_class", class.into())])
            };
            let requests = STATUS_CLASSES.map(count);
            Arc::new(RouteMetrics { pattern: pattern.into(), requests })
        };
        let all_routes = configurations.into_iter().flat_map(|one| &one.routes);
        let patterns = all_routes.map(|route| route.path.as_str());
        let routes = patterns
            .chain([WELL_KNOWN_PATH, EVIDENCE_PATH])
            .map(|pattern| (pattern.into(), route(pattern)))
            .collect();
        let families = model::ModelFamilies::register(&mut registry);
        let models = models
            .into_iter()
            .filter(|name| name.len() <= MODEL_NAME_BYTES_MAX && name != OTHER)
            .take(MODELS_MAX)
            .map(|name| (name.as_str().into(), Arc::new(families.model(&name))))
            .collect();
        Self {
            began: Instant::now(),
            config_info,
            channel: ChannelMetrics::register(&mut registry),
            faults: FaultMetrics::register(&mut registry),
            routes,
            other_route: route(OTHER),
            models,
            other_model: Arc::new(families.model(OTHER)),
            families,
            registry,
        }
    }

    /// The metrics in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        self.registry.encode()
    }

    /// Shows the digests of the configurations in use, in place of earlier ones.
    pub fn set_config_digests(&self, digests: impl IntoIterator<Item = [u8; 32]>) {
        self.config_info.clear();
        for digest in digests {
            let digest = hex::encode(digest).into();
            self.config_info.get_or_create(&[("config_digest", digest)]).set(1);
        }
    }

    /// The state of the gateway as JSON: `connections`, `key_not_after`, `model_changed` and
    /// `uptime_s`.
    pub fn status(&self) -> serde_json::Map<String, serde_json::Value> {
        let status = serde_json::json!({
            "connections": self.channel.connections.get(),
            "key_not_after": self.channel.key_not_after.value(),
            "model_changed": self.faults.model_changed.get() != 0,
            "uptime_s": self.began.elapsed().as_secs(),
        });
        status.as_object().cloned().unwrap_or_default()
    }

    /// The series of a route by its pattern; those of `other` if the configuration does not name
    /// the pattern.
    pub(crate) fn find_route(&self, pattern: &str) -> &Arc<RouteMetrics> {
        self.routes.get(pattern).unwrap_or(&self.other_route)
    }

    /// The series of requests without a route.
    pub(crate) fn other_route(&self) -> &Arc<RouteMetrics> {
        &self.other_route
    }

    /// The series of a model by its name; those of `other` if the configuration does not name it.
    pub(crate) fn find_model(&self, name: &str) -> &Arc<ModelMetrics> {
        self.models.get(name).unwrap_or(&self.other_model)
    }

    /// The series of the only configured model; those of `other` if there is none or more than one.
    pub(crate) fn only_model(&self) -> &Arc<ModelMetrics> {
        match self.models.len() {
            1 => self.models.values().next().unwrap_or(&self.other_model),
            _ => &self.other_model,
        }
    }

    /// Whether `model` is one that the configuration names.
    pub(crate) fn is_named(&self, model: &Arc<ModelMetrics>) -> bool {
        !Arc::ptr_eq(model, &self.other_model)
    }

    /// Counts a connection as open until the returned value is dropped.
    pub(crate) fn count_connection(&self) -> GaugeCount {
        GaugeCount::new(&self.channel.connections)
    }

    /// Counts a configuration whose digest has become false, until the returned value is dropped.
    pub(crate) fn count_changed_model(&self) -> GaugeCount {
        GaugeCount::new(&self.faults.model_changed)
    }

    /// Records a completed handshake; `quote` is the wait for a quote over this session, if it has
    /// one.
    pub(crate) fn record_handshake(&self, handshake: Duration, quote: Option<Duration>) {
        self.channel.handshakes.get_or_create(&[("outcome", "completed".into())]).inc();
        self.channel.handshake.observe(handshake.as_secs_f64());
        if let Some(quote) = quote {
            self.channel.quote.observe(quote.as_secs_f64());
        }
    }

    pub(crate) fn record_failed_handshake(&self, origin: ErrorOrigin) {
        let outcome = match origin {
            ErrorOrigin::Local => "failed_local",
            ErrorOrigin::Network => "failed_network",
            ErrorOrigin::Peer => "failed_peer",
            ErrorOrigin::Evidence => "failed_evidence",
        };
        self.channel.handshakes.get_or_create(&[("outcome", outcome.into())]).inc();
    }

    /// Counts a failure of an upstream by its error code.
    pub(crate) fn count_upstream_failure(&self, code: &'static str) {
        self.faults.upstream_failures.get_or_create(&[("reason", code.into())]).inc();
    }

    /// Counts a refused request by its error code.
    pub(crate) fn count_refusal(&self, code: &'static str) {
        self.faults.refusals.get_or_create(&[("code", code.into())]).inc();
    }

    pub(crate) fn count_exported_spans(&self, count: u64) {
        self.faults.spans_exported.inc_by(count);
    }

    pub(crate) fn count_lost_spans(&self, reason: &'static str, count: u64) {
        self.faults.spans_lost.get_or_create(&[("reason", reason.into())]).inc_by(count);
    }

    pub(crate) fn set_key_not_after(&self, unix_s: Option<u64>) {
        self.channel.key_not_after.set(unix_s);
    }

    /// Records the tokens of one request, as the model server reported them.
    pub(crate) fn record_tokens(
        &self,
        operation: Operation,
        model: &ModelMetrics,
        prompt: u64,
        completion: u64,
    ) {
        model.record_tokens(&self.families, operation, prompt, completion);
    }

    /// Records a finished request; `status` is `None` if its client left before the answer.
    pub(crate) fn record_request(
        &self,
        route: &RouteMetrics,
        status: Option<StatusCode>,
        operation: Option<(Operation, &ModelMetrics)>,
        outcome: RequestOutcome,
        times: RequestTimes,
    ) {
        let class = status.map_or(0, |status| usize::from(status.as_u16() / 100));
        route.requests[class.min(STATUS_CLASSES.len() - 1)].inc();
        if let Some((operation, model)) = operation {
            model.record_request(&self.families, operation, outcome, times);
        }
    }
}

impl ChannelMetrics {
    fn register(registry: &mut MetricsRegistry) -> Self {
        Self {
            connections: registry
                .gauge("confide_gateway_connections", "Connections of clients that are open."),
            handshakes: registry.labelled_counter(
                "confide_gateway_handshakes_total",
                "Handshakes by outcome: completed, or failed with the side at fault.",
            ),
            handshake: registry.histogram(
                "confide_gateway_handshake_seconds",
                "Time of a completed TLS handshake.",
                HANDSHAKE_S,
            ),
            quote: registry.histogram(
                "confide_gateway_quote_seconds",
                "Time that a session with a quote of its own waited for it.",
                HANDSHAKE_S,
            ),
            key_not_after: registry.optional_gauge(
                "confide_gateway_key_not_after_seconds",
                "Unix time at which the current key expires.",
            ),
        }
    }
}

impl FaultMetrics {
    fn register(registry: &mut MetricsRegistry) -> Self {
        Self {
            upstream_failures: registry.labelled_counter(
                "confide_gateway_upstream_failures_total",
                "Requests that an upstream failed, by the code of the error.",
            ),
            refusals: registry.labelled_counter(
                "confide_gateway_refusals_total",
                "Requests that the gateway refused, by the code of the error.",
            ),
            model_changed: registry.gauge(
                "confide_gateway_model_changed",
                "Configurations in use of which an upstream has named another model.",
            ),
            spans_exported: registry.counter(
                "confide_gateway_spans_exported_total",
                "Spans that the collector accepted.",
            ),
            spans_lost: registry.labelled_counter(
                "confide_gateway_spans_lost_total",
                "Spans that were dropped, by reason.",
            ),
        }
    }
}

impl GaugeCount {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeCount {
    fn drop(&mut self) {
        self.0.dec();
    }
}
