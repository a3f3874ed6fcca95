//! What the VM computes, by ordinary arithmetic; it refuses what the VM could not prove.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::LazyLock;

use confide_guest_dcap::{
    GuestCrypto, Machine,
    p256::{A_COEFFICIENT, Arithmetic, FIELD, Number, ORDER, Point},
};
use num_bigint::BigUint;
use sha2::block_api::compress256;

pub(crate) const CRYPTO: GuestCrypto<Host> = GuestCrypto::new();

/// The slow reference of the VM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host;

static P: LazyLock<BigUint> = LazyLock::new(|| read(&FIELD));
static N: LazyLock<BigUint> = LazyLock::new(|| read(&ORDER));

impl Arithmetic for Host {
    fn add_field(a: &Number, b: &Number) -> Number {
        write(&((read(a) + read(b)) % &*P))
    }

    fn multiply_field(a: &Number, b: &Number) -> Number {
        write(&(read(a) * read(b) % &*P))
    }

    fn same_field(a: &Number, b: &Number) -> bool {
        assert!(read(a) < *P && read(b) < *P, "the VM goes on only where both are reduced");
        a == b
    }

    fn divide_order(a: &Number, b: &Number) -> Number {
        let b = read(b) % &*N;
        assert_ne!(b, BigUint::ZERO, "nothing is divided by zero");
        write(&(read(a) * inverse(&b, &N) % &*N))
    }

    fn add_to(a: &mut Point, b: &Point) {
        let before = *a;
        Self::add_into(a, &before, b);
    }

    fn add_into(sum: &mut Point, a: &Point, b: &Point) {
        assert_ne!(a.x, b.x, "with equal x any sum could be proved");
        let slope = quotient(&minus(&b.y, &a.y), &minus(&b.x, &a.x));
        *sum = third(&slope, a, b);
    }

    fn double(a: &mut Point) {
        let x = read(&a.x);
        let slope = quotient(&(&x * &x * 3_u32 + read(&A_COEFFICIENT)), &(read(&a.y) * 2_u32));
        *a = third(&slope, a, a);
    }
}

impl Machine for Host {
    fn sha256_blocks(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        compress256(state, blocks);
    }
}

/// The point that the line with this slope gives.
fn third(slope: &BigUint, a: &Point, b: &Point) -> Point {
    let p = &*P;
    let x = (slope * slope + p + p - read(&a.x) - read(&b.x)) % p;
    let y = (slope * (read(&a.x) + p - &x) + p - read(&a.y)) % p;
    Point { x: write(&x), y: write(&y) }
}

fn minus(a: &Number, b: &Number) -> BigUint {
    (read(a) + &*P - read(b)) % &*P
}

fn quotient(a: &BigUint, b: &BigUint) -> BigUint {
    a * inverse(&(b % &*P), &P) % &*P
}

fn inverse(a: &BigUint, prime: &BigUint) -> BigUint {
    a.modinv(prime).expect("a unit")
}

fn read(number: &Number) -> BigUint {
    BigUint::from_bytes_le(&number.0)
}

fn write(value: &BigUint) -> Number {
    let mut bytes = value.to_bytes_le();
    bytes.resize(32, 0);
    Number(bytes.try_into().expect("at most 256 bits"))
}
