//! What an attested end says of itself: the claims that its report data covers.
//!
//! A CBOR map with text keys in deterministic order (RFC 8949 section 4.2.1). `pubkey-hash` and
//! `nonce` are those of the interoperable RA-TLS profile; the others are confide's. A claim is
//! only worth what the quote over it is worth: read claims from an appraised result.

use alloc::{string::String, vec::Vec};

use minicbor::Decoder;

use crate::{
    cbor::Writer,
    unix_seconds::UnixSeconds,
    weights_claim::{WEIGHTS_MAX, WeightsClaim, WeightsClaimFault},
};

/// The value of `confide-version` that this code writes and reads.
const CLAIMS_VERSION: u64 = 1;

/// `sha-256` in IANA's Named Information registry, as `pubkey-hash` names it.
const SHA_256: u64 = 1;

/// The longest encoding that is read. A full set of claims takes under 900 bytes.
pub const CLAIMS_BYTES_MAX: usize = 1024;

/// The longest `guarantee` in bytes: one sentence that a person reads.
const GUARANTEE_BYTES_MAX: usize = 256;

/// The shortest `nonce` in bytes (RFC 9711 section 4.1).
const NONCE_BYTES_MIN: usize = 8;

/// The longest `nonce` in bytes (RFC 9711 section 4.1).
const NONCE_BYTES_MAX: usize = 64;

/// Claims of one end of an attested channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// SHA-256 of the effective configuration of the attested program.
    pub config_digest: [u8; 32],
    /// SHA-256 of the evidence of the attested end's GPU ([`crate::gpu::GpuEvidence`], encoded).
    pub gpu_evidence_hash: Option<[u8; 32]>,
    /// The guarantee that the attested end claims for itself, e.g. `operator is outside the TEE`.
    pub guarantee: String,
    /// A value that the verifier chose, where the protocol around it carries one.
    pub nonce: Option<Vec<u8>>,
    /// Unix seconds after which the key is not to be believed.
    pub not_after: u64,
    /// Unix seconds before which the key is not to be believed.
    pub not_before: u64,
    /// SHA-256 of the DER `SubjectPublicKeyInfo` of the TLS key.
    pub pubkey_hash: [u8; 32],
    /// The weights of the models that may answer; `None` if none were measured.
    pub weights: Option<WeightsClaim>,
}

impl Claims {
    /// The one encoding of these claims.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        let optional =
            [self.nonce.is_some(), self.weights.is_some(), self.gpu_evidence_hash.is_some()];
        writer.map(6 + optional.into_iter().map(u64::from).sum::<u64>());
        if let Some(nonce) = &self.nonce {
            writer.text(Claim::Nonce.name()).bytes(nonce);
        }
        if let Some(weights) = &self.weights {
            weights.write(writer.text(Claim::Weights.name()));
        }
        writer.text(Claim::Guarantee.name()).text(&self.guarantee);
        writer.text(Claim::NotAfter.name()).uint(self.not_after);
        writer.text(Claim::NotBefore.name()).uint(self.not_before);
        writer.text(Claim::PubkeyHash.name()).array(2).uint(SHA_256).bytes(&self.pubkey_hash);
        writer.text(Claim::ConfigDigest.name()).bytes(&self.config_digest);
        writer.text(Claim::ConfideVersion.name()).uint(CLAIMS_VERSION);
        if let Some(hash) = &self.gpu_evidence_hash {
            writer.text(Claim::GpuEvidenceHash.name()).bytes(hash);
        }
        writer.finish()
    }

    /// Reads claims, and accepts only the bytes that [`Claims::encode`] would write.
    ///
    /// # Errors
    /// [`ClaimsError::TooLong`] over [`CLAIMS_BYTES_MAX`], [`ClaimsError::NotCanonical`] if the
    /// claims have another encoding than this one, and the variant of the first entry that is
    /// unknown, repeated, missing or out of bounds.
    pub fn decode(bytes: &[u8]) -> Result<Self, ClaimsError> {
        if bytes.len() > CLAIMS_BYTES_MAX {
            return Err(ClaimsError::TooLong { wanted: CLAIMS_BYTES_MAX, got: bytes.len() });
        }
        let claims = PartialClaims::read(bytes)?.complete()?;
        claims.check()?;
        if claims.encode() != bytes {
            return Err(ClaimsError::NotCanonical);
        }
        Ok(claims)
    }

    /// Whether the values are ones that [`Claims::decode`] accepts.
    ///
    /// For a program that is about to encode claims of its own.
    ///
    /// # Errors
    /// [`ClaimsError::GuaranteeLength`], [`ClaimsError::GuaranteeControlCharacter`],
    /// [`ClaimsError::NonceLength`], [`ClaimsError::ValidityReversed`] or
    /// [`ClaimsError::WeightsCount`], whichever rule is broken first.
    pub fn check(&self) -> Result<(), ClaimsError> {
        if self.guarantee.is_empty() || self.guarantee.len() > GUARANTEE_BYTES_MAX {
            let got = self.guarantee.len();
            return Err(ClaimsError::GuaranteeLength { wanted: GUARANTEE_BYTES_MAX, got });
        }
        // It is shown on terminals, where a control character is a command.
        if self.guarantee.chars().any(char::is_control) {
            return Err(ClaimsError::GuaranteeControlCharacter);
        }
        if let Some(nonce) = &self.nonce
            && !(NONCE_BYTES_MIN..=NONCE_BYTES_MAX).contains(&nonce.len())
        {
            return Err(ClaimsError::NonceLength { got: nonce.len() });
        }
        if self.not_after < self.not_before {
            let (not_before, not_after) = (self.not_before, self.not_after);
            return Err(ClaimsError::ValidityReversed { not_before, not_after });
        }
        Ok(self.weights.as_ref().map_or(Ok(()), WeightsClaim::check)?)
    }
}

