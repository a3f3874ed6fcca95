//! ECDSA over P-256 by the few operations that the VM has instructions for.
//!
//! Everything here is public: signatures, keys and digests come from evidence. Nothing is constant
//! in time.

use core::marker::PhantomData;

/// 256 bits, the lowest byte first; aligned for the VM's loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Number(pub [u8; 32]);

/// A point of the curve that is not the neutral element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Point {
    /// The x coordinate, modulo the field's prime.
    pub x: Number,
    /// The y coordinate, modulo the field's prime.
    pub y: Number,
}

/// The operations that the VM computes in one instruction each; elsewhere, ordinary arithmetic.
///
/// "Modulo the field" and "modulo the order" are P-256's prime p and group order n. Results need
/// not be below the modulus; [`Self::same_field`] refuses to go on where an argument is not.
pub trait Arithmetic {
    /// The sum modulo the field.
    fn add_field(a: &Number, b: &Number) -> Number;
    /// The product modulo the field.
    fn multiply_field(a: &Number, b: &Number) -> Number;
    /// Whether two numbers are the same modulo the field.
    fn same_field(a: &Number, b: &Number) -> bool;
    /// The quotient modulo the order; `b` is not a multiple of it.
    fn divide_order(a: &Number, b: &Number) -> Number;
    /// Adds `b` to `a`; their x differ. With equal x any sum at all could be proved.
    fn add_to(a: &mut Point, b: &Point);
    /// Writes the sum of `a` and `b`, whose x differ.
    fn add_into(sum: &mut Point, a: &Point, b: &Point);
    /// Doubles `a`; no point of P-256 has y = 0.
    fn double(a: &mut Point);
}

/// Whether `signature` (r, then s, 32 bytes each, big-endian) is one over `digest` by `key` (0x04,
/// x, y).
pub fn verify<A: Arithmetic>(key: &[u8; 65], digest: &[u8; 32], signature: &[u8; 64]) -> bool {
    let [_, coordinates @ ..] = key;
    let (x, y) = split_numbers(coordinates);
    let (r, s) = split_numbers(signature);
    let is_scalar = |it: &Number| *it != ZERO && is_below(it, &ORDER);
    if key[0] != 4 || !is_scalar(&r) || !is_scalar(&s) {
        return false;
    }
    let Some(key) = on_curve::<A>(x, y) else { return false };
    // The digest is below 2^256 < 2n: the VM takes it as it is.
    let digest = from_big_endian(digest);
    let sum = Sum::<A>::combine(&A::divide_order(&digest, &s), &A::divide_order(&r, &s), &key);
    let Some(sum) = sum else { return false };
    if A::same_field(&sum.x, &r) {
        return true;
    }
    // p is larger than n, so that an x from n to p-1 stands for x - n.
    match checked_add(&r, &ORDER) {
        Some(other) if is_below(&other, &FIELD) => A::same_field(&sum.x, &other),
        _ => false,
    }
}

/// The point, where it has coordinates below p and satisfies y² = x³ - 3x + b. It is then in the
/// group of order n, for P-256 has no other points.
fn on_curve<A: Arithmetic>(x: Number, y: Number) -> Option<Point> {
    if !is_below(&x, &FIELD) || !is_below(&y, &FIELD) {
        return None;
    }
    let square = A::multiply_field(&x, &x);
    let cubic = A::add_field(&square, &A_COEFFICIENT);
    let right = A::add_field(&A::multiply_field(&cubic, &x), &B_COEFFICIENT);
    A::same_field(&A::multiply_field(&y, &y), &right).then_some(Point { x, y })
}

/// A sum of points while it is built; `None` is the neutral element.
struct Sum<A>(Option<Point>, PhantomData<A>);

impl<A: Arithmetic> Sum<A> {
    /// `a` times the generator and `b` times `key`, four bits of both at a time (Straus).
    fn combine(a: &Number, b: &Number, key: &Point) -> Option<Point> {
        let (generator, key) = (multiples::<A>(&GENERATOR), multiples::<A>(key));
        let mut sum = Self(None, PhantomData);
        for (a, b) in a.0.iter().zip(&b.0).rev() {
            for (a, b) in [(a >> 4, b >> 4), (a & 15, b & 15)] {
                sum.sixteenfold();
                sum.add(a, &generator);
                sum.add(b, &key);
            }
        }
        sum.0
    }

