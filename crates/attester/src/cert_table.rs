//! The certificate table that a host gives along with an SNP report (`auxblob`).
//!
//! SEV-ES Guest-Hypervisor Communication Block, 4.1.8.1: entries of 24 bytes (GUID in the order
//! of its text, offset and length as little-endian u32), ended by one that is all zero; the
//! offsets count from the start of the table.

use base64::Engine;
use serde_json::json;

use crate::error::AttesterError;

/// The most entries of a table: four certificates are defined, hosts add a few of their own.
const ENTRIES_MAX: usize = 32;
/// The longest certificate in bytes; one of this chain has some 1.5 KB.
const CERTIFICATE_LENGTH_MAX: usize = 8 * 1024;
const ENTRY_LENGTH: usize = 24;

const VCEK: [u8; 16] = parse_guid("63da758de6644564adc5f4b93be8accd");
const VLEK: [u8; 16] = parse_guid("a8074bc2a25a483eaae639c045a0b8a1");
/// The GUID of the ASK, or of the ASVK where the endorsement key is a VLEK.
const ASK: [u8; 16] = parse_guid("4ab7b379bbac4fe4a02f05aef327c782");
const ARK: [u8; 16] = parse_guid("c0b406a4a803495297433fb6014cd0ae");

/// The certificates of a table that belong to a chain, as DER; unverified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertTable<'a> {
    /// The certificate of the chip's own endorsement key (VCEK).
    pub vcek: Option<&'a [u8]>,
    /// The certificate of the endorsement key that was loaded into the chip (VLEK).
    pub vlek: Option<&'a [u8]>,
    /// The certificate of the key above: the ASK, or the ASVK for a VLEK.
    pub ask: Option<&'a [u8]>,
    /// The root certificate (ARK).
    pub ark: Option<&'a [u8]>,
}

impl<'a> CertTable<'a> {
    /// Reads a table; an empty one means that the host provides no certificates.
    ///
    /// # Errors
    /// [`AttesterError::CertTable`] if the table has no end, an entry leaves it, or a
    /// certificate stands in it twice.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AttesterError> {
        let mut table = Self::default();
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(table);
        }
        for number in 0..ENTRIES_MAX {
            let entry = bytes
                .get(number * ENTRY_LENGTH..(number + 1) * ENTRY_LENGTH)
                .ok_or(AttesterError::CertTable("wanted an entry of zeros at its end, got none"))?;
            if entry.iter().all(|byte| *byte == 0) {
                return Ok(table);
            }
            let certificate = certificate(bytes, entry)?;
            let place = match &entry[..16] {
                name if name == VCEK => &mut table.vcek,
                name if name == VLEK => &mut table.vlek,
                name if name == ASK => &mut table.ask,
                name if name == ARK => &mut table.ark,
                _ => continue,
            };
            if place.replace(certificate).is_some() {
                return Err(AttesterError::CertTable("wanted each certificate once, got two"));
            }
        }
        Err(AttesterError::CertTable("wanted at most 32 entries, got more"))
    }

    /// The endorsements of an SNP report in their wire format, where the table has all of them.
    ///
    /// `vlek` tells which key signed the report. A table has no revocation list.
    pub fn endorsements(&self, vlek: bool) -> Option<Vec<u8>> {
        let key = if vlek { self.vlek } else { self.vcek }?;
        let chain = format!("{}{}", encode_pem(self.ask?), encode_pem(self.ark?));
        let json = json!({ "endorsement_key": hex::encode(key), "chain": chain });
        Some(json.to_string().into_bytes())
    }
}

fn certificate<'a>(table: &'a [u8], entry: &[u8]) -> Result<&'a [u8], AttesterError> {
    let number = |at: usize| {
        let mut four = [0; 4];
        four.copy_from_slice(&entry[at..at + 4]);
        u32::from_le_bytes(four) as usize
    };
    let (offset, length) = (number(16), number(20));
    if length > CERTIFICATE_LENGTH_MAX {
        return Err(AttesterError::CertTable("wanted certificates of at most 8 KiB, got more"));
    }
    offset
        .checked_add(length)
        .and_then(|end| table.get(offset..end))
        .ok_or(AttesterError::CertTable("wanted certificates inside it, got one beyond its end"))
}

fn encode_pem(der: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let digits = base64::engine::general_purpose::STANDARD.encode(der);
    for line in digits.as_bytes().chunks(64) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

/// The bytes of a GUID, from its digits without the hyphens.
const fn parse_guid(digits: &str) -> [u8; 16] {
    const fn parse_digit(byte: u8) -> u8 {
        if byte.is_ascii_digit() { byte - b'0' } else { byte - b'a' + 10 }
    }
    let (digits, mut bytes, mut at) = (digits.as_bytes(), [0; 16], 0);
    assert!(digits.len() == 32);
    while at < 16 {
        bytes[at] = parse_digit(digits[2 * at]) << 4 | parse_digit(digits[2 * at + 1]);
        at += 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[([u8; 16], &[u8])]) -> Vec<u8> {
        let mut offset = ENTRY_LENGTH * (entries.len() + 1);
        let (mut head, mut body) = (Vec::new(), Vec::new());
        for (name, bytes) in entries {
            head.extend_from_slice(name);
            head.extend_from_slice(&(offset as u32).to_le_bytes());
            head.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            body.extend_from_slice(bytes);
            offset += bytes.len();
        }
        head.extend_from_slice(&[0; ENTRY_LENGTH]);
        head.extend(body);
        head
    }

    #[test]
    fn certificates_are_found_by_their_guid_and_strangers_are_passed_over() {
        let bytes = table(&[(ARK, b"ark"), ([9; 16], b"?"), (VLEK, b"vlek"), (ASK, b"ask")]);
        let table = CertTable::parse(&bytes).unwrap();
        assert_eq!(table.vcek, None);
        assert_eq!(table.vlek, Some(&b"vlek"[..]));
        assert!(table.endorsements(false).is_none());
        let json = table.endorsements(true).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["endorsement_key"], "766c656b");
        let chain = json["chain"].as_str().unwrap();
        assert!(chain.starts_with("-----BEGIN CERTIFICATE-----\nYXNr\n-----END"), "{chain}");
        assert_eq!(chain.matches("BEGIN").count(), 2);
    }

    #[test]
    fn an_empty_table_is_a_host_without_certificates() {
        assert_eq!(CertTable::parse(&[]).unwrap(), CertTable::default());
        assert_eq!(CertTable::parse(&[0; 4096]).unwrap(), CertTable::default());
    }

    #[test]
    fn a_table_that_points_outside_itself_or_has_no_end_is_refused() {
        let good = table(&[(VCEK, b"vcek")]);
        for (at, byte) in [(16, 0xff), (19, 0xff), (20, 5), (23, 0xff)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(CertTable::parse(&bad).is_err(), "byte {at}");
        }
        assert!(CertTable::parse(&good[..ENTRY_LENGTH]).is_err());
        assert!(CertTable::parse(&table(&[(VCEK, b"a"), (VCEK, b"b")])).is_err());
        assert!(CertTable::parse(&[1; 4096]).is_err());
    }
}
