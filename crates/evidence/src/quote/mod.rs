//! DCAP quotes: SGX version 3, TDX version 4 and either in version 5, as views of their bytes.
//!
//! Layout: Intel SGX ECDSA Quote Library Reference, appendix A; Intel TDX DCAP Quoting Library
//! API, appendix A. All numbers are little-endian. Nothing is copied and nothing is believed.

mod enclave;
mod reader;
mod trust_domain;

use alloc::format;
use core::fmt;

pub use enclave::EnclaveReport;
use reader::field_at;
pub use trust_domain::{TdReport, TdReportTail};

use crate::{byte_reader::ByteReader, parse_error::ParseError, report_data::ReportData};

/// The length of the longest quote that is read. Real ones are 4.6 to 8.0 KB; configfs-tsm hands out at most
/// 32 KiB.
pub const QUOTE_LENGTH_MAX: usize = 32 * 1024;
/// The largest number of zero bytes accepted after the signature data. Quote providers fill fixed buffers: 70 and
/// 3,065 bytes are seen in the field.
pub const PADDING_LENGTH_MAX: usize = 3 * 1024;
/// The length of the longest QE authentication data, in bytes; Intel's quoting enclaves write 32 bytes.
const QE_AUTH_DATA_LENGTH_MAX: usize = 256;
/// The longest certification data: a PEM chain of three certificates is 3.7 KB.
const CERTIFICATION_LENGTH_MAX: usize = 16 * 1024;

/// Vendor identifier of Intel's quoting enclaves.
pub const INTEL_QE_VENDOR_ID: [u8; 16] = [
    0x93, 0x9a, 0x72, 0x33, 0xf7, 0x9c, 0x4c, 0xa9, 0x94, 0x0a, 0x0d, 0xb3, 0x95, 0x7f, 0x06, 0x07,
];

const HEADER_LENGTH: usize = 48;
const KEY_TYPE_P256: u16 = 2;
const TEE_TYPE_SGX: u32 = 0;
const TEE_TYPE_TDX: u32 = 0x81;
const CERTIFICATION_PCK_CHAIN: u16 = 5;
const CERTIFICATION_QE_REPORT: u16 = 6;

/// Body types of version 5 (Intel's `sgx_quote_5.h`).
const BODY_SGX: usize = 1;
const BODY_TD_1_0: usize = 2;
const BODY_TD_1_5: usize = 3;
const BODY_TD_1_5_EX: usize = 4;

/// The kind of trusted execution environment that evidence is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tee {
    /// An SGX enclave.
    Sgx,
    /// A SEV-SNP guest; its evidence is not a quote but a report ([`crate::snp`]).
    Snp,
    /// A TDX trust domain.
    Tdx,
}

impl Tee {
    /// `sgx`, `snp` or `tdx`.
    pub fn as_str(self) -> &'static str {
        match self {
            Tee::Sgx => "sgx",
            Tee::Snp => "snp",
            Tee::Tdx => "tdx",
        }
    }
}

impl fmt::Display for Tee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tee::Sgx => "SGX",
            Tee::Snp => "SEV-SNP",
            Tee::Tdx => "TDX",
        })
    }
}

/// A quote, split into its fields.
#[derive(Clone, Copy, Debug)]
pub struct Quote<'a> {
    /// The first 48 bytes.
    pub header: Header<'a>,
    /// The report of the enclave or trust domain.
    pub body: Body<'a>,
    /// Header and body together, in version 5 with the body's type and length: what `signature`
    /// covers.
    pub signed: &'a [u8],
    /// ECDSA P-256 over `signed` by `attestation_key`: r, then s, big-endian.
    pub signature: &'a [u8; 64],
    /// The attestation key: x, then y, big-endian.
    pub attestation_key: &'a [u8; 64],
    /// The quoting enclave's own report, which binds the attestation key.
    pub qe_report: EnclaveReport<'a>,
    /// ECDSA P-256 over `qe_report` by the PCK.
    pub qe_report_signature: &'a [u8; 64],
    /// Data that the quoting enclave hashes together with the attestation key.
    pub qe_auth_data: &'a [u8],
    /// The PCK certificate chain, PEM.
    pub pck_chain: &'a [u8],
    /// Zero bytes after the signature data (unsigned, and of no meaning).
    pub padding_length: usize,
}

