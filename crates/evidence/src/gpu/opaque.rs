//! NVIDIA's fields in the opaque data of a report: type, length and value, one after the other.
//!
//! The numbers are those of NVIDIA's published verifier (nv-local-gpu-verifier 2.7.3). A type that
//! it does not name is kept unread, so that a newer firmware's report is still a report.

use alloc::{format, string::String, vec::Vec};

use crate::{byte_reader::ByteReader, parse_error::ParseError};

/// The largest number of fields in one report; a Hopper has thirteen.
const FIELDS_MAX: usize = 64;
/// Length in bytes of a VBIOS version.
const VBIOS_BYTES: usize = 8;
/// Length in bytes of a firmware identifier: SHA-384.
const FWID_BYTES: usize = 48;

/// The types that appraisal reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpaqueField {
    /// Text: the driver's version.
    DriverVersion = 3,
    /// Eight bytes: the VBIOS's version.
    VbiosVersion = 6,
    /// One byte: whether the video decoder is on.
    Nvdec0Status = 11,
    /// Four bytes: the board.
    BoardId = 14,
    /// Text: the SKU of the chip.
    ChipSku = 15,
    /// Text: the project, which names the VBIOS's RIM together with the SKUs.
    Project = 17,
    /// Text: the SKU of the project.
    ProjectSku = 18,
    /// 48 bytes: digest of the firmware that signs.
    Fwid = 20,
    /// One byte: the protected-PCIe mode is on or off.
    ProtectedPcieStatus = 21,
    /// Eight bytes for each NVLink: the switch at its other end.
    SwitchPdi = 22,
    /// A number: which version of these fields this is.
    Version = 34,
    /// Text: the chip's name.
    ChipInfo = 35,
    /// A number: how the GPU is passed through.
    FeatureFlag = 36,
}

/// How a GPU is passed through to the confidential virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureFlag {
    /// Single-GPU passthrough: confidential computing is on.
    SinglePassthrough,
    /// Multi-GPU passthrough: confidential computing is on.
    MultiPassthrough,
    /// Protected PCIe: traffic between the GPUs is in clear.
    ProtectedPcie,
}

impl FeatureFlag {
    /// NVIDIA's abbreviation.
    pub fn as_str(self) -> &'static str {
        match self {
            FeatureFlag::SinglePassthrough => "SPT",
            FeatureFlag::MultiPassthrough => "MPT",
            FeatureFlag::ProtectedPcie => "PPCIE",
        }
    }
}

/// The fields of one report; `None` for a field that the report does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpaqueData<'a> {
    /// Every field: type and value, in the report's order.
    pub fields: Vec<(u16, &'a [u8])>,
    /// Version of the driver.
    pub driver_version: Option<&'a str>,
    /// Version of the VBIOS, as five bytes in lower-case hexadecimal with dots between them.
    pub vbios_version: Option<String>,
    /// Whether the video decoder is on.
    pub nvdec0: Option<bool>,
    /// Board number.
    pub board_id: Option<u32>,
    /// Chip SKU.
    pub chip_sku: Option<&'a str>,
    /// Project, which names the VBIOS's RIM together with the next and the chip SKU.
    pub project: Option<&'a str>,
    /// Project SKU.
    pub project_sku: Option<&'a str>,
    /// Digest of the firmware that signs reports.
    pub fwid: Option<&'a [u8; FWID_BYTES]>,
    /// Whether the protected-PCIe mode is on.
    pub protected_pcie: Option<bool>,
    /// The switches at the other ends of the NVLinks.
    pub switches: Option<&'a [[u8; 8]]>,
    /// Version of these fields.
    pub version: Option<u64>,
    /// Name of the chip.
    pub chip: Option<&'a str>,
    /// How the GPU is passed through.
    pub feature_flag: Option<FeatureFlag>,
}

