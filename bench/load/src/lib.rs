//! An open-loop load generator for any OpenAI-compatible endpoint.
//!
//! ```text
//! plan (arrivals, prompts, lengths from one seed) -> requests -> event log -> definitions
//! ```
//!
//! The event log is the product: one JSON line per request with the instants of every stage.
//! Every figure, by our definitions or by those of other tools, is a pure function of it.
//! This crate knows no product crate: a transport is given to it from outside.

mod answer;
mod bound;
mod calibration;
mod ceiling;
mod client;
mod definitions;
mod event;
mod exchange;
mod figure;
mod http1;
mod log;
mod options;
mod plan;
pub mod readers;
mod resolution;
mod sse;
mod target;
mod trace;
mod transport;
mod views;

pub use answer::AnswerError;
pub use bound::{Bound, CLIENT_CPU_MAX, ClientFigures, ExceededDelay};
pub use calibration::{CeilingFigures, measure_ceiling};
pub use ceiling::Ceiling;
pub use client::{LoadError, Outcome, run};
pub use definitions::{CUT, Limits, Spread, Summary};
pub use event::{Attestation, EventError, REQUESTS_MAX, RequestRecord};
pub use figure::{Definition, Figure, Quantiles, Quantity, Tool, View};
pub use http1::{Answer, HttpError};
pub use log::{LogHead, Logged, Writer, read_log};
pub use options::{Options, Sessions, TokenCounter};
pub use plan::{Arrivals, Lengths, Plan, PlanError, PlannedRequest, Workload};
pub use sse::{EventTooLong, Events};
pub use target::{Target, TargetError};
pub use trace::{TraceError, TraceRow, read_trace};
pub use transport::{Clock, Opened, Opening, Stages, Tcp, Tls, Transport, Wire};
