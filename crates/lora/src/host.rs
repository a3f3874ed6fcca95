//! The adapter host: holds adapters but no key, and answers about vectors that it cannot read.
//!
//! [`AdapterHost::serve`] speaks the blind protocol on one connection. What is shared between
//! connections: sessions, whose batches of masks live in memory only; budgets, which are counted for
//! an account and not for a key; the audit log.

mod accounts;
mod adapter;
mod adapter_host;
mod audit;
mod budget_file;
mod connection;
mod direct_answer;
mod error;
mod group;
mod online;
mod peers;
mod queue;
mod sequences;
mod sessions;
mod tally;
mod upload;
mod writer;

pub use accounts::{CLIENTS_BYTES_MAX, Clients, ClientsError};
pub(crate) use adapter_host::SECURITY_BITS_MIN;
pub use adapter_host::{AdapterHost, HostOptions, PARAMETERS_DEFAULT, Peer};
pub use audit::{AuditLog, Subject};
pub use error::HostError;
pub use peers::{HostLimits, PeerPrefix};
pub use sessions::BATCHES_MAX;
pub use upload::WINDOW;