impl<'a> OpaqueData<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut input = ByteReader::new(bytes);
        let mut data = Self::default();
        while !input.remaining().is_empty() {
            if data.fields.len() == FIELDS_MAX {
                return Err(ParseError::TooMany { subject: "opaque data", limit: FIELDS_MAX });
            }
            let number = input.u16("opaque field type")?;
            let length = input.u16("opaque field length")?;
            let content = input.take("opaque field", length.into())?;
            // Readers could disagree on which of two fields of one type counts.
            if data.fields.iter().any(|(other, _)| *other == number) {
                return Err(ParseError::Unsupported {
                    subject: "opaque field",
                    wanted: "each type once",
                    got: format!("{number}"),
                });
            }
            data.fields.push((number, content));
        }
        data.read()?;
        Ok(data)
    }

    /// The content of a field.
    pub fn field(&self, field: OpaqueField) -> Option<&'a [u8]> {
        self.fields.iter().find(|(number, _)| *number == field as u16).map(|(_, content)| *content)
    }

    fn read(&mut self) -> Result<(), ParseError> {
        use OpaqueField as F;
        self.driver_version = self.text(F::DriverVersion, "driver version")?;
        self.chip_sku = self.text(F::ChipSku, "chip SKU")?;
        self.project = self.text(F::Project, "project")?;
        self.project_sku = self.text(F::ProjectSku, "project SKU")?;
        self.chip = self.text(F::ChipInfo, "chip info")?;
        let vbios = self.array::<VBIOS_BYTES>(F::VbiosVersion, "VBIOS version")?;
        self.vbios_version = vbios.map(vbios_version);
        let board = self.array(F::BoardId, "board identifier")?;
        self.board_id = board.map(|bytes| u32::from_le_bytes(*bytes));
        self.fwid = self.array(F::Fwid, "firmware identifier")?;
        self.nvdec0 = self.boolean(F::Nvdec0Status, "NVDEC status")?;
        self.protected_pcie = self.boolean(F::ProtectedPcieStatus, "protected PCIe status")?;
        self.version = self.number(F::Version, "opaque data version")?;
        self.feature_flag = match self.number(F::FeatureFlag, "feature flag")? {
            None => None,
            Some(0) => Some(FeatureFlag::SinglePassthrough),
            Some(1) => Some(FeatureFlag::MultiPassthrough),
            Some(2) => Some(FeatureFlag::ProtectedPcie),
            Some(got) => {
                let (subject, wanted) = ("feature flag", "0, 1 or 2");
                return Err(ParseError::Unsupported { subject, wanted, got: format!("{got}") });
            }
        };
        if let Some(content) = self.field(F::SwitchPdi) {
            let (switches, rest) = content.as_chunks::<8>();
            if !rest.is_empty() {
                let (wanted, got) = (content.len() - rest.len(), content.len());
                return Err(ParseError::Length { subject: "switch identifiers", wanted, got });
            }
            self.switches = Some(switches);
        }
        Ok(())
    }

    /// Text in printable ASCII, without the zeros that fill its field.
    fn text(
        &self,
        field: OpaqueField,
        subject: &'static str,
    ) -> Result<Option<&'a str>, ParseError> {
        let Some(content) = self.field(field) else { return Ok(None) };
        let end = content.iter().position(|byte| *byte == 0).unwrap_or(content.len());
        let (text, padding) = content.split_at(end);
        let is_text = text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
        match core::str::from_utf8(text) {
            Ok(text) if is_text && padding.iter().all(|byte| *byte == 0) => Ok(Some(text)),
            _ => Err(ParseError::Text { subject, wanted: "printable ASCII, filled with zeros" }),
        }
    }

    fn array<const N: usize>(
        &self,
        field: OpaqueField,
        subject: &'static str,
    ) -> Result<Option<&'a [u8; N]>, ParseError> {
        let Some(content) = self.field(field) else { return Ok(None) };
        let array = content.try_into().map(Some);
        array.map_err(|_| ParseError::Length { subject, wanted: N, got: content.len() })
    }

    fn number(&self, field: OpaqueField, subject: &'static str) -> Result<Option<u64>, ParseError> {
        let Some(content) = self.field(field) else { return Ok(None) };
        if content.is_empty() || content.len() > 8 {
            return Err(ParseError::Length { subject, wanted: 8, got: content.len() });
        }
        Ok(Some(content.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))))
    }

    fn boolean(
        &self,
        field: OpaqueField,
        subject: &'static str,
    ) -> Result<Option<bool>, ParseError> {
        match self.array(field, subject)? {
            None => Ok(None),
            Some([0xaa]) => Ok(Some(true)),
            Some([0x55]) => Ok(Some(false)),
            Some([got]) => {
                let wanted = "0xaa (on) or 0x55 (off)";
                Err(ParseError::Unsupported { subject, wanted, got: format!("{got:#04x}") })
            }
        }
    }
}

/// `96.00.9f.00.01` from its bytes: the first four, last first, and then the fifth.
fn vbios_version(bytes: &[u8; VBIOS_BYTES]) -> String {
    let [d, c, b, a, e, ..] = bytes;
    format!("{a:02x}.{b:02x}.{c:02x}.{d:02x}.{e:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u16, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).expect("short");
        [&number.to_le_bytes(), &length.to_le_bytes(), content].concat()
    }

    #[test]
    fn fields_are_read_as_nvidias_verifier_reads_them() {
        let bytes = [
            field(6, &[0x00, 0x9f, 0x00, 0x96, 1, 0, 0, 0]),
            field(3, b"550.90.07\0"),
            field(36, &[1, 0, 0, 0]),
            field(21, &[0x55]),
            field(999, b"later"),
        ]
        .concat();
        let data = OpaqueData::parse(&bytes).expect("well formed");
        assert_eq!(data.vbios_version.as_deref(), Some("96.00.9f.00.01"));
        assert_eq!(data.driver_version, Some("550.90.07"));
        assert_eq!(data.feature_flag, Some(FeatureFlag::MultiPassthrough));
        assert_eq!(data.protected_pcie, Some(false));
        assert_eq!((data.fwid, data.nvdec0), (None, None));
    }

    #[test]
    fn fields_of_a_wrong_form_are_refused() {
        let wrong = [
            field(6, &[0; 7]),
            field(3, b"550\n\0"),
            field(3, b"550\x00x"),
            field(36, &[3]),
            field(36, &[]),
            field(21, &[1]),
            field(20, &[0; 47]),
            field(22, &[0; 9]),
            [field(3, b"1"), field(3, b"2")].concat(),
        ];
        for bytes in wrong {
            assert!(OpaqueData::parse(&bytes).is_err(), "{}", hex::encode(&bytes));
        }
    }

    #[test]
    fn more_fields_than_the_limit_are_refused() {
        let bytes: Vec<u8> = (100..200).flat_map(|number| field(number, &[])).collect();
        assert!(matches!(OpaqueData::parse(&bytes), Err(ParseError::TooMany { .. })));
    }
}
