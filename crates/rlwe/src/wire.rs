//! The wire format of each type that is sent: version, type, set and plaintext bits, then fields of
//! exact length, with coefficients packed at the width of their prime. A value has one encoding, and
//! other bytes are refused. Secret keys have no encoding.

use std::sync::Arc;

use crate::{
    ciphertext::{Ciphertext, SeededCiphertext, public_polynomial},
    context::Context,
    error::RlweError,
    keys::PublicKey,
    modulus::Modulus,
    poly::NttPoly,
    ring::Ring,
    rng::Seed,
    switch::SmallCiphertext,
};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 4;
const SEED_BYTES: usize = 32;

/// A type that is sent: its name, and its number in the header.
#[derive(Clone, Copy)]
struct WireType {
    name: &'static str,
    number: u8,
}

const SEEDED: WireType = WireType { name: "seeded ciphertext", number: 1 };
const PUBLIC_KEY: WireType = WireType { name: "public key", number: 2 };
const SMALL: WireType = WireType { name: "answer", number: 3 };
const WHOLE: WireType = WireType { name: "ciphertext", number: 4 };

impl SeededCiphertext {
    /// The length of every such ciphertext in bytes: header, seed, index, c0.
    pub fn wire_bytes(context: &Context) -> usize {
        HEADER_BYTES + SEED_BYTES + 4 + packed_ring_bytes(context.ring())
    }

    /// Encodes the ciphertext.
    pub fn to_bytes(&self, context: &Context) -> Vec<u8> {
        let mut out = encode_header(context, SEEDED, SeededCiphertext::wire_bytes(context));
        out.extend(self.seed);
        out.extend(self.index.to_le_bytes());
        pack_poly(&self.c0, &mut out);
        out
    }

    /// Decodes a ciphertext.
    ///
    /// # Errors
    /// If the bytes are not what [`SeededCiphertext::to_bytes`] writes.
    pub fn from_bytes(context: &Context, bytes: &[u8]) -> Result<SeededCiphertext, RlweError> {
        let mut reader = WireReader::new(context, SEEDED, bytes)?;
        reader.expect_length(SeededCiphertext::wire_bytes(context))?;
        let (seed, index) = (reader.read_seed()?, reader.read_u32()?);
        let c0 = reader.read_poly(context.ring())?;
        Ok(SeededCiphertext { c0, seed, index })
    }
}

impl PublicKey {
    /// The length of every public key in bytes: header, seed, b.
    pub fn wire_bytes(context: &Context) -> usize {
        HEADER_BYTES + SEED_BYTES + packed_ring_bytes(context.ring())
    }

    /// Encodes the public key.
    pub fn to_bytes(&self, context: &Context) -> Vec<u8> {
        let mut out = encode_header(context, PUBLIC_KEY, PublicKey::wire_bytes(context));
        out.extend(self.seed);
        pack_poly(&self.b, &mut out);
        out
    }

    /// Decodes a public key.
    ///
    /// # Errors
    /// If the bytes are not what [`PublicKey::to_bytes`] writes.
    pub fn from_bytes(context: &Context, bytes: &[u8]) -> Result<PublicKey, RlweError> {
        let mut reader = WireReader::new(context, PUBLIC_KEY, bytes)?;
        reader.expect_length(PublicKey::wire_bytes(context))?;
        let seed = reader.read_seed()?;
        let b = reader.read_poly(context.ring())?;
        let a = public_polynomial(context.ring(), &seed, 0);
        Ok(PublicKey { seed, a, b })
    }
}

impl Ciphertext {
    /// The length of every such ciphertext in bytes: header, c0, c1.
    pub fn wire_bytes(context: &Context) -> usize {
        HEADER_BYTES + 2 * packed_ring_bytes(context.ring())
    }

    /// Encodes the ciphertext.
    pub fn to_bytes(&self, context: &Context) -> Vec<u8> {
        let mut out = encode_header(context, WHOLE, Ciphertext::wire_bytes(context));
        pack_poly(&self.c0, &mut out);
        pack_poly(&self.c1, &mut out);
        out
    }

