//! A service over a fake root, with faults.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    Document, Edition, Faults, Kind, Wanted,
    faults::{Dice, Fate},
    kept::stands_in,
};

/// Makes the endorsements of a fake root. *Simulated*: they endorse nothing.
pub trait Documents: Send + Sync + 'static {
    /// All documents of an edition, as its vendor would issue them at `now` (unix seconds).
    ///
    /// # Errors
    /// A text for the log.
    fn documents(&self, edition: Edition, now: u64) -> Result<Vec<Document>, String>;
}

/// How long a simulated set is served before it is issued anew, in seconds.
const REISSUE_AFTER_S: u64 = 86_400;

/// A simulated service.
pub struct Simulation {
    documents: Arc<dyn Documents>,
    dice: Dice,
    made: Mutex<Option<Made>>,
}

#[derive(Clone)]
struct Made {
    edition: Edition,
    at: u64,
    shelf: Arc<HashMap<(Kind, String), Document>>,
}

impl Simulation {
    /// Serves what `documents` makes, with these faults to begin with.
    pub fn new(documents: Arc<dyn Documents>, faults: Faults) -> Self {
        Self { documents, dice: Dice::new(faults), made: Mutex::default() }
    }

    /// The faults at present.
    pub fn faults(&self) -> Faults {
        self.dice.faults()
    }

    /// Sets other faults, from the next request on; the draws begin anew.
    pub fn set_faults(&self, faults: Faults) {
        self.dice.set(faults);
    }

    pub(crate) fn next(&self) -> (std::time::Duration, Fate) {
        self.dice.next()
    }

    /// `None` where the set has no such document. May sign; call it where that may take a while.
    pub(crate) fn find(&self, wanted: &Wanted, now: u64) -> Result<Option<Document>, String> {
        let shelf = self.shelf(now)?;
        let on_shelf = |wanted: &Wanted| shelf.get(&(wanted.kind(), wanted.key()));
        let exact = on_shelf(wanted).cloned();
        let stand_in = || {
            let others = wanted.stand_ins();
            others.iter().filter_map(on_shelf).find(|document| stands_in(wanted, document)).cloned()
        };
        Ok(exact.or_else(stand_in))
    }

    fn shelf(&self, now: u64) -> Result<Arc<HashMap<(Kind, String), Document>>, String> {
        let edition = self.dice.faults().edition;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |made: &&Made| {
            made.edition == edition && (made.at..made.at + REISSUE_AFTER_S).contains(&now)
        };
        if let Some(made) = made.as_ref().filter(holds) {
            return Ok(Arc::clone(&made.shelf));
        }
        let documents = self.documents.documents(edition, now)?;
        let shelf: HashMap<_, _> =
            documents.into_iter().map(|it| ((it.kind, it.key.clone()), it)).collect();
        let shelf = Arc::new(shelf);
        *made = Some(Made { edition, at: now, shelf: Arc::clone(&shelf) });
        Ok(shelf)
    }
}
