//! Passes TLS connections to one of many machines by the server name in their ClientHello (SNI).
//!
//! The bytes are forwarded as they came. This package reads only the ClientHello, which is sent in the clear, and
//! depends on nothing that can decrypt TLS: `tests/layering.rs` holds it to that. The other end of the TLS connection
//! is the machine behind, so its evidence reaches the client unchanged.

mod client_hello;
mod hang_up;
mod limits;
mod passthrough;
#[cfg(test)]
mod passthrough_tests;
mod pipe;
mod relay;
mod route;
mod server_name;
mod target;

pub use client_hello::{HELLO_BYTES_MAX, HelloError, parse_client_hello};
pub use limits::PassLimits;
pub use passthrough::Passthrough;
pub use route::{NamePattern, PassRoute, RouteError, RouteTable};
pub use server_name::{ServerName, ServerNameError};
pub use target::{PassTarget, TargetError};
