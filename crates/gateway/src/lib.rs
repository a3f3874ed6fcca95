//! Terminates an attested channel in front of a model server and proxies HTTP to it.
//!
//! A request passes TCP, then [`confide_channel::Server`] (TLS and evidence), then HTTP/1.1 or
//! HTTP/2 (by hyper), then a connection to the upstream of either version. After the handshake the
//! binding makes no difference, so a kept attested session costs as much as plain TLS.
//!
//! A route leads to a group of model servers, of which the proxy chooses one for each request.
//! Bodies are streamed in both directions. A request body is read into memory first only where it
//! has to name a model, for the choice of a server or for an API key that has models, and where a
//! server limits its running requests. If an upstream fails in the middle of an answer, the client
//! sees a broken stream. The [`GatewayConfiguration`] determines what happens to a prompt, and the
//! signed claims contain its digest. If it names a server's model, the gateway asks the server for
//! its model on every new connection, and stops serving if the answer differs.

mod acceptor;
mod access_log;
mod admin;
mod admin_socket;
mod answer;
mod answer_fault;
mod answer_shape;
mod answer_stream;
mod api_key;
mod authorization_hook;
mod authorizer;
mod body;
mod body_keys;
mod buffer;
mod cache_salt;
mod certificate_pem;
mod choice_error;
mod client_body;
mod client_connection;
mod configuration;
mod configuration_slot;
mod configuration_version;
mod connection;
mod encrypted_body_fault;
mod encrypted_request;
mod error;
mod evidence_fault;
mod evidence_source;
mod failure_log;
mod fault;
mod fields_of_bytes;
mod foreign_forms;
mod fresh_evidence;
mod gateway;
mod guess_limit;
mod health;
mod hold_bytes;
mod http1_service;
mod http2;
mod http2_head;
mod http2_session;
mod http_version;
mod json_usage;
mod key_account;
mod key_directory;
mod key_file;
mod key_route;
mod limits;
mod manifest;
mod media_type;
mod message_seal;
mod message_terms;
mod metered_body;
mod metrics;
mod model_field;
mod observation;
mod ohttp_gateway;
mod ohttp_head;
mod ohttp_request;
mod openable_receipt;
mod operation;
mod outcome;
mod path;
mod peer_rates;
mod pool;
mod proxy;
mod rate_limit;
mod receipt_book;
mod receipt_client;
mod receipt_draft;
mod receipt_fault;
mod receipt_service;
mod receipt_signer;
mod refusal;
mod report_query;
mod request_facts;
mod request_head;
mod request_model;
mod route;
mod sealed_answer;
mod sealed_source;
mod serve;
mod server;
mod server_group;
mod server_states;
mod shaped_body;
mod slot_queue;
mod span;
mod telemetry_error;
#[cfg(test)]
mod tests;
mod token_report;
mod trace_context;
mod traces;
mod trailers;
mod trusted_file;
mod upstream;
mod upstream_answer;
mod upstream_exchange;
mod upstream_key;
mod upstream_request;
mod upstream_roots;
mod upstream_socket;
mod usage;
mod usage_file;
mod usage_scanner;
mod visitor_page;
mod websocket_relay;
mod weights_watch;

pub use confide_http::{Admission, AdmissionLimits, BodyPace, DrainOutcome};

pub use access_log::{AccessLog, AccessLogThread};
pub use admin::{AdminRoutes, MetricsListener, ReloadOutcome};
pub use admin_socket::AdminSocket;
pub use answer_shape::{AnswerShape, AnswerShapePrice};
pub use api_key::{API_KEY_RANDOM_BYTES, ApiKeyDigest, format_api_key};
pub use authorization_hook::{AuthorizationHook, HookUrlError};
pub use authorizer::{Authorizer, Grant, KeyRefusal, RequestTerms};
pub use cache_salt::{Unsaltable, insert_cache_salt};
pub use configuration::{
    GUARANTEE_FULL, GUARANTEE_GATEWAY_ONLY, GUARANTEE_NONE, GatewayConfiguration, WELL_KNOWN_PATH,
};
pub use error::GatewayError;
pub use gateway::{Gateway, GatewayOptions, ReloadableGateway};
pub use key_account::{ExceededLimit, LimitRefusal};
pub use key_file::{KEY_NAME_WANTED, KeySet, is_key_name};
pub use limits::{EncryptedBodyLimits, GatewayLimits, Http2Limits, ReceiptLimits};
pub use manifest::fetch_model_manifest;
pub use metrics::GatewayMetrics;
pub use model_field::{MODEL_BYTES_MAX, ModelFieldError, parse_model_field};
pub use observation::Telemetry;
pub use rate_limit::{KeyLimits, RateLimitFields};
pub use receipt_book::ReceiptBook;
pub use route::{Route, RouteMethods};
pub use server::{DEFAULT_GROUP, ModelServer, SERVERS_MAX, WEIGHT_MAX};
pub use server_states::{QueueState, ServerState, ServerStates};
pub use slot_queue::{EventTooLong, SlotQueue};
pub use telemetry_error::TelemetryError;
pub use traces::{TraceExportTask, TraceExporter};
pub use trusted_file::TrustedFileError;
pub use upstream::Upstream;
pub use upstream_key::UpstreamKey;
pub use usage_scanner::{AnswerUsage, UsageScanner};
pub use visitor_page::{PAGE_BYTES_MAX, PAGE_PATH, PageError, VisitorPage};
