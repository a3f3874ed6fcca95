//! A service over a fake root, with deliberate faults.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    document::Document,
    document_store::can_stand_in,
    faults::{Dice, Edition, Fate, Faults},
    kind::Kind,
    request::DocumentRequest,
};

/// Makes the endorsements of a fake root. *Simulated*: they endorse nothing.
pub trait Documents: Send + Sync + 'static {
    /// One document of an edition, as its vendor would issue it at `now` (unix seconds); `None` for
    /// what this root does not endorse. Sets by number are looked for among the standard and the
    /// early one, so only these have to be made.
    ///
    /// # Errors
    /// A text for the log.
    fn document(
        &self,
        wanted: &DocumentRequest,
        edition: Edition,
        now: u64,
    ) -> Result<Option<Document>, String>;
}

/// How long a simulated set is served before it is issued again, in seconds.
const REISSUE_AFTER_S: u64 = 86_400;

/// The most simulated documents in memory. Clients choose chip ids, and each has its certificate.
const SHELF_MAX: usize = 1024;

/// A simulated service.
pub struct Simulation {
    documents: Arc<dyn Documents>,
    dice: Dice,
    shelf: Mutex<Shelf>,
}

/// The documents that were made of one edition, which stay the same from one request to the next.
#[derive(Default)]
struct Shelf {
    edition: Edition,
    issued: u64,
    made: HashMap<(Kind, String), Option<Document>>,
}

impl Simulation {
    /// Serves what `documents` makes, with these faults to begin with.
    pub fn new(documents: Arc<dyn Documents>, faults: Faults) -> Self {
        Self { documents, dice: Dice::new(faults), shelf: Mutex::default() }
    }

    /// The faults at present.
    pub fn faults(&self) -> Faults {
        self.dice.faults()
    }

    /// Sets other faults, from the next request on; the draws begin again.
    pub fn set_faults(&self, faults: Faults) {
        self.dice.set(faults);
    }

    pub(crate) fn next(&self) -> (Duration, Fate) {
        self.dice.next()
    }

    /// `None` if this root has no such document. May sign; call it where that may take a while.
    pub(crate) fn find(
        &self,
        wanted: &DocumentRequest,
        now: u64,
    ) -> Result<Option<Document>, String> {
        let edition = self.dice.faults().edition;
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = (shelf.issued..shelf.issued.saturating_add(REISSUE_AFTER_S)).contains(&now);
        if shelf.edition != edition || !holds {
            *shelf = Shelf { edition, issued: now, made: HashMap::new() };
        }
        let exact = self.make(&mut shelf, wanted)?;
        if exact.is_some() {
            return Ok(exact);
        }
        for other in wanted.alternatives() {
            let found = self.make(&mut shelf, &other)?;
            if let Some(document) = found.filter(|document| can_stand_in(wanted, document)) {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    fn make(
        &self,
        shelf: &mut Shelf,
        wanted: &DocumentRequest,
    ) -> Result<Option<Document>, String> {
        let place = (wanted.kind(), wanted.key());
        if let Some(made) = shelf.made.get(&place) {
            return Ok(made.clone());
        }
        let document = self.documents.document(wanted, shelf.edition, shelf.issued)?;
        if shelf.made.len() >= SHELF_MAX {
            shelf.made.clear();
        }
        shelf.made.insert(place, document.clone());
        Ok(document)
    }
}
