//! Proofs of knowledge of an RSA signature (Guillou and Quisquater 1988, non-interactive).
//!
//! The witness is s with s^e = EM mod N. There are eight parallel rounds, each with a challenge of
//! 16 bits, smaller than the prime e = 65537, so that an e-th root can be extracted from two
//! responses to one commitment:
//!
//! - prover: random r_i, commitment U_i = (r_i·EM)^e; all challenges c_i from one hash over the
//!   eight commitments and the statement; response z_i = r_i·s^(e − c_i);
//! - verifier: U_i = z_i^e·EM^c_i, and their hash has to equal the challenges.
//!
//! With the exponent e − c_i neither side has to invert, and the verifier computes the commitments
//! from challenges and responses, so that they need not be sent. The work for 2048 bits, in
//! products modulo N: about 290 to prove and 190 to check, of which the eight e-th powers are 136.

mod residue;

pub(crate) use residue::EXPONENT;

use std::fmt;

use crypto_bigint::{Odd, Uint, modular::FixedMontyParams};
use subtle::ConstantTimeEq;

use self::residue::{ROUNDS, ResidueRing};
use crate::{
    challenge::{CHALLENGE_LENGTH, challenge},
    error::SigmaError,
    random::SecretStream,
};

const TAG: &str = "confide/sigma/v1/rsa";

/// The least and the greatest length of a modulus, in bits.
const BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// An RSA key with the constants of arithmetic modulo N.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RsaKey {
    bits: usize,
    modulus: Modulus,
}

/// A modulus by its number of 64-bit words, which fixes the length of every loop at compile time.
#[derive(Clone, PartialEq, Eq)]
enum Modulus {
    To2048(Box<FixedMontyParams<32>>),
    To3072(Box<FixedMontyParams<48>>),
    To4096(Box<FixedMontyParams<64>>),
}

impl RsaKey {
    pub(crate) fn new(modulus: &[u8], exponent: &[u8]) -> Result<Self, SigmaError> {
        let (modulus, exponent) = (trim_leading_zeros(modulus), trim_leading_zeros(exponent));
        if exponent != [1, 0, 1] {
            let shown = exponent.iter().take(8).map(|byte| format!("{byte:02x}"));
            return Err(SigmaError::Exponent { got: shown.collect() });
        }
        let bits =
            8 * modulus.len() - modulus.first().map_or(0, |top| top.leading_zeros() as usize);
        if !BITS.contains(&bits) {
            return Err(SigmaError::ModulusLength { got: bits });
        }
        let modulus = match bits {
            0..=2048 => Modulus::To2048(montgomery_params(modulus)?),
            2049..=3072 => Modulus::To3072(montgomery_params(modulus)?),
            _ => Modulus::To4096(montgomery_params(modulus)?),
        };
        Ok(Self { bits, modulus })
    }

    pub(crate) fn bits(&self) -> usize {
        self.bits
    }

    /// The length in bytes of the modulus, of a signature and of a response.
    pub(crate) fn length(&self) -> usize {
        self.bits.div_ceil(8)
    }

    /// The modulus, most significant byte first.
    pub(crate) fn modulus(&self) -> Vec<u8> {
        match &self.modulus {
            Modulus::To2048(params) => residue::encode_number(params.modulus(), self.length()),
            Modulus::To3072(params) => residue::encode_number(params.modulus(), self.length()),
            Modulus::To4096(params) => residue::encode_number(params.modulus(), self.length()),
        }
    }

    /// The length of a proof in bytes: the challenges and eight responses.
    pub(crate) fn proof_length(&self) -> usize {
        CHALLENGE_LENGTH + ROUNDS * self.length()
    }

    /// Computes s^e mod N, the encoded message of a signature; `None` if it is not a residue.
    pub(crate) fn recover_encoded_message(&self, signature: &[u8]) -> Option<Vec<u8>> {
        match &self.modulus {
            Modulus::To2048(params) => {
                ResidueRing::new(params, self.length()).recover_encoded_message(signature)
            }
            Modulus::To3072(params) => {
                ResidueRing::new(params, self.length()).recover_encoded_message(signature)
            }
            Modulus::To4096(params) => {
                ResidueRing::new(params, self.length()).recover_encoded_message(signature)
            }
        }
    }

