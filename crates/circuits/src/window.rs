//! Search in hidden bytes: 64 bytes from a hidden place on, compared one by one.

use bellpepper_core::{ConstraintSystem, SynthesisError, Variable, num::AllocatedNum};
use ff::Field;

use crate::{
    curve::Scalar,
    padding::Hashed,
    word::{Bit, empty_name, number},
};

/// The greatest length of the bytes that can be searched for.
pub(crate) const NEEDLE_BYTES: usize = 64;

/// The public value of a place that is not compared, above every byte. A place outside the hidden
/// bytes counts as its byte plus [`OUTSIDE`], so that it equals no byte.
const ANYTHING: u64 = 512;
const OUTSIDE: u64 = 256;

/// Hidden bytes, with a bit for each that tells whether it is within their length.
pub(crate) struct HiddenPart<'a> {
    pub(crate) hashed: &'a Hashed,
    pub(crate) length: Option<usize>,
}

/// The bytes of all parts from a hidden place `at` on, which is one of the first `starts`, followed
/// by values that equal no byte.
pub(crate) fn window<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    parts: &[HiddenPart<'_>],
    starts: usize,
    at: Option<u32>,
) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
    let mut places = Places::default();
    for part in parts {
        places.allocate(cs, part)?;
    }
    while places.numbers.len() < NEEDLE_BYTES {
        places.hold_outside(cs)?;
    }
    for stage in (0..starts.next_power_of_two().ilog2()).rev() {
        let moves_value = at.map(|at| at >> stage & 1 == 1);
        let moves = Bit::allocate(cs, moves_value)?;
        places = places.shift_down(cs, moves, moves_value, 1 << stage)?;
    }
    Ok(places.numbers)
}

/// The public values that a window is compared with.
pub(crate) fn public_values(needle: &[u8]) -> impl Iterator<Item = u64> {
    let needle = needle.iter().map(|byte| u64::from(*byte));
    needle.chain(std::iter::repeat(ANYTHING)).take(NEEDLE_BYTES)
}

/// Binds a window to the public values: each place equals its value, or is not compared.
pub(crate) fn bind<CS: ConstraintSystem<Scalar>>(
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

/// Variables with their values.
#[derive(Default)]
struct Places {
    numbers: Vec<AllocatedNum<Scalar>>,
    values: Vec<Option<u64>>,
}

impl Places {
    /// Allocates the bytes of a part, with those outside its length marked.
    fn allocate<CS: ConstraintSystem<Scalar>>(
        &mut self,
        cs: &mut CS,
        part: &HiddenPart<'_>,
    ) -> Result<(), SynthesisError> {
        let one = CS::one();
        let HiddenPart { hashed, length } = part;
        for (place, (byte, inside)) in hashed.bytes.iter().zip(&hashed.inside).enumerate() {
            let outside = length.map(|length| place >= length);
            let value = byte
                .value
                .zip(outside)
                .map(|(byte, outside)| u64::from(byte) + if outside { OUTSIDE } else { 0 });
            let number = number(cs, value)?;
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

    /// Allocates one more place, which is outside the bytes for every prover.
    fn hold_outside<CS: ConstraintSystem<Scalar>>(
        &mut self,
        cs: &mut CS,
    ) -> Result<(), SynthesisError> {
        let number = number(cs, Some(OUTSIDE))?;
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

    /// The places shifted down by `by` if `moves`, without those that no later stage reaches.
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
            let number = number(cs, value)?;
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
