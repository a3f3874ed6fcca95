//! Commitments to numbers: `value·B + blinding·H` in the Ristretto group (RFC 9496).
//!
//! `B` is the group's base point, `H` is the point to which SHA3-512 of `B`'s encoding maps: the
//! bases of the bulletproofs crate. A commitment hides its number even from unbounded adversaries;
//! it is binding as long as the discrete logarithm of `H` is unknown.

use std::{fmt, sync::OnceLock};

use bulletproofs::PedersenGens;
use curve25519_dalek::{
    ristretto::{CompressedRistretto, RistrettoBasepointTable, RistrettoPoint},
    scalar::Scalar,
};
use sha2::{Digest, Sha512};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{error::SigmaError, random};

/// The length of a commitment and of a blinding, in bytes.
pub const COMMITMENT_LENGTH: usize = 32;

/// The secret that hides a committed number: a scalar of the group.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Blinding(pub(crate) Scalar);

impl Blinding {
    /// Draws a fresh blinding from the system's randomness.
    ///
    /// # Errors
    ///
    /// [`SigmaError::NoRandomness`] if the system returns none.
    pub fn random() -> Result<Self, SigmaError> {
        Ok(Self::from_seed(&*random::draw_entropy()?))
    }

    /// Derives the blinding from 32 secret bytes, which must be used for one commitment only.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let mut hash = Sha512::new();
        hash.update(b"confide/sigma/v1/blinding");
        hash.update(seed);
        let wide: Zeroizing<[u8; 64]> = Zeroizing::new(hash.finalize().into());
        Self(Scalar::from_bytes_mod_order_wide(&wide))
    }

    /// Decodes the bytes of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    ///
    /// [`SigmaError::Malformed`] if the number is not below the group's order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, SigmaError> {
        let scalar: Option<Scalar> = Scalar::from_canonical_bytes(*bytes).into();
        scalar.map(Self).ok_or(SigmaError::Malformed { what: "blinding" })
    }

    /// The 32 bytes of the blinding, least significant first. They open the commitment, so they
    /// must stay secret.
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }
}

impl fmt::Debug for Blinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blinding(secret)")
    }
}

/// A commitment to a number, which it fixes and hides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Commitment {
    bytes: [u8; COMMITMENT_LENGTH],
    point: RistrettoPoint,
}

impl Commitment {
    /// Commits to a number.
    pub fn new(value: u64, blinding: &Blinding) -> Self {
        let bases = bases();
        Self::from_point(bases.b * &Scalar::from(value) + &bases.h * &blinding.0)
    }

    /// Decodes the 32 bytes of a published commitment.
    ///
    /// # Errors
    ///
    /// [`SigmaError::Malformed`] if they do not encode an element of the group.
    pub fn from_bytes(bytes: &[u8; COMMITMENT_LENGTH]) -> Result<Self, SigmaError> {
        let point = CompressedRistretto(*bytes)
            .decompress()
            .ok_or(SigmaError::Malformed { what: "commitment" })?;
        Ok(Self { bytes: *bytes, point })
    }

    /// The 32 bytes of the commitment, to be published.
    pub fn to_bytes(&self) -> [u8; COMMITMENT_LENGTH] {
        self.bytes
    }

    /// Whether the commitment is to this number with this blinding.
    pub fn opens_to(&self, value: u64, blinding: &Blinding) -> bool {
        Self::new(value, blinding).bytes.ct_eq(&self.bytes).into()
    }

    pub(crate) fn from_point(point: RistrettoPoint) -> Self {
        Self { bytes: point.compress().to_bytes(), point }
    }

    pub(crate) fn point(&self) -> &RistrettoPoint {
        &self.point
    }
}

impl fmt::Debug for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Commitment(")?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// The two bases with their tables, which are computed on first use.
pub(crate) struct PedersenBases {
    pub(crate) b: &'static RistrettoBasepointTable,
    pub(crate) h: RistrettoBasepointTable,
    pub(crate) pair: PedersenGens,
}

pub(crate) fn bases() -> &'static PedersenBases {
    static BASES: OnceLock<PedersenBases> = OnceLock::new();
    BASES.get_or_init(|| {
        let pair = PedersenGens::default();
        PedersenBases {
            b: curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE,
            h: RistrettoBasepointTable::create(&pair.B_blinding),
            pair,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commitment_opens_to_its_number_and_blinding_only() {
        let (one, other) = (Blinding::from_seed(&[1; 32]), Blinding::from_seed(&[2; 32]));
        let commitment = Commitment::new(42, &one);
        assert!(commitment.opens_to(42, &one));
        assert!(!commitment.opens_to(43, &one));
        assert!(!commitment.opens_to(42, &other));
        let read = Commitment::from_bytes(&commitment.to_bytes()).unwrap();
        assert_eq!(read, commitment);
        assert_eq!(read.point(), commitment.point());
    }

    #[test]
    fn a_commitment_is_that_of_the_bulletproofs_crate() {
        let blinding = Blinding::from_seed(&[3; 32]);
        let slow = PedersenGens::default().commit(Scalar::from(u64::MAX), blinding.0);
        assert_eq!(Commitment::new(u64::MAX, &blinding), Commitment::from_point(slow));
    }

    #[test]
    fn bytes_outside_the_group_are_refused() {
        assert_eq!(
            Commitment::from_bytes(&[0xff; 32]),
            Err(SigmaError::Malformed { what: "commitment" })
        );
        assert!(Blinding::from_bytes(&[0xff; 32]).is_err());
        let blinding = Blinding::from_seed(&[9; 32]);
        assert_eq!(Blinding::from_bytes(&blinding.to_bytes()).unwrap().0, blinding.0);
    }

    #[test]
    fn a_blinding_is_not_printed() {
        assert_eq!(format!("{:?}", Blinding::from_seed(&[7; 32])), "Blinding(secret)");
    }
}