impl<'a> Quote<'a> {
    /// Reads an SGX quote of version 3, a TDX quote of version 4, or either in version 5.
    ///
    /// # Errors
    /// [`ParseError::TooLong`] over [`QUOTE_LENGTH_MAX`], [`ParseError::Truncated`] or
    /// [`ParseError::Length`] if a field is cut or another length was announced,
    /// [`ParseError::Unsupported`] for another version, key, TEE or certification data,
    /// [`ParseError::TrailingBytes`] if more than padding follows.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        if bytes.len() > QUOTE_LENGTH_MAX {
            let got = bytes.len();
            return Err(ParseError::TooLong { subject: "quote", limit: QUOTE_LENGTH_MAX, got });
        }
        let mut reader = ByteReader::new(bytes);
        let header = Header(reader.array("quote header")?);
        let body = Body::read(&mut reader, header)?;
        let signed = reader.consumed_bytes();
        let length = reader.u32("signature data length")?;
        let signature_data = reader.take("signature data", length)?;
        let padding_length = padding_length(bytes, reader.position())?;
        let parts = SignatureData::parse(signature_data, header.version())?;
        Ok(Self {
            header,
            body,
            signed,
            signature: parts.signature,
            attestation_key: parts.attestation_key,
            qe_report: parts.qe_report,
            qe_report_signature: parts.qe_report_signature,
            qe_auth_data: parts.qe_auth_data,
            pck_chain: parts.pck_chain,
            padding_length,
        })
    }

    /// The kind of TEE that the quote is about.
    pub fn tee(&self) -> Tee {
        match self.body {
            Body::Sgx(_) => Tee::Sgx,
            Body::Tdx(_) => Tee::Tdx,
        }
    }

    /// The 64 bytes that the attested program chose.
    pub fn report_data(&self) -> ReportData {
        match self.body {
            Body::Sgx(report) => ReportData(*report.report_data()),
            Body::Tdx(report) => ReportData(*report.report_data()),
        }
    }
}

/// The report inside a quote.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// SGX enclave report.
    Sgx(EnclaveReport<'a>),
    /// TD report, of TDX 1.0 or later.
    Tdx(TdReport<'a>),
}

impl<'a> Body<'a> {
    /// Version 5 says which report follows and how long it is; before that the header tells.
    fn read(reader: &mut ByteReader<'a>, header: Header<'a>) -> Result<Self, ParseError> {
        let is_tdx = header.check()?;
        let kind = match (header.version(), is_tdx) {
            (5, _) => usize::from(reader.u16("quote body type")?),
            (_, true) => BODY_TD_1_0,
            (_, false) => BODY_SGX,
        };
        let wanted = match (kind, is_tdx) {
            (BODY_SGX, false) => EnclaveReport::LENGTH,
            (BODY_TD_1_0, true) => TdReport::LENGTH_1_0,
            (BODY_TD_1_5, true) => TdReport::LENGTH_1_5,
            (BODY_TD_1_5_EX, true) => TdReport::LENGTH_1_5_EX,
            _ => {
                return Err(ParseError::Unsupported {
                    subject: "quote body type",
                    wanted: "1 (SGX) with TEE type 0x0, or 2, 3 or 4 (TDX) with 0x81",
                    got: format!("{kind} with TEE type {:#x}", header.tee_type()),
                });
            }
        };
        if header.version() == 5 {
            let got = reader.u32("quote body length")?;
            if got != wanted {
                return Err(ParseError::Length { subject: "quote body", wanted, got });
            }
        }
        if kind == BODY_SGX {
            return Ok(Body::Sgx(EnclaveReport(reader.array("enclave report")?)));
        }
        Ok(Body::Tdx(TdReport {
            base: reader.array("TD report")?,
            tail_1_5: if kind >= BODY_TD_1_5 { Some(reader.array("TD report")?) } else { None },
            tail_ex: if kind >= BODY_TD_1_5_EX { Some(reader.array("TD report")?) } else { None },
        }))
    }
}

/// The 48 bytes that open every quote.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; HEADER_LENGTH]);

impl<'a> Header<'a> {
    /// Quote format: 3, 4 or 5.
    pub fn version(self) -> u16 {
        u16::from_le_bytes(*self.field::<0, 2>())
    }

    /// 20 bytes that the quoting enclave sets; part of a platform identifier.
    pub fn user_data(self) -> &'a [u8; 20] {
        self.field::<28, 20>()
    }

    fn tee_type(self) -> u32 {
        u32::from_le_bytes(*self.field::<4, 4>())
    }

    /// Checks version, key type and vendor; `true` for a trust domain, `false` for an enclave.
    fn check(self) -> Result<bool, ParseError> {
        let key_type = u16::from_le_bytes(*self.field::<2, 2>());
        let is_tdx = match (self.version(), self.tee_type()) {
            (3 | 5, TEE_TYPE_SGX) => false,
            (4 | 5, TEE_TYPE_TDX) => true,
            (3..=5, other) => {
                return Err(ParseError::Unsupported {
                    subject: "quote TEE type",
                    wanted: "0x0 in version 3, 0x81 in version 4, either in version 5",
                    got: format!("{other:#x} in version {}", self.version()),
                });
            }
            (other, _) => {
                return Err(ParseError::Unsupported {
                    subject: "quote version",
                    wanted: "3 (SGX), 4 (TDX) or 5",
                    got: format!("{other}"),
                });
            }
        };
        if key_type != KEY_TYPE_P256 {
            return Err(ParseError::Unsupported {
                subject: "attestation key type",
                wanted: "2 (ECDSA P-256)",
                got: format!("{key_type}"),
            });
        }
        let vendor = self.field::<12, 16>();
        if *vendor != INTEL_QE_VENDOR_ID {
            return Err(ParseError::Unsupported {
                subject: "QE vendor id",
                wanted: "939a7233f79c4ca9940a0db3957f0607",
                got: hex::encode(vendor),
            });
        }
        Ok(is_tdx)
    }

    fn field<const AT: usize, const N: usize>(self) -> &'a [u8; N] {
        field_at::<HEADER_LENGTH, AT, N>(self.0)
    }
}

