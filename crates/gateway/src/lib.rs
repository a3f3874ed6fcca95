//! Terminates an attested channel in front of a model server and proxies HTTP to it.
//!
//! A request passes TCP, then [`confide_channel::Server`] (TLS and evidence), then HTTP/1.1 by
//! hyper, then a pooled connection to the upstream. After the handshake nothing here knows which
//! binding was used, so a kept attested session costs what plain TLS costs.
//!
//! What is proxied is streamed in both directions and never kept; an upstream that dies in the
//! middle of an answer reaches the client as a broken stream. What the gateway does with a prompt
//! follows from its [`Configuration`], whose digest is in the claims that its evidence signs. Where
//! that names a model, the upstream is asked for it on every new connection, and one that names
//! another ends the service.

mod acceptor;
mod access_log;
mod answer;
mod body;
mod configuration;
mod connection;
mod error;
mod fault;
mod gateway;
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
mod upstream;
mod wire;

pub use confide_http::{Admission, AdmissionLimits, BodyPace, Drained};

pub use access_log::{AccessLog, AccessLogEnd};
pub use configuration::{
    Configuration, GUARANTEE_FULL, GUARANTEE_GATEWAY_ONLY, GUARANTEE_NONE, WELL_KNOWN_PATH,
};
pub use error::GatewayError;
pub use gateway::{Gateway, GatewayOptions};
pub use limits::GatewayLimits;
pub use manifest::ask as ask_model_manifest;
pub use route::{Route, RouteMethods};
pub use upstream::Upstream;
