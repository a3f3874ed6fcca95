//! The simulated issuers of Intel's side: root, Platform CA, Processor CA, TCB signer; what they
//! certify, and their CRLs.
//!
//! Shapes follow Intel's certificates: the same extensions, path lengths, key usages and common
//! names, for verifiers tell the roles by the latter. The organisation and the locality of every
//! subject say `SIMULATED`.

use std::ops::Range;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams,
    CrlDistributionPoint, CustomExtension, DistinguishedName, DnType, IsCa, Issuer, KeyIdMethod,
    KeyUsagePurpose, PublicKeyData, RevocationReason, RevokedCertParams, SerialNumber,
};
use sha2::{Digest, Sha256};
use zeroize::Zeroize;

use crate::{
    edition::RevocationList,
    error::FakeError,
    keys::{Key, SimulatedKey},
    pck_extension, pem,
    plan::SimulationPlan,
    time::{DAY, ROOT_NOT_AFTER, ROOT_NOT_BEFORE, date_time},
    variant::PckCa,
};

/// The organisation in all certificates.
const ORGANISATION: &str = "SIMULATED by confide, not Intel Corporation";

/// The address of the root's CRL; the name cannot exist (RFC 2606).
const ROOT_CRL_URI: &str = "https://simulated.invalid/root.crl";
const PCK_CRL_URI: &str = "https://simulated.invalid/pck.crl";

/// The days for which Intel's certificates hold: Platform CA 15 years, leaves 7.
const CA_DAYS: u64 = 15 * 365;
const LEAF_DAYS: u64 = 7 * 365;

/// Certificates begin a day before the collateral, so that a clock somewhat behind still works.
const CLOCK_SLACK: u64 = DAY;

/// The issuers and their keys.
pub(crate) struct IntelPki {
    seed: [u8; 32],
    certified_at: u64,
    root: Authority,
    platform_ca: Authority,
    processor_ca: Authority,
    pub(crate) tcb_signer: IssuedCertificate,
}

/// The key and the certificate of an issuer.
struct Authority {
    params: CertificateParams,
    certified: IssuedCertificate,
}

/// A key and its certificate.
pub(crate) struct IssuedCertificate {
    pub(crate) key: Key,
    pub(crate) serial: Vec<u8>,
    pub(crate) der: Vec<u8>,
    pub(crate) pem: String,
}

impl Drop for IntelPki {
    fn drop(&mut self) {
        self.seed.zeroize();
    }
}

impl IntelPki {
    /// Certifies root, CAs and TCB signer; the root depends on the seed alone.
    pub(crate) fn issue(seed: &[u8; 32], certified_at: u64) -> Result<Self, FakeError> {
        let root = {
            let key = Key::derive(seed, SimulatedKey::IntelRoot);
            let life = ROOT_NOT_BEFORE..ROOT_NOT_AFTER;
            let number = derive_serial(&key, 0);
            let params = authority_parameters("Intel SGX Root CA", 1, life, number.clone());
            let certificate = params.self_signed(&key)?;
            Authority { params, certified: IssuedCertificate::new(key, number, &certificate) }
        };
        let ca = |name, role| {
            let key = Key::derive(seed, role);
            let number = derive_serial(&key, certified_at);
            let params = authority_parameters(
                name,
                0,
                validity_range(certified_at, CA_DAYS),
                number.clone(),
            );
            let certificate = params.signed_by(&key, &root.issuer())?;
            Ok::<_, FakeError>(Authority {
                params,
                certified: IssuedCertificate::new(key, number, &certificate),
            })
        };
        let platform_ca = ca("Intel SGX PCK Platform CA", SimulatedKey::PlatformCa)?;
        let processor_ca = ca("Intel SGX PCK Processor CA", SimulatedKey::ProcessorCa)?;
        let tcb_signer = {
            let key = Key::derive(seed, SimulatedKey::TcbSigner);
            let number = derive_serial(&key, certified_at);
            let life = validity_range(certified_at, LEAF_DAYS);
            let params =
                leaf_parameters("Intel SGX TCB Signing", ROOT_CRL_URI, life, number.clone());
            let certificate = params.signed_by(&key, &root.issuer())?;
            IssuedCertificate::new(key, number, &certificate)
        };
        Ok(Self { seed: *seed, certified_at, root, platform_ca, processor_ca, tcb_signer })
    }

    /// Issues the certificate of one platform; another `reissue` gives another one for the same
    /// key.
    pub(crate) fn issue_pck(
        &self,
        ca: PckCa,
        platform: u32,
        plan: &SimulationPlan,
        reissue: u64,
    ) -> Result<IssuedCertificate, FakeError> {
        let key = Key::derive(&self.seed, SimulatedKey::Pck(platform));
        let number = derive_serial(&key, self.certified_at + reissue);
        let life = validity_range(self.certified_at, LEAF_DAYS);
        let mut params =
            leaf_parameters("Intel SGX PCK Certificate", PCK_CRL_URI, life, number.clone());
        let extension = pck_extension::encode(&self.seed, ca, platform, plan);
        params.custom_extensions =
            vec![CustomExtension::from_oid_content(&pck_extension::OID, extension)];
        let certificate = params.signed_by(&key, &self.ca(ca).issuer())?;
        Ok(IssuedCertificate::new(key, number, &certificate))
    }

