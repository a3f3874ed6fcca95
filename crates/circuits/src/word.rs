//! Bits, words of 32 bits and sums of words, with few constraints: one determines each variable.
//!
//! A constraint is a product of two linear forms that equals a third, over a field of 256 bits.
//! If three bits add up to x, one constraint each determines their parity s and their majority m:
//! `x·(2 + 2s - x) = 3s` and `x·(4m - x + 1) = 6m`. Both are linear in the new bit, and its
//! coefficient (3 - 2x; 6 - 4x) is never zero, so that the new bit is unique and needs no further
//! constraint to be a bit.

use bellpepper_core::{
    ConstraintSystem, LinearCombination, SynthesisError, Variable, num::AllocatedNum,
};
use ff::Field;

use crate::curve::Scalar;

pub(crate) type LinearForm = LinearCombination<Scalar>;

/// Returns an empty name: spartan2 ignores names.
pub(crate) fn empty_name() -> &'static str {
    ""
}

/// A bit that is a constant of the circuit, or a variable of the witness.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bit {
    Constant(bool),
    Variable(Variable),
}

impl Bit {
    /// Allocates a bit of the witness, constrained to be 0 or 1.
    pub(crate) fn allocate<CS: ConstraintSystem<Scalar>>(
        cs: &mut CS,
        value: Option<bool>,
    ) -> Result<Self, SynthesisError> {
        let variable = allocate_variable(cs, value.map(u64::from))?;
        let one = CS::one();
        cs.enforce(empty_name, |form| form + variable, |form| form + one - variable, |form| form);
        Ok(Self::Variable(variable))
    }

    pub(crate) fn add_to(self, form: LinearForm, one: Variable, times: Scalar) -> LinearForm {
        match self {
            Self::Constant(false) => form,
            Self::Constant(true) => form + (times, one),
            Self::Variable(variable) => form + (times, variable),
        }
    }
}

/// Allocates a variable of the witness, which the caller must constrain.
pub(crate) fn allocate_variable<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    value: Option<u64>,
) -> Result<Variable, SynthesisError> {
    cs.alloc(empty_name, || value.map(Scalar::from).ok_or(SynthesisError::AssignmentMissing))
}

/// Allocates a variable that the hidden part can pass on to the binding to public values.
pub(crate) fn allocate_number<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    value: Option<u64>,
) -> Result<AllocatedNum<Scalar>, SynthesisError> {
    AllocatedNum::alloc(cs.namespace(empty_name), || {
        value.map(Scalar::from).ok_or(SynthesisError::AssignmentMissing)
    })
}

/// A byte, with the highest bit first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Byte {
    pub(crate) bits: [Bit; 8],
    pub(crate) value: Option<u8>,
}

impl Byte {
    pub(crate) fn constant(value: u8) -> Self {
        let bits = std::array::from_fn(|place| Bit::Constant(value >> (7 - place) & 1 == 1));
        Self { bits, value: Some(value) }
    }

    pub(crate) fn allocate<CS: ConstraintSystem<Scalar>>(
        cs: &mut CS,
        value: Option<u8>,
    ) -> Result<Self, SynthesisError> {
        let mut bits = [Bit::Constant(false); 8];
        for (place, bit) in bits.iter_mut().enumerate() {
            *bit = Bit::allocate(cs, value.map(|value| value >> (7 - place) & 1 == 1))?;
        }
        Ok(Self { bits, value })
    }

    pub(crate) fn add_to(&self, mut form: LinearForm, one: Variable, times: u64) -> LinearForm {
        for (place, bit) in self.bits.iter().enumerate() {
            form = bit.add_to(form, one, Scalar::from(times << (7 - place)));
        }
        form
    }

    pub(crate) fn subtract_from(&self, mut form: LinearForm, one: Variable) -> LinearForm {
        for (place, bit) in self.bits.iter().enumerate() {
            form = bit.add_to(form, one, -Scalar::from(1 << (7 - place)));
        }
        form
    }
}

