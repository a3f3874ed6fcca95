//! A finished span, and its form in OTLP's JSON encoding (opentelemetry-proto 1.x).

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{operation::Operation, outcome::RequestOutcome, trace_context::TraceParent};

/// `SPAN_KIND_SERVER` and `STATUS_CODE_ERROR` of `opentelemetry.proto.trace.v1`.
const KIND_SERVER: u32 = 2;
const STATUS_ERROR: u32 = 2;
/// The sampled flag of a trace context.
const FLAG_SAMPLED: u32 = 1;

/// One finished request. It has no field that could hold a path, a query, an address, a key or any
/// other text of a request.
#[derive(Clone, Debug)]
pub(crate) struct FinishedSpan {
    /// The trace and the identifier of this span.
    pub(crate) context: TraceParent,
    /// The client's span, if it sent one.
    pub(crate) parent_id: Option<u64>,
    /// The name of the method, or `_OTHER`.
    pub(crate) method: &'static str,
    /// The pattern of the route.
    pub(crate) route: Option<Arc<str>>,
    pub(crate) status: Option<StatusCode>,
    pub(crate) operation: Option<Operation>,
    /// The model, if the configuration names it.
    pub(crate) model: Option<Arc<str>>,
    pub(crate) provider: &'static str,
    pub(crate) outcome: RequestOutcome,
    pub(crate) began_unix_ns: u64,
    /// The times of the events, from the beginning.
    pub(crate) events: SpanEvents,
    pub(crate) duration: Duration,
}

/// The times of what happened within a request, from its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpanEvents {
    /// The time at which the request was sent to the upstream.
    pub(crate) sent: Option<Duration>,
    /// The time of the head of the answer.
    pub(crate) head: Option<Duration>,
    /// The time of the first frame of the answer's body.
    pub(crate) first_frame: Option<Duration>,
}

/// The name of a known method, otherwise `_OTHER` (OpenTelemetry's HTTP conventions).
pub(crate) fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "_OTHER",
    }
}

/// An `ExportTraceServiceRequest` with the spans of one batch.
pub(crate) fn encode_spans(spans: &[FinishedSpan]) -> Vec<u8> {
    let spans: Vec<Value> = spans.iter().map(FinishedSpan::to_json).collect();
    let request = json!({
        "resourceSpans": [{
            "resource": { "attributes": [text("service.name", "confide-gateway")] },
            "scopeSpans": [{
                "scope": { "name": "confide-gateway", "version": env!("CARGO_PKG_VERSION") },
                "spans": spans,
            }],
        }],
    });
    request.to_string().into_bytes()
}

impl FinishedSpan {
    fn to_json(&self) -> Value {
        let at = |after: Duration| {
            let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
            // 64-bit integers are strings in the JSON form of protobuf.
            self.began_unix_ns.saturating_add(after_ns).to_string()
        };
        let name = match (self.method, &self.route) {
            ("_OTHER", Some(route)) => format!("HTTP {route}"),
            (method, Some(route)) => format!("{method} {route}"),
            ("_OTHER", None) => "HTTP".to_owned(),
            (method, None) => method.to_owned(),
        };
        let SpanEvents { sent, head, first_frame } = self.events;
        let events: Vec<Value> =
            [("request_sent", sent), ("answer_head", head), ("first_frame", first_frame)]
                .into_iter()
                .filter_map(|(name, after)| {
                    Some(json!({ "timeUnixNano": at(after?), "name": name }))
                })
                .collect();
        let mut span = json!({
            "traceId": format!("{:032x}", self.context.trace_id),
            "spanId": format!("{:016x}", self.context.span_id),
            "flags": FLAG_SAMPLED,
            "name": name,
            "kind": KIND_SERVER,
            "startTimeUnixNano": at(Duration::ZERO),
            "endTimeUnixNano": at(self.duration),
            "attributes": self.attributes(),
            "events": events,
            "status": {},
        });
        if let Some(parent) = self.parent_id {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        if matches!(self.outcome, RequestOutcome::ServerError | RequestOutcome::Broken) {
            span["status"] = json!({ "code": STATUS_ERROR });
        }
        span
    }

    fn attributes(&self) -> Vec<Value> {
        let mut attributes = vec![text("http.request.method", self.method)];
        if let Some(route) = &self.route {
            attributes.push(text("http.route", route));
        }
        if let Some(status) = self.status {
            let value = json!({ "intValue": status.as_u16().to_string() });
            attributes.push(json!({ "key": "http.response.status_code", "value": value }));
        }
        if let Some(operation) = self.operation {
            attributes.push(text("gen_ai.operation.name", operation.name()));
            attributes.push(text("gen_ai.provider.name", self.provider));
        }
        if let Some(model) = &self.model {
            attributes.push(text("gen_ai.request.model", model));
        }
        if let Some(error) = self.outcome.error_type() {
            attributes.push(text("error.type", error));
        }
        attributes
    }
}

/// An attribute with a text value.
fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}
