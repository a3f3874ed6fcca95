//! How endorsements are fetched and kept.

use std::{sync::Arc, time::Duration};

use crate::{client::Services, identity::TcbEvaluation, platform::Platform, store::Store};

/// A clock that gives Unix seconds.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The program's own check of a set (platform, JSON, now) before it is stored: that its signatures
/// verify under the roots that the program trusts. The error is logged.
pub type SetCheck = Arc<dyn Fn(&Platform, &[u8], u64) -> Result<(), String> + Send + Sync>;

/// The options of a [`crate::Source`]: how endorsements are fetched and kept.
pub struct SourceOptions {
    /// The services that endorsements come from.
    pub services: Services,
    /// The store on disk in which they are kept in addition to memory, if any.
    pub store: Option<Store>,
    /// The wall clock.
    pub clock: Clock,
    /// The program's [`SetCheck`]. Without one, only appraisal detects forged documents.
    pub check: Option<SetCheck>,
    /// The choice among Intel's TCB recoveries.
    pub evaluation: TcbEvaluation,
    /// The time after which a document is fetched again, even if it is still valid: certificates
    /// may have been revoked.
    pub refresh_every: Duration,
    /// A document is fetched again at the latest this long before it expires.
    pub refresh_lead: Duration,
    /// The interval between two searches for sets that are due.
    pub look_every: Duration,
}

impl SourceOptions {
    /// The defaults: a refresh every four hours, and at the latest three days before the expiry.
    pub fn new(services: Services, clock: Clock) -> Self {
        Self {
            services,
            store: None,
            clock,
            check: None,
            evaluation: TcbEvaluation::Standard,
            refresh_every: Duration::from_secs(4 * 3600),
            refresh_lead: Duration::from_secs(3 * 24 * 3600),
            look_every: Duration::from_secs(30),
        }
    }
}
