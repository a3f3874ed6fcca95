//! What telemetry learns about one request, from its head to the end of its answer.
//!
//! It learns the route's pattern, the status, error codes and times. The methods take no field,
//! path or body of a request, except to compare them with words of the configuration.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use confide_http::PaceFault;
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};

use crate::{
    answer::AnswerBody,
    body::{BodyFault, find_body_fault},
    metrics::{GatewayMetrics, ModelMetrics, PROVIDER, RequestTimes, RouteMetrics},
    operation::Operation,
    outcome::RequestOutcome,
    shaped_body::ShapeMark,
    span::{FinishedSpan, SpanEvents, method_name},
    token_report::TokenReport,
    trace_context::{TRACEPARENT, TRACESTATE, TraceParent},
    traces::{SampledTrace, TraceExporter},
};

/// The telemetry of a gateway.
#[derive(Clone)]
pub struct Telemetry {
    /// The metrics, which several gateways of one process may share.
    pub metrics: Arc<GatewayMetrics>,
    /// The exporter of spans, if requests are traced.
    pub traces: Option<TraceExporter>,
    /// Whether answers are read for their tokens where no API keys are demanded, too. Model servers
    /// are then asked for answers without compression, which could not be read.
    pub counts_tokens: bool,
}

/// The observation of one request. It is recorded when it is dropped: with the body of the answer,
/// or earlier if the client leaves.
pub(crate) struct RequestObservation(Option<ActiveObservation>);

struct ActiveObservation {
    telemetry: Arc<Telemetry>,
    began: Instant,
    method: &'static str,
    has_answer_body: bool,
    route: Option<Arc<RouteMetrics>>,
    operation: Option<(Operation, Arc<ModelMetrics>)>,
    is_sent: bool,
    status: Option<StatusCode>,
    is_streamed: bool,
    events: SpanEvents,
    /// The time of the last frame, and the number of frames.
    last_frame: Duration,
    frames: u32,
    end: Option<(RequestOutcome, Duration)>,
    trace: Option<SampledTrace>,
}

/// The body of an answer, whose frames and end are observed.
pub(crate) struct ObservedBody {
    inner: AnswerBody,
    observation: RequestObservation,
}

impl RequestObservation {
    /// Begins with the head of a request. If requests are traced, the trace context in `headers` is
    /// continued: a sampled request's upstream receives this gateway's span as its parent, and a
    /// malformed context is removed.
    pub(crate) fn begin(
        telemetry: Option<&Arc<Telemetry>>,
        method: &Method,
        headers: &mut HeaderMap,
    ) -> Self {
        let Some(telemetry) = telemetry else { return Self(None) };
        let trace = telemetry.traces.as_ref().and_then(|traces| {
            let parent = TraceParent::find(headers);
            if parent.is_none() {
                headers.remove(TRACEPARENT);
                headers.remove(TRACESTATE);
            }
            let trace = traces.sample(parent)?;
            headers.insert(TRACEPARENT, trace.context.to_header()?);
            Some(trace)
        });
        Self(Some(ActiveObservation {
            telemetry: telemetry.clone(),
            began: Instant::now(),
            method: method_name(method),
            has_answer_body: method != Method::HEAD,
            route: None,
            operation: None,
            is_sent: false,
            status: None,
            is_streamed: false,
            events: SpanEvents::default(),
            last_frame: Duration::ZERO,
            frames: 0,
            end: None,
            trace,
        }))
    }

    /// Records the route of the request by its pattern.
    pub(crate) fn record_route(&mut self, pattern: &str) {
        let Some(active) = &mut self.0 else { return };
        active.route = Some(active.telemetry.metrics.find_route(pattern).clone());
    }

    /// Records that the request begins to wait for a model server. `path` is normalised. `model` is
    /// the model that the request names; without it the request counts for the only configured
    /// model.
    pub(crate) fn record_operation(&mut self, method: &Method, path: &str, model: Option<&str>) {
        let Some(active) = &mut self.0 else { return };
        let metrics = &active.telemetry.metrics;
        active.operation = Operation::from_request(method, path).map(|operation| {
            let model = model.map_or_else(|| metrics.only_model(), |name| metrics.find_model(name));
            model.waiting.inc();
            (operation, model.clone())
        });
    }

    /// The series for the tokens of the answer; `None` if the request is no operation.
    pub(crate) fn token_report(&self) -> Option<TokenReport> {
        let active = self.0.as_ref()?;
        let (operation, model) = active.operation.as_ref()?;
        Some(TokenReport::new(active.telemetry.metrics.clone(), *operation, model.clone()))
    }

    /// Records that a model server has been found and the request is sent. Later attempts do not
    /// count.
    pub(crate) fn record_sent(&mut self) {
        let Some(active) = self.0.as_mut().filter(|active| !active.is_sent) else { return };
        active.is_sent = true;
        active.events.sent = active.event_time();
        if let Some((_, model)) = &active.operation {
            model.waiting.dec();
            model.running.inc();
        }
    }

