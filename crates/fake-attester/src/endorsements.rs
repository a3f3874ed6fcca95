//! Every endorsement of the simulated machines, as the vendors' services give them.

use std::sync::{Arc, OnceLock};

use serde::Serialize;

use crate::{
    edition::EndorsementEdition,
    error::FakeError,
    keys::{Key, SimulatedKey},
    options::Tee,
    pki::IntelPki,
    plan::SimulationPlan,
    snp::{AmdPki, ChipKey, Product, SnpSigner, SnpTcb},
    tcb,
    time::{FIRST_ISSUE, LAST_ISSUE},
    variant::{PckCa, SimulatedPlatform},
};

/// The simulated vendors: the same keys and certificates for any number of [`EndorsementEdition`]s.
#[derive(Clone)]
pub struct FakeEndorsements {
    issuers: Arc<Issuers>,
}

struct Issuers {
    seed: [u8; 32],
    certified_at: u64,
    intel: IntelPki,
    /// The keys of AMD by [`Product`], made when first asked for: an RSA key takes a quarter of a
    /// second.
    amd: [OnceLock<AmdPki>; Product::ALL.len()],
}

impl Drop for Issuers {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.seed);
    }
}

/// The endorsements that Intel's Provisioning Certification Service gives, from one edition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntelEndorsements {
    /// The root's revocation list, DER.
    pub root_crl: Vec<u8>,
    /// The list and the issuers for PCKs of the Platform CA.
    pub platform: PckEndorsements,
    /// The list and the issuers for PCKs of the Processor CA.
    pub processor: PckEndorsements,
    /// Documents about SGX.
    pub sgx: TeeEndorsements,
    /// Documents about TDX.
    pub tdx: TeeEndorsements,
    /// TCB signer and root, PEM: the issuer chain of all documents.
    pub tcb_signing_chain: String,
}

/// A revocation list of PCKs, and its issuers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PckEndorsements {
    /// The list, DER.
    pub crl: Vec<u8>,
    /// CA and root, PEM: the issuer chain of the list and of the PCKs.
    pub issuer_chain: String,
}

/// The two documents about one TEE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeeEndorsements {
    /// TCB info of the simulated FMSPC.
    pub tcb_info: SignedDocument,
    /// Identity of the quoting enclave.
    pub qe_identity: SignedDocument,
}

/// A JSON document and the signature over its very bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedDocument {
    /// The signed bytes.
    pub json: String,
    /// r and s in hexadecimal.
    pub signature: String,
}

/// The endorsements that AMD's Key Distribution Service gives for one product line, from one
/// edition; the certificates of chips come from [`FakeEndorsements::vcek`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmdEndorsements {
    /// ASK and ARK, PEM: `/vcek/v1/{product}/cert_chain`.
    pub vcek_chain: String,
    /// ASVK and ARK, PEM: `/vlek/v1/{product}/cert_chain`.
    pub vlek_chain: String,
    /// The ARK's revocation list, DER: `/vcek/v1/{product}/crl` and `/vlek/v1/{product}/crl`.
    pub crl: Vec<u8>,
}

/// One PCK certificate, with the fields that the service sends along with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PckCertificate {
    /// The certificate, PEM.
    pub pem: String,
    /// CA and root, PEM.
    pub issuer_chain: String,
    /// Serial number, big-endian.
    pub serial: Vec<u8>,
    /// FMSPC, hexadecimal in capitals.
    pub fmspc: String,
    /// `SGX-TCBm`: CPUSVN and PCESVN (little-endian), hexadecimal.
    pub tcbm: String,
}

impl FakeEndorsements {
    /// Vendors under `seed`, whose certificates are dated `certified_at` (unix seconds).
    ///
    /// # Errors
    /// [`FakeError`] if `certified_at` lies outside of the certificates' lifetime, or an encoder fails.
    pub fn new(seed: [u8; 32], certified_at: u64) -> Result<Self, FakeError> {
        let (first, last, got) = (FIRST_ISSUE, LAST_ISSUE, certified_at);
        if !(first..=last).contains(&got) {
            return Err(FakeError::IssuedAt { first, last, got });
        }
        let intel = IntelPki::issue(&seed, certified_at)?;
        let amd = std::array::from_fn(|_| OnceLock::new());
        Ok(Self { issuers: Arc::new(Issuers { seed, certified_at, intel, amd }) })
    }

