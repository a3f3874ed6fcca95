//! The simulated issuers of a GPU: five certificates of the device, four of the manifests.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose, SerialNumber,
};
use sha2::{Digest, Sha256};

use super::{
    keys::GpuKey,
    measurement::simulated_digest,
    options::{GpuFault, GpuOptions},
};
use crate::{
    asn1::{OCTET_STRING, bit_string, encode_element, sequence},
    error::FakeError,
    pem,
    time::{DAY, ROOT_NOT_AFTER, ROOT_NOT_BEFORE, date_time},
};

/// The organisation in all certificates.
const ORGANISATION: &str = "SIMULATED by confide, not NVIDIA Corporation";
/// The identifier of the DICE extensions, 2.23.133.5.4.1.
const DICE: [u64; 6] = [2, 23, 133, 5, 4, 1];
/// Certificates begin a day before the rest, so that a clock somewhat behind still works.
const CLOCK_SLACK: u64 = DAY;
/// The time for which the attestation key's certificate holds where it has expired.
const ENDED_AFTER: u64 = DAY / 2;

/// One certificate, its key and the names by which OCSP refers to it.
pub(super) struct IssuedGpuCertificate {
    pub(super) der: Vec<u8>,
    pub(super) key: GpuKey,
}

/// All issued certificates; in each chain the leaf is first and the root last.
pub(super) struct Chains {
    pub(super) device: Vec<IssuedGpuCertificate>,
    pub(super) device_pem: String,
    pub(super) device_root: Vec<u8>,
    pub(super) manifest: Vec<IssuedGpuCertificate>,
    pub(super) manifest_root: Vec<u8>,
    /// The responders of the device's intermediate and of the manifests'.
    pub(super) responders: [IssuedGpuCertificate; 2],
}

impl Chains {
    pub(super) fn issue(options: &GpuOptions) -> Result<Self, FakeError> {
        let names = [
            "SIMULATED NVIDIA Device Identity CA",
            "SIMULATED NVIDIA GH100 Identity",
            "SIMULATED NVIDIA GH100 Provisioner ICA 1",
            "SIMULATED GH100 A01 GSP BROM",
            "SIMULATED GH100 A01 GSP FMC LF",
        ];
        let (mut device, device_responder) = issue_chain(options, &names, Some(3))?;
        let names = [
            "SIMULATED NVIDIA CoRIM signing Root CA",
            "SIMULATED NVIDIA Reference Value GH100 CA",
            "SIMULATED NVIDIA Reference Value L3 GH100 001",
            "SIMULATED HCC RIM L4 Signer",
        ];
        let (manifest, manifest_responder) = issue_chain(options, &names, None)?;
        let root = |chain: &[IssuedGpuCertificate]| {
            chain.last().map(|root| root.der.clone()).unwrap_or_default()
        };
        let (device_root, manifest_root) = (root(&device), root(&manifest));
        match options.fault {
            Some(GpuFault::OtherDevice) => {
                let other = GpuOptions { seed: [0xee; 32], fault: None, ..options.clone() };
                device[1].der.clone_from(&Chains::issue(&other)?.device[1].der);
            }
            Some(GpuFault::ChainGap) => drop(device.remove(2)),
            _ => {}
        }
        Ok(Self {
            device_pem: device.iter().map(|issued| pem::encode_certificate(&issued.der)).collect(),
            device,
            device_root,
            manifest,
            manifest_root,
            responders: [device_responder, manifest_responder],
        })
    }
}

