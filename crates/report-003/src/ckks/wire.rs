//! The wire format of a ciphertext.
//!
//! It is `version u8 = 1, set u8, limbs u8, seeded u8, scale f64, c0, c1 or its seed`. Numbers are
//! little-endian, and each residue has as many bytes as its prime.

use super::{cipher::expand_seed, context::CkksContext, error::CkksError};
use crate::ckks::cipher::Ciphertext;
use confide_rlwe::{Modulus, NttPoly, Seed};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 12;

impl Ciphertext {
    /// Encodes the ciphertext. A fresh one, on which nothing has been computed, is encoded with the
    /// seed of `c1` in place of `c1`.
    pub fn to_bytes(&self, ckks: &CkksContext) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 2 * 8 * self.c0.values().len());
        let set = ckks.parameters.id;
        bytes.extend([VERSION, set, self.limb_count() as u8, u8::from(self.seed.is_some())]);
        bytes.extend(self.scale.to_le_bytes());
        append_residues(&mut bytes, &self.c0);
        match &self.seed {
            Some(seed) => bytes.extend(seed),
            None => append_residues(&mut bytes, &self.c1),
        }
        bytes
    }

    /// Decodes a ciphertext.
    ///
    /// # Errors
    /// If the bytes are not what [`Ciphertext::to_bytes`] writes, or are of other parameters.
    pub fn from_bytes(ckks: &CkksContext, bytes: &[u8]) -> Result<Ciphertext, CkksError> {
        let wire = |reason| CkksError::Wire { reason };
        let (header, rest) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or(wire("shorter than its header"))?;
        let [version, set, limbs, seeded, scale @ ..] = *header;
        if version != VERSION || seeded > 1 {
            return Err(wire("unknown version, or a seed flag that is neither 0 nor 1"));
        }
        if set != ckks.parameters.id {
            return Err(CkksError::OtherParameters { what: "ciphertext" });
        }
        let ring = ckks.data_ring(usize::from(limbs))?;
        let scale = f64::from_le_bytes(scale);
        if !scale.is_finite() || scale < 1.0 {
            return Err(wire("the scale is not a finite number of at least 1"));
        }
        let size = ring.n() * ring.moduli().map(bytes_per_residue).sum::<usize>();
        let (c0, c1) = rest.split_at_checked(size).ok_or(wire("too short"))?;
        let read = |bytes| {
            let values = ring.moduli().scan(bytes, |bytes: &mut &[u8], q| {
                let (limb, rest) = bytes.split_at(ring.n() * bytes_per_residue(q));
                *bytes = rest;
                Some(limb.chunks_exact(bytes_per_residue(q)).map(parse_residue).collect::<Vec<_>>())
            });
            Ok::<_, CkksError>(NttPoly::from_values(ring, values.flatten().collect())?)
        };
        let (c1, seed) = match (seeded, c1.len()) {
            (1, 32) => {
                let seed = Seed::try_from(c1).map_err(|_| wire("incomplete seed"))?;
                (expand_seed(ring, seed), Some(seed))
            }
            (0, length) if length == size => (read(c1)?, None),
            _ => return Err(wire("wrong length")),
        };
        Ok(Ciphertext { c0: read(c0)?, c1, scale, seed })
    }
}

/// The number of bytes of a residue.
fn bytes_per_residue(q: Modulus) -> usize {
    q.bits().div_ceil(8) as usize
}

fn append_residues(bytes: &mut Vec<u8>, poly: &NttPoly) {
    for (q, limb) in poly.limbs() {
        limb.iter().for_each(|x| bytes.extend(&x.to_le_bytes()[..bytes_per_residue(q)]));
    }
}

fn parse_residue(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
