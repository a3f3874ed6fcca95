//! Storms and the calm after them.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use confide_collateral::CollateralCounts;
use confide_pccs::{Faults, Latency, RequestLimit, ServedEdition, Simulation};
use serde_json::{Value, json};

use crate::{
    disk::{CAS, Disk},
    draw::Draw,
    oracle::Oracle,
    running::{Figures, Running},
    world::{self, DAY, tick},
};

/// Time moves on in steps of half an hour every twentieth of a second: a set of 30 days is over
/// after 72 seconds.
const TICK: Duration = Duration::from_millis(50);
const TICK_S: u64 = 1800;
/// Ticks that a storm lasts: three to six seconds.
const STORM_TICKS: (u64, u64) = (60, 120);
/// Offsets of the clock: across `nextUpdate` and back, and less.
const OFFSETS: [i64; 6] = [0, 0, 31 * DAY as i64, -2 * DAY as i64, 20 * DAY as i64, -43_200];
/// A round is a fetch for each platform; this many may have begun in the storm and fail in the
/// calm: four documents of two platforms, one round.
const LATE_FAILURES_MAX: u64 = 8;
/// A source that failed often waits a minute before it tries again. Beyond this it never will.
const HANG: Duration = Duration::from_secs(120);

/// The events that befall the program under test.
pub(crate) struct Soak<'a> {
    draw: Draw,
    url: &'a str,
    simulation: &'a Simulation,
    disk: &'a Disk,
    oracle: &'a Oracle,
    running: &'a Mutex<Arc<Running>>,
    figures: &'a Figures,
    storms: u64,
    restarts: u64,
    clock_steps: u64,
    /// The newest list numbers that the disk has had, by CA.
    kept: [u64; 2],
    recoveries_ms: Vec<u64>,
    /// The counts of the programs that have ended.
    past: CollateralCounts,
}

impl<'a> Soak<'a> {
    pub(crate) fn new(
        seed: u64,
        url: &'a str,
        simulation: &'a Simulation,
        disk: &'a Disk,
        oracle: &'a Oracle,
        running: &'a Mutex<Arc<Running>>,
        figures: &'a Figures,
    ) -> Self {
        Self {
            draw: Draw::new(seed),
            url,
            simulation,
            disk,
            oracle,
            running,
            figures,
            storms: 0,
            restarts: 0,
            clock_steps: 0,
            kept: [0; 2],
            recoveries_ms: Vec::new(),
            past: CollateralCounts::default(),
        }
    }

    /// Some seconds in which everything goes wrong.
    pub(crate) fn storm(&mut self) {
        self.storms += 1;
        let ticks = STORM_TICKS.0 + self.draw.number_below(STORM_TICKS.1 - STORM_TICKS.0);
        let revocation_at = self.draw.number_below(ticks);
        // The vendor sleeps, and all that it gave out has ended when it wakes.
        let sleep_at = self.draw.once_in(3).then(|| self.draw.number_below(ticks));
        let mut offset = 0;
        for at in 0..ticks {
            if at % 10 == 0 {
                let faults = self.faults();
                self.simulation.set_faults(faults);
            }
            if self.draw.once_in(8) {
                self.disk.fill();
            } else if self.draw.once_in(12) {
                self.disk.free();
            }
            if self.draw.once_in(12) {
                self.clock_steps += 1;
                offset = self.draw.one_of(&OFFSETS);
            }
            if at == revocation_at {
                self.oracle.revoke_next();
            }
            if self.draw.once_in(25) {
                self.restart();
            }
            let jump = if sleep_at == Some(at) { 31 * DAY } else { 0 };
            tick(TICK_S + jump, offset);
            thread::sleep(TICK);
        }
    }

