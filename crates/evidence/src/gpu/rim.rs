//! A reference integrity manifest (RIM): which measurements a driver or a VBIOS has.
//!
//! A SWID tag (ISO/IEC 19770-2) with TCG's attributes, signed with an enveloped XML signature:
//! Canonical XML 1.1, SHA-384, ECDSA P-384. Exactly that form is read and no other.

use alloc::{string::String, vec::Vec};

use base64::{Engine, engine::general_purpose::STANDARD};

use roxmltree::Node;

use super::{container::RIM_BYTES_MAX, xml};
use crate::parse_error::ParseError;

const SWID: &str = "http://standards.iso.org/iso/19770/-2/2015/schema.xsd";
const SHA384_ATTRIBUTES: &str = "http://www.w3.org/2001/04/xmlenc#sha384";
const DSIG: &str = "http://www.w3.org/2000/09/xmldsig#";
const C14N_11: &str = "http://www.w3.org/2006/12/xml-c14n11";
const ECDSA_SHA384: &str = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384";
const ENVELOPED: &str = "http://www.w3.org/2000/09/xmldsig#enveloped-signature";
const SHA384: &str = "http://www.w3.org/2001/04/xmldsig-more#sha384";

/// The largest number of measurements in one manifest: as many as a report can hold.
const MEASUREMENTS_MAX: usize = 255;
/// The largest number of values that one measurement may have; NVIDIA's have at most four.
const ALTERNATIVES_MAX: usize = 64;
/// The largest number of certificates of the signer: signer, two intermediates, root.
const CERTIFICATES_MAX: usize = 6;

/// A manifest, read. Nothing in it is believed before [`RimSignature`] is verified.
#[derive(Clone, Debug)]
pub struct Rim {
    /// `colloquialVersion`: the driver's or the VBIOS's version.
    pub version: String,
    /// `product`, for instance `GH100`.
    pub product: String,
    /// `tagId`.
    pub tag_id: String,
    /// The reference values, each index once.
    pub measurements: Vec<ReferenceMeasurement>,
    /// The signature that covers all of the above.
    pub signature: RimSignature,
}

/// The values that one measurement may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceMeasurement {
    /// The index of the measurement, from 0; a report counts from 1.
    pub index: u8,
    /// Whether the measurement is to be compared.
    pub active: bool,
    /// The accepted values: the measurement has to equal one of them.
    pub values: Vec<[u8; 48]>,
}

/// Parts of the XML signature, in the form in which they are hashed.
#[derive(Clone, Debug)]
pub struct RimSignature {
    /// Canonical form of the document without the signature.
    pub document: String,
    /// SHA-384 that the signature says `document` has.
    pub document_digest: [u8; 48],
    /// Canonical form of `SignedInfo`, which holds that digest and is what the key signs.
    pub signed_info: String,
    /// ECDSA P-384 with SHA-384: r, then s, 48 bytes each.
    pub value: [u8; 96],
    /// The signer's certificates in DER, its own first, its root last.
    pub certificates: Vec<Vec<u8>>,
}

/// The component that a manifest is for; it follows from the version that the manifest names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RimComponent {
    /// The kernel driver and the firmware that it loads.
    Driver,
    /// The firmware on the board.
    Vbios,
}

impl RimComponent {
    /// `driver` or `VBIOS`.
    pub fn as_str(self) -> &'static str {
        match self {
            RimComponent::Driver => "driver",
            RimComponent::Vbios => "VBIOS",
        }
    }
}

impl Rim {
    /// Reads a manifest.
    ///
    /// # Errors
    /// [`ParseError::TooLong`] over [`RIM_BYTES_MAX`](super::RIM_BYTES_MAX), [`ParseError::Text`] with the first
    /// property of a signed SWID tag that this document lacks.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        const SUBJECT: &str = "reference manifest";
        if bytes.len() > RIM_BYTES_MAX {
            let (limit, got) = (RIM_BYTES_MAX, bytes.len());
            return Err(ParseError::TooLong { subject: SUBJECT, limit, got });
        }
        let read = || {
            let text = core::str::from_utf8(bytes).map_err(|_| "UTF-8")?;
            let text = xml::normalise(text)?;
            let document = xml::parse(&text)?;
            let root = document.root_element();
            // The last child and no other is the signature. It has a namespace of its own, so that nothing of it is
            // read as contents, and it is left out of what is hashed.
            let signature = root.last_element_child().ok_or("a signature")?;
            let signature = read_signature(root, signature)?;
            read_contents(root, signature)
        };
        read().map_err(|wanted| ParseError::Text { subject: SUBJECT, wanted })
    }
}