struct SignatureData<'a> {
    signature: &'a [u8; 64],
    attestation_key: &'a [u8; 64],
    qe_report: EnclaveReport<'a>,
    qe_report_signature: &'a [u8; 64],
    qe_auth_data: &'a [u8],
    pck_chain: &'a [u8],
}

impl<'a> SignatureData<'a> {
    /// Version 4 wraps what follows the attestation key in certification data of type 6.
    fn parse(bytes: &'a [u8], version: u16) -> Result<Self, ParseError> {
        let mut reader = ByteReader::new(bytes);
        let signature = reader.array("quote signature")?;
        let attestation_key = reader.array("attestation key")?;
        if version >= 4 {
            let wrapped =
                read_certification(&mut reader, CERTIFICATION_QE_REPORT, "6 (QE report)")?;
            reader.finish("signature data")?;
            reader = ByteReader::new(wrapped);
        }
        let qe_report = EnclaveReport(reader.array("QE report")?);
        let qe_report_signature = reader.array("QE report signature")?;
        let length = usize::from(reader.u16("QE authentication data length")?);
        if length > QE_AUTH_DATA_LENGTH_MAX {
            return Err(ParseError::TooLong {
                subject: "QE authentication data",
                limit: QE_AUTH_DATA_LENGTH_MAX,
                got: length,
            });
        }
        let qe_auth_data = reader.take("QE authentication data", length)?;
        let pck_chain = read_certification(&mut reader, CERTIFICATION_PCK_CHAIN, "5 (PCK chain)")?;
        reader.finish("signature data")?;
        Ok(Self {
            signature,
            attestation_key,
            qe_report,
            qe_report_signature,
            qe_auth_data,
            pck_chain,
        })
    }
}

fn padding_length(bytes: &[u8], end: usize) -> Result<usize, ParseError> {
    let rest = bytes.get(end..).unwrap_or_default();
    // Without a branch per byte: 3 KB of zeros are common, and every appraisal reads them.
    let bits = rest.iter().fold(0, |bits, byte| bits | byte);
    if bits == 0 && rest.len() <= PADDING_LENGTH_MAX {
        return Ok(rest.len());
    }
    let zeros = rest.iter().take(PADDING_LENGTH_MAX).take_while(|byte| **byte == 0).count();
    Err(ParseError::TrailingBytes { subject: "quote", end, at: end + zeros })
}

/// Reads certification data, which must be of the wanted type.
fn read_certification<'a>(
    reader: &mut ByteReader<'a>,
    wanted: u16,
    wanted_name: &'static str,
) -> Result<&'a [u8], ParseError> {
    let subject = "certification data type";
    let kind = reader.u16(subject)?;
    if kind != wanted {
        let got = format!("{kind}");
        return Err(ParseError::Unsupported { subject, wanted: wanted_name, got });
    }
    let got = reader.u32("certification data length")?;
    if got > CERTIFICATION_LENGTH_MAX {
        let limit = CERTIFICATION_LENGTH_MAX;
        return Err(ParseError::TooLong { subject: "certification data", limit, got });
    }
    reader.take("certification data", got)
}
