//! Private LoRA adapters: a key holder who runs the base model and holds the secret key, and an
//! adapter host who holds A and B and never a key.
//!
//! An engine meets an adapter through [`Adapt`] and [`Deltas`], whatever protects it. Below that:
//! [`Weights`] are an adapter's projections as integers and [`Terms`] what a key holder is told of
//! them; [`masked`] and [`direct`] are the two schemes, both roles of each, as functions without
//! I/O; [`AnswerBudgets`] count the answers of each client.

#![deny(missing_docs)]

mod adapt_error;
mod adapter;
mod budget;
mod count;
mod deltas;
pub mod direct;
mod factor;
mod final_hidden;
mod guarantee;
pub mod holder;
pub mod host;
mod int_matrix;
mod link;
mod mask;
pub mod masked;
mod meter;
pub mod peft;
pub mod plain;
pub mod protocol;
mod quantise;
mod reservation;
mod site;
mod terms;
#[cfg(test)]
mod vector_tests;

pub use adapt_error::AdaptError;
pub use adapter::{Adapter, Matrix, Pair};
pub use budget::{Allowance, AnswerBudgets, BudgetError, BudgetState};
pub use count::CountError;
pub use deltas::{Adapt, Deltas, Report};
pub use factor::Factor;
pub use guarantee::Guarantee;
pub use int_matrix::{
    DigitScratch, ENTRIES_MAX, ENTRY_MAX, IntMatrix, IntMatrixError, VECTOR_BITS_MAX,
};
pub use link::{Estimate, Link, MatrixSize, OperationCosts, Tile};
pub use mask::{Epoch, ProcessKey, Slot};
pub use meter::{Meter, Step};
pub use peft::PeftError;
pub use quantise::{QuantiseError, QuantisedVector, VECTOR_MAX, norm_limit, quantise_vector};
pub use reservation::Reservation;
pub use site::{Input, Projection, Site, UnknownProjection, Width};
pub use terms::{Effect, Part, Protect, RANK_MAX, Rounding, Terms, TermsError, WIDTH_MAX, Weights};

/// Compiles and runs the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
