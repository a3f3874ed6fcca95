//! Proofs of knowledge of an ECDSA signature: of s in (r, s), for a published point R.
//!
//! A signature is valid exactly if s·R = e·G + r·Q, where e is the digest as a number and r is R's
//! x coordinate modulo the order. R is published, and Schnorr's protocol to the base R proves
//! knowledge of s: T = k·R, challenge c, response z = k + c·s, check T = z·R − c·(e·G + r·Q). The
//! signature stays hidden; the key does not, and all proofs of one signature contain the same R.

use std::ops::Neg;

use der::{Decode, Reader, SliceReader, asn1::UintRef};
use p256::elliptic_curve::{
    AffinePoint, CurveArithmetic, FieldBytes, FieldBytesSize, Group, ProjectivePoint, PublicKey,
    Scalar,
    ff::{Field, PrimeField},
    ops::{LinearCombination, Reduce},
    point::AffineCoordinates,
    sec1::{FromSec1Point, ModulusSize, ToSec1Point},
};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::{
    challenge::{CHALLENGE_LENGTH, challenge},
    error::SigmaError,
    random::SecretStream,
};

const TAG: &str = "confide/sigma/v1/ecdsa";

/// The statement that the prover knows s of a signature over a digest.
pub(crate) struct EcdsaStatement<'a> {
    /// The encoded claim, hashed before everything else.
    pub(crate) claim: Vec<u8>,
    /// The digest of the message.
    pub(crate) digest: &'a [u8],
    /// The context that the caller binds the proof to.
    pub(crate) context: &'a [u8],
}

pub(crate) fn not_on_curve_error(what: &'static str) -> SigmaError {
    SigmaError::NotOnCurve { what }
}

/// The length of a proof in bytes: R, the challenge and the response.
pub(crate) fn proof_length(scalar: usize) -> usize {
    1 + scalar + CHALLENGE_LENGTH + scalar
}

/// Proves knowledge of s; the signature is in DER, or r and s one after the other.
pub(crate) fn prove<C>(
    key: &PublicKey<C>,
    statement: &EcdsaStatement<'_>,
    signature: &[u8],
    stream: &mut SecretStream,
) -> Result<Vec<u8>, SigmaError>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    let (r, s) = read_signature::<C>(signature).ok_or(SigmaError::SignatureInvalid)?;
    let target = target_point(key, statement.digest, &r);
    let inverse: Option<Scalar<C>> = s.invert().into();
    let inverse = Zeroizing::new(inverse.ok_or(SigmaError::SignatureInvalid)?);
    let point = target * *inverse;
    // The neutral element has the x coordinate 0, which is not allowed as r.
    if x_scalar::<C>(&point.into()) != r {
        return Err(SigmaError::SignatureInvalid);
    }
    let nonce = draw_nonce::<C>(stream);
    let commitment = (point * *nonce).into();
    let challenge = signature_challenge(key, statement, &point.into(), &commitment);
    let response = *nonce + challenge_scalar::<C>(&challenge) * *s;
    let mut proof = compress_point::<C>(&point.into());
    proof.extend(challenge);
    proof.extend_from_slice(response.to_repr().as_ref());
    verify(key, statement, &proof).map_err(|_| SigmaError::SelfCheck)?;
    Ok(proof)
}

/// Checks a proof.
pub(crate) fn verify<C>(
    key: &PublicKey<C>,
    statement: &EcdsaStatement<'_>,
    proof: &[u8],
) -> Result<(), SigmaError>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    let malformed = || SigmaError::Malformed { what: "proof" };
    let size = FieldBytes::<C>::default().len();
    if proof.len() != proof_length(size) {
        return Err(malformed());
    }
    let (point, rest) = proof.split_at(1 + size);
    let (claimed, response) = rest.split_first_chunk().ok_or_else(malformed)?;
    let point = read_point::<C>(point).ok_or_else(|| not_on_curve_error("R"))?;
    let response = read_scalar::<C>(response).ok_or_else(malformed)?;
    let r = x_scalar::<C>(&point);
    let target = target_point(key, statement.digest, &r);
    let pair = [
        (ProjectivePoint::<C>::from(point), response),
        (target, challenge_scalar::<C>(claimed).neg()),
    ];
    let commitment = ProjectivePoint::<C>::lincomb_vartime(&pair);
    // r = 0 is not allowed in a signature; a neutral target is one that s = 0 would satisfy.
    let degenerate = r.is_zero() | target.is_identity() | commitment.is_identity();
    if degenerate.into() {
        return Err(SigmaError::Refused);
    }
    match signature_challenge(key, statement, &point, &commitment.into()).ct_eq(claimed).into() {
        true => Ok(()),
        false => Err(SigmaError::Refused),
    }
}

