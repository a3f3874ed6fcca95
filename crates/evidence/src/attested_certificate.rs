//! Certificates of other programs that carry evidence (RA-TLS): dstack's, Gramine's, and the
//! interoperable form, which is also ours.
//!
//! The quote, its rule for report data and the claims of this project are read. Names, dates, chains,
//! event logs and other claims are not.

use alloc::vec::Vec;

use der::{Encode, asn1::OctetStringRef};
use minicbor::{Decoder, data::Type};
use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::{
    certificate::CertificateFields, quote::QUOTE_LENGTH_MAX, report_data::ReportData,
    tagged_evidence::TAG_QUOTE,
};

/// The longest certificate that is read, in bytes. dstack's event logs take some 10 KiB.
pub const ATTESTED_CERTIFICATE_BYTES_MAX: usize = 96 * 1024;

/// 2.23.133.5.4.9, TCG DICE tagged evidence.
const TAGGED: &[u8] = &[0x67, 0x81, 5, 5, 4, 9];
/// 1.3.6.1.4.1.62397.1.1, dstack's TDX quote.
const DSTACK: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xe7, 0x3d, 1, 1];
/// 1.3.6.1.4.1.62397.1.8, dstack's versioned attestation.
const DSTACK_VERSIONED: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xe7, 0x3d, 1, 8];
/// 0.6.9.42.840.113741.1337.6, the SGX quote of Gramine. Its library writes tag and length of an
/// identifier (6 and 9) into the identifier itself.
const GRAMINE: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf8, 0x4d, 0x8a, 0x39, 6];
/// 1.2.840.113741.1337.6, the same identifier as it was meant, which other programs write.
const GRAMINE_AS_MEANT: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf8, 0x4d, 0x8a, 0x39, 6];

/// Begins what dstack hashes into report data.
const DSTACK_DOMAIN: &[u8] = b"ratls-cert:";

/// The form in which a certificate carries evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateForm {
    /// `60000([quote, claims])` with the claims of this project, which hold `confide-version`: key
    /// binding. Report data is SHA-256 of the claims, which hold the hash of the key.
    Confide,
    /// The same with other claims: Gramine from 1.8 on, and other programs of the interoperable
    /// RA-TLS profile.
    Tagged,
    /// dstack: report data is SHA-512 of `ratls-cert:` and the key.
    Dstack,
    /// Older versions of Gramine: report data is SHA-256 of the key.
    Gramine,
}

impl core::fmt::Display for CertificateForm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Confide => "confide",
            Self::Tagged => "interoperable RA-TLS",
            Self::Dstack => "dstack",
            Self::Gramine => "Gramine before 1.8",
        })
    }
}

/// The evidence in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttestedCertificate {
    /// The form of the evidence.
    pub form: CertificateForm,
    /// The quote, unparsed.
    pub quote: Vec<u8>,
    /// The report data that the quote has to hold, so that it is about the certificate's key.
    pub report_data: ReportData,
    /// The encoded [`crate::claims::Claims`] of [`CertificateForm::Confide`], unparsed; `None` in all
    /// other forms, whose claims say nothing that a policy asks for.
    pub claims: Option<Vec<u8>>,
    /// The DER SubjectPublicKeyInfo of the certificate's key.
    pub spki: Vec<u8>,
}

