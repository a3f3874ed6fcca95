//! Serves endorsements to a fleet over the routes of Intel, AMD and NVIDIA.
//!
//! A cache, not a judge: signatures are the relying party's to verify. What it promises is to answer
//! while the vendors do not, and never to go back: a document older than the one that is kept is
//! refused ([`Written::Older`]).
//!
//! [`serve`] is the door; [`Service`] decides what is answered from a [`Database`] or an [`Upstream`];
//! [`parse`] reads what is asked for. The feature `simulate` adds a service over a fake root that
//! fails on purpose, the feature `postgres` a database that several instances share.

mod answer;
mod database;
mod document;
mod door;
mod edition;
#[cfg(feature = "simulate")]
mod faults;
mod import;
mod intake;
mod kept;
mod kind;
mod limits;
mod metrics;
mod request;
mod service;
#[cfg(feature = "simulate")]
mod simulation;
mod upstream;
mod url_text;
mod vendors;

#[cfg(feature = "postgres")]
pub use database::Postgres;
pub use database::{Answering, Database, DatabaseError, Sqlite, Written, open};
pub use document::Document;
pub use door::{ServeError, serve};
pub use edition::{Dates, dates};
#[cfg(feature = "simulate")]
pub use faults::{Edition, Faults, FaultsError, Latency, RequestLimit};
pub use import::{ImportError, import};
pub use kept::Kept;
pub use kind::Kind;
pub use limits::Limits;
pub use request::{Ca, Encoding, EndorsementKey, Product, Refusal, Set, Tee, Wanted, parse};
pub use service::{Options, Service, Source};
#[cfg(feature = "simulate")]
pub use simulation::{Documents, Simulation};
pub use upstream::{Upstream, UpstreamError};
pub use vendors::Vendors;
