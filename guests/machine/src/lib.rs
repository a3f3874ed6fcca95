//! The zkVM's instructions behind the traits of the programs, and what every guest does alike: take
//! its input, run, reveal the digest of its statement.
//!
//! Empty for any other target.
#![no_std]

#[cfg(target_os = "zkvm")]
extern crate alloc;

#[cfg(target_os = "zkvm")]
mod vm;

#[cfg(target_os = "zkvm")]
pub use vm::{Hints, OpenVm, run_and_reveal};