/// Why bytes are not claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// The encoding is longer than the limit.
    #[error("claims are {got} bytes, wanted at most {wanted}")]
    TooLong {
        /// The limit in bytes.
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// The bytes are no CBOR of the wanted types.
    #[error("claims are not readable CBOR at byte {position}, wanted {wanted}")]
    Malformed {
        /// The byte offset at which reading stopped.
        position: usize,
        /// The item that should stand there.
        wanted: &'static str,
    },
    /// A key is unknown.
    #[error("claims hold an unknown key, entry {index}")]
    UnknownKey {
        /// Its place in the map, from 0.
        index: u64,
    },
    /// A key occurs twice.
    #[error("claims hold {key} twice")]
    DuplicateKey {
        /// The key.
        key: &'static str,
    },
    /// A required key is absent.
    #[error("claims lack {key}")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// The claims have another version of this format.
    #[error("confide-version is {got}, wanted {wanted}")]
    Version {
        /// The version that is read.
        wanted: u64,
        /// The version that came.
        got: u64,
    },
    /// `pubkey-hash` names another hash.
    #[error("pubkey-hash algorithm is {got}, wanted {wanted} (sha-256)")]
    HashAlgorithm {
        /// The number of SHA-256.
        wanted: u64,
        /// The algorithm that came.
        got: u64,
    },
    /// A digest has another length than SHA-256.
    #[error("{key} is {got} bytes, wanted 32")]
    DigestLength {
        /// The key.
        key: &'static str,
        /// The length that came.
        got: usize,
    },
    /// `guarantee` is empty or too long.
    #[error("guarantee is {got} bytes, wanted 1 to {wanted}")]
    GuaranteeLength {
        /// The limit in bytes.
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// `guarantee` holds a character that is not text.
    #[error("guarantee holds a control character, wanted text")]
    GuaranteeControlCharacter,
    /// `nonce` is too short or too long.
    #[error("nonce is {got} bytes, wanted 8 to 64")]
    NonceLength {
        /// The length that came.
        got: usize,
    },
    /// The validity ends before it begins.
    #[error(
        "not-after {} is before not-before {}",
        UnixSeconds(*not_after), UnixSeconds(*not_before)
    )]
    ValidityReversed {
        /// Unix seconds.
        not_before: u64,
        /// Unix seconds.
        not_after: u64,
    },
    /// `weights` lists none, or too many.
    #[error("weights holds {got} measurements, wanted 1 to {wanted}")]
    WeightsCount {
        /// The limit.
        wanted: usize,
        /// The number that came.
        got: usize,
    },
    /// The same claims in other bytes than the deterministic ones, or bytes after them.
    #[error("claims are not in deterministic encoding")]
    NotCanonical,
}

impl From<WeightsClaimFault> for ClaimsError {
    fn from(fault: WeightsClaimFault) -> Self {
        match fault {
            WeightsClaimFault::Malformed { position, wanted } => {
                Self::Malformed { position, wanted }
            }
            WeightsClaimFault::Count { got } => Self::WeightsCount { wanted: WEIGHTS_MAX, got },
            WeightsClaimFault::Unsorted => Self::NotCanonical,
        }
    }
}