/// Computes e·G + r·Q, which s·R has to equal.
fn target_point<C: CurveArithmetic>(
    key: &PublicKey<C>,
    digest: &[u8],
    r: &Scalar<C>,
) -> ProjectivePoint<C> {
    let pair = [
        (ProjectivePoint::<C>::generator(), digest_scalar::<C>(digest)),
        (key.to_projective(), *r),
    ];
    ProjectivePoint::<C>::lincomb_vartime(&pair)
}

/// Converts a digest to a scalar: its leftmost bits, as many as the order has (FIPS 186-5, section
/// 6.4.2), modulo the order.
fn digest_scalar<C: CurveArithmetic>(digest: &[u8]) -> Scalar<C> {
    let mut bytes = FieldBytes::<C>::default();
    let taken = digest.len().min(bytes.len());
    let start = bytes.len() - taken;
    bytes[start..].copy_from_slice(&digest[..taken]);
    Scalar::<C>::reduce(&bytes)
}

fn x_scalar<C: CurveArithmetic>(point: &AffinePoint<C>) -> Scalar<C> {
    Scalar::<C>::reduce(&point.x())
}

fn signature_challenge<C>(
    key: &PublicKey<C>,
    statement: &EcdsaStatement<'_>,
    point: &AffinePoint<C>,
    commitment: &AffinePoint<C>,
) -> [u8; CHALLENGE_LENGTH]
where
    C: CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    let key = key.as_affine().to_sec1_point(false);
    let points = [compress_point::<C>(point), compress_point::<C>(commitment)];
    let EcdsaStatement { claim, context, .. } = statement;
    challenge(TAG, &[claim, key.as_bytes(), context, &points[0], &points[1]])
}

fn compress_point<C>(point: &AffinePoint<C>) -> Vec<u8>
where
    C: CurveArithmetic,
    AffinePoint<C>: ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    point.to_sec1_point(true).as_bytes().to_vec()
}

/// Parses a compressed point and refuses other encodings of it: with SEC 1's compact encoding a
/// valid proof could be changed to another valid one.
fn read_point<C>(bytes: &[u8]) -> Option<AffinePoint<C>>
where
    C: CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    let point = AffinePoint::<C>::from_sec1_bytes(bytes).ok()?;
    (compress_point::<C>(&point) == bytes).then_some(point)
}

/// Converts a challenge to a scalar: its 16 bytes, most significant first.
fn challenge_scalar<C: CurveArithmetic>(challenge: &[u8; CHALLENGE_LENGTH]) -> Scalar<C> {
    Scalar::<C>::from_u128(u128::from_be_bytes(*challenge))
}

/// Draws a uniform non-zero scalar.
fn draw_nonce<C: CurveArithmetic>(stream: &mut SecretStream) -> Zeroizing<Scalar<C>> {
    let mut bytes = Zeroizing::new(vec![0; FieldBytes::<C>::default().len()]);
    loop {
        stream.fill(&mut bytes);
        match read_scalar::<C>(&bytes) {
            Some(scalar) if !bool::from(scalar.is_zero()) => return Zeroizing::new(scalar),
            _ => {}
        }
    }
}

/// Parses a scalar below the order.
fn read_scalar<C: CurveArithmetic>(bytes: &[u8]) -> Option<Scalar<C>> {
    let mut repr = FieldBytes::<C>::default();
    if bytes.len() != repr.len() {
        return None;
    }
    repr.copy_from_slice(bytes);
    Scalar::<C>::from_repr(repr).into()
}

