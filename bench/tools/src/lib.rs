//! What measuring tools print, read into numbers with their units.
//!
//! One module per tool, each a total function from text to a struct: no input makes one panic, what
//! is missing is an error by name, and no unit is ever dropped. The recordings in `recorded/` are of
//! the real tools on one machine. The program `confide-tool` drives the tools as arms of the bench.

pub mod ab;
mod error;
mod read;
mod tail;

pub use error::ReadError;
pub use read::{cyclictest, fio, iperf3, openssl, seven_zip, stress_ng};
pub use tail::{Counted, TAIL_SAMPLES};