    /// Decodes a ciphertext.
    ///
    /// # Errors
    /// If the bytes are not what [`Ciphertext::to_bytes`] writes.
    pub fn from_bytes(context: &Context, bytes: &[u8]) -> Result<Ciphertext, RlweError> {
        let mut reader = WireReader::new(context, WHOLE, bytes)?;
        reader.expect_length(Ciphertext::wire_bytes(context))?;
        let (c0, c1) = (reader.read_poly(context.ring())?, reader.read_poly(context.ring())?);
        Ok(Ciphertext { c0, c1 })
    }
}

impl SmallCiphertext {
    /// The length in bytes of an answer with `count` of N messages: header, count, positions (two
    /// bytes each; omitted if `count` is N), c0 at these positions, c1.
    pub fn wire_bytes(context: &Context, count: usize) -> usize {
        let (bits, n) = (context.first_modulus().bits() as usize, context.n());
        let positions = if count == n { 0 } else { 2 * count };
        HEADER_BYTES + 4 + positions + (count * bits).div_ceil(8) + n * bits / 8
    }

    /// Encodes the answer.
    pub fn to_bytes(&self, context: &Context) -> Vec<u8> {
        let mut out =
            encode_header(context, SMALL, SmallCiphertext::wire_bytes(context, self.c0.len()));
        out.extend((self.c0.len() as u32).to_le_bytes());
        out.extend(self.positions.iter().flatten().flat_map(|position| position.to_le_bytes()));
        let bits = context.first_modulus().bits();
        pack(&self.c0, bits, &mut out);
        pack(&self.c1, bits, &mut out);
        out
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// If the bytes are not what [`SmallCiphertext::to_bytes`] writes.
    pub fn from_bytes(context: &Context, bytes: &[u8]) -> Result<SmallCiphertext, RlweError> {
        let mut reader = WireReader::new(context, SMALL, bytes)?;
        let (n, count) = (context.n(), reader.read_u32()? as usize);
        if count > n {
            return Err(reader.wire_error("more messages than coefficients"));
        }
        reader.expect_length(SmallCiphertext::wire_bytes(context, count))?;
        let positions = if count == n { None } else { Some(reader.read_positions(count, n)?) };
        let modulus = context.first_modulus();
        let c0 = reader.read_values(modulus, count)?;
        let c1 = reader.read_values(modulus, n)?;
        Ok(SmallCiphertext { c0, c1, positions })
    }
}

fn encode_header(context: &Context, kind: WireType, capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity);
    let set = context.parameter_set();
    out.extend([VERSION, kind.number, set.id(), set.plaintext_bits() as u8]);
    out
}

fn packed_ring_bytes(ring: &Ring) -> usize {
    ring.moduli().map(|p| ring.n() * p.bits() as usize / 8).sum()
}

fn pack_poly(poly: &NttPoly, out: &mut Vec<u8>) {
    for (modulus, limb) in poly.limbs() {
        pack(limb, modulus.bits(), out);
    }
}

/// Appends values of `bits` bits each, least significant bit first; zeros fill the last byte.
fn pack(values: &[u64], bits: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + (values.len() * bits as usize).div_ceil(8), 0);
    let (mut pending, mut held, mut at) = (0u128, 0, start);
    for &value in values {
        pending |= u128::from(value) << held;
        held += bits;
        if held >= 64 {
            out[at..][..8].copy_from_slice(&(pending as u64).to_le_bytes());
            pending >>= 64;
            held -= 64;
            at += 8;
        }
    }
    let rest = held.div_ceil(8) as usize;
    out[at..].copy_from_slice(&pending.to_le_bytes()[..rest]);
}

struct WireReader<'a> {
    kind: WireType,
    length: usize,
    rest: &'a [u8],
}

