//! The native engine: Qwen2 and Llama shapes on the CPU, in float32, from safetensors and
//! `tokenizer.json`; and models made here from a seed, so that nothing has to be downloaded.
//!
//! It is written to be read: one request runs on one thread, requests wait in a bounded queue, and
//! the cached path stands next to a reference that computes everything again for each token.
//!
//! An adapter is met in the forward pass: after each of the base model's projections, its part is
//! added. With the feature `report-003` the transformer may end at the last hidden state, and
//! `LmHead` goes on at the client: split mode.

mod adapter;
mod completion;
mod config;
mod decode;
#[cfg(test)]
mod detokenise_tests;
mod engine;
mod error;
#[cfg(feature = "report-003")]
mod head;
pub mod make;
mod model;
mod random;
mod rope;
mod sample;
#[cfg(test)]
mod specimen;
#[cfg(feature = "report-003")]
mod split;
mod weights;

pub use completion::{Choice, Completion};
pub use confide_engine::text::manifest;
pub use engine::{Native, Options};
pub use error::NativeError;
#[cfg(feature = "report-003")]
pub use head::LmHead;
