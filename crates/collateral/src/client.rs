//! Fetches single documents from the services that issue or cache them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    address::BaseUrl,
    counts::{CollateralCounts, Counters},
    document::{Document, DocumentKey},
    error::CollateralError,
    http::{Deadlines, HttpRequest, OkResponse, RetryingClient},
    identity::check_identifier,
    kds,
    limits::KDS_INTERVAL,
    pcs::{self, AnswerFault},
    rim,
};

/// The host of Intel's own service.
const INTEL_HOST: &str = "api.trustedservices.intel.com";
/// The address at which Intel publishes its root's revocations: Intel's PCS has no route for them.
const INTEL_CERTIFICATES: &str = "https://certificates.trustedservices.intel.com";
const INTEL_ROOT_CRL: &str = "/IntelSGXRootCA.der";
const AMD_HOST: &str = "kdsintf.amd.com";

/// The services that documents come from; documents of a service that is `None` are not fetched.
#[derive(Clone, Debug, Default)]
pub struct Services {
    /// Intel PCS or any PCCS.
    pub pcs: Option<BaseUrl>,
    /// AMD KDS or a service with its routes.
    pub kds: Option<BaseUrl>,
    /// NVIDIA's RIM service.
    pub rim: Option<BaseUrl>,
    /// An OCSP responder.
    pub ocsp: Option<BaseUrl>,
    /// Root certificates for TLS (DER), in addition to those of the system.
    pub tls_roots: Vec<Vec<u8>>,
    /// The shortest time between two requests for VCEKs; by default [`KDS_INTERVAL`] for AMD's own
    /// service, and zero for others.
    pub kds_interval: Option<Duration>,
    /// The longest time for one document, retries included; by default `REQUEST_DEADLINE`.
    pub deadline: Option<Duration>,
}

impl Services {
    /// The services of the vendors themselves.
    ///
    /// # Errors
    /// [`CollateralError::NoRoots`] if this machine has no root certificates for TLS.
    pub fn vendor_services() -> Result<Self, CollateralError> {
        let base = |url: &str| BaseUrl::parse(url, false).map(Some);
        Ok(Self {
            pcs: base(&format!("https://{INTEL_HOST}"))?,
            kds: base(&format!("https://{AMD_HOST}"))?,
            rim: base("https://rim.attestation.nvidia.com")?,
            ocsp: base("https://ocsp.ndis.nvidia.com")?,
            ..Self::default()
        })
    }

    /// One service with the routes of all vendors, such as `confide collateral serve`.
    pub fn from_base(base: &BaseUrl) -> Self {
        let base = Some(base.clone());
        Self {
            pcs: base.clone(),
            kds: base.clone(),
            rim: base.clone(),
            ocsp: base,
            ..Self::default()
        }
    }

    /// The service from which a document is fetched.
    pub(crate) fn base_for(&self, key: &DocumentKey) -> Result<&BaseUrl, CollateralError> {
        let base = match key {
            DocumentKey::AmdKey(_) | DocumentKey::AmdChain { .. } | DocumentKey::AmdCrl { .. } => {
                &self.kds
            }
            _ => &self.pcs,
        };
        base.as_ref().ok_or_else(|| CollateralError::NoService { subject: key.to_string() })
    }

    fn uses_tls(&self) -> bool {
        let bases = [&self.pcs, &self.kds, &self.rim, &self.ocsp];
        bases.into_iter().flatten().any(BaseUrl::is_tls)
    }
}

/// Fetches documents, with deadlines, retries and one request at a time for each document. It
/// stores only answers that have an ETag.
#[derive(Clone)]
pub struct Client {
    services: Arc<Services>,
    http: Arc<RetryingClient>,
}

/// The identifiers and versions by which a PCK certificate is requested.
#[derive(Clone, Debug)]
pub struct PckRequest {
    /// The platform's identifier, encrypted for Intel.
    pub encrypted_ppid: Vec<u8>,
    /// Identifier of the quoting enclave.
    pub qe_id: [u8; 16],
    /// Raw CPUSVN.
    pub cpu_svn: [u8; 16],
    /// Version of the provisioning certification enclave.
    pub pce_svn: u16,
    /// The provisioning certification enclave.
    pub pce_id: [u8; 2],
}

/// A PCK certificate and its issuers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PckCertificate {
    /// PEM: the PCK certificate, its CA, the root.
    pub chain: String,
}

impl Client {
    /// A client of these services, which runs on the caller's Tokio runtime.
    ///
    /// # Errors
    /// [`CollateralError::NoRoots`] if this machine has no root certificates for TLS.
    pub fn new(services: Services) -> Result<Self, CollateralError> {
        Self::with_counters(services, Arc::default())
    }

    pub(crate) fn with_counters(
        services: Services,
        counters: Arc<Counters>,
    ) -> Result<Self, CollateralError> {
        let mut deadlines = Deadlines::default();
        if let Some(request) = services.deadline {
            deadlines.request = request;
        }
        let http =
            RetryingClient::new(services.uses_tls(), &services.tls_roots, deadlines, counters)?;
        Ok(Self { services: Arc::new(services), http: Arc::new(http) })
    }

    /// The services that documents come from.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// The requests and answers since the start.
    pub fn counts(&self) -> CollateralCounts {
        self.http.counts()
    }

