//! JSON numbers: the canonical form of each value, and the integer of its commitment.
//!
//! Nothing is rounded: `100`, `1e2` and `100.0` are the same value, `0.1` is exactly a tenth, and
//! an integer above 2^64 keeps all its digits.

/// The greatest length of a number in bytes, both as it was written and in its canonical form.
const TOKEN_BYTES_MAX: usize = 128;

/// The greatest magnitude of an exponent, both as it was written and in the canonical form.
const EXPONENT_MAX: i64 = 9_999;

/// A number with more digits than this before or after the point is written with an exponent.
const PLAIN_DIGITS_MAX: i64 = 32;

/// The number of decimals of a committed number, which counts millionths.
const FRACTION_DIGITS: i64 = 6;

/// The committed integer of zero: an offset, so that negative numbers can be committed to.
pub(crate) const AMOUNT_ZERO: u64 = 1 << 63;

/// The magnitude of a committed number in millionths is below this: differences of two fit 64 bits.
const AMOUNT_MAX: u64 = 1 << 62;

/// The reason why a number is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// The token is not a JSON number.
    #[error("number does not follow JSON's grammar")]
    Grammar,
    /// The token has too many characters or too large an exponent.
    #[error("number is beyond the limits of 128 characters and exponent 9999")]
    Limit,
}

/// An exact decimal number: a coefficient without trailing zeros, times a power of ten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    negative: bool,
    /// The ASCII digits without zeros at either end; none for zero.
    digits: Vec<u8>,
    exponent: i64,
}

impl Number {
    /// Parses a JSON number (RFC 8259 section 6).
    ///
    /// # Errors
    ///
    /// [`NumberError::Grammar`] if the token is not a JSON number; [`NumberError::Limit`] beyond
    /// 128 characters or an exponent of 9,999, as written or in the canonical form.
    pub fn parse(token: &[u8]) -> Result<Self, NumberError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(NumberError::Limit);
        }
        let (negative, rest) = match token.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, token),
        };
        let (whole, rest) = split_digits(rest);
        if whole.is_empty() || whole.len() > 1 && whole[0] == b'0' {
            return Err(NumberError::Grammar);
        }
        let (fraction, rest) = match rest.strip_prefix(b".") {
            None => (&rest[..0], rest),
            Some(rest) => match split_digits(rest) {
                ([], _) => return Err(NumberError::Grammar),
                found => found,
            },
        };
        let exponent = parse_exponent(rest)?;
        let mut digits = [whole, fraction].concat();
        let mut exponent = exponent - fraction.len() as i64;
        while digits.last() == Some(&b'0') {
            digits.pop();
            exponent += 1;
        }
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.drain(..zeros);
        if digits.is_empty() {
            return Ok(Self { negative: false, digits, exponent: 0 });
        }
        let number = Self { negative, digits, exponent };
        // A verifier parses the canonical form again, so the limits apply to it too.
        match exponent.abs() > EXPONENT_MAX || number.canonical_form().len() > TOKEN_BYTES_MAX {
            true => Err(NumberError::Limit),
            false => Ok(number),
        }
    }

    /// The canonical form, the only one for this value.
    ///
    /// `0`; or sign and digits, with at most 32 digits on either side of the point; or digits, `e`
    /// and the exponent.
    pub fn canonical_form(&self) -> String {
        if self.digits.is_empty() {
            return "0".into();
        }
        let digits: String = self.digits.iter().map(|digit| char::from(*digit)).collect();
        let (length, exponent) = (digits.len() as i64, self.exponent);
        let size = if exponent >= 0 { length + exponent } else { length.max(-exponent) };
        let text = match (size <= PLAIN_DIGITS_MAX, exponent >= 0) {
            (false, _) => format!("{digits}e{exponent}"),
            (true, true) => digits + &"0".repeat(exponent as usize),
            (true, false) if length > -exponent => {
                let (whole, fraction) = digits.split_at((length + exponent) as usize);
                format!("{whole}.{fraction}")
            }
            (true, false) => format!("0.{}{digits}", "0".repeat((-exponent - length) as usize)),
        };
        if self.negative { format!("-{text}") } else { text }
    }

    /// The committed integer: 2^63 plus the number of millionths. `None` if that number is not an
    /// integer, or its magnitude is 2^62 or more.
    pub fn amount(&self) -> Option<u64> {
        let shift = self.exponent + FRACTION_DIGITS;
        // 2^62 has 19 digits.
        if shift < 0 || self.digits.len() as i64 + shift > 19 {
            return self.digits.is_empty().then_some(AMOUNT_ZERO);
        }
        let digit = |value: u64, digit: &u8| value * 10 + u64::from(digit - b'0');
        let value = self.digits.iter().fold(0, digit) * 10u64.pow(shift as u32);
        match (value < AMOUNT_MAX, self.negative) {
            (false, _) => None,
            (true, false) => Some(AMOUNT_ZERO + value),
            (true, true) => Some(AMOUNT_ZERO - value),
        }
    }
}

