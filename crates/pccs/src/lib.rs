//! Serves endorsements to a fleet over the routes of Intel, AMD and NVIDIA.
//!
//! It is a cache: the relying party verifies the signatures. It answers even while the vendors are
//! down, and it refuses rollbacks: a document older than the stored one ([`WriteOutcome::Older`]).
//!
//! [`serve`] accepts connections; [`Service`] answers from a [`Database`] or an [`Upstream`];
//! [`parse_request`] parses requests. The feature `simulate` adds a service over a fake root that
//! fails on purpose, the feature `postgres` a database that several instances share.

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
    Database, DatabaseError, DatabaseFuture, WriteOutcome, open::open_database, sqlite::Sqlite,
};
pub use document::Document;
pub use document_store::DocumentStore;
pub use edition::{EditionDates, parse_dates};
#[cfg(feature = "simulate")]
pub use faults::{Faults, FaultsError, Latency, RequestLimit, ServedEdition};
pub use import::{ImportError, split_endorsements};
pub use kind::DocumentKind;
pub use limits::PccsLimits;
pub use listen::{ServeError, serve};
pub use request::{
    AmdKeyKind, CrlEncoding, DocumentRequest, DocumentRequestError, IntelTee, parse_request,
};
pub use service::{DocumentSource, PccsOptions, Service};
#[cfg(feature = "simulate")]
pub use simulation::{SimulatedIssuer, Simulation};
pub use upstream::{Upstream, UpstreamError};
pub use vendors::VendorUpstream;