/// A word of 32 bits, with the lowest bit first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    bits: [Bit; 32],
    /// The value of the word; `None` if the circuit is built without a witness.
    pub(crate) value: Option<u32>,
}

impl Word {
    pub(crate) fn constant(value: u32) -> Self {
        let bits = std::array::from_fn(|place| Bit::Constant(value >> place & 1 == 1));
        Self { bits, value: Some(value) }
    }

    pub(crate) fn allocate<CS: ConstraintSystem<Scalar>>(
        cs: &mut CS,
        value: Option<u32>,
    ) -> Result<Self, SynthesisError> {
        let mut bits = [Bit::Constant(false); 32];
        for (place, bit) in bits.iter_mut().enumerate() {
            *bit = Bit::allocate(cs, bit_at(value, place))?;
        }
        Ok(Self { bits, value })
    }

    /// Allocates a word below 2^count.
    pub(crate) fn allocate_low_bits<CS: ConstraintSystem<Scalar>>(
        cs: &mut CS,
        value: Option<u32>,
        count: usize,
    ) -> Result<Self, SynthesisError> {
        let mut bits = [Bit::Constant(false); 32];
        for (place, bit) in bits.iter_mut().enumerate().take(count) {
            *bit = Bit::allocate(cs, bit_at(value, place))?;
        }
        Ok(Self { bits, value })
    }

    /// The bit of weight 2^place.
    pub(crate) fn bit(&self, place: usize) -> Bit {
        self.bits[place]
    }

    /// Makes a word from four bytes, big-endian, as in SHA-256's blocks.
    pub(crate) fn from_bytes(bytes: &[Byte; 4]) -> Self {
        let bits = std::array::from_fn(|place| bytes[3 - place / 8].bits[7 - place % 8]);
        let value = |byte: usize| bytes[byte].value;
        let all = (|| Some([value(0)?, value(1)?, value(2)?, value(3)?]))();
        Self { bits, value: all.map(u32::from_be_bytes) }
    }

    /// The four bytes, with the highest first.
    pub(crate) fn to_bytes(self) -> [Byte; 4] {
        std::array::from_fn(|byte| Byte {
            bits: std::array::from_fn(|place| self.bits[31 - 8 * byte - place]),
            value: self.value.map(|value| value.to_be_bytes()[byte]),
        })
    }

    pub(crate) fn rotate_right(&self, right: usize) -> Self {
        let bits = std::array::from_fn(|place| self.bits[(place + right) % 32]);
        Self { bits, value: self.value.map(|value| value.rotate_right(right as u32)) }
    }

    pub(crate) fn shift_right(&self, right: usize) -> Self {
        let bit = |place: usize| self.bits.get(place + right).copied();
        let bits = std::array::from_fn(|place| bit(place).unwrap_or(Bit::Constant(false)));
        Self { bits, value: self.value.map(|value| value >> right) }
    }

    pub(crate) fn add_to(&self, mut form: LinearForm, one: Variable, times: Scalar) -> LinearForm {
        let mut weight = times;
        for bit in self.bits {
            form = bit.add_to(form, one, weight);
            weight = weight.double();
        }
        form
    }

    fn is_constant(&self) -> bool {
        self.bits.iter().all(|bit| matches!(bit, Bit::Constant(_)))
    }
}

/// The bitwise parity of three words: one constraint a bit.
pub(crate) fn parity<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    words: [&Word; 3],
) -> Result<Word, SynthesisError> {
    let numbers = ThreeBitConstraint { new_in_second: 2, constant: 2, new_in_third: 3 };
    combine_three(cs, words, |[a, b, c]| a ^ b ^ c, numbers)
}

