//! Intel's SGX extension in a PCK certificate: which platform it is, and its security versions.
//!
//! Source: Intel SGX PCK Certificate and Certificate Revocation List Profile Specification,
//! section 1.3.5 (OID 1.2.840.113741.1.13.1).

use der::{AnyRef, Decode, Reader, SliceReader, Tag, Tagged};

use crate::{
    certificate::{open_nested, read_tagged, set_once},
    parse_error::ParseError,
};

const SUBJECT: &str = "SGX extension of the PCK certificate";
/// Object identifier 1.2.840.113741.1.13.1, as the content of its DER.
const ROOT: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf8, 0x4d, 1, 13, 1];
/// The same, then 2.
const TCB: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf8, 0x4d, 1, 13, 1, 2];
/// The same, then 7.
const CONFIGURATION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf8, 0x4d, 1, 13, 1, 7];

/// The platform that a PCK certificate describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PckExtension {
    /// Platform provisioning identifier.
    pub ppid: [u8; 16],
    /// The sixteen SGX component versions.
    pub components: [u8; 16],
    /// Version of the provisioning certification enclave.
    pub pce_svn: u16,
    /// Raw CPUSVN.
    pub cpu_svn: [u8; 16],
    /// Identifier of the provisioning certification enclave.
    pub pce_id: [u8; 2],
    /// Platform family: Family-Model-Stepping-Platform-CustomSKU.
    pub fmspc: [u8; 6],
    /// SGX type: 0 standard, 1 scalable, 2 scalable with integrity.
    pub sgx_type: u8,
}

impl PckExtension {
    /// Reads the content of the extension.
    ///
    /// # Errors
    /// [`ParseError::Der`] with `subject` and the first field that is not as Intel's PCK
    /// certificate profile has it.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        read(bytes).map_err(|field| ParseError::Der { subject: SUBJECT, field })
    }
}

fn read(bytes: &[u8]) -> Result<PckExtension, &'static str> {
    let (mut ppid, mut tcb, mut pce_id) = (None, None, None);
    let (mut fmspc, mut sgx_type) = (None, None);
    let (mut instance, mut configuration) = (None, None);
    visit_entries(AnyRef::from_der(bytes).map_err(|_| "outer sequence")?, ROOT, |arc, value| {
        match arc {
            1 => set_once(&mut ppid, octets(value, "PPID")?, "PPID"),
            2 => set_once(&mut tcb, read_tcb(value)?, "TCB"),
            3 => set_once(&mut pce_id, octets(value, "PCE-ID")?, "PCE-ID"),
            4 => set_once(&mut fmspc, octets(value, "FMSPC")?, "FMSPC"),
            5 => {
                set_once(&mut sgx_type, decode_u16(value, Tag::Enumerated, "SGX type")?, "SGX type")
            }
            // Present on machines with several packages; read only so that malformed values are refused.
            6 => set_once(&mut instance, octets::<16>(value, "platform instance")?, "instance"),
            7 => set_once(&mut configuration, read_configuration(value)?, "configuration"),
            _ => Err("entry identifier"),
        }
    })?;
    let (components, pce_svn, cpu_svn) = tcb.ok_or("TCB")?;
    let sgx_type = u8::try_from(sgx_type.ok_or("SGX type")?).map_err(|_| "SGX type")?;
    Ok(PckExtension {
        ppid: ppid.ok_or("PPID")?,
        components,
        pce_svn,
        cpu_svn,
        pce_id: pce_id.ok_or("PCE-ID")?,
        fmspc: fmspc.ok_or("FMSPC")?,
        sgx_type,
    })
}

/// Reads the flags (dynamic platform, cached keys, simultaneous multithreading), each at most once.
fn read_configuration(value: AnyRef<'_>) -> Result<(), &'static str> {
    let mut flags = [None; 3];
    visit_entries(value, CONFIGURATION, |arc, value| match arc {
        1..=3 if value.tag() == Tag::Boolean && value.value().len() == 1 => {
            set_once(&mut flags[usize::from(arc) - 1], (), "configuration")
        }
        _ => Err("configuration"),
    })
}

fn read_tcb(value: AnyRef<'_>) -> Result<([u8; 16], u16, [u8; 16]), &'static str> {
    let mut components = [None; 16];
    let (mut pce_svn, mut cpu_svn) = (None, None);
    visit_entries(value, TCB, |arc, value| match arc {
        1..=16 => {
            let svn = decode_u16(value, Tag::Integer, "TCB component")?;
            let svn = u8::try_from(svn).map_err(|_| "TCB component")?;
            set_once(&mut components[usize::from(arc) - 1], svn, "TCB component")
        }
        17 => set_once(&mut pce_svn, decode_u16(value, Tag::Integer, "PCESVN")?, "PCESVN"),
        18 => set_once(&mut cpu_svn, octets(value, "CPUSVN")?, "CPUSVN"),
        _ => Err("TCB entry identifier"),
    })?;
    let mut known = [0; 16];
    for (known, component) in known.iter_mut().zip(components) {
        *known = component.ok_or("TCB component")?;
    }
    Ok((known, pce_svn.ok_or("PCESVN")?, cpu_svn.ok_or("CPUSVN")?))
}

/// Calls `visit` with the last arc and the value of each `SEQUENCE { OID, value }`.
fn visit_entries<'a>(
    list: AnyRef<'a>,
    parent: &[u8],
    mut visit: impl FnMut(u8, AnyRef<'a>) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    if list.tag() != Tag::Sequence {
        return Err("list of entries");
    }
    let mut entries: SliceReader<'_> = open_nested(list, "list of entries")?;
    while !entries.is_finished() {
        let mut entry = open_nested(read_tagged(&mut entries, Tag::Sequence, "entry")?, "entry")?;
        let id = read_tagged(&mut entry, Tag::ObjectIdentifier, "entry identifier")?.value();
        let arc = match id.strip_prefix(parent) {
            Some([arc]) if *arc < 0x80 => *arc,
            _ => return Err("entry identifier"),
        };
        let value = AnyRef::decode(&mut entry).map_err(|_| "entry value")?;
        if !entry.is_finished() {
            return Err("entry");
        }
        visit(arc, value)?;
    }
    Ok(())
}

fn octets<const N: usize>(value: AnyRef<'_>, field: &'static str) -> Result<[u8; N], &'static str> {
    if value.tag() != Tag::OctetString {
        return Err(field);
    }
    value.value().try_into().map_err(|_| field)
}

/// Reads a non-negative INTEGER or ENUMERATED below 65,536.
fn decode_u16(value: AnyRef<'_>, tag: Tag, field: &'static str) -> Result<u16, &'static str> {
    match (value.tag() == tag, value.value()) {
        (true, [low @ 0..=0x7f]) => Ok(u16::from(*low)),
        (true, [0, low @ 0x80..=0xff]) => Ok(u16::from(*low)),
        (true, [high @ 1..=0x7f, low]) => Ok(u16::from_be_bytes([*high, *low])),
        (true, [0, high @ 0x80..=0xff, low]) => Ok(u16::from_be_bytes([*high, *low])),
        _ => Err(field),
    }
}
