//! The `Date` field of answers (RFC 9110 section 6.6.1).

use std::{
    cell::RefCell,
    time::{Duration, UNIX_EPOCH},
};

/// The line of the field, with its end.
#[derive(Clone, Copy, Debug)]
pub struct DateLine([u8; 37]);

impl DateLine {
    /// The line at a time in Unix seconds. Each thread writes it anew once a second.
    pub fn from_unix_s(unix_s: u64) -> Self {
        thread_local! {
            static LATEST: RefCell<(u64, DateLine)> = const { RefCell::new((u64::MAX, DateLine([0; 37]))) };
        }
        LATEST.with_borrow_mut(|(latest, line)| {
            let unix_s = unix_s.min(LAST_S);
            if *latest != unix_s {
                let time = UNIX_EPOCH.checked_add(Duration::from_secs(unix_s));
                let date = httpdate::fmt_http_date(time.unwrap_or(UNIX_EPOCH));
                line.0.copy_from_slice(format!("date: {date}\r\n").as_bytes());
                *latest = unix_s;
            }
            *line
        })
    }

    /// The bytes of the line.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The last second of the year 9999, after which the form has no year.
const LAST_S: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_has_the_form_of_rfc_9110() {
        for (unix_s, wanted) in [
            (784_111_777, "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
            (0, "date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"),
            (u64::MAX, "date: Fri, 31 Dec 9999 23:59:59 GMT\r\n"),
        ] {
            assert_eq!(DateLine::from_unix_s(unix_s).as_bytes(), wanted.as_bytes(), "{unix_s}");
        }
    }
}