    /// Fetches a document from its service; `now` becomes its `fetched_at`.
    ///
    /// The document is parsed and compared with the request. Signatures and dates are not verified.
    ///
    /// # Errors
    /// If no service is configured, it fails or answers late, or it sends another document.
    pub async fn fetch_document(
        &self,
        key: &DocumentKey,
        now: u64,
    ) -> Result<Document, CollateralError> {
        let base = self.services.base_for(key)?;
        let address = match (pcs::document_path(key), kds::document_path(key)) {
            (Some(_), _) if is_intel_root_crl(key, base) => {
                BaseUrl::parse(INTEL_CERTIFICATES, false)?.join(INTEL_ROOT_CRL)?
            }
            (Some(path), _) | (_, Some(path)) => base.join(&path)?,
            _ => return Err(CollateralError::NoService { subject: key.to_string() }),
        };
        let interval = match key {
            DocumentKey::AmdKey(_) => self.kds_interval(base),
            _ => Duration::ZERO,
        };
        let ask = HttpRequest { subject: key.to_string(), body: None, interval };
        let answer = self.http.send(&address, ask).await?;
        let read = match pcs::document_path(key) {
            Some(_) => pcs::read_document(key, &answer),
            None => kds::read_document(key, &answer.body),
        };
        let document = read.map_err(|fault| answer_error(key.to_string(), &answer, fault))?;
        Ok(Document { service: base.url(), fetched_at: now, ..document })
    }

    /// Fetches a PCK certificate, for quotes without one.
    ///
    /// # Errors
    /// If no service is configured, it fails or answers late, or its answer is not a certificate.
    pub async fn fetch_pck_certificate(
        &self,
        request: &PckRequest,
    ) -> Result<PckCertificate, CollateralError> {
        let subject = "PCK certificate".to_owned();
        let base = self.services.pcs.as_ref();
        let base = base.ok_or_else(|| CollateralError::NoService { subject: subject.clone() })?;
        let address = base.join(&format!(
            "/sgx/certification/v4/pckcert?qeid={}&encrypted_ppid={}&cpusvn={}&pcesvn={}&pceid={}",
            hex::encode_upper(request.qe_id),
            hex::encode_upper(&request.encrypted_ppid),
            hex::encode_upper(request.cpu_svn),
            hex::encode_upper(request.pce_svn.to_le_bytes()),
            hex::encode_upper(request.pce_id),
        ))?;
        let ask = HttpRequest { subject: subject.clone(), body: None, interval: Duration::ZERO };
        let answer = self.http.send(&address, ask).await?;
        let read = || {
            let issuers = pcs::issuer_chain(&answer.headers, pcs::PCK_CHAIN)?;
            let leaf = std::str::from_utf8(&answer.body).map_err(pcs::unreadable_answer)?;
            let chain = format!("{}\n{issuers}", leaf.trim_end());
            let certificates = confide_evidence::pem::decode_chain("PCK chain", chain.as_bytes());
            certificates.map_err(pcs::unreadable_answer)?;
            Ok(PckCertificate { chain })
        };
        read().map_err(|fault| answer_error(subject, &answer, fault))
    }

    /// Fetches a reference integrity manifest (RIM) of NVIDIA: XML with an enveloped signature.
    ///
    /// # Errors
    /// If no service is configured, it fails or answers late, or it sends another manifest.
    pub async fn fetch_rim(&self, id: &str) -> Result<Vec<u8>, CollateralError> {
        let subject = format!("RIM {}", check_identifier(id)?);
        let base = self.services.rim.as_ref();
        let base = base.ok_or_else(|| CollateralError::NoService { subject: subject.clone() })?;
        let address = base.join(&format!("/v1/rim/{id}"))?;
        let ask = HttpRequest { subject: subject.clone(), body: None, interval: Duration::ZERO };
        let answer = self.http.send(&address, ask).await?;
        rim::read_rim(id, &answer.body)
            .map_err(|reason| answer_error(subject, &answer, AnswerFault::Unreadable(reason)))
    }

    /// Fetches the OCSP answer (DER) to a request (DER), whose signature the verifier checks.
    ///
    /// # Errors
    /// If no service is configured, it fails or answers late, or its answer is too long.
    pub async fn fetch_ocsp(&self, request: Vec<u8>) -> Result<Vec<u8>, CollateralError> {
        let subject = "OCSP answer".to_owned();
        let base = self.services.ocsp.as_ref();
        let base = base.ok_or_else(|| CollateralError::NoService { subject: subject.clone() })?;
        let body = Some(("application/ocsp-request", Bytes::from(request)));
        let ask = HttpRequest { subject: subject.clone(), body, interval: Duration::ZERO };
        let answer = self.http.send(&base.join("/")?, ask).await?;
        rim::check_ocsp(&answer.body)
            .map_err(|reason| answer_error(subject, &answer, AnswerFault::Unreadable(reason)))?;
        Ok(answer.body.to_vec())
    }

    fn kds_interval(&self, base: &BaseUrl) -> Duration {
        let own = if base.host() == AMD_HOST { KDS_INTERVAL } else { Duration::ZERO };
        self.services.kds_interval.unwrap_or(own)
    }
}

fn is_intel_root_crl(key: &DocumentKey, base: &BaseUrl) -> bool {
    *key == DocumentKey::IntelRootCrl && base.host() == INTEL_HOST
}

fn answer_error(subject: String, answer: &OkResponse, fault: AnswerFault) -> CollateralError {
    match fault {
        AnswerFault::Unreadable(reason) => {
            let reason = confide_evidence::escape_untrusted(&reason);
            CollateralError::UnreadableAnswer { subject, url: answer.url.clone(), reason }
        }
        AnswerFault::OtherDocument { wanted, got } => {
            CollateralError::OtherDocument { subject, wanted, got }
        }
    }
}
