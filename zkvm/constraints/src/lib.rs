//! That every row of every table keeps its constraints, and that all lookups meet: the part of a proof between the
//! commitment to the tables and the opening of it.
//!
//! The protocol, the transcript and the proof are the back end's, to the bit: its own prover is the slow
//! reference, and gives the same proof. What differs is how it is computed. Numbers are worked on a register at
//! a time, expressions are lists of steps that are taken once for a row, the sums of the lookups' tree are
//! shared out and never copied, and a polynomial of degree 3 is summed at the points that determine it.

mod constraint_proof;
mod engine;
mod forms;
mod gkr;
mod lanes;
mod leaves;
mod program;
mod rounds;
mod skip;
mod table;

pub use engine::{Device, Engine, prove};
