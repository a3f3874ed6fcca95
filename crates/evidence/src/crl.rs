//! The fields of a revocation list that appraisal looks at (RFC 5280 section 5).

use der::{Decode, Tag, asn1::UintRef};

use crate::{
    ParseError,
    certificate::{context_tag, each_extension, once, signed_part, tagged, time},
};

/// Object identifier 2.5.29.20, as the content of its DER.
const CRL_NUMBER: &[u8] = &[0x55, 0x1d, 20];
/// Object identifier 2.5.29.28, likewise.
const ISSUING_DISTRIBUTION_POINT: &[u8] = &[0x55, 0x1d, 28];

/// When a revocation list was issued and how it is numbered.
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
    /// CRLNumber. Intel leaves it at 1 and only moves `this_update`.
    pub number: u64,
}

impl<'a> CrlDates<'a> {
    /// Reads the dates and the number; who is revoked is a chain verifier's work.
    pub fn parse(subject: &'static str, bytes: &'a [u8]) -> Result<Self, ParseError> {
        read(bytes).map_err(|field| ParseError::Der { subject, field })
    }
}

fn read(bytes: &[u8]) -> Result<CrlDates<'_>, &'static str> {
    let mut list = signed_part(bytes)?;
    tagged(&mut list, Tag::Integer, "version")?;
    tagged(&mut list, Tag::Sequence, "signature algorithm")?;
    let issuer = tagged(&mut list, Tag::Sequence, "issuer")?.value();
    let this_update = time(&mut list, "thisUpdate")?;
    let next_update = time(&mut list, "nextUpdate")?;
    if Tag::peek(&list) == Ok(Tag::Sequence) {
        tagged(&mut list, Tag::Sequence, "revoked certificates")?;
    }
    let mut number = None;
    let extensions = tagged(&mut list, context_tag(0), "extensions")?;
    each_extension(extensions, |id, critical, value| {
        if critical {
            return Err("extensions (wanted none critical)");
        }
        // It must be critical, but where it is not it narrows the list all the same.
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
        once(&mut number, value, "CRL number")
    })?;
    let number = number.ok_or("CRL number")?;
    Ok(CrlDates { issuer, this_update, next_update, number })
}
