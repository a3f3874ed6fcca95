//! The simulated issuers: root, Platform CA, PCK certificate, TCB signer, and their CRLs.
//!
//! Shapes follow Intel's certificates: the same extensions, path lengths, key usages and common
//! names, for verifiers tell the roles by the latter. The organisation and the locality of every
//! subject say `SIMULATED`.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams,
    CrlDistributionPoint, CustomExtension, DistinguishedName, DnType, IsCa, Issuer, KeyIdMethod,
    KeyUsagePurpose, PublicKeyData, RevocationReason, RevokedCertParams, SerialNumber,
};
use sha2::{Digest, Sha256};

use crate::{
    FakeError,
    keys::{Key, Role},
    pck_extension,
    plan::{COLLATERAL_DAYS, Plan},
    time::{DAY, ROOT_NOT_AFTER, ROOT_NOT_BEFORE, date_time},
};

/// Who all certificates say they are from.
const ORGANISATION: &str = "SIMULATED by confide, not Intel Corporation";

/// Where a CRL would be; the name cannot exist (RFC 2606).
const ROOT_CRL_URI: &str = "https://simulated.invalid/root.crl";
const PCK_CRL_URI: &str = "https://simulated.invalid/pck.crl";

/// Years that Intel's certificates hold: Platform CA 15, leaves 7.
const CA_DAYS: u64 = 15 * 365;
const LEAF_DAYS: u64 = 7 * 365;

/// Certificates begin a day before the collateral, so that a clock somewhat behind still works.
const CLOCK_SLACK: u64 = DAY;

/// What the issuers leave behind: certificates, CRLs, and the two keys that sign evidence.
pub(crate) struct Pki {
    pub(crate) root_der: Vec<u8>,
    pub(crate) root_pem: String,
    pub(crate) platform_ca_pem: String,
    pub(crate) pck_pem: String,
    pub(crate) tcb_signer_pem: String,
    pub(crate) root_crl: Vec<u8>,
    pub(crate) pck_crl: Vec<u8>,
    pub(crate) pck: Key,
    pub(crate) tcb_signer: Key,
}

impl Pki {
    /// Issues everything; the keys of the root and the CA are wiped when this returns.
    pub(crate) fn issue(seed: &[u8; 32], issued_at: u64, plan: &Plan) -> Result<Self, FakeError> {
        let root_key = Key::derive(seed, Role::Root);
        let root_life = (ROOT_NOT_BEFORE, ROOT_NOT_AFTER);
        let root_serial = serial(&root_key, 0);
        let root_params = authority("Intel SGX Root CA", 1, root_life, root_serial);
        let root_certificate = root_params.self_signed(&root_key)?;
        let root = Issuer::from_params(&root_params, &root_key);

        let not_before = issued_at - CLOCK_SLACK;
        let ca_key = Key::derive(seed, Role::PlatformCa);
        let ca_life = (not_before, not_before + CA_DAYS * DAY);
        let ca_serial = serial(&ca_key, issued_at);
        let ca_params = authority("Intel SGX PCK Platform CA", 0, ca_life, ca_serial.clone());
        let ca_certificate = ca_params.signed_by(&ca_key, &root)?;
        let ca = Issuer::from_params(&ca_params, &ca_key);

        let leaf_life = (not_before, not_before + LEAF_DAYS * DAY);
        let pck = Key::derive(seed, Role::Pck);
        let pck_serial = serial(&pck, issued_at);
        let pck_certificate =
            pck_params(seed, plan, leaf_life, pck_serial.clone())?.signed_by(&pck, &ca)?;
        let tcb_signer = Key::derive(seed, Role::TcbSigner);
        let signer_certificate = tcb_signer_params(leaf_life, serial(&tcb_signer, issued_at))
            .signed_by(&tcb_signer, &root)?;

        let revoked_ca = plan.revoke_platform_ca.then_some(ca_serial);
        let revoked_pck = plan.revoke_pck.then_some(pck_serial);
        Ok(Self {
            root_der: root_certificate.der().to_vec(),
            root_pem: pem(&root_certificate),
            platform_ca_pem: pem(&ca_certificate),
            pck_pem: pem(&pck_certificate),
            tcb_signer_pem: pem(&signer_certificate),
            root_crl: crl(&root, plan, revoked_ca)?,
            pck_crl: crl(&ca, plan, bystanders().chain(revoked_pck))?,
            pck,
            tcb_signer,
        })
    }
}

