//! The SGX extension of a PCK certificate: the identifiers of the platform and the versions that it
//! runs.
//!
//! Intel SGX PCK Certificate and CRL Profile Specification, section 1.3.5.

use der::{
    Any, Encode, Tag,
    asn1::{ObjectIdentifier, Uint},
};

use crate::{
    error::FakeError,
    keys::numbered_name,
    measurements,
    plan::Plan,
    tcb::{FMSPC, PCE_ID},
    variant::PckCa,
};

/// OID of the extension, as rcgen takes it.
pub(crate) const OID: [u64; 7] = [1, 2, 840, 113_741, 1, 13, 1];

const SGX: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113741.1.13.1");

/// Type 1: the platform is registered with keys for several packages ("scalable").
const TYPE_SCALABLE: u8 = 1;
/// Type 0: one package, whose certificates come from the Processor CA.
const TYPE_STANDARD: u8 = 0;

/// The extension's content.
pub(crate) fn encode(
    seed: &[u8; 32],
    ca: PckCa,
    platform: u32,
    plan: &Plan,
) -> Result<Vec<u8>, FakeError> {
    let id = |name| measurements::platform_id(seed, &numbered_name(name, platform));
    let kind = match ca {
        PckCa::Platform => TYPE_SCALABLE,
        PckCa::Processor => TYPE_STANDARD,
    };
    let mut entries = vec![
        entry(&[1], octets(&id("ppid"))?)?,
        entry(&[2], tcb(plan)?)?,
        entry(&[3], octets(&PCE_ID)?)?,
        entry(&[4], octets(&FMSPC)?)?,
        entry(&[5], element(Tag::Enumerated, &[kind])?)?,
    ];
    if ca == PckCa::Platform {
        entries.push(entry(&[6], octets(&id("platform instance"))?)?);
        entries.push(entry(&[7], configuration()?)?);
    }
    Ok(element(Tag::Sequence, &entries.concat())?)
}

/// The 16 component SVNs, PCESVN (17) and the raw CPUSVN (18).
fn tcb(plan: &Plan) -> Result<Vec<u8>, der::Error> {
    let cpu_svn = plan.level.cpu_svn();
    let mut entries = Vec::new();
    for (arc, svn) in (1..).zip(cpu_svn) {
        entries.extend(entry(&[2, arc], integer(svn.into())?)?);
    }
    entries.extend(entry(&[2, 17], integer(plan.level.pce_svn())?)?);
    entries.extend(entry(&[2, 18], octets(&cpu_svn)?)?);
    element(Tag::Sequence, &entries)
}

/// Dynamic platform, cached keys and simultaneous multithreading: all off, which any policy allows.
fn configuration() -> Result<Vec<u8>, der::Error> {
    let mut entries = Vec::new();
    for arc in 1..=3 {
        entries.extend(entry(&[7, arc], element(Tag::Boolean, &[0])?)?);
    }
    element(Tag::Sequence, &entries)
}

/// A SEQUENCE of an identifier below the extension's own, and a value.
fn entry(arcs: &[u32], value: Vec<u8>) -> Result<Vec<u8>, der::Error> {
    let mut oid = SGX;
    for &arc in arcs {
        oid = oid.push_arc(arc).map_err(|_| Tag::ObjectIdentifier.value_error())?;
    }
    let mut content = oid.to_der()?;
    content.extend(value);
    element(Tag::Sequence, &content)
}

fn octets(bytes: &[u8]) -> Result<Vec<u8>, der::Error> {
    element(Tag::OctetString, bytes)
}

fn integer(value: u16) -> Result<Vec<u8>, der::Error> {
    Uint::new(&value.to_be_bytes())?.to_der()
}

fn element(tag: Tag, content: &[u8]) -> Result<Vec<u8>, der::Error> {
    Any::new(tag, content)?.to_der()
}