    /// Intel's root, DER; the seed alone decides it.
    pub fn intel_root_der(&self) -> &[u8] {
        self.issuers.intel.root_der()
    }

    /// AMD's root of a product line, DER; the seed alone decides it.
    pub fn amd_root_der(&self, product: Product) -> &[u8] {
        self.amd_issuer(product).root_der()
    }

    /// Everything that Intel's service gives in this edition.
    ///
    /// # Errors
    /// [`FakeError`] if an encoder fails.
    pub fn issue_intel(
        &self,
        edition: &EndorsementEdition,
    ) -> Result<IntelEndorsements, FakeError> {
        let mut plan = SimulationPlan::new(self.issuers.certified_at, None);
        plan.edition = edition.clone();
        self.issue_intel_with_plan(&plan)
    }

    /// Everything that AMD's service gives in this edition but for the chips' certificates.
    pub fn issue_amd(&self, product: Product, edition: &EndorsementEdition) -> AmdEndorsements {
        let amd = self.amd_issuer(product);
        AmdEndorsements {
            vcek_chain: amd.chain_pem(SnpSigner::Vcek),
            vlek_chain: amd.chain_pem(SnpSigner::Vlek),
            crl: amd.crl(&edition.revocation_list(edition.revoked_amd.clone())),
        }
    }

    /// The certificate of machine `variant.platform`'s PCK at its highest TCB.
    ///
    /// # Errors
    /// [`FakeError`] if an encoder fails.
    pub fn pck_certificate(
        &self,
        variant: &SimulatedPlatform,
    ) -> Result<PckCertificate, FakeError> {
        let plan = SimulationPlan::new(self.issuers.certified_at, None);
        let pki = &self.issuers.intel;
        let pck = pki.issue_pck(variant.pck_ca, variant.platform, &plan, 0)?;
        let svns = [&plan.level.cpu_svn()[..], &plan.level.pce_svn().to_le_bytes()].concat();
        Ok(PckCertificate {
            pem: pck.pem.clone(),
            issuer_chain: pki.pck_issuers_pem(variant.pck_ca),
            serial: pck.serial.clone(),
            fmspc: hex::encode_upper(tcb::FMSPC),
            tcbm: hex::encode_upper(svns),
        })
    }

    /// Serial number of a CA of PCKs, big-endian, for [`EndorsementEdition::revoked_ca`].
    pub fn pck_ca_serial(&self, ca: PckCa) -> Vec<u8> {
        self.issuers.intel.ca_serial(ca)
    }

    /// Serial number of the ASK or ASVK, big-endian, for [`EndorsementEdition::revoked_amd`].
    pub fn amd_intermediate_serial(&self, product: Product, signer: SnpSigner) -> Vec<u8> {
        self.amd_issuer(product).intermediate_serial(signer)
    }

    /// The certificate of a chip at a TCB, DER: any chip there could be has one.
    ///
    /// `chip_id` is the report's field; products with shorter identifiers have zeros at its end.
    pub fn vcek(&self, product: Product, chip_id: &[u8; 64], tcb: SnpTcb) -> Vec<u8> {
        let key = self.chip_key(product, SnpSigner::Vcek, chip_id, tcb);
        self.certify_chip_key(product, SnpSigner::Vcek, &key, chip_id, tcb)
    }

    /// Signs any message by ECDSA P-256 with SHA-256, as r and s: for tests whose faults lie behind a
    /// signature that has to hold.
    pub fn sign_as(&self, key: SimulatedKey, message: &[u8]) -> [u8; 64] {
        Key::derive(&self.issuers.seed, key).sign_raw(message)
    }

    pub(crate) fn issue_intel_with_plan(
        &self,
        plan: &SimulationPlan,
    ) -> Result<IntelEndorsements, FakeError> {
        let (pki, edition) = (&self.issuers.intel, &plan.edition);
        let pck = |ca| {
            Ok::<_, FakeError>(PckEndorsements {
                crl: pki.pck_crl(ca, &edition.revocation_list(edition.revoked_pck.clone()))?,
                issuer_chain: pki.pck_issuers_pem(ca),
            })
        };
        let tee = |tee| {
            Ok::<_, FakeError>(TeeEndorsements {
                tcb_info: self.sign(tcb::tcb_info(tee, plan)?),
                qe_identity: self.sign(tcb::qe_identity(tee, plan)?),
            })
        };
        Ok(IntelEndorsements {
            root_crl: pki.root_crl(&edition.revocation_list(edition.revoked_ca.clone()))?,
            platform: pck(PckCa::Platform)?,
            processor: pck(PckCa::Processor)?,
            sgx: tee(Tee::Sgx)?,
            tdx: tee(Tee::Tdx)?,
            tcb_signing_chain: pki.tcb_signer_chain_pem(),
        })
    }

