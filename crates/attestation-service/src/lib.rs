//! Appraisal over HTTP, for fleets that want it in one place.
//!
//! Stateless: evidence comes in, a signed attestation result goes out, a JSON Web Token in the
//! terms of EAT (RFC 9711) and EAR (draft-ietf-rats-ear). Policies are the server's: a caller
//! names one and cannot bring one. `docs/attestation-service.md` has the routes and the claims.

mod answer;
mod binding;
mod case;
mod error;
mod jws;
mod limits;
mod listen;
mod metrics;
mod options;
mod policies;
mod result;
mod routes;

pub use binding::OwnEvidence;
pub use case::is_request;
pub use error::ServiceError;
pub use jws::SigningKey;
pub use limits::{RESULT_LIFETIME_MAX, ServiceLimits};
pub use listen::serve;
pub use options::ServiceOptions;
pub use policies::{Policies, PolicyEntry};