/// The bitwise majority of three words: one constraint a bit.
pub(crate) fn majority<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    words: [&Word; 3],
) -> Result<Word, SynthesisError> {
    let numbers = ThreeBitConstraint { new_in_second: 4, constant: 1, new_in_third: 6 };
    combine_three(cs, words, |[a, b, c]| (a & b) ^ (a & c) ^ (b & c), numbers)
}

/// The bitwise choice: `then` if the chooser's bit is one, else `other`. One constraint a bit.
pub(crate) fn choice<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    [chooser, then, other]: [&Word; 3],
) -> Result<Word, SynthesisError> {
    let one = CS::one();
    let truth = |[a, b, c]: [u32; 3]| (a & b) ^ (!a & c);
    map_bits(cs, [chooser, then, other], truth, |cs, [chooser, then, other], new| {
        cs.enforce(
            empty_name,
            |form| chooser.add_to(form, one, Scalar::ONE),
            |form| other.add_to(then.add_to(form, one, Scalar::ONE), one, -Scalar::ONE),
            |form| other.add_to(form + new, one, -Scalar::ONE),
        );
    })
}

/// The constants of `x·(constant + new_in_second·new - x) = new_in_third·new`.
struct ThreeBitConstraint {
    new_in_second: u64,
    constant: u64,
    new_in_third: u64,
}

fn combine_three<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    words: [&Word; 3],
    truth: fn([u32; 3]) -> u32,
    numbers: ThreeBitConstraint,
) -> Result<Word, SynthesisError> {
    let one = CS::one();
    let number = |number: u64| Scalar::from(number);
    map_bits(cs, words, truth, |cs, bits, new| {
        let sum = |form: LinearForm, times: Scalar| {
            bits.iter().fold(form, |form, bit| bit.add_to(form, one, times))
        };
        let second = |form: LinearForm| {
            let form = form + (number(numbers.new_in_second), new);
            sum(form + (number(numbers.constant), one), -Scalar::ONE)
        };
        let third = |form: LinearForm| form + (number(numbers.new_in_third), new);
        cs.enforce(empty_name, |form| sum(form, Scalar::ONE), second, third);
    })
}

/// Makes a word by a truth table, bit by bit. Each new bit is constrained by `constrain`, unless it
/// is the result of constants.
fn map_bits<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    words: [&Word; 3],
    truth: fn([u32; 3]) -> u32,
    constrain: impl Fn(&mut CS, [Bit; 3], Variable),
) -> Result<Word, SynthesisError> {
    let value = all_values(words).map(truth);
    let mut bits = [Bit::Constant(false); 32];
    for (place, bit) in bits.iter_mut().enumerate() {
        let from = words.map(|word| word.bits[place]);
        *bit = if let [Bit::Constant(a), Bit::Constant(b), Bit::Constant(c)] = from {
            Bit::Constant(truth([a, b, c].map(u32::from)) & 1 == 1)
        } else {
            let new = allocate_variable(cs, bit_at(value, place).map(u64::from))?;
            constrain(cs, from, new);
            Bit::Variable(new)
        };
    }
    Ok(Word { bits, value })
}

/// A sum of words that is not yet reduced to 32 bits.
#[derive(Clone, Debug)]
pub(crate) struct WordSum {
    plus: Vec<Word>,
    minus: Vec<Word>,
    numbers: Vec<Variable>,
    constant: u64,
    /// The value of the sum; `None` if the circuit is built without a witness.
    pub(crate) value: Option<u64>,
    /// The largest value that it can have.
    max: u64,
}

impl WordSum {
    pub(crate) fn constant(constant: u64) -> Self {
        let (value, max) = (Some(constant), constant);
        Self { plus: vec![], minus: vec![], numbers: vec![], constant, value, max }
    }

    pub(crate) fn from_word(word: &Word) -> Self {
        Self::constant(0).plus(word)
    }

