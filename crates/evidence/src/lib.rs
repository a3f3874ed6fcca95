//! Parsers of TEE evidence and endorsements: bytes to fields and back, without I/O and without std.
//!
#![doc = include_str!("../README.md")]
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod appraise;
mod attest;
pub mod attested_certificate;
pub mod authenticator;
pub mod batch;
pub mod binder;
mod byte_reader;
mod cbor;
pub mod certificate;
pub mod claims;
pub mod cmw;
pub mod collateral;
pub mod crl;
mod detect;
pub mod evidence_wrapper;
pub mod gpu;
mod hexadecimal;
mod json;
mod parse_error;
pub mod pck;
pub mod pem;
pub mod qe_identity;
pub mod quote;
mod report_data;
pub mod session_message;
pub mod session_message_3;
pub mod snp;
pub mod snp_endorsements;
pub mod tagged_evidence;
pub mod tcb_info;
mod unix_seconds;
pub mod weights_claim;

pub use appraise::{Appraise, BindingKind, PresentedEvidence, PresentedGpuEvidence};
pub use attest::{Attest, AttestError};
pub use detect::{EvidenceKind, detect_kind};
pub use parse_error::{ParseError, escape_untrusted};
pub use report_data::ReportData;
pub use unix_seconds::{UnixSeconds, Utc};
