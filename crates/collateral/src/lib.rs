//! Fetches, stores and refreshes endorsements; the only crate of attestation that uses the network.
//!
//! A program holds a [`Source`]: it returns the endorsements of a platform at once if they are at
//! hand ([`Source::current_set`]), and fetches them if they are not ([`Source::find_or_fetch`]). It works on a
//! thread of its own, so that a caller without a runtime, or on a busy one, cannot deadlock with
//! it. [`Client`] fetches single documents, and [`Store`] keeps them on disk.
//!
//! This crate verifies no signature. Documents are authenticated at appraisal. A program can also
//! give a [`SetCheck`], which verifies them before anything is stored, so that a malicious service
//! cannot corrupt the record of the newest documents, which protects from rollbacks.
//!
//! Sources: Intel SGX and TDX Provisioning Certification Service API, version 4; Intel PCCS design
//! guide; AMD "Versioned Chip Endorsement Key (VCEK) Certificate and KDS Interface Specification"
//! (57230); NVIDIA RIM service; RFC 6960 for OCSP. `docs/collateral.md` lists what is fetched and
//! when.

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
mod newest_ranks;
mod options;
#[cfg_attr(windows, path = "os_windows.rs")]
mod os;
mod pcs;
mod platform;
mod rim;
mod set;
mod source;
mod store;

pub use address::{Address, BaseUrl};
pub use client::{Client, PckCertificate, PckRequest, Services};
pub use confide_evidence::snp::Product;
pub use counts::{CollateralCounts, HostCounts};
pub use document::{Document, DocumentKey};
pub use error::CollateralError;
pub use identity::{AmdKey, AmdSigner, PckIssuer, TcbEvaluation, parse_product};
pub use kds::parse as parse_kds;
pub use limits::*;
pub use options::{Clock, SetCheck, SourceOptions};
pub use pcs::{SignedJson, split_signed};
pub use platform::Platform;
pub use set::EndorsementSet;
pub use source::Source;
pub use store::{FileSystem, OsFileSystem, Store, StoreLimits, UnreadableFile, read_record};
