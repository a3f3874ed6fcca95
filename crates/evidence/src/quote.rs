//! DCAP quotes: SGX version 3 and TDX version 4, as views of their bytes.
//!
//! Layout: Intel SGX ECDSA Quote Library Reference, appendix A; Intel TDX DCAP Quoting Library
//! API, appendix A. All numbers are little-endian. Nothing is copied and nothing is believed.

use alloc::format;
use core::fmt;

use crate::{ParseError, ReportData};

/// Longest quote that is read. Real ones are 4.6 to 8.0 KB; Linux's configfs-tsm hands out at most
/// 32 KiB.
pub const QUOTE_LENGTH_MAX: usize = 32 * 1024;
/// Most zero bytes accepted after the signature data. Quote providers fill fixed buffers: 70 and
/// 3,065 bytes are seen in the field.
pub const PADDING_LENGTH_MAX: usize = 3 * 1024;
/// Longest QE authentication data; Intel's quoting enclaves write 32 bytes.
pub const QE_AUTH_DATA_LENGTH_MAX: usize = 256;
/// Longest certification data: a PEM chain of three certificates is 3.7 KB.
pub const CERTIFICATION_LENGTH_MAX: usize = 16 * 1024;

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

/// Which kind of trusted execution environment made the quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tee {
    /// An SGX enclave.
    Sgx,
    /// A TDX trust domain.
    Tdx,
}

impl Tee {
    /// `sgx` or `tdx`.
    pub fn as_str(self) -> &'static str {
        match self {
            Tee::Sgx => "sgx",
            Tee::Tdx => "tdx",
        }
    }
}

impl fmt::Display for Tee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tee::Sgx => "SGX",
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
    /// Header and body together: what `signature` covers.
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
    /// Reads an SGX quote of version 3 or a TDX quote of version 4.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        if bytes.len() > QUOTE_LENGTH_MAX {
            let got = bytes.len();
            return Err(ParseError::TooLong { subject: "quote", limit: QUOTE_LENGTH_MAX, got });
        }
        let mut reader = Reader { all: bytes, at: 0 };
        let header = Header(reader.array("quote header")?);
        let body = match header.check()? {
            Tee::Sgx => Body::Sgx(EnclaveReport(reader.array("enclave report")?)),
            Tee::Tdx => Body::Tdx(TdReport(reader.array("TD report")?)),
        };
        let signed = reader.consumed();
        let length = reader.u32("signature data length")?;
        let signature_data = reader.take("signature data", length)?;
        let padding_length = padding(bytes, reader.at)?;
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

    /// Which TEE the quote speaks of.
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
    /// TD report of TDX 1.0.
    Tdx(TdReport<'a>),
}

/// The 48 bytes that open every quote.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; HEADER_LENGTH]);

impl<'a> Header<'a> {
    /// Quote format: 3 or 4.
    pub fn version(self) -> u16 {
        u16::from_le_bytes(*self.field::<0, 2>())
    }

