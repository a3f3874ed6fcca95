//! The SGX extension of a PCK certificate: the identifiers of the platform and the versions that it
//! runs.
//!
//! Intel SGX PCK Certificate and CRL Profile Specification, section 1.3.5.

use crate::{
    asn1::{OCTET_STRING, encode_element, integer, object_identifier, sequence},
    keys::numbered_name,
    measurements,
    plan::SimulationPlan,
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
pub(crate) fn encode(seed: &[u8; 32], ca: PckCa, platform: u32, plan: &SimulationPlan) -> Vec<u8> {
    let id = |name| measurements::platform_id(seed, &numbered_name(name, platform));
    let kind = match ca {
        PckCa::Platform => TYPE_SCALABLE,
        PckCa::Processor => TYPE_STANDARD,
    };
    let mut entries = vec![
        encode_entry("1", &encode_octets(&id("ppid"))),
        encode_entry("2", &encode_tcb(plan)),
        encode_entry("3", &encode_octets(&PCE_ID)),
        encode_entry("4", &encode_octets(&FMSPC)),
        encode_entry("5", &encode_element(ENUMERATED, &[&[kind]])),
    ];
    if ca == PckCa::Platform {
        entries.push(encode_entry("6", &encode_octets(&id("platform instance"))));
        entries.push(encode_entry("7", &encode_configuration()));
    }
    sequence(&[&entries.concat()])
}

/// The 16 component SVNs, PCESVN (17) and the raw CPUSVN (18).
fn encode_tcb(plan: &SimulationPlan) -> Vec<u8> {
    let cpu_svn = plan.level.cpu_svn();
    let mut entries = Vec::new();
    for (arc, svn) in (1..).zip(cpu_svn) {
        entries.extend(encode_entry(&format!("2.{arc}"), &integer(&[svn])));
    }
    entries.extend(encode_entry("2.17", &integer(&plan.level.pce_svn().to_be_bytes())));
    entries.extend(encode_entry("2.18", &encode_octets(&cpu_svn)));
    sequence(&[&entries])
}

/// Dynamic platform, cached keys and simultaneous multithreading: all off, which any policy allows.
fn encode_configuration() -> Vec<u8> {
    let off = encode_element(BOOLEAN, &[&[0]]);
    sequence(&[&encode_entry("7.1", &off), &encode_entry("7.2", &off), &encode_entry("7.3", &off)])
}

/// A SEQUENCE of an identifier below the extension's own, and a value.
fn encode_entry(arcs: &str, value: &[u8]) -> Vec<u8> {
    sequence(&[&object_identifier(&format!("1.2.840.113741.1.13.1.{arcs}")), value])
}

fn encode_octets(bytes: &[u8]) -> Vec<u8> {
    encode_element(OCTET_STRING, &[bytes])
}
