//! Exports spans to a collector: OTLP over HTTP in its JSON encoding.
//!
//! A request never waits for the collector. Its span is dropped, and counted, if the queue is full
//! or the collector does not accept the batch in time; nothing is sent twice.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use confide_http::{HttpUrl, Scheme};
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, sync::mpsc, task::JoinHandle};

use crate::{
    metrics::GatewayMetrics, span::FinishedSpan, span::encode_spans,
    telemetry_error::TelemetryError, trace_context::TraceParent,
};

/// The largest number of spans that wait for the collector: at most 1 MiB.
const QUEUED_SPANS_MAX: usize = 2048;
/// The largest number of spans of one request to the collector (the default of OpenTelemetry).
const BATCH_SPANS_MAX: usize = 512;
/// The longest time for which a span waits for others of its batch (the default of OpenTelemetry).
const BATCH_WAIT: Duration = Duration::from_secs(5);
/// The deadline of one request to the collector. A slower one costs spans.
const EXPORT_DEADLINE: Duration = Duration::from_secs(5);
/// The largest answer of the collector, which is read only to end the exchange.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The path of the traces below the collector's address (OTLP 1.x).
const TRACES_PATH: &str = "/v1/traces";

/// Queues spans for the exporting task. It is cheap to clone; the export ends when all clones are
/// dropped.
#[derive(Clone)]
pub struct TraceExporter {
    queue: mpsc::Sender<FinishedSpan>,
    metrics: Arc<GatewayMetrics>,
    clock_ns: fn() -> u64,
    sampler: Arc<Sampler>,
}

/// The exporting task of a [`TraceExporter`].
#[derive(Debug)]
pub struct TraceExportTask(JoinHandle<()>);

/// The address of the collector.
#[derive(Clone, Debug)]
struct Collector {
    authority: String,
    path: String,
    host: HeaderValue,
}

/// Decides which requests are traced, and makes identifiers. Both come from a keyed hash, so that a
/// client cannot choose a trace that is always sampled. Identifiers only need to differ.
struct Sampler {
    key: RandomState,
    made: AtomicU64,
    /// The exclusive upper bound of the hashes that are sampled; `None` to sample all.
    bound: Option<u64>,
}

/// A request that is traced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledTrace {
    /// The context that the upstream receives: the trace and this span.
    pub(crate) context: TraceParent,
    /// The client's span.
    pub(crate) parent_id: Option<u64>,
    pub(crate) began_unix_ns: u64,
}

impl TraceExporter {
    /// Starts a task that sends the spans of a fraction `ratio` of all requests to the collector at
    /// `url`, `http://HOST[:PORT][/PATH]` without `/v1/traces`. `clock_ns` returns Unix
    /// nanoseconds. Call it within a Tokio runtime.
    ///
    /// # Errors
    /// [`TelemetryError::Collector`] if the address is malformed or not on loopback,
    /// [`TelemetryError::TraceRatio`] if the ratio is not in (0, 1].
    pub fn start(
        url: &str,
        ratio: f64,
        metrics: Arc<GatewayMetrics>,
        clock_ns: fn() -> u64,
    ) -> Result<(Self, TraceExportTask), TelemetryError> {
        let collector = Collector::parse(url)?;
        let sampler = Arc::new(Sampler::new(ratio)?);
        let (queue, spans) = mpsc::channel(QUEUED_SPANS_MAX);
        let task = tokio::spawn(export_spans(spans, collector, metrics.clone()));
        Ok((Self { queue, metrics, clock_ns, sampler }, TraceExportTask(task)))
    }

    /// Decides whether a request is traced. A client that does not record its trace is followed;
    /// one that does is subject to the ratio.
    pub(crate) fn sample(&self, parent: Option<TraceParent>) -> Option<SampledTrace> {
        let trace_id = match parent {
            Some(parent) if !parent.is_sampled => return None,
            Some(parent) => parent.trace_id,
            None => self.sampler.new_trace_id(),
        };
        self.sampler.includes(trace_id).then(|| SampledTrace {
            context: TraceParent { trace_id, span_id: self.sampler.new_id(), is_sampled: true },
            parent_id: parent.map(|parent| parent.span_id),
            began_unix_ns: (self.clock_ns)(),
        })
    }

    /// Queues a finished span, or counts it as lost.
    pub(crate) fn record(&self, span: FinishedSpan) {
        if self.queue.try_send(span).is_err() {
            self.metrics.count_lost_spans("queue_full", 1);
        }
    }
}

impl TraceExportTask {
    /// Waits until the queued spans are sent, for at most 5 s. Every [`TraceExporter`] must be
    /// dropped before.
    pub async fn finish(mut self) {
        if tokio::time::timeout(EXPORT_DEADLINE, &mut self.0).await.is_err() {
            self.0.abort();
        }
    }
}

impl Collector {
    fn parse(text: &str) -> Result<Self, TelemetryError> {
        let bad = |got: String| TelemetryError::Collector { url: text.into(), got };
        let url = HttpUrl::parse(text).map_err(|error| bad(error.to_string()))?;
        let url = url.with_numeric_localhost();
        if url.scheme() == Scheme::Https {
            return Err(bad("https".into()));
        }
        if !url.is_loopback() {
            return Err(bad("a host that is not a loopback address".into()));
        }
        if url.query().is_some() {
            return Err(bad("a query".into()));
        }
        let path = format!("{}{TRACES_PATH}", url.path().trim_end_matches('/'));
        let authority = url.authority();
        let host = HeaderValue::try_from(&authority).map_err(|error| bad(error.to_string()))?;
        Ok(Self { authority, path, host })
    }