/// Parses a canonical number and returns its committed integer; see [`Number::amount`].
pub fn parse_amount(token: &[u8]) -> Option<u64> {
    Number::parse(token).ok()?.amount()
}

/// The committed integer of millionths of a second since 1970.
pub(crate) fn amount_of_micros(micros: i64) -> Option<u64> {
    let inside = micros.unsigned_abs() < AMOUNT_MAX;
    inside.then(|| AMOUNT_ZERO.wrapping_add_signed(micros))
}

/// The canonical number of a committed integer.
pub(crate) fn format_amount(amount: u64) -> String {
    let micros = amount.wrapping_sub(AMOUNT_ZERO) as i64;
    let digits = micros.unsigned_abs().to_string();
    let token = format!("{}{digits}e-{FRACTION_DIGITS}", if micros < 0 { "-" } else { "" });
    // Digits and an exponent are always a number.
    Number::parse(token.as_bytes()).map_or(token, |number| number.canonical_form())
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

fn parse_exponent(text: &[u8]) -> Result<i64, NumberError> {
    let Some(text) = text.strip_prefix(b"e").or(text.strip_prefix(b"E")) else {
        return if text.is_empty() { Ok(0) } else { Err(NumberError::Grammar) };
    };
    let (negative, text) = match text {
        [b'-', text @ ..] => (true, text),
        [b'+', text @ ..] => (false, text),
        text => (false, text),
    };
    let (digits, []) = split_digits(text) else { return Err(NumberError::Grammar) };
    if digits.is_empty() {
        return Err(NumberError::Grammar);
    }
    let digit =
        |value: i64, digit: &u8| value.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    let value = digits.iter().fold(0, digit);
    match (value <= EXPONENT_MAX, negative) {
        (false, _) => Err(NumberError::Limit),
        (true, false) => Ok(value),
        (true, true) => Ok(-value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical_form(token: &str) -> String {
        Number::parse(token.as_bytes()).unwrap().canonical_form()
    }

    #[test]
    fn one_value_has_one_form() {
        for (forms, wanted) in [
            (&["100", "1e2", "1E+2", "100.0", "1000e-1", "0.1e3", "1.00e02"][..], "100"),
            (&["0", "-0", "0.0", "-0.000e-9", "0e9999"], "0"),
            (&["0.1", "1e-1", "0.10", "10e-2"], "0.1"),
            (&["-12.5", "-125e-1", "-1.25E1"], "-12.5"),
            (&["18446744073709551617"], "18446744073709551617"),
            (&["1e400", "10e399"], "1e400"),
            (&["1e31"], "10000000000000000000000000000000"),
            (&["1e32"], "1e32"),
            (&["1e-32"], "0.00000000000000000000000000000001"),
            (&["-1.5e-33"], "-15e-34"),
        ] {
            for form in forms {
                assert_eq!(canonical_form(form), wanted, "{form}");
            }
            assert_eq!(canonical_form(wanted), wanted);
        }
    }

    #[test]
    fn what_is_no_json_number_is_refused() {
        for bad in ["", "-", "01", "+1", ".5", "1.", "1.e1", "1e", "1e+", "0x1", "NaN", "1 ", "--1"]
        {
            assert_eq!(Number::parse(bad.as_bytes()), Err(NumberError::Grammar), "{bad}");
        }
        for long in ["1e10000", "1e-10000", &"1".repeat(129), "1e99999999999999999999"] {
            assert_eq!(Number::parse(long.as_bytes()), Err(NumberError::Limit), "{long}");
        }
    }

    #[test]
    fn a_number_whose_canonical_form_is_beyond_the_limits_is_refused() {
        for (inside, beyond) in [
            ("1".repeat(126), "1".repeat(127)),
            ("1e9999".into(), "10e9999".into()),
            ("0.1e-9998".into(), "0.1e-9999".into()),
            (format!("-0.{}", "1".repeat(121)), format!("-0.{}", "1".repeat(123))),
        ] {
            let number = Number::parse(inside.as_bytes()).unwrap();
            assert_eq!(Number::parse(number.canonical_form().as_bytes()), Ok(number), "{inside}");
            assert_eq!(Number::parse(beyond.as_bytes()), Err(NumberError::Limit), "{beyond}");
        }
    }

    #[test]
    fn amounts_count_millionths_above_two_to_the_63() {
        for (token, wanted) in [
            ("0", Some(0)),
            ("1", Some(1_000_000)),
            ("-1", Some(-1_000_000)),
            ("0.000001", Some(1)),
            ("0.0000001", None),
            ("4611686018427.387903", Some((1 << 62) - 1)),
            ("4611686018427.387904", None),
            ("-4611686018427.387903", Some(1 - (1 << 62))),
            ("18446744073709551617", None),
            ("1e9999", None),
        ] {
            let wanted = wanted.map(|micros: i64| AMOUNT_ZERO.wrapping_add_signed(micros));
            assert_eq!(parse_amount(token.as_bytes()), wanted, "{token}");
        }
    }
}
