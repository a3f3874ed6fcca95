//! Terminates an attested channel in front of a model server and proxies HTTP to it.
//!
//! A request passes TCP, then [`confide_channel::Server`] (TLS and evidence), then HTTP/1.1 or
//! HTTP/2 by hyper, then a pooled connection to the upstream. After the handshake the binding makes no
//! difference, so a kept attested session costs as much as plain TLS.
//!
//! Bodies are streamed in both directions and never stored; if an upstream fails in the middle of
//! an answer, the client sees a broken stream. The [`GatewayConfiguration`] determines what happens
//! to a prompt, and the signed claims contain its digest. If it names a model, the gateway asks the
//! upstream for its model on every new connection, and stops serving if the answer differs.

mod acceptor;
mod access_log;
mod answer;
mod body;
mod configuration;
mod connection;
mod error;
mod fault;
mod gateway;
mod generation;
mod http2;
mod http2_head;
mod limits;
mod manifest;
mod path;
mod pool;
mod proxy;
mod refusal;
mod route;
mod serve;
#[cfg(test)]
mod tests;
mod trailers;
mod tunnel;
mod upstream;
mod upstream_stream;
mod websocket;

pub use confide_http::{Admission, AdmissionLimits, BodyPace, DrainOutcome};

pub use access_log::{AccessLog, AccessLogThread};
pub use configuration::{
    GUARANTEE_FULL, GUARANTEE_GATEWAY_ONLY, GUARANTEE_NONE, GatewayConfiguration, WELL_KNOWN_PATH,
};
pub use error::GatewayError;
pub use gateway::{Gateway, GatewayOptions, ReloadableGateway};
pub use limits::{GatewayLimits, Http2Limits};
pub use manifest::fetch_model_manifest;
pub use route::{Route, RouteMethods};
pub use upstream::Upstream;
