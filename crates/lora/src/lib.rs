//! Private LoRA adapters: a key holder who runs the base model and holds the secret key, and an
//! adapter host who holds A and B and never a key.
//!
//! An engine meets an adapter through [`Adapt`] and [`Deltas`], whatever protects it.

mod adapter;
mod deltas;
mod guarantee;
pub mod peft;
pub mod plain;
pub mod protocol;
mod site;

pub use adapter::{Adapter, Matrix, Pair};
pub use deltas::{Adapt, AdaptError, Deltas, Report};
pub use guarantee::Guarantee;
pub use peft::PeftError;
pub use site::{Input, Projection, Site, UnknownProjection, Width};
