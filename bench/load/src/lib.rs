//! An open-loop load generator for any OpenAI-compatible endpoint.
//!
//! ```text
//! plan (arrivals, prompts, lengths from one seed) -> requests -> event log -> definitions
//! ```
//!
//! The event log is the product: one JSON line per request with the instants of every stage.
//! Every figure, by our definitions or by those of other tools, is a pure function of it.
//! This crate knows no product crate: a transport is given to it from outside.

mod bound;
mod definitions;
mod event;
mod log;
mod plan;
mod trace;

pub use bound::{Bound, CLIENT_CPU_MAX, ClientFigures};
pub use definitions::{CUT, Limits, Spread, Summary};
pub use event::{Attestation, Event, EventError};
pub use log::{Head, Logged, Writer, read};
pub use plan::{Arrivals, Lengths, Plan, PlanError, Planned, REQUESTS_MAX, Workload};
pub use trace::{TraceError, TraceRow, read_trace};
