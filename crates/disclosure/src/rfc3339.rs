//! RFC 3339 times as microseconds since 1970.

/// Parses `YYYY-MM-DDTHH:MM:SS`, a fraction of at most six significant digits, and `Z` or an
/// offset, to microseconds since 1970.
///
/// `None` for everything else, including leap seconds: such a string is not a date.
pub fn parse_rfc3339_micros(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(19)?;
    let punctuation = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if punctuation.into_iter().any(|(place, wanted)| date[place] != wanted) {
        return None;
    }
    let (year, month, day) =
        (parse_digits(&date[..4])?, parse_digits(&date[5..7])?, parse_digits(&date[8..10])?);
    let (hour, minute, second) =
        (parse_digits(&date[11..13])?, parse_digits(&date[14..16])?, parse_digits(&date[17..])?);
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (micros, zone) = parse_fraction(rest)?;
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second
        - parse_offset_s(zone)?;
    Some(seconds * 1_000_000 + micros)
}

/// Formats a time in UTC, with six decimals if it has a fraction.
pub(crate) fn format_rfc3339(micros: i64) -> String {
    let (seconds, fraction) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // An estimate that is never later than the actual year.
    let years = days.div_euclid(if days < 0 { 365 } else { 366 });
    let (mut year, mut month) = (1970 + years, 1);
    while days_since_1970(year + 1, 1, 1) <= days {
        year += 1;
    }
    while month < 12 && days_since_1970(year, month + 1, 1) <= days {
        month += 1;
    }
    let day = days - days_since_1970(year, month, 1) + 1;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:06}") };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

fn parse_digits(digits: &[u8]) -> Option<i64> {
    let all = digits.iter().all(u8::is_ascii_digit);
    all.then(|| digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

fn parse_fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else { return Some((0, text)) };
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, zone) = text.split_at(length);
    let (counted, beyond) = digits.split_at(length.min(6));
    if length == 0 || beyond.iter().any(|digit| *digit != b'0') {
        return None;
    }
    Some((parse_digits(counted)? * 10i64.pow(6 - counted.len() as u32), zone))
}

fn parse_offset_s(zone: &[u8]) -> Option<i64> {
    let (sign, hour, minute) = match zone {
        b"Z" => return Some(0),
        [sign, h1, h2, b':', m1, m2] => {
            (sign, parse_digits(&[*h1, *h2])?, parse_digits(&[*m1, *m2])?)
        }
        _ => return None,
    };
    let offset = hour * 3_600 + minute * 60;
    match sign {
        _ if hour > 23 || minute > 59 => None,
        b'+' => Some(offset),
        b'-' => Some(-offset),
        _ => None,
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The number of days since 1970 in the proleptic Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    const BEFORE_1970: i64 = 719_162;
    let before = year - 1;
    let leaps = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let months: i64 = (1..month).map(|month| days_in_month(year, month)).sum();
    before * 365 + leaps + months + day - 1 - BEFORE_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_millionths_since_1970() {
        for (text, wanted) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.000001Z", 1),
            ("1969-12-31T23:59:59Z", -1_000_000),
            ("2026-11-22T10:00:00Z", 1_795_341_600_000_000),
            ("2026-11-22T12:30:00.5+02:30", 1_795_341_600_500_000),
            ("2000-02-29T00:00:00.1234560000-00:00", 951_782_400_123_456),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
        ] {
            assert_eq!(parse_rfc3339_micros(text.as_bytes()), Some(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_rfc_3339_time_is_none() {
        for text in [
            "",
            "2026-11-22",
            "2026-11-22T10:00:00",
            "2026-11-22 10:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2016-12-31T23:59:60Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.0000001Z",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01t00:00:00z",
            "2026-01-01T00:00:00Z ",
            "+026-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339_micros(text.as_bytes()), None, "{text}");
        }
    }
}
