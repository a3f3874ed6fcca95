//! The messages of RFC 9334: bytes to fields and back, for every quote, endorsement and claim.
//!
//! Nothing here is trusted and nothing here does I/O. A parsed [`quote::Quote`] is only a view of
//! bytes; whether they are believed is decided by an [`Appraise`] implementation.
//!
//! Builds without std (alloc only): the same code runs in a server, a browser and a zkVM guest.
#![no_std]

extern crate alloc;

mod appraise;
mod attest;
mod report_data;

pub use appraise::{Appraise, BindingKind, Presented};
pub use attest::{Attest, AttestError};
pub use report_data::ReportData;
