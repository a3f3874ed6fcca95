//! The verifier as a program of the zkVM: what a DCAP quote says, proved without the quote.
//!
//! [`run`] is the program, the same natively and in the VM; only where the signature checks come
//! from differs. `docs/prove.md` says what its statement means.
#![no_std]

extern crate alloc;

mod appraisal;
mod crypto;
mod error;
mod input;
#[cfg(target_os = "zkvm")]
mod machine;
pub mod p256;

pub use appraisal::run;
pub use crypto::{GuestCrypto, Machine};
pub use error::DcapError;
pub use input::{DcapInput, INPUT_LENGTH_MAX, QUOTE_LENGTH_MAX};
#[cfg(target_os = "zkvm")]
pub use machine::OpenVm;
