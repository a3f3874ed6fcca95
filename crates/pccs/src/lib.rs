//! Serves endorsements to a fleet over the routes of Intel, AMD and NVIDIA.
//!
//! It is a cache and does not judge: signatures are the relying party's to verify. It promises to
//! answer while the vendors do not, and never to go back: a document older than the one that is
//! kept is refused ([`WriteOutcome::Older`]).
//!
//! [`serve`] accepts connections; [`Service`] decides what is answered from a [`Database`] or an
//! [`Upstream`]; [`parse`] reads requests. The feature `simulate` adds a service over a fake root
//! that fails on purpose, the feature `postgres` a database that several instances share.

mod answer;
mod database;
mod document;
mod document_store;
mod edition;
#[cfg(feature = "simulate")]
mod faults;
mod import;
mod intake;
mod kind;
mod limits;
mod listen;
mod metrics;
mod request;
mod service;
#[cfg(feature = "simulate")]
mod simulation;
mod upstream;
mod vendors;

#[cfg(feature = "postgres")]
pub use database::postgres::Postgres;
pub use database::{
    Database, DatabaseError, DatabaseFuture, WriteOutcome, open::open, sqlite::Sqlite,
};
pub use document::Document;
pub use document_store::DocumentStore;
pub use edition::{Dates, dates};
#[cfg(feature = "simulate")]
pub use faults::{Edition, Faults, FaultsError, Latency, RequestLimit};
pub use import::{ImportError, import};
pub use kind::Kind;
pub use limits::PccsLimits;
pub use listen::{ServeError, serve};
pub use request::{DocumentRequest, Encoding, EndorsementKey, IntelTee, Refusal, parse};
pub use service::{DocumentSource, PccsOptions, Service};
#[cfg(feature = "simulate")]
pub use simulation::{Documents, Simulation};
pub use upstream::{Upstream, UpstreamError};
pub use vendors::Vendors;
