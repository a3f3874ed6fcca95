//! Times as arguments give them, and whose clock a notary's statement shows.

use confide_disclosure::parse_rfc3339_micros;

use crate::process::unix_now;

/// The description of the clock in a notary's statements, printed next to every such time.
pub(crate) const NOTARY_CLOCK: &str = "the notary's clock, set by its operator";

/// Reads a time, for `clap`: `now`, an RFC 3339 date with or without a time, or Unix seconds.
///
/// # Errors
/// The accepted forms, where the text has none of them.
pub(crate) fn parse_time(text: &str) -> Result<u64, String> {
    if text == "now" {
        return Ok(unix_now());
    }
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    // A date alone is its first second, in UTC.
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    parse_rfc3339_micros(whole.as_bytes())
        .and_then(|micros| u64::try_from(micros.div_euclid(1_000_000)).ok())
        .ok_or_else(|| {
            "wanted `now`, a date such as 2026-11-23 or 2026-11-23T09:16:16Z, or Unix seconds"
                .into()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_now_a_date_or_unix_seconds() {
        for (text, wanted) in [
            ("0", 0),
            ("1795425376", 1_795_425_376),
            ("2026-11-23T09:16:16Z", 1_795_425_376),
            ("2026-11-23T10:16:16.9+01:00", 1_795_425_376),
            ("2026-11-23", 1_795_392_000),
        ] {
            assert_eq!(parse_time(text), Ok(wanted), "{text}");
        }
        let before = unix_now();
        assert!((before..=unix_now()).contains(&parse_time("now").unwrap()));
        for bad in ["", "-1", "1.5", "tomorrow", "2026-11", "2026-02-30", "1969-12-31", "Now"] {
            assert!(parse_time(bad).unwrap_err().contains("2026-11-23"), "{bad}");
        }
        assert!(parse_time("18446744073709551616").is_err());
    }
}
