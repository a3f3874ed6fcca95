//! A ciphertext as bytes.
//!
//! `version u8 = 1, set u8, limbs u8, seeded u8, scale f64, c0, c1 or its seed`, numbers
//! little-endian, each residue in as many bytes as its prime has.

use super::{cipher::expand_seed, context::Ckks, error::CkksError};
use crate::ckks::cipher::Ciphertext;
use confide_rlwe::{Modulus, NttPoly, Seed};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 12;

impl Ciphertext {
    /// Encodes the ciphertext, with `c1` as its seed where nothing has been computed on it.
    pub fn to_bytes(&self, ckks: &Ckks) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 2 * 8 * self.c0.values().len());
        let set = ckks.parameters.id;
        bytes.extend([VERSION, set, self.limbs() as u8, u8::from(self.seed.is_some())]);
        bytes.extend(self.scale.to_le_bytes());
        write(&mut bytes, &self.c0);
        match &self.seed {
            Some(seed) => bytes.extend(seed),
            None => write(&mut bytes, &self.c1),
        }
        bytes
    }

    /// Decodes exactly what [`Ciphertext::to_bytes`] writes: that length, every residue reduced.
    ///
    /// # Errors
    /// If it is anything else, or of other parameters.
    pub fn from_bytes(ckks: &Ckks, bytes: &[u8]) -> Result<Ciphertext, CkksError> {
        let wire = |reason| CkksError::Wire { reason };
        let (header, rest) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or(wire("no whole header"))?;
        let [version, set, limbs, seeded, scale @ ..] = *header;
        if version != VERSION || seeded > 1 {
            return Err(wire("unknown version or form"));
        }
        if set != ckks.parameters.id {
            return Err(CkksError::OtherParameters { what: "ciphertext" });
        }
        let ring = ckks.data_ring(usize::from(limbs))?;
        let scale = f64::from_le_bytes(scale);
        if !scale.is_finite() || scale < 1.0 {
            return Err(wire("scale is no number from 1"));
        }
        let size = ring.n() * ring.moduli().map(width).sum::<usize>();
        let (c0, c1) = rest.split_at_checked(size).ok_or(wire("too short"))?;
        let read = |bytes| {
            let values = ring.moduli().scan(bytes, |bytes: &mut &[u8], q| {
                let (limb, rest) = bytes.split_at(ring.n() * width(q));
                *bytes = rest;
                Some(limb.chunks_exact(width(q)).map(number).collect::<Vec<_>>())
            });
            Ok::<_, CkksError>(NttPoly::from_values(ring, values.flatten().collect())?)
        };
        let (c1, seed) = match (seeded, c1.len()) {
            (1, 32) => {
                let seed = Seed::try_from(c1).map_err(|_| wire("no whole seed"))?;
                (expand_seed(ring, seed), Some(seed))
            }
            (0, length) if length == size => (read(c1)?, None),
            _ => return Err(wire("wrong length")),
        };
        Ok(Ciphertext { c0: read(c0)?, c1, scale, seed })
    }
}

/// The number of bytes of a residue.
fn width(q: Modulus) -> usize {
    q.bits().div_ceil(8) as usize
}

fn write(bytes: &mut Vec<u8>, poly: &NttPoly) {
    for (q, limb) in poly.limbs() {
        limb.iter().for_each(|x| bytes.extend(&x.to_le_bytes()[..width(q)]));
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
