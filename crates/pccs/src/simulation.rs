//! A service over a fake root, with deliberate faults.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    document::Document,
    document_store::can_stand_in,
    faults::{FaultSchedule, Faults, ServedEdition, SimulatedOutcome},
    kind::DocumentKind,
    request::DocumentRequest,
};

/// Issues the endorsements of a fake root. *Simulated*: they endorse nothing.
pub trait SimulatedIssuer: Send + Sync + 'static {
    /// Issues one document of an edition, as its vendor would at `now` (Unix seconds); `None` if
    /// this root does not endorse it. It is asked for the standard and the early set only: a set by
    /// number is searched among these.
    ///
    /// # Errors
    /// A text for the log.
    fn issue_document(
        &self,
        wanted: &DocumentRequest,
        edition: ServedEdition,
        now: u64,
    ) -> Result<Option<Document>, String>;
}

/// The time in seconds after which simulated documents are issued again.
const REISSUE_AFTER_S: u64 = 86_400;

/// The largest number of simulated documents in memory: clients can name any number of chips.
const ISSUED_MAX: usize = 1024;

/// A simulated service.
pub struct Simulation {
    issuer: Arc<dyn SimulatedIssuer>,
    schedule: FaultSchedule,
    cached: Mutex<IssuedDocuments>,
}

/// The documents issued of one edition, which stay the same from one request to the next.
#[derive(Default)]
struct IssuedDocuments {
    edition: ServedEdition,
    issued: u64,
    made: HashMap<(DocumentKind, String), Option<Document>>,
}

impl Simulation {
    /// Serves the documents of `issuer`, with these faults at first.
    pub fn new(issuer: Arc<dyn SimulatedIssuer>, faults: Faults) -> Self {
        Self { issuer, schedule: FaultSchedule::new(faults), cached: Mutex::default() }
    }

    /// The current faults.
    pub fn faults(&self) -> Faults {
        self.schedule.faults()
    }

    /// Sets other faults, from the next request on, and restarts the random draws.
    pub fn set_faults(&self, faults: Faults) {
        self.schedule.set_faults(faults);
    }

    pub(crate) fn next_outcome(&self) -> (Duration, SimulatedOutcome) {
        self.schedule.next_outcome()
    }

    /// Finds or issues a document; `None` if this root has none. It may sign, so it may block.
    pub(crate) fn find_or_issue(
        &self,
        wanted: &DocumentRequest,
        now: u64,
    ) -> Result<Option<Document>, String> {
        let edition = self.schedule.faults().edition;
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = (cached.issued..cached.issued.saturating_add(REISSUE_AFTER_S)).contains(&now);
        if cached.edition != edition || !holds {
            *cached = IssuedDocuments { edition, issued: now, made: HashMap::new() };
        }
        let exact = self.find_or_issue_exact(&mut cached, wanted)?;
        if exact.is_some() {
            return Ok(exact);
        }
        for other in wanted.alternatives() {
            let found = self.find_or_issue_exact(&mut cached, &other)?;
            if let Some(document) = found.filter(|document| can_stand_in(wanted, document)) {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    fn find_or_issue_exact(
        &self,
        cached: &mut IssuedDocuments,
        wanted: &DocumentRequest,
    ) -> Result<Option<Document>, String> {
        let place = (wanted.kind(), wanted.key());
        if let Some(made) = cached.made.get(&place) {
            return Ok(made.clone());
        }
        let document = self.issuer.issue_document(wanted, cached.edition, cached.issued)?;
        if cached.made.len() >= ISSUED_MAX {
            cached.made.clear();
        }
        cached.made.insert(place, document.clone());
        Ok(document)
    }
}