    /// Proves knowledge of an e-th root of `statement.em`.
    pub(crate) fn prove(
        &self,
        statement: &RsaStatement<'_>,
        signature: &[u8],
        stream: &mut SecretStream,
    ) -> Result<Vec<u8>, SigmaError> {
        match &self.modulus {
            Modulus::To2048(params) => self.prove_with_limbs(params, statement, signature, stream),
            Modulus::To3072(params) => self.prove_with_limbs(params, statement, signature, stream),
            Modulus::To4096(params) => self.prove_with_limbs(params, statement, signature, stream),
        }
    }

    /// Checks a proof of [`proof_length`](Self::proof_length) bytes.
    pub(crate) fn verify(
        &self,
        statement: &RsaStatement<'_>,
        proof: &[u8],
    ) -> Result<(), SigmaError> {
        match &self.modulus {
            Modulus::To2048(params) => self.verify_with_limbs(params, statement, proof),
            Modulus::To3072(params) => self.verify_with_limbs(params, statement, proof),
            Modulus::To4096(params) => self.verify_with_limbs(params, statement, proof),
        }
    }

    fn prove_with_limbs<const L: usize>(
        &self,
        params: &FixedMontyParams<L>,
        statement: &RsaStatement<'_>,
        signature: &[u8],
        stream: &mut SecretStream,
    ) -> Result<Vec<u8>, SigmaError> {
        let ring = ResidueRing::new(params, self.length());
        let em = ring.parse(&statement.em).ok_or(SigmaError::SelfCheck)?;
        let signature = ring.parse_secret(signature).ok_or(SigmaError::SignatureInvalid)?;
        if !ring.is_root(&signature, &em) {
            return Err(SigmaError::SignatureInvalid);
        }
        let nonces = ring.draw_nonces(stream);
        let commitments = ring.commit(&nonces, &em);
        let encoded = commitments.iter().flat_map(|u| ring.encode(u)).collect::<Vec<_>>();
        let proof = self.hash_challenges(statement, &encoded);
        let responses = ring.respond(&nonces, &signature, &round_challenges(&proof));
        if !ring.verify_product(&responses, &commitments, &em, &round_challenges(&proof)) {
            return Err(SigmaError::SelfCheck);
        }
        let mut proof = proof.to_vec();
        responses.iter().for_each(|z| proof.extend(ring.encode(z)));
        Ok(proof)
    }

    fn verify_with_limbs<const L: usize>(
        &self,
        params: &FixedMontyParams<L>,
        statement: &RsaStatement<'_>,
        proof: &[u8],
    ) -> Result<(), SigmaError> {
        let malformed = SigmaError::Malformed { what: "proof" };
        if proof.len() != self.proof_length() {
            return Err(malformed);
        }
        let (claimed, responses) = proof.split_first_chunk().ok_or(malformed.clone())?;
        let ring = ResidueRing::new(params, self.length());
        let em = ring.parse(&statement.em).ok_or(malformed.clone())?;
        let powers = ring.small_powers(&em);
        let mut encoded = Vec::with_capacity(ROUNDS * self.length());
        for (response, c) in responses.chunks(self.length()).zip(round_challenges(claimed)) {
            let u = ring.recompute_commitment(response, c, &powers).ok_or(malformed.clone())?;
            encoded.extend(residue::encode_number(&u, self.length()));
        }
        match self.hash_challenges(statement, &encoded).ct_eq(claimed).into() {
            true => Ok(()),
            false => Err(SigmaError::Refused),
        }
    }

    fn hash_challenges(
        &self,
        statement: &RsaStatement<'_>,
        commitments: &[u8],
    ) -> [u8; CHALLENGE_LENGTH] {
        let exponent = EXPONENT.to_be_bytes();
        let RsaStatement { claim, em, context } = statement;
        challenge(TAG, &[claim, &self.modulus(), &exponent, em, context, commitments])
    }
}

impl fmt::Debug for RsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RsaKey({} bits)", self.bits)
    }
}

