//! The display of committed integers as numbers or dates.

use std::fmt;

use crate::{
    number::{AMOUNT_ZERO, format_amount},
    rfc3339::format_rfc3339,
};

/// A committed integer, to be displayed as a number or a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmountDisplay {
    /// Millionths, written as a decimal number.
    Number(u64),
    /// Microseconds since 1970, written as an RFC 3339 date.
    Date(u64),
}

impl fmt::Display for AmountDisplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            AmountDisplay::Number(amount) => f.write_str(&format_amount(amount)),
            AmountDisplay::Date(amount) => {
                f.write_str(&format_rfc3339(amount.wrapping_sub(AMOUNT_ZERO) as i64))
            }
        }
    }
}
