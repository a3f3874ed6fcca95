//! The programs that are proved: one function for each guest, from its input to the statement.
//!
//! A program is written over the traits of [`machine`]: what a zkVM does in one instruction. The
//! guests run it over the zkVM's instructions, the native stage over [`host::Native`]: the very same
//! function. Whatever comes in is a witness that a hostile prover may have chosen: every length,
//! limb and hint is checked here, and what is refused has no statement and so no proof.
//!
//! Builds without std (alloc only); the feature `host` adds what runs outside the zkVM.
#![no_std]

extern crate alloc;

mod error;
mod fibonacci;
#[cfg(feature = "host")]
pub mod host;
mod input;
pub mod machine;
mod rsa2048;
mod sha256;
mod sort;
mod transcript;

pub use error::ProgramError;
pub use fibonacci::{FIBONACCI_N_MAX, fibonacci};
pub use input::{Input, Source};
pub use rsa2048::{LIMBS, MESSAGE_BYTES_MAX, STEPS, rsa2048};
pub use sha256::{SHA256_BYTES_MAX, sha256};
pub use sort::{SORT_COUNT_MAX, sort};
pub use transcript::{LEAVES_MAX, transcript};
