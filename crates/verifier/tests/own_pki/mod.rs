//! A test PKI with Intel's shapes, and TDX evidence under it. Each field of [`Recipe`] spoils one
//! thing that a chain verifier leaves to its caller.

use aws_lc_rs::{
    digest::{SHA256, digest},
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams,
    CustomExtension, DistinguishedName, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevocationReason, RevokedCertParams, SerialNumber, date_time_ymd,
};
use serde_json::json;

/// 2026-06-01.
pub(crate) const NOW: u64 = 1_780_272_000;

type Life = ((i32, u8, u8), (i32, u8, u8));
const YEARS: Life = ((2026, 1, 1), (2030, 1, 1));
const PAST: Life = ((2024, 1, 1), (2025, 1, 1));
const MONTH: Life = ((2026, 5, 20), (2026, 6, 19));

/// Evidence to be made; the default is accepted.
#[derive(Clone)]
pub(crate) struct Recipe {
    pub(crate) revoke: Vec<&'static str>,
    pub(crate) expire: &'static str,
    pub(crate) rename: (&'static str, &'static str),
    pub(crate) usages: Option<(&'static str, Vec<KeyUsagePurpose>)>,
    pub(crate) not_a_ca: &'static str,
    pub(crate) critical_extension_on: &'static str,
    pub(crate) crl_life: Life,
    pub(crate) quote_chain: &'static [&'static str],
    pub(crate) tcb_chain: &'static [&'static str],
    pub(crate) qe_chain: &'static [&'static str],
    pub(crate) crl_chain: &'static [&'static str],
    pub(crate) pck_certificate_chain: Option<&'static [&'static str]>,
    pub(crate) swap_crls: bool,
    pub(crate) tcb_info: fn(String) -> String,
    pub(crate) qe_identity: fn(String) -> String,
    pub(crate) td_attributes: u64,
    /// Version 4, or 5 with the type and length of the body before it.
    pub(crate) quote_version: u8,
    /// What follows the report of TDX 1.0: nothing, 64 or 301 bytes.
    pub(crate) body_tail: Vec<u8>,
    /// Type of the body and a number added to its length, where they are wrong.
    pub(crate) wrong_body: Option<(u16, u32)>,
    /// ISVSVN and major version of the TDX module at launch.
    pub(crate) tee_tcb_svn: [u8; 2],
    /// Lowest byte of the TDX module's attributes.
    pub(crate) seam_attributes: u8,
    /// Lowest byte of the quoting enclave's attributes.
    pub(crate) qe_attributes: u8,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            revoke: vec![],
            expire: "",
            rename: ("", ""),
            usages: None,
            not_a_ca: "",
            critical_extension_on: "",
            crl_life: MONTH,
            quote_chain: &["pck", "ca", "root"],
            tcb_chain: &["signer", "root"],
            qe_chain: &["signer", "root"],
            crl_chain: &["ca", "root"],
            pck_certificate_chain: None,
            swap_crls: false,
            tcb_info: |text| text,
            qe_identity: |text| text,
            td_attributes: 1 << 28,
            quote_version: 4,
            body_tail: vec![],
            wrong_body: None,
            tee_tcb_svn: [0, 0],
            seam_attributes: 0,
            qe_attributes: 0x11,
        }
    }
}

/// What a recipe gives.
pub(crate) struct BuiltEvidence {
    pub(crate) quote: Vec<u8>,
    pub(crate) collateral: Vec<u8>,
    pub(crate) root_der: Vec<u8>,
}