#[derive(Clone, Copy)]
enum Claim {
    Nonce,
    Weights,
    Guarantee,
    NotAfter,
    NotBefore,
    PubkeyHash,
    ConfigDigest,
    ConfideVersion,
    GpuEvidenceHash,
}

impl Claim {
    const ALL: [Claim; 9] = [
        Claim::Nonce,
        Claim::Weights,
        Claim::Guarantee,
        Claim::NotAfter,
        Claim::NotBefore,
        Claim::PubkeyHash,
        Claim::ConfigDigest,
        Claim::ConfideVersion,
        Claim::GpuEvidenceHash,
    ];

    fn name(self) -> &'static str {
        match self {
            Claim::Nonce => "nonce",
            Claim::Weights => "weights",
            Claim::Guarantee => "guarantee",
            Claim::NotAfter => "not-after",
            Claim::NotBefore => "not-before",
            Claim::PubkeyHash => "pubkey-hash",
            Claim::ConfigDigest => "config-digest",
            Claim::ConfideVersion => "confide-version",
            Claim::GpuEvidenceHash => "gpu-evidence-hash",
        }
    }
}

#[derive(Default)]
struct PartialClaims {
    config_digest: Option<[u8; 32]>,
    gpu_evidence_hash: Option<[u8; 32]>,
    guarantee: Option<String>,
    nonce: Option<Vec<u8>>,
    not_after: Option<u64>,
    not_before: Option<u64>,
    pubkey_hash: Option<[u8; 32]>,
    version: Option<u64>,
    weights: Option<WeightsClaim>,
}

impl PartialClaims {
    fn read(bytes: &[u8]) -> Result<Self, ClaimsError> {
        let mut decoder = Decoder::new(bytes);
        let entries = decoder.map().ok().flatten();
        let entries = entries.ok_or(malformed_error(&decoder, "a map of definite length"))?;
        let mut fields = Self::default();
        // Each round consumes input or fails, so a huge count costs nothing.
        for index in 0..entries {
            let name = decoder.str().map_err(|_| malformed_error(&decoder, "a text key"))?;
            let key = Claim::ALL.into_iter().find(|key| key.name() == name);
            fields.read_value(key.ok_or(ClaimsError::UnknownKey { index })?, &mut decoder)?;
        }
        Ok(fields)
    }

    fn read_value(&mut self, key: Claim, decoder: &mut Decoder<'_>) -> Result<(), ClaimsError> {
        match key {
            Claim::Nonce => set(&mut self.nonce, key, read_byte_string(decoder)?.into()),
            Claim::Weights => set(&mut self.weights, key, WeightsClaim::read(decoder)?),
            Claim::Guarantee => {
                let text = decoder.str().map_err(|_| malformed_error(decoder, "text"))?;
                set(&mut self.guarantee, key, text.into())
            }
            Claim::NotAfter => set(&mut self.not_after, key, read_uint(decoder)?),
            Claim::NotBefore => set(&mut self.not_before, key, read_uint(decoder)?),
            Claim::PubkeyHash => {
                if !matches!(decoder.array(), Ok(Some(2))) {
                    return Err(malformed_error(decoder, "an array of two"));
                }
                let algorithm = read_uint(decoder)?;
                if algorithm != SHA_256 {
                    return Err(ClaimsError::HashAlgorithm { wanted: SHA_256, got: algorithm });
                }
                set(&mut self.pubkey_hash, key, digest(key, decoder)?)
            }
            Claim::ConfigDigest => set(&mut self.config_digest, key, digest(key, decoder)?),
            Claim::ConfideVersion => set(&mut self.version, key, read_uint(decoder)?),
            Claim::GpuEvidenceHash => set(&mut self.gpu_evidence_hash, key, digest(key, decoder)?),
        }
    }

    fn complete(self) -> Result<Claims, ClaimsError> {
        let version = self.version.ok_or(missing_claim(Claim::ConfideVersion))?;
        if version != CLAIMS_VERSION {
            return Err(ClaimsError::Version { wanted: CLAIMS_VERSION, got: version });
        }
        Ok(Claims {
            config_digest: self.config_digest.ok_or(missing_claim(Claim::ConfigDigest))?,
            gpu_evidence_hash: self.gpu_evidence_hash,
            guarantee: self.guarantee.ok_or(missing_claim(Claim::Guarantee))?,
            nonce: self.nonce,
            not_after: self.not_after.ok_or(missing_claim(Claim::NotAfter))?,
            not_before: self.not_before.ok_or(missing_claim(Claim::NotBefore))?,
            pubkey_hash: self.pubkey_hash.ok_or(missing_claim(Claim::PubkeyHash))?,
            weights: self.weights,
        })
    }
}

