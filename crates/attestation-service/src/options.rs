//! The configuration of the service.

use std::time::Duration;

use crate::{binding::OwnEvidence, jws::SigningKey, limits::ServiceLimits, policies::Policies};

/// Configuration of an attestation service.
pub struct ServiceOptions {
    /// The server's policies.
    pub policies: Policies,
    /// The key that signs results.
    pub key: SigningKey,
    /// `iss` of every result.
    pub issuer: String,
    /// `aud` of every result.
    pub audience: String,
    /// The time from `iat` to `exp` of a result; at most [`crate::RESULT_LIFETIME_MAX`].
    pub lifetime: Duration,
    /// Evidence over the key, where this machine attests.
    pub own_evidence: Option<OwnEvidence>,
    /// The limits of each queue, wait and length.
    pub limits: ServiceLimits,
    /// Returns Unix seconds.
    pub clock: fn() -> u64,
}
