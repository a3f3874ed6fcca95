//! The server's policies, by name. A caller names one and cannot bring one.

use std::{collections::BTreeMap, sync::Arc};

use confide_appraiser::PolicyAppraiser;

use crate::{
    case::POLICY_ID_BYTES_MAX,
    error::{RequestError, ServiceError},
};

/// A policy of the server.
pub struct PolicyEntry {
    /// The appraiser that decides by this policy.
    pub appraiser: Arc<PolicyAppraiser>,
    /// SHA-256 of the policy's text, as results carry it.
    pub sha256: [u8; 32],
}

/// The policies of the server, by name.
pub struct Policies(BTreeMap<String, PolicyEntry>);

impl Policies {
    /// Names are 1 to 64 letters, digits, `.`, `_` and `-`; there has to be at least one.
    ///
    /// # Errors
    /// [`ServiceError::PolicyName`] if a name has another form or stands twice, or there is none.
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
                return Err(ServiceError::PolicyName { wanted: "another name", got: name });
            }
            policies.insert(name, entry);
        }
        match policies.is_empty() {
            true => Err(ServiceError::PolicyName { wanted: "one at least", got: String::new() }),
            false => Ok(Self(policies)),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Result<&PolicyEntry, RequestError> {
        let names = || self.0.keys().map(String::as_str).collect::<Vec<_>>();
        self.0.get(name).ok_or_else(|| RequestError::NoPolicy { wanted: names().join(", ") })
    }

    /// The names of the policies that trust neither a vendor's root nor one that they list as the
    /// operator's own: no result by them is `affirming`.
    pub fn never_affirming(&self) -> Vec<&str> {
        let affirms = |entry: &PolicyEntry| {
            let policy = entry.appraiser.policy();
            policy.roots.has_production() || policy.operator_roots.is_some()
        };
        self.0.iter().filter(|(_, entry)| !affirms(entry)).map(|(name, _)| name.as_str()).collect()
    }
}
