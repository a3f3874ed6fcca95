//! A *simulated* attester: byte-exact TDX, SGX and SEV-SNP evidence under roots of its own.
//!
//! Nothing made here protects anything. The keys come from a 32-byte seed that anyone may know, and
//! no hardware is involved. The format is real: a verifier runs the very same checks on this
//! evidence as on a machine's, with only the trusted root swapped, so tests and measurements
//! exercise the true path. Certificates, advisories and measurements all say *SIMULATED*, and the
//! root is in no production trust store.
//!
//! Formats: Intel TDX DCAP Quoting Library API, appendix A.3 (quote v4); Intel SGX ECDSA
//! QuoteLibReference, appendix A (quote v3); Intel SGX PCK Certificate and CRL Specification;
//! Intel PCS API v4 (TCB info v3, enclave identity v2);
//! AMD SEV-SNP Firmware ABI (56860) and VCEK and KDS Interface (57230) specifications.
//!
//! Keys and certificates are a function of [`FakeAttesterOptions`] alone; signatures are those of
//! RFC 6979.

mod asn1;
mod attester;
mod device;
mod edition;
mod endorsements;
mod error;
mod gpu;
mod keys;
mod level;
mod machine;
mod measurements;
mod options;
mod pck_extension;
mod pem;
mod pki;
mod plan;
mod policy;
mod quote;
mod rsa;
mod snp;
mod state;
mod tcb;
mod time;
mod tsm;
mod variant;

pub use attester::FakeAttester;
pub use device::SERVICE_TIME;
pub use edition::EndorsementEdition;
pub use endorsements::{
    AmdEndorsements, FakeEndorsements, IntelEndorsements, PckCertificate, PckEndorsements,
    SignedDocument, TeeEndorsements,
};
pub use error::FakeError;
pub use gpu::{FakeAttesterWithGpu, FakeGpu, GpuFault, GpuOptions};
pub use keys::SimulatedKey;
pub use options::{FakeAttesterOptions, Mode, Tee};
pub use plan::Fault;
pub use snp::{Product, SnpSigner, SnpTcb};
pub use state::STATE_FILE;
pub use tsm::{MountedTsm, TsmFault, TsmProvider, TsmTree};
pub use variant::{PckCa, ReportVersion, SimulatedPlatform, TdBody};
