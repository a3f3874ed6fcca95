//! Appraisal over HTTP, for fleets with a central verifier.
//!
//! The service is stateless: a caller sends evidence and receives a signed attestation result, a
//! JSON Web Token with the claims of EAT (RFC 9711) and EAR (draft-ietf-rats-ear). The server
//! configures the policies, and a caller selects one by name. `docs/attestation-service.md` has the
//! routes and the claims.

mod answer;
mod appraisal_request;
mod error;
mod jws;
mod limits;
mod listen;
mod metrics;
mod options;
mod own_evidence;
mod policies;
mod result;
mod routes;

pub use appraisal_request::is_appraisal_request;
pub use error::ServiceError;
pub use jws::SigningKey;
pub use limits::{RESULT_LIFETIME_MAX, ServiceLimits};
pub use listen::serve;
pub use options::ServiceOptions;
pub use own_evidence::OwnEvidence;
pub use policies::{PolicyEntry, PolicySet};
