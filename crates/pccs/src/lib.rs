//! Serves endorsements to a fleet over the routes of Intel, AMD and NVIDIA.
//!
//! A cache, not a judge: signatures are the relying party's to verify. What it promises is to answer
//! while the vendors do not, and never to go back: a document older than the one that is kept is
//! refused ([`Written::Older`]).
//!
//! [`serve`] is the door; [`Service`] decides what is answered from a [`Database`], an [`Upstream`]
//! or a [`Simulation`]; [`parse`] reads what is asked for.

mod answer;
mod database;
mod document;
mod door;
mod edition;
mod faults;
mod import;
mod intake;
mod kept;
mod kind;
mod limits;
mod metrics;
mod request;
mod service;
mod simulation;
mod upstream;
mod url_text;
mod vendors;

pub use database::{Answering, Database, DatabaseError, Postgres, Sqlite, Written, open};
pub use document::Document;
pub use door::{ServeError, serve};
pub use edition::{Dates, dates};
pub use faults::{Edition, Faults, FaultsError, Latency, RequestLimit};
pub use import::{ImportError, import};
pub use kept::Kept;
pub use kind::Kind;
pub use limits::Limits;
pub use request::{Ca, Encoding, EndorsementKey, Product, Refusal, Set, Tee, Wanted, parse};
pub use service::{Options, Service, Source};
pub use simulation::{Documents, Simulation};
pub use upstream::{Upstream, UpstreamError};
pub use vendors::Vendors;