impl Recipe {
    pub(crate) fn make(&self) -> BuiltEvidence {
        let [root_key, ca_key, pck_key, signer_key] =
            [(); 4].map(|()| KeyPair::generate().unwrap());
        let root_params = self.params("root", "Intel SGX Root CA", Some(1));
        let root_certificate = root_params.self_signed(&root_key).unwrap();
        let root = Issuer::from_params(&root_params, &root_key);
        let ca_params = self.params("ca", "Intel SGX PCK Platform CA", Some(0));
        let ca_certificate = ca_params.signed_by(&ca_key, &root).unwrap();
        let ca = Issuer::from_params(&ca_params, &ca_key);
        let mut pck_params = self.params("pck", "Intel SGX PCK Certificate", None);
        pck_params.custom_extensions.push(CustomExtension::from_oid_content(
            &[1, 2, 840, 113741, 1, 13, 1],
            sgx_extension(),
        ));
        let pck_certificate = pck_params.signed_by(&pck_key, &ca).unwrap();
        let signer_certificate = self
            .params("signer", "Intel SGX TCB Signing", None)
            .signed_by(&signer_key, &root)
            .unwrap();
        let pem = |names: &[&str]| -> String {
            let certificate = |name: &&str| -> &Certificate {
                match *name {
                    "root" => &root_certificate,
                    "ca" => &ca_certificate,
                    "pck" => &pck_certificate,
                    _ => &signer_certificate,
                }
            };
            names.iter().map(|name| certificate(name).pem()).collect()
        };
        // rcgen makes no revocation list for an issuer that may not sign one.
        let able = Self { usages: None, not_a_ca: "", ..self.clone() };
        let root_params = able.params("root", "Intel SGX Root CA", Some(1));
        let ca_params = able.params("ca", "Intel SGX PCK Platform CA", Some(0));
        let root = Issuer::from_params(&root_params, &root_key);
        let ca = Issuer::from_params(&ca_params, &ca_key);
        let mut root_crl = self.crl(&root, &["root", "ca", "signer"]);
        let mut pck_crl = self.crl(&ca, &["pck"]);
        if self.swap_crls {
            std::mem::swap(&mut root_crl, &mut pck_crl);
        }
        let tcb_info = (self.tcb_info)(TCB_INFO.to_string());
        let qe_identity = (self.qe_identity)(QE_IDENTITY.to_string());
        let mut collateral = json!({
            "pck_crl_issuer_chain": pem(self.crl_chain),
            "root_ca_crl": hex::encode(root_crl),
            "pck_crl": hex::encode(pck_crl),
            "tcb_info_issuer_chain": pem(self.tcb_chain),
            "tcb_info_signature": hex::encode(sign(&signer_key, tcb_info.as_bytes())),
            "tcb_info": tcb_info,
            "qe_identity_issuer_chain": pem(self.qe_chain),
            "qe_identity_signature": hex::encode(sign(&signer_key, qe_identity.as_bytes())),
            "qe_identity": qe_identity,
        });
        if let Some(chain) = self.pck_certificate_chain {
            collateral["pck_certificate_chain"] = pem(chain).into();
        }
        BuiltEvidence {
            quote: self.quote(&pck_key, pem(self.quote_chain).as_bytes()),
            collateral: serde_json::to_vec(&collateral).unwrap(),
            root_der: root_certificate.der().to_vec(),
        }
    }

    fn params(&self, role: &str, name: &str, path_length: Option<u8>) -> CertificateParams {
        let name = if self.rename.0 == role { self.rename.1 } else { name };
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "confide tests");
        let life = if self.expire == role { PAST } else { YEARS };
        params.not_before = date(life.0);
        params.not_after = date(life.1);
        params.serial_number = Some(serial(role));
        params.is_ca = match path_length {
            Some(length) if self.not_a_ca != role => {
                IsCa::Ca(BasicConstraints::Constrained(length))
            }
            _ => IsCa::ExplicitNoCa,
        };
        params.key_usages = match (&self.usages, path_length) {
            (Some((changed, usages)), _) if *changed == role => usages.clone(),
            (_, Some(_)) => vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign],
            (_, None) => {
                vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::ContentCommitment]
            }
        };
        if self.critical_extension_on == role {
            let mut extension =
                CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
            extension.set_criticality(true);
            params.custom_extensions.push(extension);
        }
        params
    }

    fn crl(&self, issuer: &Issuer<'_, &KeyPair>, issued: &[&str]) -> Vec<u8> {
        let revoked = self.revoke.iter().filter(|role| issued.contains(role));
        let params = CertificateRevocationListParams {
            this_update: date(self.crl_life.0),
            next_update: date(self.crl_life.1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked
                .map(|role| RevokedCertParams {
                    serial_number: serial(role),
                    revocation_time: date(self.crl_life.0),
                    reason_code: Some(RevocationReason::KeyCompromise),
                    invalidity_date: None,
                })
                .collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(issuer).unwrap().der().to_vec()
    }

    fn quote(&self, pck_key: &KeyPair, chain: &[u8]) -> Vec<u8> {
        let attestation_key = KeyPair::generate().unwrap();
        let mut signed = Vec::new();
        signed.extend([self.quote_version, 0, 2, 0, 0x81, 0, 0, 0, 0, 0, 0, 0]);
        signed.extend(confide_evidence::quote::INTEL_QE_VENDOR_ID);
        signed.extend([0; 20]);
        if self.quote_version == 5 {
            let kind = [(0, 2), (64, 3), (301, 4)];
            let kind = kind.into_iter().find(|(tail, _)| *tail == self.body_tail.len()).unwrap().1;
            let (kind, more) = self.wrong_body.unwrap_or((kind, 0));
            signed.extend(kind.to_le_bytes());
            let length = 584 + self.body_tail.len() as u32;
            signed.extend(length.wrapping_add(more).to_le_bytes());
        }
        let mut body = [0; 584];
        body[..2].copy_from_slice(&self.tee_tcb_svn);
        body[112] = self.seam_attributes;
        body[120..128].copy_from_slice(&self.td_attributes.to_le_bytes());
        body[136..184].fill(0xaa);
        signed.extend(body);
        signed.extend(&self.body_tail);

        let point = attestation_key.public_key_raw();
        let auth_data = [0x5a; 32];
        let mut qe_report = [0; 384];
        qe_report[48] = self.qe_attributes;
        qe_report[128..160].fill(7);
        qe_report[256] = 2;
        qe_report[258] = 4;
        let bound = digest(&SHA256, &[&point[1..], &auth_data].concat());
        qe_report[320..352].copy_from_slice(bound.as_ref());

        let mut inner = Vec::new();
        inner.extend(qe_report);
        inner.extend(sign(pck_key, &qe_report));
        inner.extend(32_u16.to_le_bytes());
        inner.extend(auth_data);
        inner.extend(5_u16.to_le_bytes());
        inner.extend((chain.len() as u32).to_le_bytes());
        inner.extend(chain);

        let mut data = sign(&attestation_key, &signed);
        data.extend(&point[1..]);
        data.extend(6_u16.to_le_bytes());
        data.extend((inner.len() as u32).to_le_bytes());
        data.extend(inner);
        signed.extend((data.len() as u32).to_le_bytes());
        signed.extend(data);
        signed
    }
}

/// The content of Intel's extension, with every security version 1.
fn sgx_extension() -> Vec<u8> {
    let arc = |arcs: &[u8]| [&[0x2a, 0x86, 0x48, 0x86, 0xf8, 0x4d, 1, 13, 1][..], arcs].concat();
    let entry = |arcs: &[u8], value: Vec<u8>| tlv(0x30, &[tlv(6, &arc(arcs)), value].concat());
    let mut tcb: Vec<u8> = (1..=17).flat_map(|n| entry(&[2, n], tlv(2, &[1]))).collect();
    tcb.extend(entry(&[2, 18], tlv(4, &[1; 16])));
    let entries = [
        entry(&[1], tlv(4, &[0; 16])),
        entry(&[2], tlv(0x30, &tcb)),
        entry(&[3], tlv(4, &[0; 2])),
        entry(&[4], tlv(4, &[1, 2, 3, 4, 5, 6])),
        entry(&[5], tlv(10, &[0])),
    ];
    tlv(0x30, &entries.concat())
}

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let head = match length {
        0..=127 => vec![tag, length as u8],
        128..=255 => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [head, content.to_vec()].concat()
}

fn sign(key: &KeyPair, message: &[u8]) -> Vec<u8> {
    let key =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.serialized_der()).unwrap();
    key.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
}

