//! The adapter host: it holds adapters but no key, and multiplies them with vectors that it cannot
//! read.
//!
//! [`AdapterHost::serve`] runs the blind protocol on one connection. Connections share sessions,
//! whose batches of masks are in memory only, budgets, which are counted for each account, and the
//! audit log.

mod accounts;
mod adapter;
mod adapter_host;
mod audit;
mod budget_file;
mod connection;
mod direct_answer;
mod error;
mod group;
mod ledger;
mod online;
mod peers;
mod queue;
mod sequences;
mod sessions;
mod tally;
mod trusted_file;
mod upload;
mod writer;

pub use accounts::{Account, ClientList, ClientListError};
pub(crate) use adapter_host::SECURITY_BITS_MIN;
pub use adapter_host::{AdapterHost, ChannelPeer, HostOptions, PARAMETERS_DEFAULT};
pub use audit::{AuditLog, AuditSubject};
pub use budget_file::{format_answer_counts, parse_answer_counts};
pub use error::HostError;
pub use group::weights_digest;
pub use ledger::{AnswerLedger, LedgerError};
pub use peers::{HostLimits, PeerPrefix};
pub use sessions::BATCHES_MAX;
pub use tally::{AuditTally, input_name};
pub use upload::WINDOW;