type SignatureHalves<C> = (Scalar<C>, Zeroizing<Scalar<C>>);

fn read_signature<C: CurveArithmetic>(signature: &[u8]) -> Option<SignatureHalves<C>> {
    let size = FieldBytes::<C>::default().len();
    let (r, s) = match read_two_integers(signature) {
        Some(halves) => halves,
        None if signature.len() == 2 * size => signature.split_at(size),
        None => return None,
    };
    let (r, s) = (pad_left(r, size)?, pad_left(s, size)?);
    Some((read_scalar::<C>(&r)?, Zeroizing::new(read_scalar::<C>(&s)?)))
}

/// Parses `SEQUENCE { INTEGER, INTEGER }`: r and s of a signature (RFC 3279, section 2.2.3), or the
/// modulus and exponent of an RSA key (RFC 8017, A.1.1).
pub(crate) fn read_two_integers(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = SliceReader::new(bytes).ok()?;
    let pair = reader.sequence(|reader| {
        Ok::<_, der::Error>((UintRef::decode(reader)?, UintRef::decode(reader)?))
    });
    let (first, second) = pair.ok()?;
    reader.finish().ok()?;
    Some((first.as_bytes(), second.as_bytes()))
}

fn pad_left(number: &[u8], size: usize) -> Option<Zeroizing<Vec<u8>>> {
    let mut out = Zeroizing::new(vec![0; size]);
    out[size.checked_sub(number.len())?..].copy_from_slice(number);
    Some(out)
}

#[cfg(test)]
mod tests {
    use p256::NistP256;

    use super::*;
    use crate::{
        HashFunction, PublicKey as Key,
        key::KeyKind,
        random::draw_entropy,
        vector_tests::{bytes, read_all},
    };

    /// The key, the digest and the two halves of the signature of a test vector.
    fn case() -> (p256::PublicKey, Vec<u8>, SignatureHalves<NistP256>) {
        let (_, vector) =
            read_all().into_iter().find(|(name, _)| name == "ecdsa-p256-sha256").unwrap();
        let key = Key::from_spki(&bytes(&vector["key"])).unwrap();
        let KeyKind::P256(key) = key.kind else { panic!("a P-256 key") };
        let digest = HashFunction::Sha256.digest(&bytes(&vector["message"]));
        let halves = read_signature::<NistP256>(&bytes(&vector["made_with"]["signature"]));
        (key, digest, halves.unwrap())
    }

    #[test]
    fn a_point_in_another_encoding_is_refused() {
        let (key, digest, (r, s)) = case();
        let statement = EcdsaStatement { claim: vec![7], digest: &digest, context: b"" };
        // The compact encoding (0x05) of an x coordinate stands for one of R and its negative.
        for s in [*s, s.neg()] {
            let signature = [r.to_repr(), s.to_repr()].concat();
            let mut stream = SecretStream::new(&draw_entropy().unwrap(), &[b"test"]);
            let proof = prove(&key, &statement, &signature, &mut stream).unwrap();
            for tag in [0, 1, 2, 3, 4, 5, 6, 7] {
                let mut other = proof.clone();
                other[0] = tag;
                let verdict = verify(&key, &statement, &other);
                assert_eq!(verdict.is_ok(), other == proof, "tag {tag}: {verdict:?}");
            }
        }
    }

    #[test]
    fn a_simulator_without_the_signature_makes_accepting_transcripts() {
        let (key, _, _) = case();
        // Choose the point R, challenge and response first and compute T from them: no half s is
        // used.
        let point = ProjectivePoint::<NistP256>::generator() * Scalar::<NistP256>::from(77_u64);
        let target = target_point(&key, &[3; 32], &x_scalar::<NistP256>(&point.into()));
        let (c, z) = (challenge_scalar::<NistP256>(&[5; 16]), Scalar::<NistP256>::from(123_u64));
        let commitment = point * z - target * c;
        assert_eq!(point * z, commitment + target * c);
        assert!(!bool::from(commitment.is_identity()));
    }
}
