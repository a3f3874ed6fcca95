//! AMD's certificates: roots (ARK), intermediates (ASK, ASVK) and chip keys (VCEK, VLEK).
//!
//! Source: AMD, Versioned Chip Endorsement Key (VCEK) Certificate and KDS Interface Specification
//! (57230), chapter 3. Extensions lie under 1.3.6.1.4.1.3704.1.

use core::ops::Deref;

use der::{
    AnyRef, Decode, Tag, Tagged,
    asn1::{BitStringRef, UintRef},
};

use super::product::Product;
use crate::{
    certificate::{
        CertificateFields, SECP384R1, check_serial_number, ec_point, open_nested, read_tagged,
        set_once,
    },
    parse_error::ParseError,
};

/// 1.3.6.1.4.1.3704.1, as the content of its DER.
const AMD: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9c, 0x78, 1];
/// 1.2.840.113549.1.1.1
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
/// Length in bytes of an RSA modulus of 4,096 bits.
const MODULUS_BYTES: usize = 512;

/// A certificate of AMD's, read.
#[derive(Clone, Debug)]
pub struct AmdCertificate<'a> {
    fields: CertificateFields<'a>,
    /// The certified key.
    pub key: AmdKey<'a>,
    /// AMD's own extensions; empty on roots and intermediates.
    pub extensions: ChipKeyExtensions<'a>,
}

impl<'a> Deref for AmdCertificate<'a> {
    type Target = CertificateFields<'a>;

    fn deref(&self) -> &Self::Target {
        &self.fields
    }
}

/// The key in one of AMD's certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmdKey<'a> {
    /// RSA, 4,096 bits: roots and intermediates.
    Rsa4096,
    /// P-384 as an uncompressed point (0x04, x, y): chip keys.
    P384(&'a [u8; 97]),
}

/// Extensions of a chip key's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChipKeyExtensions<'a> {
    /// `Milan-B0` (VCEK) or `Milan` (VLEK).
    pub product_name: Option<&'a str>,
    /// Identifier of the chip (VCEK): 64 bytes, from Turin on 8.
    pub hwid: Option<&'a [u8]>,
    /// The cloud provider (VLEK).
    pub csp_id: Option<&'a str>,
    /// Security patch levels by the last arc of their identifier, 1 to 9: bootloader, TEE, SNP,
    /// four that are reserved, microcode, FMC.
    spl: [Option<u8>; 9],
}

impl<'a> AmdCertificate<'a> {
    /// Reads a certificate with an RSA key of 4,096 bits or a P-384 key.
    ///
    /// # Errors
    /// [`ParseError::Der`] with `subject` and the first field that is not as RFC 5280 or AMD's
    /// profile has it.
    pub fn parse(subject: &'static str, bytes: &'a [u8]) -> Result<Self, ParseError> {
        read(bytes).map_err(|field| ParseError::Der { subject, field })
    }
}

impl ChipKeyExtensions<'_> {
    /// The security versions that the key was derived for, as the 8 bytes of a report's
    /// `TCB_VERSION`; `None` if the certificate does not say all that this line has.
    pub fn tcb(&self, product: Product) -> Option<[u8; 8]> {
        let [bootloader, tee, snp, spl4, spl5, spl6, spl7, microcode, fmc] = self.spl;
        let (bootloader, tee, snp, microcode) = (bootloader?, tee?, snp?, microcode?);
        let reserved = [spl4, spl5, spl6, spl7].map(Option::unwrap_or_default);
        match product {
            Product::Milan | Product::Genoa => {
                let [a, b, c, d] = reserved;
                fmc.is_none().then_some([bootloader, tee, a, b, c, d, snp, microcode])
            }
            Product::Turin => {
                let tcb = [fmc?, bootloader, tee, snp, 0, 0, 0, microcode];
                (reserved == [0; 4]).then_some(tcb)
            }
        }
    }
}

fn read(bytes: &[u8]) -> Result<AmdCertificate<'_>, &'static str> {
    let mut extensions = ChipKeyExtensions::default();
    let fields = CertificateFields::read(bytes, |id, value| {
        if let Some(arcs) = id.strip_prefix(AMD) {
            extensions.set_extension(arcs, value)?;
        }
        Ok(false)
    })?;
    check_serial_number(fields.serial)?;
    Ok(AmdCertificate { key: public_key(fields.public_key_info)?, fields, extensions })
}

impl<'a> ChipKeyExtensions<'a> {
    fn set_extension(&mut self, arcs: &[u8], value: &'a [u8]) -> Result<(), &'static str> {
        match arcs {
            [2] => set_once(&mut self.product_name, ia5(value, "product name")?, "product name"),
            [3, arc @ 1..=9] => {
                let slot = &mut self.spl[usize::from(*arc) - 1];
                set_once(slot, patch_level(value)?, "security patch level")
            }
            [4] => set_once(&mut self.hwid, hwid(value)?, "hardware identifier"),
            [5] => set_once(&mut self.csp_id, ia5(value, "provider")?, "provider"),
            // The version of the certificate's structure, which names its extensions anyway, and
            // whatever AMD adds: it is signed, and nothing here depends on it.
            _ => Ok(()),
        }
    }
}

fn public_key(spki: AnyRef<'_>) -> Result<AmdKey<'_>, &'static str> {
    const WANTED: &str = "public key (wanted RSA with 4,096 bits or P-384)";
    if let Ok(point) = ec_point::<97>(spki, SECP384R1, WANTED) {
        return Ok(AmdKey::P384(point));
    }
    let mut outer = open_nested(spki, WANTED)?;
    let mut algorithm = open_nested(read_tagged(&mut outer, Tag::Sequence, WANTED)?, WANTED)?;
    let id = read_tagged(&mut algorithm, Tag::ObjectIdentifier, WANTED)?.value();
    let bits = BitStringRef::decode(&mut outer).map_err(|_| WANTED)?;
    let body = AnyRef::from_der(bits.as_bytes().ok_or(WANTED)?).map_err(|_| WANTED)?;
    let mut numbers = open_nested(body, WANTED)?;
    let modulus = UintRef::decode(&mut numbers).map_err(|_| WANTED)?;
    match id == RSA_ENCRYPTION && modulus.as_bytes().len() == MODULUS_BYTES {
        true => Ok(AmdKey::Rsa4096),
        false => Err(WANTED),
    }
}

fn ia5<'a>(value: &'a [u8], field: &'static str) -> Result<&'a str, &'static str> {
    let any = AnyRef::from_der(value).map_err(|_| field)?;
    let text = core::str::from_utf8(any.value()).map_err(|_| field)?;
    if any.tag() == Tag::Ia5String && text.is_ascii() { Ok(text) } else { Err(field) }
}

fn patch_level(value: &[u8]) -> Result<u8, &'static str> {
    const FIELD: &str = "security patch level";
    let number = UintRef::from_der(value).map_err(|_| FIELD)?;
    match number.as_bytes() {
        [] => Ok(0),
        [level] => Ok(*level),
        _ => Err(FIELD),
    }
}

/// AMD writes the identifier without a type; an OCTET STRING inside the extension is read too.
fn hwid(value: &[u8]) -> Result<&[u8], &'static str> {
    const FIELD: &str = "hardware identifier";
    match value.len() {
        8 | 64 => Ok(value),
        _ => {
            let any = AnyRef::from_der(value).map_err(|_| FIELD)?;
            let is_id = any.tag() == Tag::OctetString && matches!(any.value().len(), 8 | 64);
            if is_id { Ok(any.value()) } else { Err(FIELD) }
        }
    }
}
