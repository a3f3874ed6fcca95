//! The server's policies, of which a caller selects one by name.

use std::{collections::BTreeMap, sync::Arc};

use confide_appraiser::PolicyAppraiser;

use crate::{
    appraisal_request::POLICY_ID_BYTES_MAX,
    error::{RequestError, ServiceError},
};

/// A policy of the server.
pub struct PolicyEntry {
    /// The appraiser with this policy.
    pub appraiser: Arc<PolicyAppraiser>,
    /// SHA-256 of the policy's text, which results contain.
    pub sha256: [u8; 32],
}

/// The policies of the server, by name.
pub struct PolicySet(BTreeMap<String, PolicyEntry>);

impl PolicySet {
    /// Names are 1 to 64 letters, digits, `.`, `_` and `-`; there has to be at least one policy.
    ///
    /// # Errors
    /// [`ServiceError::PolicyName`] if a name is invalid or repeated, or there is no policy.
    pub fn new(
        entries: impl IntoIterator<Item = (String, PolicyEntry)>,
    ) -> Result<Self, ServiceError> {
        let mut policies = BTreeMap::new();
        for (name, entry) in entries {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if name.is_empty() || name.len() > POLICY_ID_BYTES_MAX || !name.bytes().all(plain) {
                let wanted = "1 to 64 letters, digits, `.`, `_` or `-`";
                return Err(ServiceError::PolicyName { wanted, got: name });
            }
            if policies.contains_key(&name) {
                return Err(ServiceError::PolicyName { wanted: "each name once", got: name });
            }
            policies.insert(name, entry);
        }
        match policies.is_empty() {
            true => {
                Err(ServiceError::PolicyName { wanted: "at least one policy", got: String::new() })
            }
            false => Ok(Self(policies)),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Result<&PolicyEntry, RequestError> {
        let names = || self.0.keys().map(String::as_str).collect::<Vec<_>>();
        self.0.get(name).ok_or_else(|| RequestError::UnknownPolicy { wanted: names().join(", ") })
    }

    /// The names of the policies that trust neither a vendor's root nor an operator's own one, so
    /// that their results are never `affirming`.
    pub fn non_affirming_names(&self) -> Vec<&str> {
        let affirms = |entry: &PolicyEntry| {
            let policy = entry.appraiser.policy();
            policy.roots.has_production() || policy.operator_roots.is_some()
        };
        self.0.iter().filter(|(_, entry)| !affirms(entry)).map(|(name, _)| name.as_str()).collect()
    }
}
