//! What a machine does faster than its ordinary instructions would.

/// SHA-256 (FIPS 180-4).
pub trait Sha256 {
    /// Computes the digest of `bytes`.
    fn sha256(bytes: &[u8]) -> [u8; 32];
}

/// A number of 256 bits, or a signed one in two's complement: words, the lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct U256(pub [u32; 8]);

impl U256 {
    /// Zero.
    pub const ZERO: Self = Self([0; 8]);
}

/// Arithmetic modulo 2^256, in place as the instructions have it.
pub trait Int256 {
    /// `product` becomes `a * b`.
    fn mul(product: &mut U256, a: &U256, b: &U256);

    /// `sum` becomes `sum + a`.
    fn add(sum: &mut U256, a: &U256);

    /// `double` becomes `2 * a`.
    fn double(double: &mut U256, a: &U256);

    /// `difference` becomes `difference - a`.
    fn sub(difference: &mut U256, a: &U256);

    /// `value`, read as a signed number, is divided by 2^124 and rounded down.
    fn shift_right_124(value: &mut U256);
}