fn set<T>(field: &mut Option<T>, key: Claim, value: T) -> Result<(), ClaimsError> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(ClaimsError::DuplicateKey { key: key.name() }),
    }
}

fn digest(key: Claim, decoder: &mut Decoder<'_>) -> Result<[u8; 32], ClaimsError> {
    let bytes = read_byte_string(decoder)?;
    let got = bytes.len();
    bytes.try_into().map_err(|_| ClaimsError::DigestLength { key: key.name(), got })
}

fn read_byte_string<'b>(decoder: &mut Decoder<'b>) -> Result<&'b [u8], ClaimsError> {
    decoder.bytes().map_err(|_| malformed_error(decoder, "a byte string"))
}

fn read_uint(decoder: &mut Decoder<'_>) -> Result<u64, ClaimsError> {
    decoder.u64().map_err(|_| malformed_error(decoder, "an unsigned integer"))
}

fn malformed_error(decoder: &Decoder<'_>, wanted: &'static str) -> ClaimsError {
    ClaimsError::Malformed { position: decoder.position(), wanted }
}

fn missing_claim(key: Claim) -> ClaimsError {
    ClaimsError::Missing { key: key.name() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights_claim::{MeasuredWeights, WeightsSource};
    use alloc::vec;

    fn claims() -> Claims {
        Claims {
            config_digest: [7; 32],
            gpu_evidence_hash: None,
            guarantee: "operator is outside the TEE".into(),
            nonce: Some(vec![1; 32]),
            not_after: 1_800_000_600,
            not_before: 1_800_000_000,
            pubkey_hash: [9; 32],
            weights: None,
        }
    }

    fn with_weights(servers: &[Option<u8>]) -> Claims {
        let source = WeightsSource::HashedAtStart;
        let measured =
            |byte: &Option<u8>| byte.map(|byte| MeasuredWeights { source, digest: [byte; 32] });
        Claims { weights: WeightsClaim::from_servers(servers.iter().map(measured)), ..claims() }
    }

    #[test]
    fn claims_come_back_as_they_were() {
        let with_nonce = claims();
        let without = Claims { nonce: None, ..claims() };
        let with_gpu = Claims { gpu_evidence_hash: Some([5; 32]), ..claims() };
        let with_weights = [&[Some(1)][..], &[Some(2), None, Some(1)]].map(with_weights);
        for claims in [with_nonce, without, with_gpu].into_iter().chain(with_weights) {
            assert_eq!(Claims::decode(&claims.encode()), Ok(claims));
        }
    }

    #[test]
    fn every_truncation_is_rejected() {
        let bytes = claims().encode();
        for len in 0..bytes.len() {
            assert!(Claims::decode(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn trailing_bytes_are_rejected() {
        let mut bytes = claims().encode();
        bytes.push(0);
        assert_eq!(Claims::decode(&bytes), Err(ClaimsError::NotCanonical));
    }

    #[test]
    fn every_bit_flip_is_rejected_or_reads_as_other_claims() {
        let bytes = claims().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = Claims::decode(&flipped) {
                assert_ne!(read, claims());
                assert_eq!(read.encode(), flipped);
            }
        }
    }

    #[test]
    fn a_full_set_of_claims_is_readable_and_one_with_more_weights_is_refused() {
        let servers: Vec<Option<u8>> = [None].into_iter().chain((0..9).map(Some)).collect();
        let most = Claims {
            gpu_evidence_hash: Some([5; 32]),
            guarantee: "g".repeat(GUARANTEE_BYTES_MAX),
            nonce: Some(vec![1; NONCE_BYTES_MAX]),
            ..with_weights(&servers[..9])
        };
        let encoded = most.encode();
        assert!(encoded.len() < 900, "{}", encoded.len());
        assert_eq!(Claims::decode(&encoded), Ok(most));
        let more = with_weights(&servers);
        let refused = ClaimsError::WeightsCount { wanted: 8, got: 9 };
        assert_eq!(more.check(), Err(refused.clone()));
        assert!(Claims::decode(&more.encode()).is_err());
        assert_eq!(Claims::decode(&with_weights(&servers[1..]).encode()), Err(refused));
    }

    #[test]
    fn weights_in_another_form_are_rejected() {
        let encode = |write: &dyn Fn(&mut Writer)| {
            let claims = claims().encode();
            let mut weights = Writer::new();
            write(weights.text("weights"));
            // One more entry, after the nonce, which is the first.
            let (head, nonce) = (1, 1 + 5 + 2 + 32);
            let mut bytes = vec![claims[0] + 1];
            bytes.extend_from_slice(&claims[head..][..nonce]);
            bytes.extend_from_slice(&weights.finish());
            bytes.extend_from_slice(&claims[head + nonce..]);
            bytes
        };
        let digest = |byte| [byte; 32];
        let good = encode(&|w| {
            w.array(1).array(2).uint(1).bytes(&digest(1));
        });
        assert_eq!(Claims::decode(&good), Ok(with_weights(&[Some(1)])));
        type Write = fn(&mut Writer);
        let malformed: [Write; 9] = [
            |w| {
                w.array(0);
            },
            |w| {
                w.array(1).text("not measured");
            },
            |w| {
                w.array(1).array(2).uint(0).bytes(&[1; 32]);
            },
            |w| {
                w.array(1).array(2).uint(1).bytes(&[1; 31]);
            },
            |w| {
                w.array(1).array(1).uint(1);
            },
            |w| {
                w.array(2).text("not measured").array(2).uint(1).bytes(&[1; 32]);
            },
            |w| {
                w.array(2).array(2).uint(1).bytes(&[1; 32]).array(2).uint(1).bytes(&[1; 32]);
            },
            |w| {
                w.array(2).array(2).uint(1).bytes(&[2; 32]).array(2).uint(1).bytes(&[1; 32]);
            },
            |w| {
                w.array(2).array(2).uint(1).bytes(&[1; 32]).text("measured");
            },
        ];
        for (index, write) in malformed.iter().enumerate() {
            assert!(Claims::decode(&encode(write)).is_err(), "{index}");
        }
    }

    #[test]
    fn keys_in_another_order_are_rejected() {
        let mut writer = Writer::new();
        writer.map(6).text("guarantee").text("g");
        writer.text("not-before").uint(1).text("not-after").uint(2);
        writer.text("pubkey-hash").array(2).uint(1).bytes(&[0; 32]);
        writer.text("config-digest").bytes(&[0; 32]).text("confide-version").uint(1);
        assert_eq!(Claims::decode(&writer.finish()), Err(ClaimsError::NotCanonical));
    }

    #[test]
    fn an_integer_in_a_longer_form_is_rejected() {
        let canonical = Claims { not_before: 0, not_after: 0, ..claims() }.encode();
        let name = b"not-before";
        let at = canonical.windows(name.len()).position(|w| w == name).map(|p| p + name.len());
        let at = at.expect("the key is there");
        let mut longer = canonical.clone();
        longer.splice(at..=at, [0x18, 0x00]);
        assert_eq!(Claims::decode(&longer), Err(ClaimsError::NotCanonical));
    }

    #[test]
    fn a_map_that_says_it_is_huge_is_rejected_at_once() {
        let bytes = [0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert!(matches!(Claims::decode(&bytes), Err(ClaimsError::Malformed { .. })));
    }

    #[test]
    fn values_out_of_bounds_are_named() {
        let long = Claims { guarantee: "g".repeat(257), ..claims() };
        let empty = Claims { guarantee: String::new(), ..claims() };
        for claims in [long, empty] {
            let result = Claims::decode(&claims.encode());
            assert!(matches!(result, Err(ClaimsError::GuaranteeLength { .. })));
        }
        let bell = Claims { guarantee: "a\u{7}".into(), ..claims() };
        assert_eq!(Claims::decode(&bell.encode()), Err(ClaimsError::GuaranteeControlCharacter));
        let short = Claims { nonce: Some(vec![0; 7]), ..claims() };
        assert_eq!(Claims::decode(&short.encode()), Err(ClaimsError::NonceLength { got: 7 }));
        let reversed = Claims { not_after: 1, ..claims() };
        let result = Claims::decode(&reversed.encode());
        assert!(matches!(result, Err(ClaimsError::ValidityReversed { .. })));
        let oversized = [0; CLAIMS_BYTES_MAX + 1];
        assert!(matches!(Claims::decode(&oversized), Err(ClaimsError::TooLong { .. })));
    }
}
