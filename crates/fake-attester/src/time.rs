//! Unix seconds in the two forms of certificates and of JSON.

use std::time::Duration;

use confide_evidence::UnixSeconds;
use time::OffsetDateTime;

/// Seconds in a day.
pub(crate) const DAY: u64 = 86_400;

/// 2018-05-21, the day on which Intel's root begins.
pub(crate) const ROOT_NOT_BEFORE: u64 = 1_526_860_800;

/// 2049-12-31 23:59:59, the second at which Intel's root ends.
pub(crate) const ROOT_NOT_AFTER: u64 = 2_524_607_999;

/// The first issue time: late enough that a fault may date collateral back within the root's life.
pub(crate) const FIRST_ISSUE: u64 = ROOT_NOT_BEFORE + 365 * DAY;

/// The last issue time: a year before the root ends.
pub(crate) const LAST_ISSUE: u64 = ROOT_NOT_AFTER - 365 * DAY;

/// The time in the type that rcgen uses.
pub(crate) fn date_time(unix: u64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::from_secs(unix)
}

/// The time as PCS writes it: `2026-01-27T09:01:45Z`.
pub(crate) fn rfc3339(unix: u64) -> String {
    UnixSeconds(unix).utc().to_string()
}

/// The time as certificates write it from 2050 on, and revocation answers always: `20260127090145Z`.
pub(crate) fn generalized_time(unix: u64) -> String {
    rfc3339(unix).replace(['-', ':', 'T'], "")
}

/// The time as certificates write it before 2050: `260127090145Z`.
pub(crate) fn utc_time(unix: u64) -> String {
    generalized_time(unix)[2..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_pcs_writes_them() {
        assert_eq!(rfc3339(1_769_504_505), "2026-01-27T09:01:45Z");
        assert_eq!(utc_time(1_769_504_505), "260127090145Z");
        assert_eq!(generalized_time(1_769_504_505), "20260127090145Z");
        assert_eq!(rfc3339(ROOT_NOT_BEFORE), "2018-05-21T00:00:00Z");
        assert_eq!(rfc3339(ROOT_NOT_AFTER), "2049-12-31T23:59:59Z");
    }
}