fn serial(role: &str) -> SerialNumber {
    SerialNumber::from([&[0x41; 12], role.as_bytes()].concat())
}

fn date(day: (i32, u8, u8)) -> time::OffsetDateTime {
    date_time_ymd(day.0, day.1, day.2)
}

const TCB_INFO: &str = concat!(
    r#"{"id":"TDX","version":3,"issueDate":"2026-05-20T00:00:00Z","#,
    r#""nextUpdate":"2026-06-19T00:00:00Z","fmspc":"010203040506","pceId":"0000","tcbType":0,"#,
    r#""tcbEvaluationDataNumber":19,"tdxModule":{"mrsigner":"00000000000000000000000000000000"#,
    r#"0000000000000000000000000000000000000000000000000000000000000000","#,
    r#""attributes":"0000000000000000","attributesMask":"FFFFFFFFFFFFFFFF"},"tcbLevels":[{"tcb":{"#,
    r#""sgxtcbcomponents":[{"svn":1},{"svn":1},{"svn":1},{"svn":1},{"svn":1},{"svn":1},"#,
    r#"{"svn":1},{"svn":1},{"svn":1},{"svn":1},{"svn":1},{"svn":1},{"svn":1},{"svn":1},"#,
    r#"{"svn":1},{"svn":1}],"pcesvn":1,"tdxtcbcomponents":[{"svn":0},{"svn":0},{"svn":0},"#,
    r#"{"svn":0},{"svn":0},{"svn":0},{"svn":0},{"svn":0},{"svn":0},{"svn":0},{"svn":0},"#,
    r#"{"svn":0},{"svn":0},{"svn":0},{"svn":0},{"svn":0}]},"#,
    r#""tcbDate":"2026-01-01T00:00:00Z","tcbStatus":"UpToDate"}]}"#,
);

const QE_IDENTITY: &str = concat!(
    r#"{"id":"TD_QE","version":2,"issueDate":"2026-05-20T00:00:00Z","#,
    r#""nextUpdate":"2026-06-19T00:00:00Z","tcbEvaluationDataNumber":19,"miscselect":"00000000","#,
    r#""miscselectMask":"FFFFFFFF","attributes":"11000000000000000000000000000000","#,
    r#""attributesMask":"FBFFFFFFFFFFFFFF0000000000000000","#,
    r#""mrsigner":"0707070707070707070707070707070707070707070707070707070707070707","#,
    r#""isvprodid":2,"tcbLevels":[{"tcb":{"isvsvn":4},"tcbDate":"2026-01-01T00:00:00Z","#,
    r#""tcbStatus":"UpToDate"}]}"#,
);