    /// 20 bytes that the quoting enclave sets; part of a platform identifier.
    pub fn user_data(self) -> &'a [u8; 20] {
        self.field::<28, 20>()
    }

    fn check(self) -> Result<Tee, ParseError> {
        let key_type = u16::from_le_bytes(*self.field::<2, 2>());
        let tee_type = u32::from_le_bytes(*self.field::<4, 4>());
        let tee = match (self.version(), tee_type) {
            (3, TEE_TYPE_SGX) => Tee::Sgx,
            (4, TEE_TYPE_TDX) => Tee::Tdx,
            (3 | 4, other) => {
                return Err(ParseError::Unsupported {
                    subject: "quote TEE type",
                    wanted: "0x0 in version 3 or 0x81 in version 4",
                    got: format!("{other:#x} in version {}", self.version()),
                });
            }
            (other, _) => {
                return Err(ParseError::Unsupported {
                    subject: "quote version",
                    wanted: "3 (SGX) or 4 (TDX)",
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
        Ok(tee)
    }

    fn field<const AT: usize, const N: usize>(self) -> &'a [u8; N] {
        view::<HEADER_LENGTH, AT, N>(self.0)
    }
}

/// SGX `REPORT` body, 384 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnclaveReport<'a>(pub &'a [u8; 384]);

impl<'a> EnclaveReport<'a> {
    /// The whole report: what the PCK signs in the quoting enclave's case.
    pub fn bytes(self) -> &'a [u8; 384] {
        self.0
    }

    /// Security version of the processor.
    pub fn cpu_svn(self) -> &'a [u8; 16] {
        self.field::<0, 16>()
    }

    /// Which extended state is saved on an exception.
    pub fn misc_select(self) -> &'a [u8; 4] {
        self.field::<16, 4>()
    }

    /// Flags (8 bytes) and XFRM (8 bytes).
    pub fn attributes(self) -> &'a [u8; 16] {
        self.field::<48, 16>()
    }

    /// Whether the enclave can be read from outside (attribute bit 1).
    pub fn is_debug(self) -> bool {
        self.attributes()[0] & 0x02 != 0
    }

    /// Hash of the enclave's code and initial data.
    pub fn mr_enclave(self) -> &'a [u8; 32] {
        self.field::<64, 32>()
    }

    /// Hash of the key that signed the enclave.
    pub fn mr_signer(self) -> &'a [u8; 32] {
        self.field::<128, 32>()
    }

    /// Configuration identifier given at launch (KSS).
    pub fn config_id(self) -> &'a [u8; 64] {
        self.field::<192, 64>()
    }

    /// Product number given by the signer.
    pub fn isv_prod_id(self) -> u16 {
        u16::from_le_bytes(*self.field::<256, 2>())
    }

    /// Security version given by the signer.
    pub fn isv_svn(self) -> u16 {
        u16::from_le_bytes(*self.field::<258, 2>())
    }

    /// The 64 bytes that the enclave chose.
    pub fn report_data(self) -> &'a [u8; 64] {
        self.field::<320, 64>()
    }

    fn field<const AT: usize, const N: usize>(self) -> &'a [u8; N] {
        view::<384, AT, N>(self.0)
    }
}

/// TD report of TDX 1.0, 584 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TdReport<'a>(pub &'a [u8; 584]);

