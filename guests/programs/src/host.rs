//! What runs outside the zkVM: the programs over ordinary arithmetic, inputs from JSON, samples.

mod encode;
mod json;
mod native;
mod sample;

pub use encode::{InputError, RsaHints};
pub use json::input_from_json;
pub use native::{GUESTS, Native, Slice, run};
pub use sample::sample_input;
