//! Fetches, stores and refreshes endorsements; the only crate of attestation that uses the network.
//!
//! [`Source`] is what a program holds: it gives the endorsements of a platform at once where they
//! are at hand ([`Source::current`]), and fetches them where they are not ([`Source::ensure`]). It
//! works on a thread of its own, so that a caller without a runtime, or on a busy one, cannot
//! deadlock with it. [`Client`] fetches single documents, [`Store`] keeps them on disk.
//!
//! Nothing here verifies a signature. Documents are authenticated at appraisal; a [`Check`] given
//! by the program does it before anything is stored, so that a service that lies cannot spoil the
//! memory that refuses rollbacks.
//!
//! Sources: Intel SGX and TDX Provisioning Certification Service API, version 4; Intel PCCS design
//! guide; AMD "Versioned Chip Endorsement Key (VCEK) Certificate and KDS Interface Specification"
//! (57230); NVIDIA RIM service; RFC 6960 for OCSP. `docs/collateral.md` says what is asked when.

mod address;
mod back_off;
mod cache;
mod client;
mod counts;
mod document;
mod error;
mod http;
mod identity;
mod kds;
mod limits;
mod memory;
mod options;
mod pcs;
mod platform;
mod rim;
mod set;
mod source;
mod store;

pub use address::{Address, BaseUrl};
pub use client::{Client, PckCertificate, PckRequest, Services};
pub use confide_evidence::snp::Product;
pub use counts::{Counts, HostCounts};
pub use document::{Document, DocumentKey};
pub use error::CollateralError;
pub use identity::{AmdKey, Ca, Evaluation, Signer, product_of};
pub use kds::parse as parse_kds;
pub use limits::*;
pub use options::{Check, Clock, SourceOptions};
pub use pcs::{Signed, split_signed};
pub use platform::Platform;
pub use set::EndorsementSet;
pub use source::Source;
pub use store::{Files, Store, StoreLimits, StoredFault, SystemFiles, read_record};