impl<'a> WireReader<'a> {
    fn new(
        context: &Context,
        kind: WireType,
        bytes: &'a [u8],
    ) -> Result<WireReader<'a>, RlweError> {
        let mut reader = WireReader { kind, length: bytes.len(), rest: bytes };
        let header = reader.take_bytes(HEADER_BYTES)?;
        let set = context.parameter_set();
        if header[0] != VERSION {
            return Err(reader.wire_error("unsupported version"));
        }
        if header[1] != kind.number {
            return Err(reader.wire_error("the bytes encode another type"));
        }
        if (header[2], u32::from(header[3])) != (set.id(), set.plaintext_bits()) {
            return Err(reader.wire_error("the bytes are of another parameter set"));
        }
        Ok(reader)
    }

    fn expect_length(&self, wanted: usize) -> Result<(), RlweError> {
        match self.length == wanted {
            true => Ok(()),
            false => Err(RlweError::Length { what: self.kind.name, wanted, got: self.length }),
        }
    }

    fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], RlweError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| self.wire_error("the bytes end early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn read_seed(&mut self) -> Result<Seed, RlweError> {
        let mut seed = [0; SEED_BYTES];
        seed.copy_from_slice(self.take_bytes(SEED_BYTES)?);
        Ok(seed)
    }

    fn read_u32(&mut self) -> Result<u32, RlweError> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take_bytes(4)?);
        Ok(u32::from_le_bytes(bytes))
    }

    fn read_positions(&mut self, count: usize, n: usize) -> Result<Vec<u16>, RlweError> {
        let bytes = self.take_bytes(2 * count)?;
        let positions: Vec<u16> =
            bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let ascending = positions.windows(2).all(|pair| pair[0] < pair[1]);
        let last = positions.last().map_or(0, |&last| usize::from(last));
        match ascending && last < n {
            true => Ok(positions),
            false => Err(self.wire_error("positions are not ascending below N")),
        }
    }

    fn read_poly(&mut self, ring: &Arc<Ring>) -> Result<NttPoly, RlweError> {
        let mut values = Vec::with_capacity(ring.len());
        for modulus in ring.moduli() {
            self.unpack_values(modulus, ring.n(), &mut values)?;
        }
        NttPoly::from_values(ring, values)
    }

    fn read_values(&mut self, modulus: Modulus, count: usize) -> Result<Vec<u64>, RlweError> {
        let mut values = Vec::with_capacity(count);
        self.unpack_values(modulus, count, &mut values)?;
        Ok(values)
    }

    /// Reads `count` values, each below the modulus, and appends them to `values`.
    fn unpack_values(
        &mut self,
        modulus: Modulus,
        count: usize,
        values: &mut Vec<u64>,
    ) -> Result<(), RlweError> {
        let bits = modulus.bits() as usize;
        let bytes = self.take_bytes((count * bits).div_ceil(8))?;
        let mask = (1u64 << bits) - 1;
        let (start, mut at) = (values.len(), 0);
        for _ in 0..count {
            let window = &bytes[at / 8..];
            let word = match window.first_chunk::<16>() {
                Some(word) => u128::from_le_bytes(*word),
                None => window.iter().rev().fold(0, |word, &byte| word << 8 | u128::from(byte)),
            };
            values.push((word >> (at % 8)) as u64 & mask);
            at += bits;
        }
        if values[start..].iter().any(|&value| value >= modulus.value()) {
            return Err(self.wire_error("a value is not below its modulus"));
        }
        let spare = bytes.len() * 8 - at;
        if spare > 0 && bytes[bytes.len() - 1] >> (8 - spare) != 0 {
            return Err(self.wire_error("spare bits are not zero"));
        }
        Ok(())
    }

    fn wire_error(&self, reason: &'static str) -> RlweError {
        RlweError::Wire { what: self.kind.name, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParameterSet, Rng, SecretKey};

    /// Decodes the bytes of a type and encodes the result again.
    type Rewrite = fn(&Context, &[u8]) -> Result<Vec<u8>, RlweError>;

    fn forms(context: &Arc<Context>) -> Vec<(Vec<u8>, Rewrite)> {
        let mut rng = Rng::from_seed([71; 32]);
        let key = SecretKey::generate(context, &mut rng);
        let fresh = key.encrypt(&vec![3; context.n()], &mut rng).unwrap();
        let whole = fresh.clone().expand();
        let small = whole.clone().switch_down();
        let some = small.clone().select_positions(&[0, 5, context.n() - 1]).unwrap();
        let read_small: Rewrite = |c, b| Ok(SmallCiphertext::from_bytes(c, b)?.to_bytes(c));
        vec![
            (fresh.to_bytes(context), |c, b| Ok(SeededCiphertext::from_bytes(c, b)?.to_bytes(c))),
            (key.public_key(&mut rng).to_bytes(context), |c, b| {
                Ok(PublicKey::from_bytes(c, b)?.to_bytes(c))
            }),
            (whole.to_bytes(context), |c, b| Ok(Ciphertext::from_bytes(c, b)?.to_bytes(c))),
            (small.to_bytes(context), read_small),
            (some.to_bytes(context), read_small),
        ]
    }

    fn contexts() -> impl Iterator<Item = Arc<Context>> {
        ParameterSet::names()
            .map(|name| Context::new(&ParameterSet::dangerous_from_name(name).unwrap()).unwrap())
    }

    #[test]
    fn what_is_written_is_read_again() {
        for context in contexts() {
            for (bytes, again) in forms(&context) {
                assert_eq!(again(&context, &bytes).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn sizes_are_those_of_fifty_bits() {
        let set = ParameterSet::from_name("rlwe-4096-q100-flood40").unwrap();
        let context = Context::new(&set).unwrap();
        assert_eq!(SeededCiphertext::wire_bytes(&context), 51_240);
        assert_eq!(SmallCiphertext::wire_bytes(&context, 4096), 51_208);
        assert_eq!(SmallCiphertext::wire_bytes(&context, 8), 25_674);
    }

    #[test]
    fn other_lengths_versions_types_and_sets_are_refused() {
        let all: Vec<_> = contexts().collect();
        for (index, context) in all.iter().enumerate() {
            for (bytes, again) in forms(context) {
                for end in [0, 3, 4, 20, bytes.len() - 1] {
                    assert!(again(context, &bytes[..end]).is_err());
                }
                let mut longer = bytes.clone();
                longer.push(0);
                assert!(matches!(again(context, &longer), Err(RlweError::Length { .. })));
                for at in 0..HEADER_BYTES {
                    let mut other = bytes.clone();
                    other[at] ^= 16;
                    assert!(matches!(again(context, &other), Err(RlweError::Wire { .. })));
                }
                let other = &all[(index + 1) % all.len()];
                assert!(matches!(again(other, &bytes), Err(RlweError::Wire { .. })));
            }
        }
    }

    #[test]
    fn values_beyond_the_modulus_spare_bits_and_wrong_positions_are_refused() {
        let set = ParameterSet::dangerous_from_name("toy-256-q100-flood40").unwrap();
        let context = Context::new(&set).unwrap();
        for (bytes, again) in forms(&context) {
            let mut beyond = bytes.clone();
            let end = beyond.len();
            beyond[end - 7..].fill(0xff);
            assert!(matches!(again(&context, &beyond), Err(RlweError::Wire { .. })));
        }
        let (bytes, again) = forms(&context).pop().unwrap();
        // Three values of fifty bits end in the second-last bit of their nineteen bytes.
        let spare = HEADER_BYTES + 4 + 6 + 18;
        for (at, value) in [(spare, 0xff), (HEADER_BYTES, 4), (8, 9), (13, 1), (10, 0)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert!(again(&context, &wrong).is_err(), "{at}");
        }
        let mut many = bytes;
        many[HEADER_BYTES..][..4].fill(0xff);
        assert!(matches!(again(&context, &many), Err(RlweError::Wire { .. })));
    }

    #[test]
    fn packing_keeps_every_width() {
        for q in [12289, (1 << 25) - 39, (1 << 50) - 27, (1 << 60) - 93, (1 << 61) - 1] {
            let modulus = Modulus::new(q).unwrap();
            let mut values = vec![0; 37];
            Rng::from_seed([72; 32]).fill_uniform(modulus, &mut values);
            values[3] = q - 1;
            let mut bytes = Vec::new();
            pack(&values, modulus.bits(), &mut bytes);
            let mut reader = WireReader { kind: WHOLE, length: bytes.len(), rest: &bytes };
            assert_eq!(reader.read_values(modulus, 37).unwrap(), values);
            assert!(reader.rest.is_empty());
        }
    }
}
