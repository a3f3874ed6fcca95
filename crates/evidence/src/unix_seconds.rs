//! Times as people read them.

use core::{fmt, time::Duration};

use der::DateTime;

/// A time in Unix seconds. `Display` writes the seconds, then the date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// The date alone, as RFC 3339 writes it: `2026-11-23T09:16:16Z`. After the year 9999 there is
    /// none, and the seconds stand in its place.
    pub fn utc(self) -> Utc {
        Utc(self.0)
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match date(self.0) {
            Some(date) => write!(f, "{} ({date})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// The date that [`UnixSeconds::utc`] returns; `Display` writes it.
#[derive(Clone, Copy, Debug)]
pub struct Utc(u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match date(self.0) {
            Some(date) => write!(f, "{date}"),
            None => write!(f, "{}", self.0),
        }
    }
}

fn date(seconds: u64) -> Option<DateTime> {
    DateTime::from_unix_duration(Duration::from_secs(seconds)).ok()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn seconds_are_shown_with_their_date_in_utc() {
        for (seconds, shown) in [
            (0, "0 (1970-01-01T00:00:00Z)"),
            (951_782_400, "951782400 (2000-02-29T00:00:00Z)"),
            (1_795_425_376, "1795425376 (2026-11-23T09:16:16Z)"),
            (253_402_300_799, "253402300799 (9999-12-31T23:59:59Z)"),
            (253_402_300_800, "253402300800"),
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(UnixSeconds(seconds).to_string(), shown);
        }
        assert_eq!(UnixSeconds(1_795_425_376).utc().to_string(), "2026-11-23T09:16:16Z");
    }
}
