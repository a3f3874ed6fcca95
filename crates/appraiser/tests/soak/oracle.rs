//! Which answer is right, decided from what the vendor gave out and when, never from a verdict.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use confide_appraiser::PeerAppraisal;
use confide_collateral::Platform;
use confide_evidence::ReportData;
use confide_fake_attester::{
    FakeAttester, FakeAttesterOptions, FakeEndorsements, Fault, Mode, PckCa, SimulatedPlatform, Tee,
};

use crate::world::{DAY, START, Vendor, holds};

/// The seed of all keys.
pub(crate) const SEED: [u8; 32] = [7; 32];
/// Certificates are older than all that happens.
pub(crate) const CERTIFIED: u64 = START - 60 * DAY;
/// The report data of every quote.
pub(crate) const REPORT_DATA: ReportData = ReportData([5; 64]);
/// Machines that the vendor may revoke, one after the other.
const REVOCABLE: u32 = 60;
/// The first byte of the quote's own signature: header, body, length of what follows.
const SIGNATURE_AT: usize = 48 + 584 + 4;

/// One quote, and what is known of it beforehand.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) quote: Vec<u8>,
    pub(crate) platform: Platform,
    /// The index of its CA in [`crate::disk::CAS`].
    pub(crate) ca: usize,
    /// The machine, where its PCK certificate may be revoked.
    pub(crate) machine: Option<(u32, Vec<u8>)>,
    /// Whether it is right to accept it as long as nothing is revoked.
    pub(crate) good: bool,
}

/// Quotes with known right answers.
pub(crate) struct Oracle {
    pub(crate) cases: Vec<Case>,
    vendor: Arc<Vendor>,
    /// By machine, the number of the first list that has it.
    revoked: Mutex<BTreeMap<u32, u64>>,
}

/// The newest that one running program has had at hand: it may not fall behind that.
#[derive(Default)]
pub(crate) struct Floors {
    /// Numbers of the lists of the two CAs.
    pub(crate) lists: [AtomicU64; 2],
    /// TCB evaluation data number.
    pub(crate) evaluation: AtomicU64,
}

/// The floors before an appraisal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floor {
    pub(crate) list: u64,
    pub(crate) evaluation: u64,
}

impl Floors {
    pub(crate) fn floor_of(&self, ca: usize) -> Floor {
        let (list, evaluation) = (self.lists[ca].load(SeqCst), self.evaluation.load(SeqCst));
        Floor { list, evaluation }
    }
}

impl Oracle {
    pub(crate) fn new(vendor: Arc<Vendor>) -> Self {
        let keys = &vendor.keys;
        let mut cases = Vec::new();
        for ca in [PckCa::Platform, PckCa::Processor] {
            let first = SimulatedPlatform { pck_ca: ca, ..SimulatedPlatform::default() };
            cases.push(Case { good: true, ..case("good", keys, first, false, None) });
            cases.push(case("debug", keys, first, true, None));
            cases.push(case("out of date", keys, first, false, Some(Fault::OutOfDate)));
            let mut forged = case("wrong signature", keys, first, false, None);
            forged.quote[SIGNATURE_AT] ^= 1;
            cases.push(forged);
        }
        for platform in 1..=REVOCABLE {
            let pck_ca = if platform % 2 == 0 { PckCa::Platform } else { PckCa::Processor };
            let variant = SimulatedPlatform { platform, pck_ca, ..SimulatedPlatform::default() };
            let serial = keys.pck_certificate(&variant).unwrap().serial;
            let name = format!("machine {platform}");
            let machine = Some((platform, serial));
            let made = case(&name, keys, variant, false, None);
            cases.push(Case { machine, good: true, ..made });
        }
        Self { cases, vendor, revoked: Mutex::default() }
    }

    /// The policy's text for all of them.
    pub(crate) fn policy(&self) -> String {
        attester(&self.vendor.keys, SimulatedPlatform::default(), false, None)
            .policy_toml_pinning([7; 32])
    }

    /// The vendor revokes one more machine, while there is one.
    pub(crate) fn revoke_next(&self) {
        let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.cases.iter().filter_map(|case| case.machine.as_ref());
        if let Some((machine, serial)) = next.into_iter().nth(revoked.len()) {
            revoked.insert(*machine, self.vendor.revoke(serial.clone()));
        }
    }

    pub(crate) fn revoked_count(&self) -> usize {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether the newest that the vendor gives out says yes.
    pub(crate) fn is_right(&self, case: &Case) -> bool {
        case.good && self.revoked_from(case).is_none()
    }

    /// Returns why it was wrong to accept at any moment of `instants`; `None` if it was right.
    ///
    /// There has to be a list that was given out, holds by the clock, is as new as what was at
    /// hand before, and does not have the machine; and documents that hold next to it.
    pub(crate) fn fault(
        &self,
        case: &Case,
        accepted: &PeerAppraisal,
        instants: &[u64],
        floor: Floor,
    ) -> Option<String> {
        if !case.good {
            return Some("never right".into());
        }
        let revoked_from = self.revoked_from(case).unwrap_or(u64::MAX);
        let issued = self.vendor.issue_list();
        let list = |now: u64| {
            issued.iter().any(|issue| {
                holds(issue.list, now) && issue.list >= floor.list && issue.list < revoked_from
            })
        };
        let documents = |now: u64| issued.iter().any(|issue| holds(issue.tcb, now));
        if !instants.iter().any(|now| list(*now) && documents(*now)) {
            return Some(format!("nothing that was given out says so: revoked {revoked_from}"));
        }
        let claims = accepted.verdict().platform();
        let intel = claims.intel()?;
        if intel.pck_crl.number < floor.list || intel.pck_crl.number >= revoked_from {
            return Some(format!("by list {}, revoked {revoked_from}", intel.pck_crl.number));
        }
        if u64::from(intel.tcb_evaluation_data_number) < floor.evaluation {
            return Some(format!("by TCB info {}", intel.tcb_evaluation_data_number));
        }
        let ended = instants.iter().all(|now| *now > claims.valid_until);
        ended.then(|| format!("after the end at {}", claims.valid_until))
    }

    fn revoked_from(&self, case: &Case) -> Option<u64> {
        let (machine, _) = case.machine.as_ref()?;
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner).get(machine).copied()
    }
}

fn case(
    name: &str,
    keys: &FakeEndorsements,
    variant: SimulatedPlatform,
    debug: bool,
    fault: Option<Fault>,
) -> Case {
    let quote = attester(keys, variant, debug, fault).quote(&REPORT_DATA);
    let platform = Platform::from_evidence(&quote, None).unwrap();
    let ca = usize::from(variant.pck_ca == PckCa::Processor);
    let name = format!("{name} under the {} CA", variant.pck_ca.name());
    Case { name, quote, platform, ca, machine: None, good: false }
}

fn attester(
    keys: &FakeEndorsements,
    variant: SimulatedPlatform,
    debug: bool,
    fault: Option<Fault>,
) -> FakeAttester {
    let options = FakeAttesterOptions {
        seed: SEED,
        tee: Tee::Tdx,
        debug,
        issued_at: CERTIFIED,
        mode: Mode::Raw,
    };
    FakeAttester::with_vendors(keys, options, variant, fault).unwrap()
}
