//! A *simulated* quoting enclave: byte-exact TDX v4 and SGX v3 evidence under a root of its own.
//!
//! Nothing made here protects anything. The keys come from a 32-byte seed that anyone may know,
//! and no hardware is involved. What is real is the format: a verifier runs the very same checks
//! on this evidence as on a machine's, with only the trusted root swapped, so tests and
//! measurements exercise the true path. Certificates, advisories and measurements all say
//! *SIMULATED*, and the root is in no production trust store.
//!
//! Formats: Intel TDX DCAP Quoting Library API, appendix A.3 (quote v4); Intel SGX ECDSA
//! QuoteLibReference, appendix A (quote v3); Intel SGX PCK Certificate and CRL Specification;
//! Intel PCS API v4 (TCB info v3, enclave identity v2).
//!
//! Keys and certificates are a function of [`Options`] alone; signatures are those of RFC 6979.

mod attester;
mod collateral;
mod device;
mod error;
mod keys;
mod measurements;
mod options;
mod pck_extension;
mod pki;
mod plan;
mod policy;
mod quote;
mod state;
mod tcb;
mod time;

pub use attester::FakeAttester;
pub use device::SERVICE_TIME;
pub use error::FakeError;
pub use options::{Mode, Options, Tee};
pub use plan::Fault;
pub use state::STATE_FILE;