    /// Sends one batch over a connection of its own: there is one in 5 s.
    async fn send(&self, body: Vec<u8>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::post(&self.path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))?;
        // The sender is dropped with the answer, which ends a connection that is kept open.
        let exchange = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(status)
        };
        let connection = async {
            // The exchange reports the failure of its connection.
            let _ = connection.await;
        };
        let (status, ()) = tokio::join!(exchange, connection);
        match status? {
            status if status.is_success() => Ok(()),
            status => Err(format!("status {status}").into()),
        }
    }
}

impl Sampler {
    fn new(ratio: f64) -> Result<Self, TelemetryError> {
        let bound = match ratio {
            1.0 => None,
            _ if ratio > 0.0 && ratio < 1.0 => Some((ratio * u64::MAX as f64) as u64),
            _ => return Err(TelemetryError::TraceRatio { got: ratio }),
        };
        Ok(Self { key: RandomState::new(), made: AtomicU64::new(0), bound })
    }

    fn includes(&self, trace_id: u128) -> bool {
        self.bound.is_none_or(|bound| self.key.hash_one(trace_id) < bound)
    }

    /// A new identifier, which is not zero.
    fn new_id(&self) -> u64 {
        self.key.hash_one(self.made.fetch_add(1, Ordering::Relaxed)).max(1)
    }

    fn new_trace_id(&self) -> u128 {
        u128::from(self.new_id()) << 64 | u128::from(self.new_id())
    }
}

async fn export_spans(
    mut queue: mpsc::Receiver<FinishedSpan>,
    collector: Collector,
    metrics: Arc<GatewayMetrics>,
) {
    let mut batch = Vec::with_capacity(BATCH_SPANS_MAX);
    let mut is_failing = false;
    while queue.recv_many(&mut batch, BATCH_SPANS_MAX).await > 0 {
        let fill = async {
            let mut missing = BATCH_SPANS_MAX - batch.len();
            while missing > 0 {
                match queue.recv_many(&mut batch, missing).await {
                    0 => return,
                    received => missing -= received,
                }
            }
        };
        // A batch that is not full by then is sent as it is.
        let _ = tokio::time::timeout(BATCH_WAIT, fill).await;
        let sent = tokio::time::timeout(EXPORT_DEADLINE, collector.send(encode_spans(&batch)));
        let outcome = sent.await.unwrap_or_else(|_| Err("no answer in time".into()));
        let count = batch.len() as u64;
        batch.clear();
        match &outcome {
            Ok(()) => metrics.count_exported_spans(count),
            Err(error) => {
                metrics.count_lost_spans("export_failed", count);
                if !is_failing {
                    tracing::warn!(%error, collector = %collector.authority, "spans are lost");
                }
            }
        }
        is_failing = outcome.is_err();
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::{
        configuration::GatewayConfiguration, outcome::RequestOutcome, span::SpanEvents,
        upstream::Upstream,
    };

    #[test]
    fn a_ratio_of_all_traces_is_sampled_and_each_trace_wholly_or_not_at_all() {
        let sampler = Sampler::new(0.25).unwrap();
        let traces: Vec<u128> = (0..10_000).map(|_| sampler.new_trace_id()).collect();
        let count = traces.iter().filter(|trace| sampler.includes(**trace)).count();
        assert!((2000..3000).contains(&count), "{count}");
        assert!(traces.iter().all(|trace| sampler.includes(*trace) == sampler.includes(*trace)));
        // Identifiers that a client chooses are sampled no more often than others.
        let chosen = (1..=10_000_u128).filter(|trace| sampler.includes(*trace)).count();
        assert!((2000..3000).contains(&chosen), "{chosen}");
        let all = Sampler::new(1.0).unwrap();
        assert!(traces.iter().all(|trace| all.includes(*trace)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_collector_that_hangs_costs_spans_and_a_bounded_wait() {
        // The kernel accepts the connection, and nobody answers.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let upstream = Upstream::parse("http://127.0.0.1:1").unwrap();
        let binding = confide_channel::Binding::Key;
        let configuration = GatewayConfiguration::with_upstream(binding, upstream);
        let metrics = Arc::new(GatewayMetrics::new([&configuration], []));
        let (exporter, task) = TraceExporter::start(&url, 1.0, metrics.clone(), || 1).unwrap();
        let SampledTrace { context, parent_id, began_unix_ns } = exporter.sample(None).unwrap();
        let span = FinishedSpan {
            context,
            parent_id,
            method: "GET",
            route: None,
            status: None,
            operation: None,
            model: None,
            provider: "confide",
            outcome: RequestOutcome::Cancelled,
            began_unix_ns,
            events: SpanEvents::default(),
            duration: Duration::ZERO,
        };
        for _ in 0..QUEUED_SPANS_MAX + 100 {
            exporter.record(span.clone());
        }
        let lost = "confide_gateway_spans_lost_total{reason=\"queue_full\"} 100\n";
        assert!(metrics.encode().contains(lost), "{}", metrics.encode());
        drop(exporter);
        task.finish().await;
        assert!(metrics.encode().contains("confide_gateway_spans_exported_total 0\n"));
        drop(listener);
    }
}