    /// Nothing is wrong any more. Waits until every answer is right again, and asserts that no
    /// more than the rounds that were under way have failed until then.
    pub(crate) fn calm(&mut self) {
        self.disk.free();
        self.simulation.set_faults(Faults::default());
        tick(TICK_S, 0);
        let (started, since) = (Instant::now(), world::world());
        let running = self.now();
        let failures = running.source.counts().failures;
        while !self.is_recovered(&running, since) {
            assert!(started.elapsed() < HANG, "no recovery: {:?}", running.source.counts());
            tick(TICK_S, 0);
            thread::sleep(TICK);
        }
        let took = started.elapsed();
        self.recoveries_ms.push(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let late = running.source.counts().failures - failures;
        assert!(late <= LATE_FAILURES_MAX, "{late} fetches failed with nothing wrong");
        self.look_at_disk();
    }

    /// Returns the counts as JSON.
    pub(crate) fn report(&mut self, seed: u64, own: bool) -> Value {
        let now = self.now();
        self.add(&now.source.counts());
        let mut took = self.recoveries_ms.clone();
        took.sort_unstable();
        let hosts = self.past.hosts.values();
        json!({
            "simulated": true,
            "seed": seed,
            "storms": self.storms,
            "appraisals": self.figures.appraisals.load(SeqCst),
            "accepted": self.figures.accepted.load(SeqCst),
            "refused": self.figures.refused.load(SeqCst),
            "wrongly_accepted": self.figures.wrong.lock().unwrap().len(),
            "machines_revoked": self.oracle.revoked_count(),
            "clock_steps": self.clock_steps,
            "restarts": self.restarts,
            "documents_refreshed": self.past.refreshes,
            "fetches_failed": self.past.failures,
            "rollbacks_refused": self.past.refused_rollbacks,
            "sets_refused_by_check": self.past.refused_sets,
            "requests": hosts.clone().map(|host| host.requests).sum::<u64>(),
            "throttled_429": hosts.clone().map(|host| host.throttled).sum::<u64>(),
            "not_modified_304": hosts.map(|host| host.not_modified).sum::<u64>(),
            "own_file_system": own,
            "enospc": self.disk.full.load(SeqCst),
            "store_failures": self.past.store_failures,
            "recoveries": took.len(),
            "recovery_ms_median": took.get(took.len() / 2),
            "recovery_ms_max": took.last(),
            "recoveries_ms": self.recoveries_ms,
        })
    }

    fn now(&self) -> Arc<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Draws faults under which half of the answers fail, one way or another.
    fn faults(&mut self) -> Faults {
        let edition = self.draw.one_of(&[
            ServedEdition::Current,
            ServedEdition::Current,
            ServedEdition::LateCrls,
            ServedEdition::RolledBackCrls,
            ServedEdition::RolledBackCrls,
            ServedEdition::Expired,
        ]);
        let mut faults =
            Faults { seed: self.draw.number_below(1 << 32), edition, ..Faults::default() };
        match self.draw.number_below(5) {
            0 => faults.truncated_rate = 0.5,
            1 => (faults.failure_rate, faults.hanging_rate) = (0.45, 0.1),
            2 => faults.limit = Some(RequestLimit { requests: 4, window_s: 1 }),
            3 => faults.latency = Latency::Ms(120),
            _ => {}
        }
        if faults.truncated_rate == 0.0 && faults.hanging_rate == 0.0 {
            faults.failure_rate = 0.5;
        }
        faults
    }

    /// Another program over the same store; appraisals under way end with the old one. What the
    /// old one served by, the new one knows, however full the disk was.
    fn restart(&mut self) {
        let new = Running::start(self.url, self.disk, &self.oracle.policy());
        let old = std::mem::replace(
            &mut *self.running.lock().unwrap_or_else(PoisonError::into_inner),
            new,
        );
        self.restarts += 1;
        self.add(&old.source.counts());
        // First what it knew, then what is kept: it may learn more meanwhile.
        let knew = [0, 1].map(|ca| old.floors.floor_of(ca).list);
        self.look_at_disk();
        let forgot = (0..CAS.len()).any(|ca| self.kept[ca] < knew[ca]);
        assert!(!forgot, "known before the restart {knew:?}, after it {:?}", self.kept);
    }

    /// Asserts that the list numbers that the store remembers never fall.
    fn look_at_disk(&mut self) {
        let seen = self.disk.newest_numbers();
        for (kept, seen) in self.kept.iter_mut().zip(seen) {
            assert!(seen >= *kept, "the store forgot: {seen} after {kept}");
            *kept = seen;
        }
    }

    /// Whether each answer is right, by lists that are newer than the storm.
    fn is_recovered(&self, running: &Running, since: u64) -> bool {
        let right =
            |case| running.appraise(case, self.oracle, self.figures) == self.oracle.is_right(case);
        self.oracle.cases.iter().all(right)
            && (0..CAS.len()).all(|ca| running.floors.floor_of(ca).list >= since)
    }

    fn add(&mut self, counts: &CollateralCounts) {
        self.past.refreshes += counts.refreshes;
        self.past.failures += counts.failures;
        self.past.refused_rollbacks += counts.refused_rollbacks;
        self.past.refused_sets += counts.refused_sets;
        self.past.store_failures += counts.store_failures;
        for (host, new) in &counts.hosts {
            let held = self.past.hosts.entry(host.clone()).or_default();
            held.requests += new.requests;
            held.throttled += new.throttled;
            held.not_modified += new.not_modified;
        }
    }
}
