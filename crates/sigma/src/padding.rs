//! The encoded message EM, whose e-th root is an RSA signature (RFC 8017, section 9).
//!
//! The verifier of a proof computes EM from the digest and never accepts it from the prover.

use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::{error::SigmaError, hash::HashFunction};

/// Encodes by EMSA-PKCS1-v1_5: `00 01 ff … ff 00 DigestInfo`, as long as the modulus.
///
/// # Errors
///
/// [`SigmaError::Malformed`] for a digest of another length.
pub(crate) fn encode_pkcs1(
    hash: HashFunction,
    digest: &[u8],
    length: usize,
) -> Result<Vec<u8>, SigmaError> {
    check_digest(hash, digest)?;
    let tail = [digest_info(hash), digest].concat();
    // Moduli have 2048 bits or more, so that at least 8 bytes of padding remain.
    let mut em = vec![0xff; length];
    em[..2].copy_from_slice(&[0, 1]);
    let start = length - tail.len();
    em[start - 1] = 0;
    em[start..].copy_from_slice(&tail);
    Ok(em)
}

/// Encodes by EMSA-PSS with MGF1 and the same hash, in `length` bytes for a modulus of `bits`.
///
/// # Errors
///
/// [`SigmaError::TooLong`] for a salt that does not fit, [`SigmaError::Malformed`] for a digest of
/// another length.
pub(crate) fn encode_pss(
    hash: HashFunction,
    digest: &[u8],
    salt: &[u8],
    bits: usize,
    length: usize,
) -> Result<Vec<u8>, SigmaError> {
    check_digest(hash, digest)?;
    let shape = PssLayout::new(hash, bits);
    if salt.len() > shape.salt_max() {
        let max = shape.salt_max();
        return Err(SigmaError::TooLong { what: "salt", max, got: salt.len() });
    }
    let h = hash.digest_parts(&[&[0; 8], digest, salt]);
    let mut data = vec![0; shape.data];
    let start = shape.data - salt.len();
    data[start - 1] = 1;
    data[start..].copy_from_slice(salt);
    shape.apply_mgf1_mask(&mut data, &h);
    let mut em = vec![0; length - shape.length];
    em.extend(data);
    em.extend(h);
    em.push(0xbc);
    Ok(em)
}

/// Decodes the salt of an encoded message; `None` if it is not an EMSA-PSS encoding of a digest.
pub(crate) fn pss_salt(hash: HashFunction, em: &[u8], bits: usize) -> Option<Vec<u8>> {
    let shape = PssLayout::new(hash, bits);
    let em = &em[em.len().checked_sub(shape.length)?..];
    let (data, rest) = em.split_at(shape.data);
    let (h, trailer) = rest.split_at(hash.length());
    if trailer != [0xbc] || data[0] & !shape.top != 0 {
        return None;
    }
    let mut data = data.to_vec();
    shape.apply_mgf1_mask(&mut data, h);
    let one = data.iter().position(|byte| *byte != 0)?;
    (data[one] == 1).then(|| data[one + 1..].to_vec())
}

/// The lengths of the parts of an EMSA-PSS encoding.
struct PssLayout {
    hash: HashFunction,
    /// The length of the encoding in bytes: one less than the modulus if that has 8k + 1 bits.
    length: usize,
    /// The length of the masked data block before the hash, in bytes.
    data: usize,
    /// The number of bits of the first byte that may be set.
    top: u8,
}

impl PssLayout {
    fn new(hash: HashFunction, bits: usize) -> Self {
        let em_bits = bits - 1;
        let length = em_bits.div_ceil(8);
        let data = length - hash.length() - 1;
        Self { hash, length, data, top: 0xff >> (8 * length - em_bits) }
    }

    fn salt_max(&self) -> usize {
        self.data - 1
    }

    /// Masks or unmasks the data block with MGF1 of the hash (RFC 8017, B.2.1).
    fn apply_mgf1_mask(&self, data: &mut [u8], seed: &[u8]) {
        for (counter, block) in data.chunks_mut(self.hash.length()).enumerate() {
            let mask = self.hash.digest_parts(&[seed, &(counter as u32).to_be_bytes()]);
            block.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        }
        data[0] &= self.top;
    }
}

pub(crate) fn check_digest(hash: HashFunction, digest: &[u8]) -> Result<(), SigmaError> {
    match digest.len() == hash.length() {
        true => Ok(()),
        false => Err(SigmaError::Malformed { what: "digest" }),
    }
}

/// The bytes of `DigestInfo` up to the digest (RFC 8017, section 9.2, note 1).
fn digest_info(hash: HashFunction) -> &'static [u8] {
    match hash {
        HashFunction::Sha256 => {
            b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"
        }
        HashFunction::Sha384 => {
            b"\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30"
        }
        HashFunction::Sha512 => {
            b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40"
        }
    }
}

impl HashFunction {
    /// The digest of the concatenated parts.
    pub(crate) fn digest_parts(self, parts: &[&[u8]]) -> Vec<u8> {
        fn digest_with<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
            let mut hash = D::new();
            parts.iter().for_each(|part| hash.update(part));
            hash.finalize().to_vec()
        }
        match self {
            Self::Sha256 => digest_with::<Sha256>(parts),
            Self::Sha384 => digest_with::<Sha384>(parts),
            Self::Sha512 => digest_with::<Sha512>(parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_salt_of_an_encoding_is_found_again() {
        for hash in [HashFunction::Sha256, HashFunction::Sha384, HashFunction::Sha512] {
            for bits in [2048, 2049, 2050, 2055, 2056, 3072, 4096] {
                for salt in [&[][..], b"salt", &[7; 64]] {
                    let length = usize::div_ceil(bits, 8);
                    let em = encode_pss(hash, &vec![3; hash.length()], salt, bits, length).unwrap();
                    assert_eq!(em.len(), length);
                    assert_eq!(pss_salt(hash, &em, bits).as_deref(), Some(salt), "{bits}");
                }
            }
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let long = encode_pss(HashFunction::Sha256, &[0; 32], &[0; 223], 2048, 256);
        assert_eq!(long, Err(SigmaError::TooLong { what: "salt", max: 222, got: 223 }));
        let digest = Err(SigmaError::Malformed { what: "digest" });
        assert_eq!(encode_pss(HashFunction::Sha256, &[0; 31], &[], 2048, 256), digest);
        assert_eq!(encode_pkcs1(HashFunction::Sha512, &[0; 32], 256), digest);
    }

    #[test]
    fn bytes_that_encode_nothing_have_no_salt() {
        assert_eq!(pss_salt(HashFunction::Sha256, &[0xff; 256], 2048), None);
        assert_eq!(pss_salt(HashFunction::Sha256, &[0; 256], 2048), None);
        assert_eq!(pss_salt(HashFunction::Sha256, &[], 2048), None);
    }
}