    pub(crate) fn root_der(&self) -> &[u8] {
        &self.root.certified.der
    }

    pub(crate) fn root_pem(&self) -> &str {
        &self.root.certified.pem
    }

    /// The issuers of a PCK certificate: the CA, then the root.
    pub(crate) fn pck_issuers_pem(&self, ca: PckCa) -> String {
        [self.ca(ca).certified.pem.as_str(), self.root_pem()].concat()
    }

    /// The TCB signer, then the root.
    pub(crate) fn tcb_signer_chain_pem(&self) -> String {
        [self.tcb_signer.pem.as_str(), self.root_pem()].concat()
    }

    pub(crate) fn ca_serial(&self, ca: PckCa) -> Vec<u8> {
        self.ca(ca).certified.serial.clone()
    }

    /// The root's revocation list.
    pub(crate) fn root_crl(&self, list: &RevocationList) -> Result<Vec<u8>, FakeError> {
        issue_crl(&self.root.issuer(), list, [])
    }

    /// The revocation list of one CA.
    pub(crate) fn pck_crl(&self, ca: PckCa, list: &RevocationList) -> Result<Vec<u8>, FakeError> {
        issue_crl(&self.ca(ca).issuer(), list, unrelated_serials())
    }

    fn ca(&self, ca: PckCa) -> &Authority {
        match ca {
            PckCa::Platform => &self.platform_ca,
            PckCa::Processor => &self.processor_ca,
        }
    }
}

impl Authority {
    fn issuer(&self) -> Issuer<'_, &Key> {
        Issuer::from_params(&self.params, &self.certified.key)
    }
}

impl IssuedCertificate {
    fn new(key: Key, serial: SerialNumber, certificate: &Certificate) -> Self {
        let der = certificate.der().to_vec();
        Self { key, serial: serial.to_bytes(), pem: pem::encode_certificate(&der), der }
    }
}

fn validity_range(certified_at: u64, days: u64) -> Range<u64> {
    let from = certified_at - CLOCK_SLACK;
    from..from + days * DAY
}

fn authority_parameters(
    name: &str,
    path_length: u8,
    life: Range<u64>,
    serial: SerialNumber,
) -> CertificateParams {
    let mut params = certificate_parameters(name, ROOT_CRL_URI, life, serial);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(path_length));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn leaf_parameters(
    name: &str,
    crl_uri: &str,
    life: Range<u64>,
    serial: SerialNumber,
) -> CertificateParams {
    let mut params = certificate_parameters(name, crl_uri, life, serial);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::ContentCommitment];
    params
}

fn certificate_parameters(
    name: &str,
    crl_uri: &str,
    life: Range<u64>,
    serial: SerialNumber,
) -> CertificateParams {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject.push(DnType::OrganizationName, ORGANISATION);
    subject.push(DnType::LocalityName, "SIMULATED");
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.not_before = date_time(life.start);
    params.not_after = date_time(life.end.min(ROOT_NOT_AFTER));
    params.serial_number = Some(serial);
    params.use_authority_key_identifier_extension = true;
    params.crl_distribution_points = vec![CrlDistributionPoint { uris: vec![crl_uri.into()] }];
    params
}

/// A serial number of 20 bytes, positive and of full length: a hash of the key and of the time of
/// issue.
fn derive_serial(key: &Key, issued_at: u64) -> SerialNumber {
    let hash = Sha256::new()
        .chain_update(b"confide SIMULATED serial v1\0")
        .chain_update(key.der_bytes())
        .chain_update(issued_at.to_be_bytes())
        .finalize();
    let mut bytes = hash[..20].to_vec();
    bytes[0] = bytes[0] & 0x3f | 0x40;
    SerialNumber::from(bytes)
}

/// Serial numbers of no certificate, so that the PCK CRL is not empty and a look-up has something
/// to skip.
fn unrelated_serials() -> [SerialNumber; 8] {
    std::array::from_fn(|n| SerialNumber::from(vec![n as u8 + 1; 20]))
}

fn issue_crl<const N: usize>(
    issuer: &Issuer<'_, &Key>,
    list: &RevocationList,
    bystanders: [SerialNumber; N],
) -> Result<Vec<u8>, FakeError> {
    let this_update = date_time(list.from);
    let entry = |serial_number| RevokedCertParams {
        serial_number,
        revocation_time: this_update,
        reason_code: Some(RevocationReason::KeyCompromise),
        invalidity_date: None,
    };
    let revoked = list.revoked.iter().map(|serial| SerialNumber::from(serial.clone()));
    let params = CertificateRevocationListParams {
        this_update,
        next_update: date_time(list.until),
        crl_number: SerialNumber::from(list.number),
        issuing_distribution_point: None,
        revoked_certs: bystanders.into_iter().chain(revoked).map(entry).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    Ok(params.signed_by(issuer)?.der().to_vec())
}
