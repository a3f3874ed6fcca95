//! The metrics of one model, under the names of vLLM and of OpenTelemetry's GenAI conventions.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::Duration,
};

use confide_http::metrics::{
    Counter, Gauge, Histogram, LabelledCounter, LabelledGauge, LabelledHistogram, MetricsRegistry,
};

use crate::{operation::Operation, outcome::RequestOutcome};

/// The value of `gen_ai.provider.name`: the conventions have none for a gateway of model servers.
pub(crate) const PROVIDER: &str = "confide";

/// The bounds of `gen_ai.server.request.duration`, in seconds (semantic conventions 1.37).
const GEN_AI_DURATION_S: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// The bounds of `gen_ai.server.time_to_first_token`, in seconds.
const GEN_AI_FIRST_TOKEN_S: &[f64] =
    &[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// The bounds of `gen_ai.server.time_per_output_token`, in seconds.
const GEN_AI_PER_TOKEN_S: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
/// The bounds of `gen_ai.client.token.usage`, in tokens: the powers of 4.
const GEN_AI_TOKENS: &[f64] = &[
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0,
    16777216.0, 67108864.0,
];
/// vLLM's bounds of `vllm:time_to_first_token_seconds`.
const VLLM_FIRST_TOKEN_S: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// vLLM's bounds of `vllm:e2e_request_latency_seconds`.
const VLLM_LATENCY_S: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

/// The metrics that have a series for each model.
pub(super) struct ModelFamilies {
    running: LabelledGauge<1>,
    waiting: LabelledGauge<1>,
    first_token: LabelledHistogram<1>,
    latency: LabelledHistogram<1>,
    prompt_tokens: LabelledCounter<1>,
    generation_tokens: LabelledCounter<1>,
    success: LabelledCounter<2>,
    gen_ai_duration: LabelledHistogram<4>,
    gen_ai_first_token: LabelledHistogram<3>,
    gen_ai_per_token: LabelledHistogram<3>,
    gen_ai_tokens: LabelledHistogram<4>,
}

/// The series of one model. Requests find them without a search for labels.
pub(crate) struct ModelMetrics {
    pub(crate) name: Arc<str>,
    pub(crate) running: Gauge,
    pub(crate) waiting: Gauge,
    first_token: Histogram,
    latency: Histogram,
    prompt_tokens: Counter,
    generation_tokens: Counter,
    completed: Counter,
    aborted: Counter,
    /// The series of each operation, made at its first request: most models have one operation.
    operations: [OnceLock<OperationMetrics>; Operation::COUNT],
}

struct OperationMetrics {
    durations: [OnceLock<Histogram>; RequestOutcome::COUNT],
    first_token: Histogram,
    per_token: Histogram,
    input_tokens: Histogram,
    output_tokens: Histogram,
}

/// The times of a finished request, from its head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestTimes {
    pub(crate) duration: Duration,
    /// The times of the first and the last frame of a streamed answer, and the number of frames.
    pub(crate) frames: Option<(Duration, Duration, u32)>,
}

impl ModelFamilies {
    pub(super) fn register(registry: &mut MetricsRegistry) -> Self {
        Self {
            running: registry.labelled_gauge(
                "vllm:num_requests_running",
                "Requests that were sent to a model server and whose answer has not ended.",
            ),
            waiting: registry.labelled_gauge(
                "vllm:num_requests_waiting",
                "Requests that wait in the gateway for a model server.",
            ),
            first_token: registry.labelled_histogram(
                "vllm:time_to_first_token_seconds",
                "Time from the head of a request to the first frame of its streamed answer.",
                VLLM_FIRST_TOKEN_S,
            ),
            latency: registry.labelled_histogram(
                "vllm:e2e_request_latency_seconds",
                "Time from the head of a request to the end of its successful answer.",
                VLLM_LATENCY_S,
            ),
            prompt_tokens: registry.labelled_counter(
                "vllm:prompt_tokens_total",
                "Prompt tokens of complete answers, as reported by the model server.",
            ),
            generation_tokens: registry.labelled_counter(
                "vllm:generation_tokens_total",
                "Tokens of complete answers, as reported by the model server.",
            ),
            success: registry.labelled_counter(
                "vllm:request_success_total",
                "Requests answered with success: complete, or aborted by the client.",
            ),
            gen_ai_duration: registry.labelled_histogram(
                "gen_ai_server_request_duration_seconds",
                "Time from the head of a request to the last byte of its answer.",
                GEN_AI_DURATION_S,
            ),
            gen_ai_first_token: registry.labelled_histogram(
                "gen_ai_server_time_to_first_token_seconds",
                "Time from the head of a request to the first frame of its streamed answer.",
                GEN_AI_FIRST_TOKEN_S,
            ),
            gen_ai_per_token: registry.labelled_histogram(
                "gen_ai_server_time_per_output_token_seconds",
                "Time per frame of a complete streamed answer after its first frame.",
                GEN_AI_PER_TOKEN_S,
            ),
            gen_ai_tokens: registry.labelled_histogram(
                "gen_ai_client_token_usage",
                "Tokens of a prompt or its complete answer, as reported by the model server.",
                GEN_AI_TOKENS,
            ),
        }
    }

