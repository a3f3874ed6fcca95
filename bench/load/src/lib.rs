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
pub use bound::{CLIENT_CPU_MAX, ClientBound, ClientFigures, ExceededDelay};
pub use calibration::{CeilingFigures, measure_ceiling};
pub use ceiling::Ceiling;
pub use client::{LoadError, LoadOutcome, run};
pub use definitions::{CUT, GoodputLimits, LatencyDistribution, Summary};
pub use event::{Attestation, EventError, REQUESTS_MAX, RequestRecord};
pub use figure::{Definition, Figure, Quantiles, Quantity, Tool, ToolView};
pub use http1::{HttpError, ResponseParser};
pub use log::{LogHead, LogWriter, LoggedRun, read_log};
pub use options::{ConnectionReuse, LoadOptions, TokenCounter};
pub use plan::{Arrivals, Plan, PlanError, PlannedRequest, TokenLengths, Workload};
pub use sse::{EventStreamParser, EventTooLong};
pub use target::{Target, TargetError};
pub use trace::{TraceError, TraceRow, read_trace};
pub use transport::{
    Clock, ConnectStages, OpenedConnection, Opening, TcpTransport, TlsTransport, Transport, Wire,
};
