//! The search in hidden bytes: 64 bytes from a hidden start are compared one by one.

use bellpepper_core::{ConstraintSystem, SynthesisError, Variable, num::AllocatedNum};
use ff::Field;

use crate::{
    curve::Scalar,
    padding::HashedBytes,
    word::{Bit, allocate_number, empty_name},
};

/// The greatest length of the bytes that can be searched for.
pub(crate) const NEEDLE_BYTES: usize = 64;

/// The public value of a position that is not compared, above every byte.
const ANYTHING: u64 = 512;
/// The offset of bytes outside the length, so that they equal no byte.
const OUTSIDE: u64 = 256;

/// Hidden bytes with their length, if a witness is given.
pub(crate) struct HiddenBytes<'a> {
    pub(crate) hashed: &'a HashedBytes,
    pub(crate) length: Option<usize>,
}

/// Allocates the window: the bytes of all parts from the hidden start `at` on, which is one of the
/// first `starts`, followed by values that equal no byte.
pub(crate) fn allocate_window<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    parts: &[HiddenBytes<'_>],
    starts: usize,
    at: Option<u32>,
) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
    let mut places = WindowValues::default();
    for part in parts {
        places.push_bytes(cs, part)?;
    }
    while places.numbers.len() < NEEDLE_BYTES {
        places.push_outside(cs)?;
    }
    for stage in (0..starts.next_power_of_two().ilog2()).rev() {
        let moves_value = at.map(|at| at >> stage & 1 == 1);
        let moves = Bit::allocate(cs, moves_value)?;
        places = places.shift_down(cs, moves, moves_value, 1 << stage)?;
    }
    Ok(places.numbers)
}

/// The public values with which a window is compared.
pub(crate) fn needle_public_values(needle: &[u8]) -> impl Iterator<Item = u64> {
    let needle = needle.iter().map(|byte| u64::from(*byte));
    needle.chain(std::iter::repeat(ANYTHING)).take(NEEDLE_BYTES)
}

/// Binds a window to the public values: each value is equal, or is not compared.
pub(crate) fn bind_window<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    window: &[AllocatedNum<Scalar>],
    wanted: &[Variable],
) {
    for (place, wanted) in window.iter().zip(wanted) {
        cs.enforce(
            empty_name,
            |form| form + place.get_variable() - *wanted,
            |form| form + *wanted - (Scalar::from(ANYTHING), CS::one()),
            |form| form,
        );
    }
}

/// The variables of a window, with their values.
#[derive(Default)]
struct WindowValues {
    numbers: Vec<AllocatedNum<Scalar>>,
    values: Vec<Option<u64>>,
}

impl WindowValues {
    /// Adds the bytes of a part, and marks those outside its length.
    fn push_bytes<CS: ConstraintSystem<Scalar>>(
        &mut self,
        cs: &mut CS,
        part: &HiddenBytes<'_>,
    ) -> Result<(), SynthesisError> {
        let one = CS::one();
        let HiddenBytes { hashed, length } = part;
        for (place, (byte, inside)) in hashed.bytes.iter().zip(&hashed.inside).enumerate() {
            let outside = length.map(|length| place >= length);
            let value = byte
                .value
                .zip(outside)
                .map(|(byte, outside)| u64::from(byte) + if outside { OUTSIDE } else { 0 });
            let number = allocate_number(cs, value)?;
            cs.enforce(
                empty_name,
                |form| {
                    let form = byte.add_to(form, one, 1) + (Scalar::from(OUTSIDE), one);
                    inside.add_to(form, one, -Scalar::from(OUTSIDE)) - number.get_variable()
                },
                |form| form + one,
                |form| form,
            );
            self.numbers.push(number);
            self.values.push(value);
        }
        Ok(())
    }

    /// Adds one value that is outside the bytes.
    fn push_outside<CS: ConstraintSystem<Scalar>>(
        &mut self,
        cs: &mut CS,
    ) -> Result<(), SynthesisError> {
        let number = allocate_number(cs, Some(OUTSIDE))?;
        let one = CS::one();
        cs.enforce(
            empty_name,
            |form| form + number.get_variable() - (Scalar::from(OUTSIDE), one),
            |form| form + one,
            |form| form,
        );
        self.numbers.push(number);
        self.values.push(Some(OUTSIDE));
        Ok(())
    }

    /// Shifts the values down by `by` if `moves`, without those that no later stage reaches.
    fn shift_down<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
        moves: Bit,
        moves_value: Option<bool>,
        by: usize,
    ) -> Result<Self, SynthesisError> {
        let one = CS::one();
        let kept = self.numbers.len().min(NEEDLE_BYTES + by - 1);
        let mut moved = Self::default();
        for (place, stays) in self.numbers.iter().enumerate().take(kept) {
            let from = self.numbers.get(place + by);
            let from_value = self.values.get(place + by).copied().unwrap_or(Some(OUTSIDE));
            let value = match moves_value {
                Some(true) => from_value,
                Some(false) => self.values[place],
                None => None,
            };
            let number = allocate_number(cs, value)?;
            cs.enforce(
                empty_name,
                |form| moves.add_to(form, one, Scalar::ONE),
                |form| match from {
                    Some(from) => form + from.get_variable() - stays.get_variable(),
                    None => form + (Scalar::from(OUTSIDE), one) - stays.get_variable(),
                },
                |form| form + number.get_variable() - stays.get_variable(),
            );
            moved.numbers.push(number);
            moved.values.push(value);
        }
        Ok(moved)
    }
}
