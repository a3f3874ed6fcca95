//! How endorsements are fetched and kept.

use std::{sync::Arc, time::Duration};

use crate::{client::Services, identity::Evaluation, platform::Platform, store::Store};

/// Gives Unix seconds.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The program's own judgement of a set (platform, JSON, now) before it is kept: that its
/// signatures hold under the roots that the program trusts. The error is said in the log.
pub type Check = Arc<dyn Fn(&Platform, &[u8], u64) -> Result<(), String> + Send + Sync>;

/// How endorsements are fetched and kept.
pub struct SourceOptions {
    /// The services that they come from.
    pub services: Services,
    /// Where they are kept beside memory.
    pub store: Option<Store>,
    /// The wall clock.
    pub clock: Clock,
    /// See [`Check`]. Without one, only appraisal finds out what a service made up.
    pub check: Option<Check>,
    /// Which of Intel's TCB recoveries is asked for.
    pub evaluation: Evaluation,
    /// A document is fetched anew after this time, however long it holds: revocations come between.
    pub refresh_every: Duration,
    /// And this long before it ends, at the latest.
    pub refresh_lead: Duration,
    /// How often sets in use are looked through for those that are due.
    pub look_every: Duration,
}

impl SourceOptions {
    /// Four hours between refreshes, three days before the end of a document.
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
