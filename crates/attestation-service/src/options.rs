//! The configuration of the service.

use std::time::Duration;

use crate::{
    jws::SigningKey, limits::ServiceLimits, own_evidence::OwnEvidence, policies::PolicySet,
};

/// Configuration of an attestation service.
pub struct ServiceOptions {
    /// The server's policies.
    pub policies: PolicySet,
    /// The key that signs results.
    pub key: SigningKey,
    /// `iss` of every result.
    pub issuer: String,
    /// `aud` of every result.
    pub audience: String,
    /// The time from `iat` to `exp` of a result; at most [`crate::RESULT_LIFETIME_MAX`].
    pub lifetime: Duration,
    /// The evidence over the key, if this machine can attest.
    pub own_evidence: Option<OwnEvidence>,
    /// The limits of each queue, wait and length.
    pub limits: ServiceLimits,
    /// The clock, which returns Unix seconds.
    pub clock: fn() -> u64,
}