impl<'a> TdReport<'a> {
    /// Security versions of the TDX module: byte 0 its ISVSVN, byte 1 its major version.
    pub fn tee_tcb_svn(self) -> &'a [u8; 16] {
        self.field::<0, 16>()
    }

    /// Hash of the TDX module.
    pub fn mr_seam(self) -> &'a [u8; 48] {
        self.field::<16, 48>()
    }

    /// Hash of the TDX module's signer; zero for Intel's.
    pub fn mr_signer_seam(self) -> &'a [u8; 48] {
        self.field::<64, 48>()
    }

    /// Attributes of the TDX module.
    pub fn seam_attributes(self) -> &'a [u8; 8] {
        self.field::<112, 8>()
    }

    /// Attributes of the trust domain.
    pub fn td_attributes(self) -> u64 {
        u64::from_le_bytes(*self.field::<120, 8>())
    }

    /// Whether the host can read the trust domain (attribute bit 0).
    pub fn is_debug(self) -> bool {
        self.td_attributes() & 1 != 0
    }

    /// Extended features that the trust domain may use.
    pub fn xfam(self) -> &'a [u8; 8] {
        self.field::<128, 8>()
    }

    /// Hash of the trust domain's initial contents.
    pub fn mr_td(self) -> &'a [u8; 48] {
        self.field::<136, 48>()
    }

    /// Configuration given by the host at launch.
    pub fn mr_config_id(self) -> &'a [u8; 48] {
        self.field::<184, 48>()
    }

    /// Owner given by the host at launch.
    pub fn mr_owner(self) -> &'a [u8; 48] {
        self.field::<232, 48>()
    }

    /// Owner's configuration given by the host at launch.
    pub fn mr_owner_config(self) -> &'a [u8; 48] {
        self.field::<280, 48>()
    }

    /// The four measurement registers that grow while the trust domain runs.
    pub fn rtmrs(self) -> [&'a [u8; 48]; 4] {
        [
            self.field::<328, 48>(),
            self.field::<376, 48>(),
            self.field::<424, 48>(),
            self.field::<472, 48>(),
        ]
    }

    /// The 64 bytes that the trust domain chose.
    pub fn report_data(self) -> &'a [u8; 64] {
        self.field::<520, 64>()
    }

    fn field<const AT: usize, const N: usize>(self) -> &'a [u8; N] {
        view::<584, AT, N>(self.0)
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
        let mut reader = Reader { all: bytes, at: 0 };
        let signature = reader.array("quote signature")?;
        let attestation_key = reader.array("attestation key")?;
        if version >= 4 {
            let wrapped = reader.certification(CERTIFICATION_QE_REPORT, "6 (QE report)")?;
            reader.finish("signature data")?;
            reader = Reader { all: wrapped, at: 0 };
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
        let pck_chain = reader.certification(CERTIFICATION_PCK_CHAIN, "5 (PCK chain)")?;
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

fn padding(bytes: &[u8], end: usize) -> Result<usize, ParseError> {
    let rest = bytes.get(end..).unwrap_or_default();
    let zeros = rest.iter().take(PADDING_LENGTH_MAX).take_while(|byte| **byte == 0).count();
    match zeros == rest.len() {
        true => Ok(zeros),
        false => Err(ParseError::TrailingBytes { subject: "quote", end, at: end + zeros }),
    }
}

/// `N` bytes at `AT` of an array of `LEN`; that they lie inside is checked when it is compiled.
fn view<const LEN: usize, const AT: usize, const N: usize>(bytes: &[u8; LEN]) -> &[u8; N] {
    const { assert!(AT + N <= LEN) };
    match bytes[AT..].first_chunk() {
        Some(field) => field,
        None => unreachable!("bounds are checked at compile time"),
    }
}

struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, subject: &'static str, length: usize) -> Result<&'a [u8], ParseError> {
        let rest = self.all.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..length) else {
            return Err(ParseError::Truncated { subject, wanted: length, got: rest.len() });
        };
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, subject: &'static str) -> Result<&'a [u8; N], ParseError> {
        let taken = self.take(subject, N)?;
        taken.first_chunk().ok_or(ParseError::Truncated { subject, wanted: N, got: taken.len() })
    }

    fn u16(&mut self, subject: &'static str) -> Result<u16, ParseError> {
        Ok(u16::from_le_bytes(*self.array(subject)?))
    }

    fn u32(&mut self, subject: &'static str) -> Result<usize, ParseError> {
        Ok(u32::from_le_bytes(*self.array(subject)?) as usize)
    }

    fn certification(
        &mut self,
        wanted: u16,
        wanted_name: &'static str,
    ) -> Result<&'a [u8], ParseError> {
        let subject = "certification data type";
        let kind = self.u16(subject)?;
        if kind != wanted {
            let got = format!("{kind}");
            return Err(ParseError::Unsupported { subject, wanted: wanted_name, got });
        }
        let got = self.u32("certification data length")?;
        if got > CERTIFICATION_LENGTH_MAX {
            let limit = CERTIFICATION_LENGTH_MAX;
            return Err(ParseError::TooLong { subject: "certification data", limit, got });
        }
        self.take("certification data", got)
    }

    fn consumed(&self) -> &'a [u8] {
        self.all.get(..self.at).unwrap_or_default()
    }

    fn finish(self, subject: &'static str) -> Result<(), ParseError> {
        if self.at == self.all.len() {
            return Ok(());
        }
        Err(ParseError::Length { subject, wanted: self.at, got: self.all.len() })
    }
}
