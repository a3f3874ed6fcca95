//! How endorsements are fetched and kept.

use std::{sync::Arc, time::Duration};

use crate::{client::Services, identity::Evaluation, platform::Platform, store::Store};

/// A clock that gives Unix seconds.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The program's own check of a set (platform, JSON, now) before it is stored: that its signatures
/// hold under the roots that the program trusts. The error is logged.
pub type Check = Arc<dyn Fn(&Platform, &[u8], u64) -> Result<(), String> + Send + Sync>;

/// The options of a [`crate::Source`]: how endorsements are fetched and kept.
pub struct SourceOptions {
    /// The services that endorsements come from.
    pub services: Services,
    /// The store in which they are kept besides memory, if any.
    pub store: Option<Store>,
    /// The wall clock.
    pub clock: Clock,
    /// The program's [`Check`]. Without one, only appraisal finds out that a service lied.
    pub check: Option<Check>,
    /// The choice among Intel's TCB recoveries.
    pub evaluation: Evaluation,
    /// The time after which a document is fetched again, however long it holds: certificates are
    /// revoked meanwhile.
    pub refresh_every: Duration,
    /// The time before the end of a document at which it is fetched again at the latest.
    pub refresh_lead: Duration,
    /// The interval between two looks for sets that are due.
    pub look_every: Duration,
}

impl SourceOptions {
    /// The defaults: four hours between refreshes, three days before the end of a document.
    pub fn new(services: Services, clock: Clock) -> Self {
        Self {
            services,
            store: None,
            clock,
            check: None,
            evaluation: Evaluation::Standard,
            refresh_every: Duration::from_secs(4 * 3600),
            refresh_lead: Duration::from_secs(3 * 24 * 3600),
            look_every: Duration::from_secs(30),
        }
    }
}
