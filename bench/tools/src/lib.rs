//! What measuring tools print, read into numbers with their units.
//!
//! `tools.toml` has a row for each tool: its command, where its figures stand, which checks make a
//! run fail. The reader is a total function from text to figures: no input makes it panic, what is
//! missing is an error by name, and no unit is ever dropped. The recordings in `recorded/` are of
//! the real tools on one machine. The program `confide-tool` drives the tools as arms of the bench.

pub mod cyclictest;
mod error;
mod histogram;
mod reader;
mod tool;

pub use error::ReadError;
pub use histogram::{Histogram, TAIL_SAMPLES};
pub use reader::{QUANTILES, ToolOutput, read_output};
pub use tool::{Figure, OutputPlace, Param, Quantiles, Tool, WorkShape, fill_template, tool_table};