    fn sixteenfold(&mut self) {
        if let Some(sum) = &mut self.0 {
            for _ in 0..4 {
                A::double(sum);
            }
        }
    }

    fn add(&mut self, digit: u8, table: &[Point; 15]) {
        let Some(more) = usize::from(digit).checked_sub(1).and_then(|at| table.get(at)) else {
            return;
        };
        let Some(sum) = &mut self.0 else {
            self.0 = Some(*more);
            return;
        };
        if !A::same_field(&sum.x, &more.x) {
            A::add_to(sum, more);
        } else if A::same_field(&sum.y, &more.y) {
            A::double(sum);
        } else {
            self.0 = None;
        }
    }
}

/// 1 to 15 times a point. No two of them have the same x: the order is a prime above 30.
fn multiples<A: Arithmetic>(point: &Point) -> [Point; 15] {
    let mut table = [Point { x: ZERO, y: ZERO }; 15];
    table[0] = *point;
    table[1] = *point;
    A::double(&mut table[1]);
    for at in 2..15 {
        let (before, from) = table.split_at_mut(at);
        A::add_into(&mut from[0], &before[at - 1], point);
    }
    table
}

fn split_numbers(bytes: &[u8; 64]) -> (Number, Number) {
    let (first, second) = bytes.split_at(32);
    let read = |half: &[u8]| half.try_into().map_or(ZERO, |half: &[u8; 32]| from_big_endian(half));
    (read(first), read(second))
}

fn from_big_endian(big_endian: &[u8; 32]) -> Number {
    let mut bytes = *big_endian;
    bytes.reverse();
    Number(bytes)
}

fn is_below(a: &Number, b: &Number) -> bool {
    a.0.iter().rev().lt(b.0.iter().rev())
}

/// The sum, or `None` if it does not fit.
fn checked_add(a: &Number, b: &Number) -> Option<Number> {
    let (mut sum, mut carry) = (ZERO, 0);
    for (sum, (a, b)) in sum.0.iter_mut().zip(a.0.iter().zip(&b.0)) {
        carry += u16::from(*a) + u16::from(*b);
        *sum = carry.to_le_bytes()[0];
        carry >>= 8;
    }
    (carry == 0).then_some(sum)
}

const ZERO: Number = Number([0; 32]);
/// The field's prime p.
pub const FIELD: Number = Number([
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff,
]);
/// The group's order n.
pub const ORDER: Number = Number([
    0x51, 0x25, 0x63, 0xfc, 0xc2, 0xca, 0xb9, 0xf3, 0x84, 0x9e, 0x17, 0xa7, 0xad, 0xfa, 0xe6, 0xbc,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff,
]);
/// a = -3 of y² = x³ + ax + b.
pub const A_COEFFICIENT: Number = Number([
    0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff,
]);
/// b of the same curve.
pub const B_COEFFICIENT: Number = Number([
    0x4b, 0x60, 0xd2, 0x27, 0x3e, 0x3c, 0xce, 0x3b, 0xf6, 0xb0, 0x53, 0xcc, 0xb0, 0x06, 0x1d, 0x65,
    0xbc, 0x86, 0x98, 0x76, 0x55, 0xbd, 0xeb, 0xb3, 0xe7, 0x93, 0x3a, 0xaa, 0xd8, 0x35, 0xc6, 0x5a,
]);
/// The generator of the group.
pub const GENERATOR: Point = Point {
    x: Number([
        0x96, 0xc2, 0x98, 0xd8, 0x45, 0x39, 0xa1, 0xf4, 0xa0, 0x33, 0xeb, 0x2d, 0x81, 0x7d, 0x03,
        0x77, 0xf2, 0x40, 0xa4, 0x63, 0xe5, 0xe6, 0xbc, 0xf8, 0x47, 0x42, 0x2c, 0xe1, 0xf2, 0xd1,
        0x17, 0x6b,
    ]),
    y: Number([
        0xf5, 0x51, 0xbf, 0x37, 0x68, 0x40, 0xb6, 0xcb, 0xce, 0x5e, 0x31, 0x6b, 0x57, 0x33, 0xce,
        0x2b, 0x16, 0x9e, 0x0f, 0x7c, 0x4a, 0xeb, 0xe7, 0x8e, 0x9b, 0x7f, 0x1a, 0xfe, 0xe2, 0x42,
        0xe3, 0x4f,
    ]),
};