impl AttestedCertificate {
    /// Reads the evidence of a certificate in DER. Where it has several forms, the first of
    /// [`CertificateForm`] counts.
    ///
    /// # Errors
    /// [`AttestedCertificateError`] says why there is no evidence to judge.
    pub fn parse(der: &[u8]) -> Result<Self, AttestedCertificateError> {
        if der.len() > ATTESTED_CERTIFICATE_BYTES_MAX {
            return Err(AttestedCertificateError::TooLong { got: der.len() });
        }
        let (mut tagged, mut dstack, mut gramine) = (None, None, None);
        let mut is_versioned = false;
        let fields = CertificateFields::read(der, |id, value| {
            let slot = match id {
                TAGGED => &mut tagged,
                DSTACK => &mut dstack,
                GRAMINE | GRAMINE_AS_MEANT => &mut gramine,
                DSTACK_VERSIONED => {
                    is_versioned = true;
                    return Ok(false);
                }
                _ => return Ok(false),
            };
            match slot.replace(value) {
                None => Ok(false),
                Some(_) => Err("evidence extension twice"),
            }
        })
        .map_err(|field| AttestedCertificateError::Certificate { field })?;
        let spki = fields.public_key_info.to_der();
        let field = "public key";
        let spki = spki.map_err(|_| AttestedCertificateError::Certificate { field })?;
        let mut own_claims = None;
        let (form, quote, report_data) = if let Some(content) = tagged {
            let (quote, claims) = read_tagged_evidence(content)?;
            let form = match check_claims_key(claims, &spki)? {
                ClaimsProfile::Confide => {
                    own_claims = Some(claims.to_vec());
                    CertificateForm::Confide
                }
                ClaimsProfile::Foreign => CertificateForm::Tagged,
            };
            (form, quote, ReportData::from_digest(Sha256::digest(claims).into()))
        } else if let Some(content) = dstack {
            let report_data = Sha512::new().chain_update(DSTACK_DOMAIN).chain_update(&spki);
            let report_data = ReportData(report_data.finalize().into());
            (CertificateForm::Dstack, unwrap_octets(content), report_data)
        } else if let Some(content) = gramine {
            let report_data = ReportData::from_digest(Sha256::digest(&spki).into());
            (CertificateForm::Gramine, unwrap_octets(content), report_data)
        } else if is_versioned {
            return Err(AttestedCertificateError::Unsupported);
        } else {
            return Err(AttestedCertificateError::NoEvidence);
        };
        match quote.len() {
            got if got == 0 || got > QUOTE_LENGTH_MAX => {
                Err(AttestedCertificateError::QuoteLength { got })
            }
            _ => {
                let quote = quote.to_vec();
                Ok(Self { form, quote, report_data, claims: own_claims, spki })
            }
        }
    }

    /// SHA-256 of the DER SubjectPublicKeyInfo of the certificate's key.
    pub fn spki_hash(&self) -> [u8; 32] {
        Sha256::digest(&self.spki).into()
    }
}

/// Why a certificate has no evidence to judge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttestedCertificateError {
    /// The certificate is too long.
    #[error("certificate is {got} bytes, wanted at most {ATTESTED_CERTIFICATE_BYTES_MAX}")]
    TooLong {
        /// The length that came.
        got: usize,
    },
    /// The certificate cannot be read.
    #[error("certificate is unreadable at its {field}")]
    Certificate {
        /// The first field that is not as RFC 5280 has it.
        field: &'static str,
    },
    /// No extension holds evidence.
    #[error("certificate has no evidence in a known extension")]
    NoEvidence,
    /// The evidence is in a form that is known and not read.
    #[error("certificate has evidence only in dstack's versioned form (1.3.6.1.4.1.62397.1.8)")]
    Unsupported,
    /// The evidence extension cannot be read.
    #[error("evidence extension is unreadable, wanted {wanted}")]
    Extension {
        /// What should stand there.
        wanted: &'static str,
    },
    /// The quote has a length out of its bounds.
    #[error("quote in the certificate is {got} bytes, wanted 1 to {QUOTE_LENGTH_MAX}")]
    QuoteLength {
        /// The length that came.
        got: usize,
    },
    /// The claims name another key than the certificate's.
    #[error("claims in the certificate name another key")]
    Key,
}