    pub(crate) fn intel_issuer(&self) -> &IntelPki {
        &self.issuers.intel
    }

    pub(crate) fn amd_issuer(&self, product: Product) -> &AmdPki {
        let make = || AmdPki::new(&self.issuers.seed, product);
        self.issuers.amd[product as usize].get_or_init(make)
    }

    /// A chip derives its key from its secret and its TCB; here the secret is the seed.
    pub(crate) fn chip_key(
        &self,
        product: Product,
        signer: SnpSigner,
        chip_id: &[u8; 64],
        tcb: SnpTcb,
    ) -> ChipKey {
        let labels: [&[u8]; 3] = match signer {
            SnpSigner::Vcek => [b"vcek", chip_id, &tcb.to_bytes(product)],
            SnpSigner::Vlek => [b"vlek", product.name().as_bytes(), &tcb.to_bytes(product)],
        };
        ChipKey::derive(&self.issuers.seed, &labels)
    }

    pub(crate) fn certify_chip_key(
        &self,
        product: Product,
        signer: SnpSigner,
        key: &ChipKey,
        chip_id: &[u8; 64],
        tcb: SnpTcb,
    ) -> Vec<u8> {
        self.amd_issuer(product).certify_chip_key(
            signer,
            key,
            chip_id,
            tcb,
            self.issuers.certified_at,
        )
    }

    fn sign(&self, json: String) -> SignedDocument {
        let signature = self.issuers.intel.tcb_signer.key.sign_raw(json.as_bytes());
        SignedDocument { json, signature: hex::encode(signature) }
    }
}

impl IntelEndorsements {
    /// One TEE's and one CA's part as a `QuoteCollateralV3` object; binary fields are hex.
    ///
    /// # Errors
    /// [`FakeError`] if an encoder fails.
    pub fn collateral_json(&self, tee: Tee, ca: PckCa) -> Result<String, FakeError> {
        self.collateral_with_chain(tee, ca, None)
    }

    pub(crate) fn collateral_with_chain(
        &self,
        tee: Tee,
        ca: PckCa,
        pck_certificate_chain: Option<String>,
    ) -> Result<String, FakeError> {
        let documents = match tee {
            Tee::Sgx => &self.sgx,
            Tee::Tdx | Tee::TdxV5 | Tee::Snp => &self.tdx,
        };
        let pck = match ca {
            PckCa::Platform => &self.platform,
            PckCa::Processor => &self.processor,
        };
        Ok(serde_json::to_string(&Collateral {
            pck_crl: hex::encode(&pck.crl),
            pck_crl_issuer_chain: &pck.issuer_chain,
            qe_identity: &documents.qe_identity.json,
            qe_identity_issuer_chain: &self.tcb_signing_chain,
            qe_identity_signature: &documents.qe_identity.signature,
            root_ca_crl: hex::encode(&self.root_crl),
            tcb_info: &documents.tcb_info.json,
            tcb_info_issuer_chain: &self.tcb_signing_chain,
            tcb_info_signature: &documents.tcb_info.signature,
            pck_certificate_chain,
        })?)
    }
}

impl SignedDocument {
    /// The service's answer with this document: `name` is `tcbInfo` or `enclaveIdentity`.
    pub fn body(&self, name: &str) -> String {
        format!(r#"{{"{name}":{},"signature":"{}"}}"#, self.json, self.signature)
    }
}

/// The fields of Intel's `sgx_ql_qve_collateral_t` version 3, as dcap-qvl names them.
#[derive(Serialize)]
struct Collateral<'a> {
    pck_crl: String,
    pck_crl_issuer_chain: &'a str,
    qe_identity: &'a str,
    qe_identity_issuer_chain: &'a str,
    qe_identity_signature: &'a str,
    root_ca_crl: String,
    tcb_info: &'a str,
    tcb_info_issuer_chain: &'a str,
    tcb_info_signature: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pck_certificate_chain: Option<String>,
}
