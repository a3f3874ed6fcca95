//! The time during which certificates, lists and documents hold.

use rustls_pki_types::UnixTime;

use crate::{
    checks::{Checks, StepNames},
    reason::Reason,
};

/// The time during which everything holds, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validity {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// The validity of one certificate, list or document, and the check that looks at its dates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValidityWindow<S> {
    pub(crate) step: S,
    pub(crate) subject: &'static str,
    pub(crate) life: Validity,
}

impl<S: StepNames> ValidityWindow<S> {
    /// Names the first window that does not hold now, as the failure of its check.
    pub(crate) fn check_all(
        windows: &[Self],
        checks: &mut Checks,
        now: UnixTime,
    ) -> Result<(), Reason> {
        for Self { step, subject, life } in windows {
            if let Err(reason) = life.check(subject, now) {
                return Err(checks.fail(*step, reason));
            }
        }
        Ok(())
    }
}

impl Validity {
    pub(crate) const EVER: Self = Self { from: 0, until: u64::MAX };

    pub(crate) fn new(from: u64, until: u64) -> Self {
        Self { from, until }
    }

    pub(crate) fn holds(self, now: UnixTime) -> bool {
        (self.from..=self.until).contains(&now.as_secs())
    }

    /// The time during which both hold.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), until: self.until.min(other.until) }
    }

    /// Checks that `now` lies between the two dates, both included.
    pub(crate) fn check(self, subject: &'static str, now: UnixTime) -> Result<(), Reason> {
        let Self { from, until } = self;
        if self.holds(now) {
            return Ok(());
        }
        Err(Reason::OutsideWindow { subject, from, until, now: now.as_secs() })
    }
}