/// The statement that the prover knows an e-th root of `em`.
pub(crate) struct RsaStatement<'a> {
    /// The encoded claim, hashed before everything else.
    pub(crate) claim: Vec<u8>,
    /// The encoded message, as long as the modulus.
    pub(crate) em: Vec<u8>,
    /// The context that the caller binds the proof to.
    pub(crate) context: &'a [u8],
}

/// The challenges of the eight rounds.
fn round_challenges(challenge: &[u8; CHALLENGE_LENGTH]) -> [u16; ROUNDS] {
    std::array::from_fn(|i| u16::from_be_bytes([challenge[2 * i], challenge[2 * i + 1]]))
}

fn trim_leading_zeros(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    &bytes[start..]
}

fn montgomery_params<const L: usize>(
    modulus: &[u8],
) -> Result<Box<FixedMontyParams<L>>, SigmaError> {
    let modulus: Uint<L> = residue::parse_number(modulus);
    let odd: Option<Odd<Uint<L>>> = modulus.to_odd().into();
    Ok(Box::new(FixedMontyParams::new_vartime(odd.ok_or(SigmaError::ModulusEven)?)))
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::{
        PublicKey,
        key::KeyKind,
        vector_tests::{bytes, read_all},
    };

    /// The key, the encoded message and the signature of a test vector.
    fn case() -> (RsaKey, Vec<u8>, Vec<u8>) {
        let (_, vector) =
            read_all().into_iter().find(|(name, _)| name == "rsa-2048-pkcs1-sha256").unwrap();
        let key = PublicKey::from_spki(&bytes(&vector["key"])).unwrap();
        let KeyKind::Rsa(key) = key.kind else { panic!("an RSA key") };
        let signature = bytes(&vector["made_with"]["signature"]);
        (key.clone(), key.recover_encoded_message(&signature).unwrap(), signature)
    }

    #[test]
    fn a_simulator_without_the_signature_makes_accepting_transcripts() {
        let (key, em, signature) = case();
        let Modulus::To2048(params) = &key.modulus else { panic!("2048 bits") };
        let ring = ResidueRing::new(params, 256);
        let (em, s) = (ring.parse(&em).unwrap(), ring.parse(&signature).unwrap());
        let powers = ring.small_powers(&em);
        let mut stream = SecretStream::new(&Zeroizing::new([9; 32]), &[b"simulator"]);
        // Choose challenge and response first and compute the commitment: no signature is used.
        for (z, c) in
            ring.draw_nonces(&mut stream).iter().zip([0, 1, 2, 255, 256, 4096, 65534, 65535])
        {
            let u = ring.recompute_commitment(&ring.encode(z), c, &powers).unwrap();
            // The holder of the signature would have sent exactly this, from one nonce and no
            // other.
            let exponent = Uint::<1>::from(EXPONENT - u32::from(c));
            let inverse = s.pow_vartime(&exponent).invert();
            let nonce = z.mul(&Option::from(inverse).unwrap());
            assert_eq!(ring.commit(&[nonce], &em)[0].retrieve(), u, "challenge {c}");
        }
    }

    #[test]
    fn two_answers_to_one_commitment_give_the_signature_away() {
        // Extraction, the reason for soundness: z/z' = s^(c' − c), and c' − c has no factor of e.
        let (key, em, signature) = case();
        let Modulus::To2048(params) = &key.modulus else { panic!("2048 bits") };
        let ring = ResidueRing::new(params, 256);
        let (em, s) = (ring.parse(&em).unwrap(), ring.parse(&signature).unwrap());
        let mut stream = SecretStream::new(&Zeroizing::new([8; 32]), &[b"extractor"]);
        let nonces = ring.draw_nonces(&mut stream);
        let one = ring.respond(&nonces, &s, &[10; ROUNDS])[0];
        let other = ring.respond(&nonces, &s, &[13; ROUNDS])[0];
        // z/z' = s³; 3·43691 = 2·65537 − 1, so s = EM²/(s³)^43691.
        let cube = one.mul(&Option::from(other.invert()).unwrap());
        let power = cube.pow_vartime(&Uint::<1>::from(43691_u32));
        let found = em.square().mul(&Option::from(power.invert()).unwrap());
        assert_eq!(ring.encode(&found), signature);
    }
}
