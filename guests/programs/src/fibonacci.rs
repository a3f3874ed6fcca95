//! The n-th Fibonacci number modulo 2^64.

use confide_statement::{Fibonacci, Statement};

use crate::{
    error::ProgramError,
    input::{Input, Source},
};

/// Greatest n: some 10^8 cycles, more than any machine here proves.
pub const FIBONACCI_N_MAX: u32 = 1 << 24;

/// Input: n.
///
/// # Errors
/// If the input is not as above or n is beyond [`FIBONACCI_N_MAX`].
pub fn fibonacci(input: &mut Input<impl Source>) -> Result<Statement, ProgramError> {
    let n = input.u32_between("n", 0, FIBONACCI_N_MAX)?;
    input.finish()?;
    let (mut value, mut next) = (0u64, 1u64);
    for _ in 0..n {
        (value, next) = (next, value.wrapping_add(next));
    }
    Ok(Statement::Fibonacci(Fibonacci { n, value }))
}
