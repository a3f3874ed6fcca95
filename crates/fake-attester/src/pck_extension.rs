//! The SGX extension of a PCK certificate: the identifiers of the platform and the versions that it
//! runs.
//!
//! Intel SGX PCK Certificate and CRL Profile Specification, section 1.3.5.

use crate::{
    asn1::{OCTET_STRING, element, integer, object, sequence},
    keys::numbered_name,
    measurements,
    plan::Plan,
    tcb::{FMSPC, PCE_ID},
    variant::PckCa,
};

/// OID of the extension, as rcgen takes it.
pub(crate) const OID: [u64; 7] = [1, 2, 840, 113_741, 1, 13, 1];

const BOOLEAN: u8 = 0x01;
const ENUMERATED: u8 = 0x0a;

/// Type 1: the platform is registered with keys for several packages ("scalable").
const TYPE_SCALABLE: u8 = 1;
/// Type 0: one package, whose certificates come from the Processor CA.
const TYPE_STANDARD: u8 = 0;

/// The extension's content.
pub(crate) fn encode(seed: &[u8; 32], ca: PckCa, platform: u32, plan: &Plan) -> Vec<u8> {
    let id = |name| measurements::platform_id(seed, &numbered_name(name, platform));
    let kind = match ca {
        PckCa::Platform => TYPE_SCALABLE,
        PckCa::Processor => TYPE_STANDARD,
    };
    let mut entries = vec![
        entry("1", &octets(&id("ppid"))),
        entry("2", &tcb(plan)),
        entry("3", &octets(&PCE_ID)),
        entry("4", &octets(&FMSPC)),
        entry("5", &element(ENUMERATED, &[&[kind]])),
    ];
    if ca == PckCa::Platform {
        entries.push(entry("6", &octets(&id("platform instance"))));
        entries.push(entry("7", &configuration()));
    }
    sequence(&[&entries.concat()])
}

/// The 16 component SVNs, PCESVN (17) and the raw CPUSVN (18).
fn tcb(plan: &Plan) -> Vec<u8> {
    let cpu_svn = plan.level.cpu_svn();
    let mut entries = Vec::new();
    for (arc, svn) in (1..).zip(cpu_svn) {
        entries.extend(entry(&format!("2.{arc}"), &integer(&[svn])));
    }
    entries.extend(entry("2.17", &integer(&plan.level.pce_svn().to_be_bytes())));
    entries.extend(entry("2.18", &octets(&cpu_svn)));
    sequence(&[&entries])
}

/// Dynamic platform, cached keys and simultaneous multithreading: all off, which any policy allows.
fn configuration() -> Vec<u8> {
    let off = element(BOOLEAN, &[&[0]]);
    sequence(&[&entry("7.1", &off), &entry("7.2", &off), &entry("7.3", &off)])
}

/// A SEQUENCE of an identifier below the extension's own, and a value.
fn entry(arcs: &str, value: &[u8]) -> Vec<u8> {
    sequence(&[&object(&format!("1.2.840.113741.1.13.1.{arcs}")), value])
}

fn octets(bytes: &[u8]) -> Vec<u8> {
    element(OCTET_STRING, &[bytes])
}