    /// Records that the gateway refused the request, with the code of the error.
    pub(crate) fn record_refusal(&mut self, code: &'static str) {
        if let Some(active) = &self.0 {
            active.telemetry.metrics.count_refusal(code);
        }
    }

    /// Records that the upstream failed, with the code of the error.
    pub(crate) fn record_upstream_failure(&mut self, code: &'static str) {
        if let Some(active) = &self.0 {
            active.telemetry.metrics.count_upstream_failure(code);
        }
    }

    /// Records the head of the answer, and observes its body from here on.
    pub(crate) fn observe_answer(
        mut self,
        response: Response<AnswerBody>,
    ) -> Response<ObservedBody> {
        if let Some(active) = &mut self.0 {
            let status = response.status();
            active.status = Some(status);
            active.events.head = active.event_time();
            // The times of a shaped answer are those of its slots, not those of tokens.
            let is_shaped = response.extensions().get::<ShapeMark>().is_some();
            active.is_streamed = active.operation.is_some()
                && status.is_success()
                && !is_shaped
                && is_event_stream(&response);
            if !active.has_answer_body || response.body().is_end_stream() {
                active.record_end(RequestOutcome::from_status(status));
            }
        }
        response.map(|inner| ObservedBody { inner, observation: self })
    }
}

/// Whether the answer is a stream of events, of which each holds one token or a few.
fn is_event_stream(response: &Response<AnswerBody>) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

impl ActiveObservation {
    /// The time since the beginning, if a span will need it. Reading the clock is the larger part of
    /// what an observation costs.
    fn event_time(&self) -> Option<Duration> {
        self.trace.is_some().then(|| self.began.elapsed())
    }

    fn record_frame(&mut self) {
        if !self.is_streamed && self.trace.is_none() {
            return;
        }
        self.last_frame = self.began.elapsed();
        self.events.first_frame.get_or_insert(self.last_frame);
        self.frames = self.frames.saturating_add(1);
    }

    fn record_end(&mut self, outcome: RequestOutcome) {
        let duration = self.began.elapsed();
        self.end.get_or_insert((outcome, duration));
    }

    fn record_complete(&mut self) {
        // A body is observed only after its head.
        self.record_end(self.status.map_or(RequestOutcome::Cancelled, RequestOutcome::from_status));
    }

    fn record_broken(&mut self, error: &(dyn std::error::Error + 'static)) {
        let is_pause =
            matches!(find_body_fault(error), Some(BodyFault::Pace(PaceFault::Paused { .. })));
        let reason = if is_pause { "upstream_answer_paused" } else { "upstream_answer_broken" };
        self.telemetry.metrics.count_upstream_failure(reason);
        self.record_end(RequestOutcome::Broken);
    }

    fn take_span(&mut self, outcome: RequestOutcome, duration: Duration) -> Option<FinishedSpan> {
        let SampledTrace { context, parent_id, began_unix_ns } = self.trace.take()?;
        let model = self.operation.as_ref().map(|(_, model)| model);
        let named = model.filter(|model| self.telemetry.metrics.is_named(model));
        Some(FinishedSpan {
            context,
            parent_id,
            method: self.method,
            route: self.route.as_ref().map(|route| route.pattern.clone()),
            status: self.status,
            operation: self.operation.as_ref().map(|(operation, _)| *operation),
            model: named.map(|model| model.name.clone()),
            provider: PROVIDER,
            outcome,
            began_unix_ns,
            events: self.events,
            duration,
        })
    }
}

impl Drop for ActiveObservation {
    fn drop(&mut self) {
        let (outcome, duration) =
            self.end.unwrap_or_else(|| (RequestOutcome::Cancelled, self.began.elapsed()));
        if let Some((_, model)) = &self.operation {
            let gauge = if self.is_sent { &model.running } else { &model.waiting };
            gauge.dec();
        }
        let first = self.events.first_frame.filter(|_| self.is_streamed);
        let times = RequestTimes {
            duration,
            frames: first.map(|first| (first, self.last_frame, self.frames)),
        };
        let metrics = &self.telemetry.metrics;
        let route = self.route.as_ref().unwrap_or_else(|| metrics.other_route());
        let operation = self.operation.as_ref().map(|(operation, model)| (*operation, &**model));
        metrics.record_request(route, self.status, operation, outcome, times);
        if let (Some(span), Some(traces)) =
            (self.take_span(outcome, duration), &self.telemetry.traces)
        {
            traces.record(span);
        }
    }
}

impl Body for ObservedBody {
    type Data = Bytes;
    type Error = <AnswerBody as Body>::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { inner, observation } = self.get_mut();
        let outcome = Pin::new(&mut *inner).poll_frame(cx);
        let Some(active) = &mut observation.0 else { return outcome };
        match &outcome {
            Poll::Ready(Some(Ok(frame))) => {
                if frame.is_data() {
                    active.record_frame();
                }
                // After the last byte of a known length, a body is not polled again.
                if inner.is_end_stream() {
                    active.record_complete();
                }
            }
            Poll::Ready(Some(Err(error))) => active.record_broken(&**error),
            Poll::Ready(None) => active.record_complete(),
            Poll::Pending => {}
        }
        outcome
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
