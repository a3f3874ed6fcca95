//! The simulated vendor, its time and the time of who relies on it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::SeqCst},
    mpsc,
};

use confide_fake_attester::{EndorsementEdition, FakeEndorsements, PckCa, Tee};
use confide_pccs::{
    Document, DocumentRequest, Faults, PccsLimits, Service, SimulatedIssuer, Simulation,
    split_endorsements,
};

/// Seconds.
pub(crate) const DAY: u64 = 86_400;
/// 2026-06-01, where the soak begins.
pub(crate) const START: u64 = 1_780_272_000;
/// Every document holds this long (days), as Intel's do.
const LIFE_DAYS: u64 = 30;
/// How far a cache that is rolled back goes back: its lists still hold.
const ROLLBACK: u64 = 10 * DAY;
/// The vendor publishes a TCB recovery this often.
const RECOVERY_EVERY: u64 = 20 * DAY;

/// The vendor's time: it never goes back.
static WORLD: AtomicU64 = AtomicU64::new(START);
/// The relying party's clock: it may say anything.
static CLOCK: AtomicU64 = AtomicU64::new(START);
/// Every value that the clock ever showed.
static SAID: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Unix seconds at the vendor.
pub(crate) fn world() -> u64 {
    WORLD.load(SeqCst)
}

/// Unix seconds by the relying party's clock.
pub(crate) fn clock() -> u64 {
    CLOCK.load(SeqCst)
}

/// Moves the vendor's time on, and sets the clock to it and `offset` seconds.
pub(crate) fn tick(seconds: u64, offset: i64) {
    let world = world() + seconds;
    let clock = world.saturating_add_signed(offset);
    {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        said.push(clock);
        CLOCK.store(clock, SeqCst);
    }
    // Last: a list that is issued now is not from the future by a clock that is right.
    WORLD.store(world, SeqCst);
}

/// A place in what the clock said, for [`said_since`].
pub(crate) fn mark() -> usize {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).len().saturating_sub(1)
}

/// All that the clock said from a mark until now, the value at the mark included.
pub(crate) fn said_since(mark: usize) -> Vec<u64> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)[mark..].to_vec()
}

/// The documents that were given out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    /// `thisUpdate` of the lists, which is also their number.
    pub(crate) list: u64,
    /// `issueDate` of TCB info and QE identity.
    pub(crate) tcb: u64,
}

/// Whether what was issued at `issued` holds at `now`, by the vendor's own dates.
pub(crate) fn holds(issued: u64, now: u64) -> bool {
    (issued..=issued + LIFE_DAYS * DAY).contains(&now)
}

/// The vendor behind the service.
pub(crate) struct Vendor {
    pub(crate) keys: FakeEndorsements,
    /// Serial number, and the second from which lists have it.
    revoked: Mutex<Vec<(Vec<u8>, u64)>>,
    issued: Mutex<Vec<Issue>>,
}

impl Vendor {
    pub(crate) fn new(keys: FakeEndorsements) -> Arc<Self> {
        Arc::new(Self { keys, revoked: Mutex::default(), issued: Mutex::default() })
    }

    /// Revokes a PCK certificate; gives the number of the first list that may have it.
    pub(crate) fn revoke(&self, serial: Vec<u8>) -> u64 {
        // A list of this very second may have gone out without it.
        let from = world() + 1;
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner).push((serial, from));
        from
    }

    /// Everything that was given out so far.
    pub(crate) fn issue_list(&self) -> Vec<Issue> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn edition(&self, issue: Issue) -> EndorsementEdition {
        let mut made = EndorsementEdition::issued_at(issue.tcb);
        made.crl_issued_at = issue.list;
        made.crl_number = issue.list;
        made.days = LIFE_DAYS;
        let recoveries = issue.tcb.saturating_sub(START) / RECOVERY_EVERY;
        made.evaluation_number += u32::try_from(recoveries).unwrap_or(u32::MAX);
        let revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        made.revoked_pck = revoked
            .iter()
            .filter(|(_, from)| *from <= issue.list)
            .map(|(serial, _)| serial.clone())
            .collect();
        made
    }
}

impl SimulatedIssuer for Vendor {
    fn issue_document(
        &self,
        wanted: &DocumentRequest,
        edition: confide_pccs::ServedEdition,
        now: u64,
    ) -> Result<Option<Document>, String> {
        let ended = now - (LIFE_DAYS + 1) * DAY;
        let issue = match edition {
            confide_pccs::ServedEdition::LateCrls => Issue { list: ended, tcb: now },
            confide_pccs::ServedEdition::RolledBackCrls => {
                Issue { list: now - ROLLBACK, tcb: now - ROLLBACK }
            }
            confide_pccs::ServedEdition::Expired => Issue { list: ended, tcb: ended },
            _ => Issue { list: now, tcb: now },
        };
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if !issued.contains(&issue) {
            issued.push(issue);
        }
        drop(issued);
        let given =
            self.keys.issue_intel(&self.edition(issue)).map_err(|error| error.to_string())?;
        for ca in [PckCa::Platform, PckCa::Processor] {
            let set = given.collateral_json(Tee::Tdx, ca).map_err(|error| error.to_string())?;
            let documents =
                split_endorsements(set.as_bytes(), now).map_err(|error| error.to_string())?;
            let is = |each: &Document| each.kind == wanted.kind() && each.key == wanted.key();
            if let Some(document) = documents.into_iter().find(is) {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }
}

/// Our own PCCS on loopback, until the process ends.
pub(crate) fn serve(vendor: Arc<Vendor>) -> (String, Arc<Simulation>) {
    let simulation = Arc::new(Simulation::new(vendor, Faults::default()));
    let (started, address) = mpsc::channel();
    let inner = simulation.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            started.send(listener.local_addr().unwrap()).unwrap();
            let source = confide_pccs::DocumentSource::Simulated(inner);
            let limits = PccsLimits::default();
            let options = confide_pccs::PccsOptions { source, limits, clock: world };
            let service = Arc::new(Service::new(options));
            confide_pccs::serve(listener, service, std::future::pending()).await.unwrap();
        });
    });
    (format!("http://{}", address.recv().unwrap()), simulation)
}