fn read_contents(root: Node<'_, '_>, signature: RimSignature) -> Result<Rim, &'static str> {
    if !root.has_tag_name((SWID, "SoftwareIdentity")) {
        return Err("a SoftwareIdentity");
    }
    let text = |element: Node<'_, '_>, name| {
        let value = xml::attribute(element, name).filter(|value| is_printable(value));
        value.map(String::from).ok_or("product, colloquialVersion and tagId")
    };
    let meta = xml::only_child(root, SWID, "Meta").ok_or("one Meta")?;
    let payload = xml::only_child(root, SWID, "Payload").ok_or("one Payload")?;
    let mut measurements: Vec<ReferenceMeasurement> = Vec::new();
    for resource in xml::child_elements(payload) {
        let read = read_measurement(resource)?;
        let is_known = measurements.iter().any(|other| other.index == read.index);
        if is_known || measurements.len() == MEASUREMENTS_MAX {
            return Err("each measurement once");
        }
        measurements.push(read);
    }
    Ok(Rim {
        version: text(meta, "colloquialVersion")?,
        product: text(meta, "product")?,
        tag_id: text(root, "tagId")?,
        measurements,
        signature,
    })
}

fn read_measurement(resource: Node<'_, '_>) -> Result<ReferenceMeasurement, &'static str> {
    let is_measurement = xml::attribute(resource, "type") == Some("Measurement");
    if !resource.has_tag_name((SWID, "Resource")) || !is_measurement {
        return Err("measurements and nothing else in the payload");
    }
    let number = |name| xml::attribute(resource, name).and_then(|value| value.parse::<u8>().ok());
    let index = number("index").filter(|index| *index < 255).ok_or("an index below 255")?;
    let active = match xml::attribute(resource, "active") {
        Some("True") => true,
        Some("False") => false,
        _ => return Err("active to be True or False"),
    };
    if number("size") != Some(48) {
        return Err("measurements of 48 bytes");
    }
    let count = number("alternatives").map(usize::from);
    let count = count.filter(|count| (1..=ALTERNATIVES_MAX).contains(count));
    let value = |at| {
        let text = resource.attribute((SHA384_ATTRIBUTES, alloc::format!("Hash{at}").as_str()));
        let mut value = [0; 48];
        let read = text.map(|text| hex::decode_to_slice(text, &mut value));
        read.and_then(Result::ok).map(|()| value).ok_or("a SHA-384 for each alternative")
    };
    let values = (0..count.ok_or("1 to 64 alternatives")?).map(value);
    Ok(ReferenceMeasurement { index, active, values: values.collect::<Result<_, _>>()? })
}

fn read_signature(
    root: Node<'_, '_>,
    signature: Node<'_, '_>,
) -> Result<RimSignature, &'static str> {
    if !signature.has_tag_name((DSIG, "Signature")) {
        return Err("a signature as the last element");
    }
    let info = child(signature, "SignedInfo")?;
    let reference = child(info, "Reference")?;
    let transforms = child(reference, "Transforms")?;
    let algorithm = |element: Node<'_, '_>| xml::attribute(element, "Algorithm").map(String::from);
    let transforms: Vec<_> = xml::child_elements(transforms).map(algorithm).collect();
    let is_ours = algorithm(child(info, "CanonicalizationMethod")?).as_deref() == Some(C14N_11)
        && algorithm(child(info, "SignatureMethod")?).as_deref() == Some(ECDSA_SHA384)
        && algorithm(child(reference, "DigestMethod")?).as_deref() == Some(SHA384)
        && xml::attribute(reference, "URI") == Some("")
        && transforms == [Some(ENVELOPED.into()), Some(C14N_11.into())];
    if !is_ours {
        return Err("an enveloped signature: C14N 1.1, SHA-384, ECDSA");
    }
    let digest = decode_base64(child(reference, "DigestValue")?)?;
    let value = decode_base64(child(signature, "SignatureValue")?)?;
    let data = child(child(signature, "KeyInfo")?, "X509Data")?;
    let mut certificates = Vec::new();
    for certificate in xml::child_elements(data) {
        let is_certificate = certificate.tag_name().name() == "X509Certificate";
        if !is_certificate || certificates.len() == CERTIFICATES_MAX {
            return Err("at most six certificates");
        }
        certificates.push(decode_base64(certificate)?);
    }
    Ok(RimSignature {
        document: xml::canonicalise(root, Some(signature)),
        document_digest: digest.try_into().map_err(|_| "a digest of 48 bytes")?,
        signed_info: xml::canonicalise(info, None),
        value: value.try_into().map_err(|_| "a signature of 96 bytes")?,
        certificates,
    })
}

/// The one child of the XML signature's namespace with this name.
fn child<'a, 't>(parent: Node<'a, 't>, name: &'static str) -> Result<Node<'a, 't>, &'static str> {
    xml::only_child(parent, DSIG, name).ok_or(name)
}

/// Decodes base64 in lines.
fn decode_base64(element: Node<'_, '_>) -> Result<Vec<u8>, &'static str> {
    let text = xml::only_text(element).ok_or("base64")?;
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    STANDARD.decode(digits).map_err(|_| "base64")
}

/// Whether text may stand in a report to a person.
fn is_printable(text: &str) -> bool {
    text.len() <= 256 && !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
}
