//! Amounts of memory as people write them.

/// Units, each 1,024 times the one before.
const UNITS: [&str; 5] = ["", "KiB", "MiB", "GiB", "TiB"];

/// Reads `6GiB`, `1.5GiB`, `512MiB` or a number of bytes.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let wrong = || format!("wanted a size such as 6GiB, 512MiB or bytes, got {text:?}");
    let power = UNITS.iter().position(|known| known.eq_ignore_ascii_case(unit.trim()));
    let factor = 1024_f64.powi(power.ok_or_else(wrong)? as i32);
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * factor;
    // Beyond 2^53 an f64 no longer holds every byte, and no machine has so much.
    if !(1.0..9e15).contains(&bytes) { Err(wrong()) } else { Ok(bytes as u64) }
}

/// A number of bytes for people, in the largest unit that gives at least one.
pub(crate) fn format_bytes(bytes: u64) -> String {
    let power = (0..UNITS.len()).rev().find(|power| bytes >> (10 * power) > 0).unwrap_or(0);
    match power {
        0 => format!("{bytes} B"),
        _ => format!("{:.2} {}", bytes as f64 / 1024_f64.powi(power as i32), UNITS[power]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("512MiB", 512 << 20),
            ("6GiB", 6 << 30),
            ("6 gib", 6 << 30),
            ("1.5KiB", 1536),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        // GB and GiB differ by 7 %: the ambiguous one is refused.
        for text in ["", "6GB", "GiB", "-1", "0", "1e9", "0.1", "99999TiB", "1.2.3MiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        assert_eq!(format_bytes(999), "999 B");
        assert_eq!(format_bytes(1536), "1.50 KiB");
        assert_eq!(format_bytes(3_865_470_566), "3.60 GiB");
    }
}
