//! Private LoRA adapters between two parties: a key holder runs the base model and holds the secret
//! key, and an adapter host holds A and B but no key.
//!
//! An engine uses an adapter through [`DeltaProvider`] and [`DeltaSession`], whatever protects it. On
//! the levels below, [`QuantisedWeights`] are an adapter's projections as integers, and [`InputTerms`]
//! are what a key holder receives about them. [`masked`] and [`direct`] are the two schemes, with both
//! roles of each, as functions without I/O. [`AnswerBudgets`] count the answers of each client.

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
pub use adapter::{Adapter, LoraPair, Matrix};
pub use budget::{AnswerAllowance, AnswerBudgets, BudgetError, BudgetState};
pub use count::CountError;
pub use deltas::{DeltaProvider, DeltaReport, DeltaSession};
pub use factor::ScaledB;
pub use guarantee::Guarantee;
pub use int_matrix::{
    DigitScratch, ENTRIES_MAX, ENTRY_MAX, IntMatrix, IntMatrixError, VECTOR_BITS_MAX,
};
pub use link::{NetworkLink, OperationCosts, TileCost, TileShape, TilingProblem};
pub use mask::{CounterSlot, HostEpoch, ProcessKey};
pub use meter::{DeltaStep, StepMeter};
pub use peft::PeftError;
pub use quantise::{QuantiseError, QuantisedVector, VECTOR_MAX, norm_limit, quantise_vector};
pub use reservation::Reservation;
pub use site::{LayerInput, Projection, ProjectionSite, ProjectionWidth, UnknownProjection};
pub use terms::{
    InputTerms, OutputTransform, ProjectionTerms, ProtectedMatrices, QuantisedWeights, RANK_MAX,
    TermsError, WIDTH_MAX, WeightRounding, noise_headroom,
};

/// Compiles and runs the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
