//! The report: one SPDM request and its response, as the driver hands them out.

use alloc::{borrow::Cow, format, vec::Vec};

use super::opaque::OpaqueData;
use crate::{byte_reader::ByteReader, parse_error::ParseError};

/// Length in bytes of the nonce that the requester chose.
pub const NONCE_BYTES: usize = 32;
/// Length in bytes of the ECDSA P-384 signature (r, then s) that the report ends with.
const SIGNATURE_BYTES: usize = 96;
/// The longest report that is read: the buffer that NVML has for one.
pub(super) const REPORT_BYTES_MAX: usize = 0x2000;

/// SPDM version 1.1, as its first byte says it.
const SPDM_1_1: u8 = 0x11;
const GET_MEASUREMENTS: u8 = 0xe0;
const MEASUREMENTS: u8 = 0x60;
/// Param1 of the request: the response shall be signed.
const SIGNATURE_REQUESTED: u8 = 1;
/// Param2 of the request: all measurements.
const ALL_MEASUREMENTS: u8 = 0xff;
/// Measurement specification: DMTF.
const DMTF: u8 = 1;

/// A report, read. Everything but [`GpuReport::signature`] is covered by the signature.
#[derive(Clone, Debug)]
pub struct GpuReport<'a> {
    /// The bytes that the signature covers: request and response without the signature.
    pub signed: &'a [u8],
    /// The nonce in the request: the one that the requester chose.
    pub nonce: &'a [u8; NONCE_BYTES],
    /// The certificate slot that was asked for.
    pub slot: u8,
    /// The measurement blocks, in the report's order.
    pub measurements: Vec<Measurement<'a>>,
    /// The nonce that the GPU added.
    pub responder_nonce: &'a [u8; NONCE_BYTES],
    /// The fields of NVIDIA's opaque data.
    pub opaque: OpaqueData<'a>,
    /// The ECDSA P-384 signature: r, then s, 48 bytes each, big-endian.
    pub signature: &'a [u8; SIGNATURE_BYTES],
}

/// A measurement block (DSP0274 section 10.11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement<'a> {
    /// The index of the block, from 1; a RIM counts from 0.
    pub index: u8,
    /// `DMTFSpecMeasurementValueType`: bit 7 is set for raw bits, clear for a digest.
    pub value_type: u8,
    /// The value; NVIDIA's are SHA-384 digests.
    pub value: &'a [u8],
}

/// Whether bytes look like a report, raw or as hexadecimal text: known by its SPDM code.
pub(crate) fn is_report(bytes: &[u8]) -> bool {
    let is_text =
        bytes.trim_ascii_start().get(..4).is_some_and(|head| head.eq_ignore_ascii_case(b"11e0"));
    bytes.starts_with(&[SPDM_1_1, GET_MEASUREMENTS]) || is_text
}

/// The bytes of a report that may come as hexadecimal text, white space around it allowed.
///
/// # Errors
/// [`ParseError::TooLong`] if the text stands for more than 8 KiB,
/// [`ParseError::Text`] if it is not hexadecimal.
pub fn report_bytes(bytes: &[u8]) -> Result<Cow<'_, [u8]>, ParseError> {
    const SUBJECT: &str = "GPU report";
    if bytes.starts_with(&[SPDM_1_1, GET_MEASUREMENTS]) || !is_report(bytes) {
        return Ok(Cow::Borrowed(bytes));
    }
    let digits = bytes.trim_ascii();
    if digits.len() > 2 * REPORT_BYTES_MAX {
        let got = digits.len() / 2;
        return Err(ParseError::TooLong { subject: SUBJECT, limit: REPORT_BYTES_MAX, got });
    }
    let decoded = hex::decode(digits);
    decoded
        .map(Cow::Owned)
        .map_err(|_| ParseError::Text { subject: SUBJECT, wanted: "hexadecimal" })
}

impl<'a> GpuReport<'a> {
    /// Reads a report; every byte has to belong to it.
    ///
    /// # Errors
    /// [`ParseError::TooLong`] over 8 KiB, [`ParseError::Truncated`] if a field
    /// is cut, [`ParseError::Unsupported`] for another SPDM version, code or operation,
    /// [`ParseError::TrailingBytes`] if bytes follow the signature, and what the measurements
    /// and the opaque data lack.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        if bytes.len() > REPORT_BYTES_MAX {
            let (limit, got) = (REPORT_BYTES_MAX, bytes.len());
            return Err(ParseError::TooLong { subject: "GPU report", limit, got });
        }
        let mut input = ByteReader::new(bytes);
        let (nonce, slot) = read_request(&mut input)?;
        let [version, code, _, _, blocks] = *input.array::<5>("SPDM response")?;
        check_value("SPDM version of the response", "0x11", version, SPDM_1_1)?;
        check_value("SPDM code of the response", "0x60 (MEASUREMENTS)", code, MEASUREMENTS)?;
        let record_length = input.u24("SPDM measurement record length")?;
        let record = input.take("SPDM measurement record", record_length)?;
        let measurements = read_measurements(record, blocks)?;
        let responder_nonce = input.array("SPDM responder nonce")?;
        let opaque_length = input.u16("SPDM opaque length")?;
        let opaque = OpaqueData::parse(input.take("SPDM opaque data", opaque_length.into())?)?;
        let signed = input.consumed_bytes();
        let signature = input.array("SPDM signature")?;
        if !input.remaining().is_empty() {
            let end = input.position();
            return Err(ParseError::TrailingBytes { subject: "GPU report", end, at: end });
        }
        Ok(Self { signed, nonce, slot, measurements, responder_nonce, opaque, signature })
    }

    /// The value at `index` (from 1).
    pub fn measurement(&self, index: u8) -> Option<&Measurement<'a>> {
        self.measurements.iter().find(|measurement| measurement.index == index)
    }
}

