//! The report: 1,184 bytes, of which the last 512 are the signature.

use alloc::format;
use core::fmt;

use crate::{parse_error::ParseError, report_data::ReportData};

/// Length of a report in bytes.
pub(crate) const REPORT_LENGTH: usize = 1184;
/// Length in bytes of the part of a report that the signature covers.
pub const SIGNED_LENGTH: usize = 0x2a0;

/// Each of r and s has 72 bytes, of which P-384 fills 48.
const SCALAR_FIELD: usize = 72;
const SCALAR: usize = 48;
const SIGNATURE_END: usize = SIGNED_LENGTH + 2 * SCALAR_FIELD;
const ECDSA_P384_SHA384: u32 = 1;

/// An attestation report, as a view of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a>(&'a [u8; REPORT_LENGTH]);

impl<'a> Report<'a> {
    /// Reads a report of version 2 to 5.
    ///
    /// Bytes that the specification reserves have to be zero: a version that gave them a meaning
    /// would have another number.
    ///
    /// # Errors
    /// [`ParseError::Length`] for any length but 1,184 bytes, [`ParseError::Unsupported`] for
    /// another version or signature algorithm, or where a reserved byte is not zero,
    /// [`ParseError::TrailingBytes`] if bytes follow the signature.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let Ok(array) = bytes.try_into() else {
            let got = bytes.len();
            return Err(ParseError::Length { subject: "SNP report", wanted: REPORT_LENGTH, got });
        };
        let report = Report(array);
        let (version, algorithm) = (report.version(), report.u32::<0x34>());
        if !(2..=5).contains(&version) {
            return Err(unsupported_error("SNP report version", "2 to 5", version));
        }
        if algorithm != ECDSA_P384_SHA384 {
            let wanted = "1 (ECDSA P-384 with SHA-384)";
            return Err(unsupported_error("SNP signature algorithm", wanted, algorithm));
        }
        if report.key_info() >> 5 != 0 {
            return Err(unsupported_error("SNP key information", "bits 0 to 4", report.key_info()));
        }
        for (from, until) in reserved_ranges(version) {
            if let Some(at) = array[from..until].iter().position(|byte| *byte != 0) {
                return Err(ParseError::Unsupported {
                    subject: "reserved byte of the SNP report",
                    wanted: "zero",
                    got: format!("{:#04x} at {:#x}", array[from + at], from + at),
                });
            }
        }
        // The bytes after s are not signed, so they must be zero as well.
        match array[SIGNATURE_END..].iter().position(|byte| *byte != 0) {
            Some(at) => Err(ParseError::TrailingBytes {
                subject: "signature of the SNP report",
                end: SIGNATURE_END,
                at: SIGNATURE_END + at,
            }),
            None => Ok(report),
        }
    }

    /// The bytes that the signature covers.
    pub fn signed_bytes(self) -> &'a [u8; SIGNED_LENGTH] {
        self.field::<0, SIGNED_LENGTH>()
    }

    /// The signature: r, then s, 48 bytes each, big-endian; `None` if either does not fit in 48 bytes.
    pub fn signature(self) -> Option<[u8; 2 * SCALAR]> {
        let mut signature = [0; 2 * SCALAR];
        for (number, scalar) in signature.chunks_exact_mut(SCALAR).enumerate() {
            let field = &self.0[SIGNED_LENGTH + number * SCALAR_FIELD..][..SCALAR_FIELD];
            let (low, high) = field.split_at(SCALAR);
            if high.iter().any(|byte| *byte != 0) {
                return None;
            }
            scalar.copy_from_slice(low);
            scalar.reverse();
        }
        Some(signature)
    }

    /// Version of the layout.
    pub fn version(self) -> u32 {
        self.u32::<0x00>()
    }

    /// Security version of the guest, from its ID block.
    pub fn guest_svn(self) -> u32 {
        self.u32::<0x04>()
    }

    /// The guest policy: what the guest's owner allows the host to do.
    pub fn policy(self) -> GuestPolicy {
        GuestPolicy(self.u64::<0x08>())
    }

    /// Family identifier, from the guest's ID block.
    pub fn family_id(self) -> &'a [u8; 16] {
        self.field::<0x10, 16>()
    }

    /// Image identifier, from the guest's ID block.
    pub fn image_id(self) -> &'a [u8; 16] {
        self.field::<0x20, 16>()
    }

    /// Privilege level that the report was asked from: 0 is the highest.
    pub fn vmpl(self) -> u32 {
        self.u32::<0x30>()
    }

    /// The configuration of the platform.
    pub fn platform_info(self) -> PlatformInfo {
        PlatformInfo(self.u64::<0x40>())
    }

    /// Whether the host forbids the use of the chip's own key (`MASK_CHIP_KEY`).
    pub fn masks_chip_key(self) -> bool {
        self.key_info() & 2 != 0
    }

    /// The kind of key that signed the report.
    pub fn signing_key(self) -> SigningKey {
        match self.key_info() >> 2 & 7 {
            0 => SigningKey::Vcek,
            1 => SigningKey::Vlek,
            7 => SigningKey::None,
            other => SigningKey::Unknown(other as u8),
        }
    }

    /// The 64 bytes that the guest chose.
    pub fn report_data(self) -> ReportData {
        ReportData(*self.field::<0x50, 64>())
    }

    /// Hash of the guest's initial contents.
    pub fn measurement(self) -> &'a [u8; 48] {
        self.field::<0x90, 48>()
    }

    /// Data that the host gave at launch.
    pub fn host_data(self) -> &'a [u8; 32] {
        self.field::<0xc0, 32>()
    }

    /// SHA-384 of the key that signed the ID block; zero where there was none.
    pub fn id_key_digest(self) -> &'a [u8; 48] {
        self.field::<0xe0, 48>()
    }

    /// SHA-384 of the key that certified the ID key; zero where there was none.
    pub fn author_key_digest(self) -> &'a [u8; 48] {
        self.field::<0x110, 48>()
    }

    /// Security versions that the signing key was derived for.
    pub fn reported_tcb(self) -> &'a [u8; 8] {
        self.field::<0x180, 8>()
    }

    /// The processor, from version 3 on.
    pub fn cpuid(self) -> Option<Cpuid> {
        let [family, model, stepping] = *self.field::<0x188, 3>();
        (self.version() >= 3).then_some(Cpuid { family, model, stepping })
    }

    /// Identifier of the chip; zero where the host masks it.
    pub fn chip_id(self) -> &'a [u8; 64] {
        self.field::<0x1a0, 64>()
    }

    /// Security versions that the firmware can no longer go below.
    pub fn committed_tcb(self) -> &'a [u8; 8] {
        self.field::<0x1e0, 8>()
    }

    /// Version of the firmware that runs now.
    pub fn current_version(self) -> FirmwareVersion {
        FirmwareVersion::read(self.field::<0x1e8, 3>())
    }

    /// Security versions that ran when the guest was launched or imported.
    pub fn launch_tcb(self) -> &'a [u8; 8] {
        self.field::<0x1f0, 8>()
    }

    /// Mitigations that were in place at launch, and those that are now; from version 5 on.
    pub fn mitigations(self) -> Option<[u64; 2]> {
        (self.version() >= 5).then(|| [self.u64::<0x1f8>(), self.u64::<0x200>()])
    }

    fn key_info(self) -> u32 {
        self.u32::<0x48>()
    }

    fn u32<const AT: usize>(self) -> u32 {
        u32::from_le_bytes(*self.field::<AT, 4>())
    }

    fn u64<const AT: usize>(self) -> u64 {
        u64::from_le_bytes(*self.field::<AT, 8>())
    }

    fn field<const AT: usize, const N: usize>(self) -> &'a [u8; N] {
        const { assert!(AT + N <= REPORT_LENGTH) };
        match self.0[AT..].first_chunk() {
            Some(field) => field,
            None => unreachable!("bounds are checked at compile time"),
        }
    }
}