    /// Makes the series of a model.
    pub(super) fn model(&self, name: &str) -> ModelMetrics {
        let label = || ("model_name", Cow::Owned(name.to_owned()));
        let success =
            |reason| self.success.get_or_create_owned(&[label(), ("finished_reason", reason)]);
        ModelMetrics {
            name: name.into(),
            running: self.running.get_or_create_owned(&[label()]),
            waiting: self.waiting.get_or_create_owned(&[label()]),
            first_token: self.first_token.get_or_create_owned(&[label()]),
            latency: self.latency.get_or_create_owned(&[label()]),
            prompt_tokens: self.prompt_tokens.get_or_create_owned(&[label()]),
            generation_tokens: self.generation_tokens.get_or_create_owned(&[label()]),
            completed: success("complete".into()),
            aborted: success("abort".into()),
            operations: Default::default(),
        }
    }

    fn operation(&self, operation: Operation, model: &str) -> OperationMetrics {
        let labels = || gen_ai_labels(operation, model);
        let tokens = |kind: &'static str| {
            let [name, provider, model] = labels();
            let kind = ("gen_ai_token_type", kind.into());
            self.gen_ai_tokens.get_or_create_owned(&[name, provider, model, kind])
        };
        OperationMetrics {
            durations: Default::default(),
            first_token: self.gen_ai_first_token.get_or_create_owned(&labels()),
            per_token: self.gen_ai_per_token.get_or_create_owned(&labels()),
            input_tokens: tokens("input"),
            output_tokens: tokens("output"),
        }
    }
}

impl ModelMetrics {
    /// Records a finished request of an operation.
    pub(super) fn record_request(
        &self,
        families: &ModelFamilies,
        operation: Operation,
        outcome: RequestOutcome,
        times: RequestTimes,
    ) {
        let series = self.operation(families, operation);
        let duration = series.durations[outcome as usize].get_or_init(|| {
            let [name, provider, model] = gen_ai_labels(operation, &self.name);
            let error = ("error_type", outcome.error_type().unwrap_or_default().into());
            families.gen_ai_duration.get_or_create_owned(&[name, provider, model, error])
        });
        duration.observe(times.duration.as_secs_f64());
        match outcome {
            RequestOutcome::Complete => {
                self.completed.inc();
                self.latency.observe(times.duration.as_secs_f64());
            }
            RequestOutcome::Cancelled => drop(self.aborted.inc()),
            _ => {}
        }
        let Some((first, last, count)) = times.frames else { return };
        series.first_token.observe(first.as_secs_f64());
        self.first_token.observe(first.as_secs_f64());
        if let (RequestOutcome::Complete, 2..) = (outcome, count) {
            let rest = last.saturating_sub(first);
            series.per_token.observe(rest.as_secs_f64() / f64::from(count - 1));
        }
    }

    /// Records the tokens of one request.
    pub(super) fn record_tokens(
        &self,
        families: &ModelFamilies,
        operation: Operation,
        prompt: u64,
        completion: u64,
    ) {
        let series = self.operation(families, operation);
        self.prompt_tokens.inc_by(prompt);
        self.generation_tokens.inc_by(completion);
        series.input_tokens.observe(prompt as f64);
        series.output_tokens.observe(completion as f64);
    }

    fn operation(&self, families: &ModelFamilies, operation: Operation) -> &OperationMetrics {
        self.operations[operation as usize]
            .get_or_init(|| families.operation(operation, &self.name))
    }
}

type Label = (&'static str, Cow<'static, str>);

fn gen_ai_labels(operation: Operation, model: &str) -> [Label; 3] {
    [
        ("gen_ai_operation_name", operation.name().into()),
        ("gen_ai_provider_name", PROVIDER.into()),
        ("gen_ai_request_model", Cow::Owned(model.to_owned())),
    ]
}
