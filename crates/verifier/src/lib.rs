//! Decides on TEE evidence under a policy: pure, and without std.
//!
#![doc = include_str!("../README.md")]
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod admission;
mod appraisal;
mod appraise;
mod attributes;
#[cfg(feature = "aws-lc")]
mod aws_lc;
mod binding;
mod chain;
mod checks;
mod crl;
mod crypto;
mod detail;
mod endorsements;
mod evidence;
mod expect;
mod explain;
mod explanation;
mod generation;
mod gpu;
mod guarantee;
mod learning;
mod measurements;
mod memory;
mod platform;
mod policy;
mod prepared;
mod reason;
mod result;
mod roots;
mod scope;
pub mod snp;
mod tcb;
mod validity;

pub use admission::{AdmittedTees, BindingLevel, DangerousScope};
pub use appraise::appraise;
#[cfg(feature = "aws-lc")]
pub use aws_lc::AwsLc;
pub use checks::{Check, Outcome};
pub use confide_evidence::{
    BindingKind, ParseError, PresentedGpuEvidence, ReportData, claims::Claims, quote::Tee,
    tcb_info::TcbStatus,
};
pub use crl::{CrlMinimum, CrlVersion};
pub use crypto::{Crypto, P256Key, P384Key};
pub use detail::Detail;
pub use endorsements::Endorsements;
pub use evidence::Evidence;
pub use expect::{DANGEROUS_ANY, Expect, ReferenceValue};
pub use explanation::{FieldTreatment, Sentence};
pub use generation::EndorsementsId;
pub use gpu::{GpuAppraisal, GpuAppraised, GpuClaims, GpuPolicy, GpuVersion, verify_rim};
pub use guarantee::is_simulated_certificate;
pub use memory::{
    KnownEnclave, KnownPck, LastPlatform, NewVerdicts, NoMemory, RecallPlatform, TagKey, VerdictTag,
};
pub use policy::{POLICY_LENGTH_MAX, Policy, PolicyError, SgxWorkload, TdxWorkload, Workload};
pub use prepared::PreparedEndorsements;
pub use reason::Reason;
pub use result::{
    AmdClaims, Appraised, EnclaveMeasurements, EndorsementClaims, GuestMeasurements, IntelClaims,
    Measurements, PlatformClaims, Rejection, TdMeasurements, weights_to_json,
};
pub use roots::{
    AMD_ROOTS_SHA256, Anchor, INTEL_ROOT_DER, INTEL_ROOT_SHA256, NVIDIA_DEVICE_ROOT_DER,
    NVIDIA_DEVICE_ROOT_SHA256, NVIDIA_RIM_ROOT_DER, NVIDIA_RIM_ROOT_SHA256, Root, RootKind, Roots,
};
pub use rustls_pki_types::{SignatureVerificationAlgorithm, UnixTime};
pub use scope::Scope;
pub use snp::{SnpPlatform, SnpWorkload, TcbMinimum};