/// The ranges of bytes that a version's layout reserves: first byte, and the one after the last.
fn reserved_ranges(version: u32) -> [(usize, usize); 5] {
    let after_tcb = if version >= 3 { 0x18b } else { 0x188 };
    let after_launch = if version >= 5 { 0x208 } else { 0x1f8 };
    [
        (0x4c, 0x50),
        (after_tcb, 0x1a0),
        (0x1eb, 0x1ec),
        (0x1ef, 0x1f0),
        (after_launch, SIGNED_LENGTH),
    ]
}

fn unsupported_error(subject: &'static str, wanted: &'static str, got: u32) -> ParseError {
    ParseError::Unsupported { subject, wanted, got: format!("{got:#x}") }
}

/// The kind of key that signed a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningKey {
    /// The chip's own key, for its security versions.
    Vcek,
    /// A key that a cloud provider loaded.
    Vlek,
    /// No key: the report is not signed.
    None,
    /// A number that the specification reserves.
    Unknown(u8),
}

impl fmt::Display for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SigningKey::Vcek => f.write_str("VCEK"),
            SigningKey::Vlek => f.write_str("VLEK"),
            SigningKey::None => f.write_str("no key"),
            SigningKey::Unknown(number) => write!(f, "reserved key {number}"),
        }
    }
}

/// The processor that made a report (CPUID leaf 1, extended fields added).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpuid {
    /// Family.
    pub family: u8,
    /// Model.
    pub model: u8,
    /// Stepping.
    pub stepping: u8,
}

/// Version of the SNP firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FirmwareVersion {
    /// The major version of the interface.
    pub major: u8,
    /// The minor version of the interface.
    pub minor: u8,
    /// The number of the build.
    pub build: u8,
}

impl FirmwareVersion {
    fn read([build, minor, major]: &[u8; 3]) -> Self {
        Self { major: *major, minor: *minor, build: *build }
    }
}

impl fmt::Display for FirmwareVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.build)
    }
}

/// Guest policy: what the owner allows the host to do (56860, table "Guest Policy Structure").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestPolicy(pub u64);

impl GuestPolicy {
    /// Bits that this layout gives a meaning: two interface versions, and bits 16 to 25.
    const KNOWN: u64 = (1 << 26) - 1;

    /// Whether the bit that must be one is, and no bit is set that has no meaning yet.
    pub fn is_well_formed(self) -> bool {
        self.bit(17) && self.0 & !Self::KNOWN == 0
    }

    /// The guest may run where simultaneous multithreading is on.
    pub fn allows_smt(self) -> bool {
        self.bit(16)
    }

    /// The guest may have a migration agent, which can move it to another machine.
    pub fn allows_migration_agent(self) -> bool {
        self.bit(18)
    }

    /// The host may read and write the guest's memory.
    pub fn allows_debug(self) -> bool {
        self.bit(19)
    }

    fn bit(self, number: u32) -> bool {
        self.0 >> number & 1 == 1
    }
}

/// Platform information (56860, table "PLATFORM_INFO Field").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlatformInfo(pub u64);

impl PlatformInfo {
    /// The names of bits 0 to 5 and 7.
    pub const NAMES: [(&'static str, u32); 7] = [
        ("smt", 0),
        ("tsme", 1),
        ("ecc", 2),
        ("rapl-disabled", 3),
        ("ciphertext-hiding-dram", 4),
        ("alias-check-complete", 5),
        ("tio", 7),
    ];
}
