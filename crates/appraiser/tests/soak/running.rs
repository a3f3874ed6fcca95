//! One run of the program that appraises: a source over the store, an appraiser over the source.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use confide_appraiser::PolicyAppraiser;
use confide_collateral::{BaseUrl, DocumentKey, Services, Source, SourceOptions};
use confide_evidence::{Appraise, BindingKind, PresentedEvidence, claims::Claims};
use confide_verifier::{AwsLc, Endorsements, Policy, UnixTime};

use crate::{
    disk::Disk,
    draw::Draw,
    oracle::{Case, Floors, Oracle, REPORT_DATA},
    world::{DAY, clock, mark, said_since},
};

/// Documents are due after four hours of the soak's time, as by default.
const REFRESH_EVERY: Duration = Duration::from_secs(4 * 3600);
/// Deadline of one document with all its attempts: a service that never answers costs this much.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long the claims hold around the clock: they are not what is tested.
const CLAIMS_HOLD: u64 = 10 * DAY;
/// The pause between two appraisals of a thread: others want the machine too.
const PAUSE: Duration = Duration::from_millis(1);

/// The program under test, from one start to the next restart.
pub(crate) struct Running {
    pub(crate) source: Arc<Source>,
    appraiser: PolicyAppraiser,
    pub(crate) floors: Floors,
}

/// Counts over the whole soak.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) appraisals: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) wrong: Mutex<Vec<String>>,
}

impl Running {
    /// Starts over what the store has.
    pub(crate) fn start(url: &str, disk: &Disk, policy: &str) -> Arc<Self> {
        let mut policy = Policy::from_toml(policy).unwrap();
        policy.key_validity_s_max = 2 * CLAIMS_HOLD;
        let mut services = Services::from_base(&BaseUrl::parse(url, false).unwrap());
        services.deadline = Some(DEADLINE);
        let mut options = SourceOptions::new(services, Arc::new(clock));
        options.refresh_every = REFRESH_EVERY;
        options.look_every = Duration::from_millis(100);
        options.store = Some(disk.store());
        let roots = policy.roots.clone();
        options.check = Some(Arc::new(move |_, json, now| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
            let endorsements = Endorsements::parse(json).map_err(|error| error.to_string())?;
            let prepared = endorsements.prepare(&roots, now, &AwsLc);
            prepared.map(drop).map_err(|rejection| rejection.reason().to_string())
        }));
        let [platform, processor] = disk.newest_numbers().map(AtomicU64::new);
        let floors = Floors { lists: [platform, processor], ..Floors::default() };
        let source = Arc::new(Source::start(options).unwrap());
        let appraiser = PolicyAppraiser::with_source(policy, source.clone(), clock);
        Arc::new(Self { source, appraiser, floors })
    }

    /// Appraises once; `true` where the evidence was accepted.
    pub(crate) fn appraise(&self, case: &Case, oracle: &Oracle, figures: &Figures) -> bool {
        self.observe(case);
        let (floor, begun) = (self.floors.floor_of(case.ca), mark());
        let now = clock();
        let claims = Claims {
            config_digest: [7; 32],
            guarantee: "operator is outside the TEE".into(),
            nonce: None,
            not_after: now + CLAIMS_HOLD,
            not_before: now - CLAIMS_HOLD,
            pubkey_hash: [1; 32],
            gpu_evidence_hash: None,
            weights: None,
        };
        let outcome = self.appraiser.appraise(&PresentedEvidence {
            binding: BindingKind::TlsExporter,
            claims: &claims.encode(),
            collateral: None,
            expected_report_data: REPORT_DATA,
            gpu: None,
            quote: &case.quote,
        });
        let instants = said_since(begun);
        figures.appraisals.fetch_add(1, SeqCst);
        let Ok(accepted) = outcome else {
            figures.refused.fetch_add(1, SeqCst);
            return false;
        };
        figures.accepted.fetch_add(1, SeqCst);
        if let Some(fault) = oracle.fault(case, &accepted, &instants, floor) {
            let text = format!("{}: {fault}; {floor:?}, clock {instants:?}", case.name);
            figures.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
        true
    }

    /// Takes note of what is at hand: from now on nothing older may decide.
    fn observe(&self, case: &Case) {
        let Some(set) = self.source.current_set(&case.platform) else { return };
        let mut evaluation = u64::MAX;
        for document in set.documents() {
            match document.key {
                DocumentKey::IntelPckCrl(_) => {
                    self.floors.lists[case.ca].fetch_max(document.number, SeqCst);
                }
                DocumentKey::TcbInfo { .. } | DocumentKey::QeIdentity { .. } => {
                    evaluation = evaluation.min(document.number);
                }
                _ => {}
            }
        }
        self.floors.evaluation.fetch_max(evaluation, SeqCst);
    }
}

/// Appraises until it is told to end, whichever program runs.
pub(crate) fn work(
    seed: u64,
    running: &Mutex<Arc<Running>>,
    oracle: &Oracle,
    figures: &Figures,
    end: &AtomicBool,
) {
    let mut draw = Draw::new(seed);
    while !end.load(SeqCst) {
        let running = running.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A third of the draws go to the few cases with faults.
        let among = if draw.once_in(3) { 8 } else { oracle.cases.len() as u64 };
        let case = &oracle.cases[draw.number_below(among) as usize];
        running.appraise(case, oracle, figures);
        std::thread::sleep(PAUSE);
    }
}