/// Issues a chain from the root down, and a responder under the first CA; the leaf is first.
///
/// `firmware` is the place of the CA above a leaf that names its firmware.
fn issue_chain(
    options: &GpuOptions,
    names: &[&str],
    firmware: Option<usize>,
) -> Result<(Vec<IssuedGpuCertificate>, IssuedGpuCertificate), FakeError> {
    let root_key = GpuKey::from_options(options, names[0]);
    let mut params = certificate_parameters(options, names[0], true);
    params.not_before = date_time(ROOT_NOT_BEFORE);
    let mut chain = vec![IssuedGpuCertificate {
        der: params.self_signed(&root_key)?.der().to_vec(),
        key: root_key,
    }];
    let mut responder = None;
    let mut above = params;
    for (at, name) in names.iter().enumerate().skip(1) {
        let is_leaf = at == names.len() - 1;
        let own = GpuKey::from_options(options, name);
        let mut params = certificate_parameters(options, name, !is_leaf);
        let issuer_key = &chain[chain.len() - 1].key;
        if is_leaf && firmware.is_some() {
            set_device_leaf_parameters(options, &mut params, issuer_key);
        }
        if firmware == Some(at) && options.fault == Some(GpuFault::DeviceIsNoCa) {
            params.is_ca = IsCa::ExplicitNoCa;
        }
        let issuer = Issuer::from_params(&above, issuer_key);
        if at == 1 {
            responder = Some(issue_ocsp_responder(options, names[0], &issuer)?);
        }
        let der = params.signed_by(&own, &issuer)?.der().to_vec();
        chain.push(IssuedGpuCertificate { der, key: own });
        above = params;
    }
    chain.reverse();
    let responder = responder.expect("every chain is longer than its root");
    Ok((chain, responder))
}

fn set_device_leaf_parameters(
    options: &GpuOptions,
    params: &mut CertificateParams,
    device: &GpuKey,
) {
    match options.fault {
        Some(GpuFault::NoFirmwareId) => return,
        Some(GpuFault::LeafIsCa) => params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
        Some(GpuFault::LeafEnded) => {
            params.not_after = date_time(options.issued_at - CLOCK_SLACK + ENDED_AFTER);
        }
        _ => {}
    }
    let extension = composite_device_id(&device.public, &simulated_digest("firmware"));
    params.custom_extensions = vec![CustomExtension::from_oid_content(&DICE, extension)];
}

fn issue_ocsp_responder(
    options: &GpuOptions,
    root: &str,
    issuer: &Issuer<'_, &GpuKey>,
) -> Result<IssuedGpuCertificate, FakeError> {
    let name = format!("{root} OCSP responder");
    let own = GpuKey::from_options(options, &name);
    let mut params = certificate_parameters(options, &name, false);
    if options.fault != Some(GpuFault::OcspResponder) {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
    }
    Ok(IssuedGpuCertificate { der: params.signed_by(&own, issuer)?.der().to_vec(), key: own })
}

fn certificate_parameters(options: &GpuOptions, name: &str, is_ca: bool) -> CertificateParams {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject.push(DnType::OrganizationName, ORGANISATION);
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.not_before = date_time(options.issued_at - CLOCK_SLACK);
    params.not_after = date_time(ROOT_NOT_AFTER);
    params.serial_number = Some(derive_serial(options, name));
    params.use_authority_key_identifier_extension = true;
    params.is_ca = IsCa::NoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    }
    params
}

fn derive_serial(options: &GpuOptions, name: &str) -> SerialNumber {
    let hash = Sha256::new()
        .chain_update(b"confide SIMULATED GPU serial v1\0")
        .chain_update(name.as_bytes())
        .chain_update(options.seed)
        .finalize();
    let mut bytes = hash[..16].to_vec();
    bytes[0] = bytes[0] & 0x3f | 0x40;
    SerialNumber::from(bytes)
}

/// The TCG DICE extension `CompositeDeviceID { version, deviceID SubjectPublicKeyInfo, fwid }`.
fn composite_device_id(device: &[u8; 97], fwid: &[u8; 48]) -> Vec<u8> {
    const EC: &[u8] = &[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    const SECP384R1: &[u8] = &[6, 5, 0x2b, 0x81, 4, 0, 34];
    const SHA_384: &[u8] = &[6, 9, 0x60, 0x86, 0x48, 1, 101, 3, 4, 2, 2];
    let point = bit_string(device);
    let key = sequence(&[&sequence(&[EC, SECP384R1]), &point]);
    let digest = sequence(&[SHA_384, &encode_element(OCTET_STRING, &[fwid])]);
    sequence(&[&[2, 1, 1], &key, &digest])
}

pub(super) fn encode_base64(bytes: &[u8]) -> String {
    use ::base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}