    /// Adds a word.
    pub(crate) fn plus(mut self, word: &Word) -> Self {
        self.value = self.value.zip(word.value).map(|(sum, word)| sum + u64::from(word));
        if let Some(known) = word.value.filter(|_| word.is_constant()) {
            self.constant += u64::from(known);
            self.max += u64::from(known);
        } else {
            self.plus.push(*word);
            self.max += u64::from(u32::MAX);
        }
        self
    }

    /// Adds 2^32 minus a word, which subtracts the word modulo 2^32.
    pub(crate) fn minus(mut self, word: &Word) -> Self {
        const WRAP: u64 = 1 << 32;
        self.value = self.value.zip(word.value).map(|(sum, word)| sum + WRAP - u64::from(word));
        self.minus.push(*word);
        self.constant += WRAP;
        self.max += WRAP;
        self
    }

    /// Adds another sum.
    pub(crate) fn plus_sum(mut self, other: &WordSum) -> Self {
        self.plus.extend_from_slice(&other.plus);
        self.minus.extend_from_slice(&other.minus);
        self.numbers.extend_from_slice(&other.numbers);
        self.constant += other.constant;
        self.max += other.max;
        self.value = self.value.zip(other.value).map(|(sum, other)| sum + other);
        self
    }

    /// Adds a variable that can be at most `max`.
    pub(crate) fn plus_variable(
        mut self,
        variable: Variable,
        value: Option<u64>,
        max: u64,
    ) -> Self {
        self.numbers.push(variable);
        self.max += max;
        self.value = self.value.zip(value).map(|(sum, value)| sum + value);
        self
    }

    /// The largest value that the sum can have.
    pub(crate) fn max_value(&self) -> u64 {
        self.max
    }

    pub(crate) fn add_to(&self, mut form: LinearForm, one: Variable) -> LinearForm {
        form = form + (Scalar::from(self.constant), one);
        for word in &self.plus {
            form = word.add_to(form, one, Scalar::ONE);
        }
        for word in &self.minus {
            form = word.add_to(form, one, -Scalar::ONE);
        }
        self.numbers.iter().fold(form, |form, number| form + *number)
    }

    /// Reduces the sum modulo 2^32 to a word: its bits, those of the carry, and one constraint.
    pub(crate) fn reduce<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Word, SynthesisError> {
        if self.plus.is_empty() && self.minus.is_empty() && self.numbers.is_empty() {
            return Ok(Word::constant(self.constant as u32));
        }
        let word = Word::allocate(cs, self.value.map(|value| value as u32))?;
        let carry = self.allocate_carry(cs)?;
        let one = CS::one();
        cs.enforce(
            empty_name,
            |form| word.add_to(carry.subtract_from(self.add_to(form, one)), one, -Scalar::ONE),
            |form| form + one,
            |form| form,
        );
        Ok(word)
    }

    /// Allocates the part of the sum above 32 bits, with as many bits as its largest value needs.
    pub(crate) fn allocate_carry<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Carry, SynthesisError> {
        let count = 64 - (self.max >> 32).leading_zeros();
        let value = self.value.map(|value| value >> 32);
        let bit =
            |cs: &mut CS, place| Bit::allocate(cs, value.map(|value| value >> place & 1 == 1));
        Ok(Carry((0..count).map(|place| bit(cs, place)).collect::<Result<_, _>>()?))
    }
}

/// The bits of a sum above the 32 of a word.
pub(crate) struct Carry(Vec<Bit>);

impl Carry {
    pub(crate) fn subtract_from(&self, mut form: LinearForm) -> LinearForm {
        for (place, bit) in self.0.iter().enumerate() {
            if let Bit::Variable(variable) = bit {
                form = form - (Scalar::from(1 << (32 + place)), *variable);
            }
        }
        form
    }
}

fn bit_at(value: Option<u32>, place: usize) -> Option<bool> {
    value.map(|value| value >> place & 1 == 1)
}

fn all_values(words: [&Word; 3]) -> Option<[u32; 3]> {
    Some([words[0].value?, words[1].value?, words[2].value?])
}
