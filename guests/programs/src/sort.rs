//! A list put in order, and the number at one place of it.

use alloc::vec::Vec;

use confide_statement::{Sort, SortSource, Statement};

use crate::{
    error::ProgramError,
    input::{Input, Source},
    machine::Sha256,
};

/// The largest number of numbers: some 3 * 10^7 cycles.
pub const SORT_COUNT_MAX: u32 = 1 << 17;

/// Input: the source (0 given, 1 Fibonacci), the count, the place, and the numbers that are given.
///
/// With the source Fibonacci this is the work of the report 001, "Fibonacci sequence calculations
/// and sorting algorithms", in one program: `count` steps of the sequence, then the sort.
///
/// # Errors
/// If the input is not as above or a number is outside its limits.
pub fn sort<M: Sha256>(input: &mut Input<impl Source>) -> Result<Statement, ProgramError> {
    let kind = input.u32("source")?;
    let count = input.u32_between("count", 1, SORT_COUNT_MAX)?;
    let place = input.u32_between("place", 0, count - 1)?;
    let (source, mut numbers) = match kind {
        0 => {
            let bytes = input.bytes("numbers", 4 * count as usize)?;
            let (words, _) = bytes.as_chunks();
            let numbers = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            (SortSource::Supplied { input_sha256: M::sha256(&bytes) }, numbers)
        }
        1 => (SortSource::Fibonacci, fibonacci_terms(count)),
        _ => return Err(ProgramError::Value { subject: "source", wanted: "0 or 1" }),
    };
    input.finish()?;
    numbers.sort_unstable();
    let value = numbers[place as usize];
    Ok(Statement::Sort(Sort { source, count, place, value }))
}

/// F(0) to F(count - 1), each modulo 2^32. An iterator of known length writes each number once and
/// nothing else; `push` writes the length too, and asks for the capacity.
fn fibonacci_terms(count: u32) -> Vec<u32> {
    let (mut value, mut next) = (0u32, 1u32);
    let term = |_| {
        let term = value;
        (value, next) = (next, value.wrapping_add(next));
        term
    };
    (0..count).map(term).collect()
}
