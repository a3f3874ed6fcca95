//! The fields of a revocation list that appraisal looks at (RFC 5280 section 5).

use der::{Decode, Tag, asn1::UintRef};

use crate::{
    certificate::{context_tag, read_tagged, read_time, set_once, signed_part, visit_extensions},
    parse_error::ParseError,
};

/// Object identifier 2.5.29.20, as the content of its DER.
const CRL_NUMBER: &[u8] = &[0x55, 0x1d, 20];
/// Object identifier 2.5.29.28, likewise.
const ISSUING_DISTRIBUTION_POINT: &[u8] = &[0x55, 0x1d, 28];

/// Issuer, dates and number of a revocation list.
///
/// A list with a critical extension is refused: such extensions narrow its scope (RFC 5280 section
/// 5.2.5), and appraisal takes it for complete.
#[derive(Clone, Copy, Debug)]
pub struct CrlDates<'a> {
    /// Issuer: the content of its Name.
    pub issuer: &'a [u8],
    /// Unix seconds of thisUpdate.
    pub this_update: u64,
    /// Unix seconds of nextUpdate.
    pub next_update: u64,
    /// CRLNumber. Intel leaves it at 1 and only moves `this_update`; 0 if AMD gives none.
    pub number: u64,
}

impl<'a> CrlDates<'a> {
    /// Reads the dates and the number; who is revoked is a chain verifier's work.
    ///
    /// # Errors
    /// [`ParseError::Der`] with `subject` and the first field that is not as RFC 5280 has it; a
    /// missing number and a critical extension are such fields.
    pub fn parse(subject: &'static str, bytes: &'a [u8]) -> Result<Self, ParseError> {
        let list = read(bytes).and_then(|(list, number)| match number {
            Some(number) => Ok(CrlDates { number, ..list }),
            None => Err("CRL number"),
        });
        list.map_err(|field| ParseError::Der { subject, field })
    }

    /// Reads a list of AMD's, which may lack a number: it counts as 0 then, and only the issue date tells an older
    /// list.
    ///
    /// # Errors
    /// As [`CrlDates::parse`], but for the missing number.
    pub fn parse_amd(subject: &'static str, bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (list, number) = read(bytes).map_err(|field| ParseError::Der { subject, field })?;
        Ok(Self { number: number.unwrap_or(0), ..list })
    }
}

/// The list, and its number where it has one.
fn read(bytes: &[u8]) -> Result<(CrlDates<'_>, Option<u64>), &'static str> {
    let mut list = signed_part(bytes)?;
    read_tagged(&mut list, Tag::Integer, "version")?;
    read_tagged(&mut list, Tag::Sequence, "signature algorithm")?;
    let issuer = read_tagged(&mut list, Tag::Sequence, "issuer")?.value();
    let this_update = read_time(&mut list, "thisUpdate")?;
    let next_update = read_time(&mut list, "nextUpdate")?;
    if Tag::peek(&list) == Ok(Tag::Sequence) {
        read_tagged(&mut list, Tag::Sequence, "revoked certificates")?;
    }
    let mut number = None;
    let extensions = read_tagged(&mut list, context_tag(0), "extensions")?;
    visit_extensions(extensions, |id, critical, value| {
        if critical {
            return Err("extensions (wanted none critical)");
        }
        // RFC 5280 demands that it is critical; where it is not, it narrows the list all the same.
        if id == ISSUING_DISTRIBUTION_POINT {
            return Err("extensions (wanted no issuing distribution point)");
        }
        if id != CRL_NUMBER {
            return Ok(());
        }
        let digits: UintRef<'_> = UintRef::from_der(value).map_err(|_| "CRL number")?;
        let digits = digits.as_bytes();
        // RFC 5280 allows 20 bytes; eight are enough for any list that is really issued.
        if digits.len() > 8 {
            return Err("CRL number (wanted at most 8 bytes)");
        }
        let value = digits.iter().fold(0, |sum: u64, digit| sum << 8 | u64::from(*digit));
        set_once(&mut number, value, "CRL number")
    })?;
    Ok((CrlDates { issuer, this_update, next_update, number: 0 }, number))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        [&[tag, u8::try_from(content.len()).unwrap()][..], &content].concat()
    }

    fn list(extensions: &[&[u8]]) -> Vec<u8> {
        let algorithm = element(0x30, &[&[6, 1, 0x2a]]);
        let (name, date) =
            (element(0x30, &[]), |year: &[u8]| element(0x17, &[year, b"0101000000Z"]));
        let extensions = element(0xa0, &[&element(0x30, extensions)]);
        let fields: [&[u8]; 6] =
            [&[2, 1, 1], &algorithm, &name, &date(b"25"), &date(b"26"), &extensions];
        element(0x30, &[&element(0x30, &fields), &algorithm, &[3, 2, 0, 1]])
    }

    #[test]
    fn a_list_without_a_number_counts_as_zero_where_it_is_amds_and_is_refused_where_not() {
        let key_id = element(0x30, &[&[6, 3, 0x55, 0x1d, 35], &element(4, &[&[0x30, 0]])]);
        let number = element(0x30, &[&[6, 3, 0x55, 0x1d, 20], &element(4, &[&[2, 1, 7]])]);
        let (with, without) = (list(&[&key_id, &number]), list(&[&key_id]));
        assert_eq!(CrlDates::parse("list", &with).unwrap().number, 7);
        assert_eq!(CrlDates::parse_amd("list", &with).unwrap().number, 7);
        let refused = CrlDates::parse("list", &without);
        assert!(matches!(refused, Err(ParseError::Der { field: "CRL number", .. })), "{refused:?}");
        let read = CrlDates::parse_amd("list", &without).unwrap();
        assert_eq!((read.number, read.this_update), (0, 1_735_689_600));
    }
}
