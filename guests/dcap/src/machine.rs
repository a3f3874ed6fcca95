//! P-256 and SHA-256 by OpenVM's instructions: its modular, elliptic curve and sha2 extensions.
//!
//! The encodings are those of `openvm-algebra-guest`, `openvm-ecc-guest` and `openvm-sha2-guest`
//! 2.0.2; which modulus and which curve stands where says `openvm.toml`. Written out because those
//! crates bring a stack of curve traits that nothing here needs.
#![allow(unsafe_code, reason = "instructions of the VM are reached through assembly only")]

use core::{arch::asm, mem::MaybeUninit};

use crate::{
    crypto::Machine,
    p256::{A_COEFFICIENT, Arithmetic, FIELD, Number, ORDER, Point},
};

/// OpenVM's instructions as a [`Machine`].
#[derive(Clone, Copy, Debug)]
pub struct OpenVm;

/// Custom-1 of the RISC-V specification: modular and elliptic curve instructions.
macro_rules! field {
    ($funct3:literal, $funct7:literal, $to:expr, $one:expr, $other:expr) => {
        // SAFETY: each address is that of a value as long as the instruction reads or writes,
        // aligned to four bytes (`Number` and `Point` are); it touches nothing else.
        unsafe {
            asm!(
                concat!(".insn r 0x2b, ", $funct3, ", ", $funct7, ", {to}, {one}, {other}"),
                to = in(reg) $to,
                one = in(reg) $one,
                other = in(reg) $other,
                options(nostack),
            )
        }
    };
}

/// A set-up instruction, which the chip is told by the number of its third register.
macro_rules! set_up {
    ($funct3:literal, $funct7:literal, $to:expr, $one:expr, $chip:literal) => {
        // SAFETY: as for `field!`; `to` is as long as what the chip writes.
        unsafe {
            asm!(
                concat!(".insn r 0x2b, ", $funct3, ", ", $funct7, ", {to}, {one}, ", $chip),
                to = in(reg) $to,
                one = in(reg) $one,
                options(nostack),
            )
        }
    };
}

impl OpenVm {
    /// Ties each chip to its modulus and curve. Once, before anything else: without it no proof of
    /// the run exists.
    pub fn set_up() {
        let mut number = MaybeUninit::<Number>::uninit();
        let to = number.as_mut_ptr();
        set_up!("0", "5", to, &raw const FIELD_IN_MEMORY, "x0");
        set_up!("0", "5", to, &raw const FIELD_IN_MEMORY, "x1");
        set_up!("0", "13", to, &raw const ORDER_IN_MEMORY, "x0");
        set_up!("0", "13", to, &raw const ORDER_IN_MEMORY, "x1");
        Self::set_up_equality();
        let mut point = MaybeUninit::<Point>::uninit();
        let to = point.as_mut_ptr();
        field!("1", "2", to, &raw const CURVE, &raw const ONES);
        set_up!("1", "2", to, &raw const CURVE, "x0");
    }

    /// The chips that compare write a register, which must not be x0.
    fn set_up_equality() {
        for (at, modulus) in [(0, &raw const FIELD_IN_MEMORY), (1, &raw const ORDER_IN_MEMORY)] {
            // SAFETY: as for `field!`; what is written is a register.
            unsafe {
                match at {
                    0 => asm!(
                        ".insn r 0x2b, 0, 5, {to}, {one}, x2",
                        to = out(reg) _, one = in(reg) modulus, options(nostack),
                    ),
                    _ => asm!(
                        ".insn r 0x2b, 0, 13, {to}, {one}, x2",
                        to = out(reg) _, one = in(reg) modulus, options(nostack),
                    ),
                }
            }
        }
    }
}

static FIELD_IN_MEMORY: Number = FIELD;
static ORDER_IN_MEMORY: Number = ORDER;
/// What the curve's chips are set up with: p, a.
static CURVE: Point = Point { x: FIELD, y: A_COEFFICIENT };
/// Any point whose x is not p's residue.
static ONES: Point = Point { x: ONE, y: ONE };
const ONE: Number = {
    let mut bytes = [0; 32];
    bytes[0] = 1;
    Number(bytes)
};