fn read_request<'a>(input: &mut ByteReader<'a>) -> Result<(&'a [u8; NONCE_BYTES], u8), ParseError> {
    let [version, code, attributes, operation] = *input.array::<4>("SPDM request")?;
    check_value("SPDM version of the request", "0x11", version, SPDM_1_1)?;
    check_value("SPDM code of the request", "0xe0 (GET_MEASUREMENTS)", code, GET_MEASUREMENTS)?;
    check_value("SPDM request attributes", "1 (signed)", attributes, SIGNATURE_REQUESTED)?;
    check_value("SPDM measurement operation", "0xff (all)", operation, ALL_MEASUREMENTS)?;
    let nonce = input.array("SPDM nonce")?;
    let [slot] = *input.array("SPDM slot")?;
    Ok((nonce, slot))
}

fn read_measurements(record: &[u8], blocks: u8) -> Result<Vec<Measurement<'_>>, ParseError> {
    const BLOCK: &str = "SPDM measurement block";
    let mut input = ByteReader::new(record);
    let mut list: Vec<Measurement<'_>> = Vec::with_capacity(blocks.into());
    for _ in 0..blocks {
        let [index, specification] = *input.array::<2>(BLOCK)?;
        check_value("SPDM measurement specification", "1 (DMTF)", specification, DMTF)?;
        let size = input.u16(BLOCK)?;
        let mut block = ByteReader::new(input.take(BLOCK, size.into())?);
        let [value_type] = *block.array(BLOCK)?;
        let wanted = block.u16(BLOCK)?.into();
        let value = block.remaining();
        if value.len() != wanted {
            return Err(ParseError::Length { subject: BLOCK, wanted, got: value.len() });
        }
        if index == 0 || list.iter().any(|other| other.index == index) {
            return Err(ParseError::Unsupported {
                subject: "SPDM measurement index",
                wanted: "each from 1 once",
                got: format!("{index}"),
            });
        }
        list.push(Measurement { index, value_type, value });
    }
    input.finish("SPDM measurement record")?;
    Ok(list)
}

fn check_value(
    subject: &'static str,
    wanted: &'static str,
    got: u8,
    is: u8,
) -> Result<(), ParseError> {
    if got == is {
        return Ok(());
    }
    Err(ParseError::Unsupported { subject, wanted, got: format!("{got:#04x}") })
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    /// A report with two blocks and one opaque field; its signature is not a signature.
    fn report() -> Vec<u8> {
        let mut bytes = vec![0x11, 0xe0, 1, 0xff];
        bytes.extend([7; 32]);
        bytes.push(0);
        bytes.extend([0x11, 0x60, 0, 0, 2, 16, 0, 0]);
        for index in [1, 2] {
            bytes.extend([index, 1, 4, 0, 1, 1, 0, 0xa0 + index]);
        }
        bytes.extend([9; 32]);
        bytes.extend([7, 0, 3, 0, 3, 0, b'5', b'5', 0]);
        bytes.extend([1; 96]);
        bytes
    }

    #[test]
    fn a_report_is_read_field_by_field() {
        let bytes = report();
        let report = GpuReport::parse(&bytes).expect("it is well formed");
        assert_eq!(report.nonce, &[7; 32]);
        assert_eq!(report.responder_nonce, &[9; 32]);
        assert_eq!(report.measurement(2).map(|found| found.value), Some(&[0xa2][..]));
        assert_eq!(report.measurement(3), None);
        assert_eq!(report.opaque.driver_version, Some("55"));
        assert_eq!(report.signed.len() + 96, bytes.len());
    }

    #[test]
    fn every_truncation_and_every_byte_more_is_refused() {
        let bytes = report();
        for length in 0..bytes.len() {
            assert!(GpuReport::parse(&bytes[..length]).is_err(), "{length}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(GpuReport::parse(&longer), Err(ParseError::TrailingBytes { .. })));
    }

    #[test]
    fn a_request_for_unsigned_or_single_measurements_is_refused() {
        for (at, wrong) in [(0, 0x10), (1, 0xe1), (2, 0), (3, 1), (37, 0x12), (38, 0x7f)] {
            let mut bytes = report();
            bytes[at] = wrong;
            assert!(
                matches!(GpuReport::parse(&bytes), Err(ParseError::Unsupported { .. })),
                "{at}"
            );
        }
    }

    #[test]
    fn an_index_twice_or_zero_is_refused() {
        for (at, index) in [(45, 2), (45, 0)] {
            let mut bytes = report();
            bytes[at] = index;
            let got = GpuReport::parse(&bytes);
            assert!(matches!(got, Err(ParseError::Unsupported { .. })), "{index}");
        }
    }

    #[test]
    fn hexadecimal_text_is_the_same_report() {
        let text = hex::encode_upper(report()) + "\n";
        assert!(is_report(text.as_bytes()) && is_report(&report()));
        assert_eq!(report_bytes(text.as_bytes()).as_deref(), Ok(&report()[..]));
        assert!(report_bytes(b"11e0zz").is_err());
        assert!(!is_report(b"\x04\0\x02\0"));
    }
}