fn pck_params(
    seed: &[u8; 32],
    plan: &Plan,
    life: (u64, u64),
    serial: SerialNumber,
) -> Result<CertificateParams, FakeError> {
    let mut params = leaf("Intel SGX PCK Certificate", PCK_CRL_URI, life, serial);
    let extension = pck_extension::encode(seed, plan)?;
    params.custom_extensions =
        vec![CustomExtension::from_oid_content(&pck_extension::OID, extension)];
    Ok(params)
}

fn tcb_signer_params(life: (u64, u64), serial: SerialNumber) -> CertificateParams {
    leaf("Intel SGX TCB Signing", ROOT_CRL_URI, life, serial)
}

fn authority(
    name: &str,
    path_length: u8,
    life: (u64, u64),
    serial: SerialNumber,
) -> CertificateParams {
    let mut params = certificate(name, ROOT_CRL_URI, life, serial);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(path_length));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn leaf(name: &str, crl_uri: &str, life: (u64, u64), serial: SerialNumber) -> CertificateParams {
    let mut params = certificate(name, crl_uri, life, serial);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::ContentCommitment];
    params
}

fn certificate(
    name: &str,
    crl_uri: &str,
    (not_before, not_after): (u64, u64),
    serial: SerialNumber,
) -> CertificateParams {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject.push(DnType::OrganizationName, ORGANISATION);
    subject.push(DnType::LocalityName, "SIMULATED");
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.not_before = date_time(not_before);
    params.not_after = date_time(not_after.min(ROOT_NOT_AFTER));
    params.serial_number = Some(serial);
    params.use_authority_key_identifier_extension = true;
    params.crl_distribution_points = vec![CrlDistributionPoint { uris: vec![crl_uri.into()] }];
    params
}

/// 20 bytes, positive, of full length: a hash of the key and of when it was certified.
fn serial(key: &Key, issued_at: u64) -> SerialNumber {
    let hash = Sha256::new()
        .chain_update(b"confide SIMULATED serial v1\0")
        .chain_update(key.der_bytes())
        .chain_update(issued_at.to_be_bytes())
        .finalize();
    let mut bytes = hash[..20].to_vec();
    bytes[0] = bytes[0] & 0x3f | 0x40;
    SerialNumber::from(bytes)
}

/// Serial numbers of nobody, so that the PCK CRL is not empty and a look-up has something to skip.
fn bystanders() -> impl Iterator<Item = SerialNumber> {
    (1_u8..=8).map(|n| SerialNumber::from(vec![n; 20]))
}

fn crl(
    issuer: &Issuer<'_, &Key>,
    plan: &Plan,
    revoked: impl IntoIterator<Item = SerialNumber>,
) -> Result<Vec<u8>, FakeError> {
    let this_update = date_time(plan.crl_from);
    let entry = |serial_number| RevokedCertParams {
        serial_number,
        revocation_time: this_update,
        reason_code: Some(RevocationReason::KeyCompromise),
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update,
        next_update: date_time(plan.crl_from + COLLATERAL_DAYS * DAY),
        crl_number: SerialNumber::from(plan.crl_number),
        issuing_distribution_point: None,
        revoked_certs: revoked.into_iter().map(entry).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    Ok(list.signed_by(issuer)?.der().to_vec())
}

/// PEM with line feeds on every platform: these bytes are inside the quote.
fn pem(certificate: &Certificate) -> String {
    certificate.pem().replace("\r\n", "\n")
}