impl Arithmetic for OpenVm {
    fn add_field(a: &Number, b: &Number) -> Number {
        let mut sum = MaybeUninit::uninit();
        field!("0", "0", sum.as_mut_ptr(), a, b);
        // SAFETY: the instruction has written all of it.
        unsafe { sum.assume_init() }
    }

    fn multiply_field(a: &Number, b: &Number) -> Number {
        let mut product = MaybeUninit::uninit();
        field!("0", "2", product.as_mut_ptr(), a, b);
        // SAFETY: the instruction has written all of it.
        unsafe { product.assume_init() }
    }

    fn same_field(a: &Number, b: &Number) -> bool {
        let same: u32;
        // SAFETY: as for `field!`; what is written is a register.
        unsafe {
            asm!(
                ".insn r 0x2b, 0, 4, {same}, {a}, {b}",
                same = out(reg) same, a = in(reg) a, b = in(reg) b, options(nostack, readonly),
            );
        }
        same != 0
    }

    fn divide_order(a: &Number, b: &Number) -> Number {
        let mut quotient = MaybeUninit::uninit();
        field!("0", "11", quotient.as_mut_ptr(), a, b);
        // SAFETY: the instruction has written all of it.
        unsafe { quotient.assume_init() }
    }

    fn add_to(a: &mut Point, b: &Point) {
        let a: *mut Point = a;
        field!("1", "0", a, a, b);
    }

    fn add_into(sum: &mut Point, a: &Point, b: &Point) {
        field!("1", "0", sum, a, b);
    }

    fn double(a: &mut Point) {
        let a: *mut Point = a;
        // SAFETY: as for `field!`; source and destination may be the same.
        unsafe { asm!(".insn r 0x2b, 1, 1, {a}, {a}, x0", a = in(reg) a, options(nostack)) }
    }
}

impl Machine for OpenVm {
    fn sha256_blocks(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        let state: *mut u32 = state.as_mut_ptr();
        for block in blocks {
            let mut block = block.as_ptr();
            let mut aligned = Aligned([0; 64]);
            if !block.addr().is_multiple_of(4) {
                // SAFETY: 64 bytes are there, and `aligned` is 64 bytes elsewhere.
                unsafe { block.copy_to_nonoverlapping(aligned.0.as_mut_ptr(), 64) };
                block = aligned.0.as_ptr();
            }
            // SAFETY: 32 bytes of state are read and written, 64 of the block read; both are
            // aligned to four bytes.
            unsafe {
                asm!(
                    ".insn r 0x0b, 4, 2, {state}, {state}, {block}",
                    state = in(reg) state, block = in(reg) block, options(nostack),
                );
            }
        }
    }
}

#[repr(align(4))]
struct Aligned([u8; 64]);

/// Comparison of memory, four bytes at a time where both are aligned alike; the compiler's own takes
/// one byte at a time, and certificates are compared whole.
///
/// # Safety
///
/// `length` bytes can be read at `a` and at `b`.
#[unsafe(no_mangle)]
#[inline(never)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, length: usize) -> i32 {
    let mut at = 0;
    // SAFETY: `at` stays below `length`; words are read where both are aligned and four bytes are
    // left.
    unsafe {
        if (a.addr() ^ b.addr()) & 3 == 0 {
            while at < length && !a.addr().wrapping_add(at).is_multiple_of(4) {
                if *a.add(at) != *b.add(at) {
                    break;
                }
                at += 1;
            }
            if a.addr().wrapping_add(at).is_multiple_of(4) {
                while length - at >= 4 && *a.add(at).cast::<u32>() == *b.add(at).cast::<u32>() {
                    at += 4;
                }
            }
        }
        while at < length {
            let (one, other) = (*a.add(at), *b.add(at));
            if one != other {
                return i32::from(one) - i32::from(other);
            }
            at += 1;
        }
    }
    0
}
