//! Committed integers as people write them.

use std::fmt;

use crate::{
    moment::rfc3339_of_micros,
    number::{AMOUNT_ZERO, number_of_amount},
};

/// A committed integer as a person writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Millionths, written as a decimal number.
    Number(u64),
    /// Microseconds since 1970, written as an RFC 3339 date.
    Date(u64),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Amount::Number(amount) => f.write_str(&number_of_amount(amount)),
            Amount::Date(amount) => {
                f.write_str(&rfc3339_of_micros(amount.wrapping_sub(AMOUNT_ZERO) as i64))
            }
        }
    }
}