/// Quote and claims under the tag. Claims of others are longer than ours and not always
/// deterministic: their bytes are what is hashed.
fn read_tagged_evidence(content: &[u8]) -> Result<(&[u8], &[u8]), AttestedCertificateError> {
    let malformed = |_| AttestedCertificateError::Extension { wanted: "60000([quote, claims])" };
    let mut decoder = Decoder::new(content);
    let tag = decoder.tag().map_err(malformed)?.as_u64();
    let members = decoder.array().map_err(malformed)?;
    if tag != TAG_QUOTE || members != Some(2) {
        return Err(AttestedCertificateError::Extension { wanted: "60000([quote, claims])" });
    }
    let quote = decoder.bytes().map_err(malformed)?;
    let claims = decoder.bytes().map_err(malformed)?;
    match decoder.position() == content.len() {
        true => Ok((quote, claims)),
        false => Err(AttestedCertificateError::Extension { wanted: "nothing after the evidence" }),
    }
}

/// The program that defines the claims of a certificate.
enum ClaimsProfile {
    /// This project: the claims hold `confide-version`.
    Confide,
    /// Another one.
    Foreign,
}

/// Checks that `pubkey-hash` in the claims is the hash of the certificate's key, and finds out whose
/// claims they are. Other claims are not read.
fn check_claims_key(claims: &[u8], spki: &[u8]) -> Result<ClaimsProfile, AttestedCertificateError> {
    let error = || AttestedCertificateError::Extension { wanted: "claims with one pubkey-hash" };
    let malformed = |_| error();
    let mut decoder = Decoder::new(claims);
    let entries = decoder.map().map_err(malformed)?.ok_or_else(error)?;
    let mut found = None;
    let mut profile = ClaimsProfile::Foreign;
    for _ in 0..entries {
        let name = match decoder.datatype() {
            Ok(Type::String) => decoder.probe().str().unwrap_or_default(),
            _ => "",
        };
        decoder.skip().map_err(malformed)?;
        if name == "confide-version" {
            profile = ClaimsProfile::Confide;
        }
        if name != "pubkey-hash" {
            decoder.skip().map_err(malformed)?;
        } else if found.replace(read_key_hash(&mut decoder).ok_or_else(error)?).is_some() {
            return Err(error());
        }
    }
    if decoder.position() != claims.len() {
        return Err(error());
    }
    let (algorithm, hash) = found.ok_or_else(error)?;
    // IANA's registry of named information hash algorithms.
    let is_own_key = match algorithm {
        1 => Sha256::digest(spki)[..] == *hash,
        7 => Sha384::digest(spki)[..] == *hash,
        8 => Sha512::digest(spki)[..] == *hash,
        _ => return Err(error()),
    };
    if is_own_key { Ok(profile) } else { Err(AttestedCertificateError::Key) }
}

/// Reads `[algorithm, hash]`, or a byte string that holds exactly this array: Gramine writes the
/// latter.
fn read_key_hash<'b>(decoder: &mut Decoder<'b>) -> Option<(u64, &'b [u8])> {
    if !matches!(decoder.datatype(), Ok(Type::Bytes)) {
        return read_hash_entry(decoder);
    }
    let entry = decoder.bytes().ok()?;
    let mut inner = Decoder::new(entry);
    read_hash_entry(&mut inner).filter(|_| inner.position() == entry.len())
}

fn read_hash_entry<'b>(decoder: &mut Decoder<'b>) -> Option<(u64, &'b [u8])> {
    let members = decoder.array().ok()?;
    let algorithm = decoder.u64().ok()?;
    let hash = decoder.bytes().ok()?;
    (members == Some(2)).then_some((algorithm, hash))
}

/// The content of an OCTET STRING, or the bytes themselves. No quote reads as an OCTET STRING: after
/// its version comes a zero byte, which would be a length of 0.
fn unwrap_octets(content: &[u8]) -> &[u8] {
    match <&OctetStringRef as der::Decode>::from_der(content) {
        Ok(octets) => octets.as_bytes(),
        Err(_) => content,
    }
}
