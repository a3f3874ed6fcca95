//! The native engine runs models of the Qwen2 and Llama architectures on the CPU, in float32, from
//! safetensors and `tokenizer.json`. It can also make models from a seed, so that nothing has to be
//! downloaded. It is written for readability: one request runs on one thread, requests wait in a
//! bounded queue, and tests compare the cached path with a reference that computes everything again
//! for each token. An adapter takes part in the forward pass: its part is added after each of the
//! base model's projections. The feature `report-003` adds split mode, in which the transformer
//! ends at the last hidden state and `LmHead` continues at the client.

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

pub use completion::{Completion, TokenChoice};
pub use confide_engine::text::manifest;
pub use engine::{NativeEngine, NativeOptions};
pub use error::NativeError;
#[cfg(feature = "report-003")]
pub use head::LmHead;
