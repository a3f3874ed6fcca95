//! What is kept and served: one document of one service.

use confide_evidence::ParseError;

use crate::{Wanted, edition, url_text};

/// Which document of which service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Intel: TCB info of an SGX platform family; key `FMSPC/set`.
    SgxTcb,
    /// Intel: TCB info of a TDX platform family; key `FMSPC/set`.
    TdxTcb,
    /// Intel: identity of the SGX quoting enclave; key: the set.
    SgxQeIdentity,
    /// Intel: identity of the TD quoting enclave; key: the set.
    TdxQeIdentity,
    /// Intel: the evaluation data numbers for SGX; key empty.
    SgxEvaluationNumbers,
    /// Intel: the evaluation data numbers for TDX; key empty.
    TdxEvaluationNumbers,
    /// Intel: revocations by a PCK CA, DER; key `platform` or `processor`.
    PckCrl,
    /// Intel: one PCK certificate, PEM; key `QEID/PCEID/CPUSVN/PCESVN`.
    PckCertificate,
    /// Intel: revocations by the root, DER; key empty.
    RootCrl,
    /// AMD: one VCEK, DER; key `product/hwid/bl-tee-snp-ucode-fmc`.
    Vcek,
    /// AMD: ASK and ARK, PEM; key: the product.
    VcekChain,
    /// AMD: revocations by the ARK as the VCEK routes serve them, DER; key: the product.
    VcekCrl,
    /// AMD: ASVK and ARK, PEM; key: the product.
    VlekChain,
    /// AMD: revocations by the ARK as the VLEK routes serve them, DER; key: the product.
    VlekCrl,
    /// NVIDIA: a reference manifest in the service's JSON; key: its id.
    Rim,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 15] = [
        Kind::SgxTcb,
        Kind::TdxTcb,
        Kind::SgxQeIdentity,
        Kind::TdxQeIdentity,
        Kind::SgxEvaluationNumbers,
        Kind::TdxEvaluationNumbers,
        Kind::PckCrl,
        Kind::PckCertificate,
        Kind::RootCrl,
        Kind::Vcek,
        Kind::VcekChain,
        Kind::VcekCrl,
        Kind::VlekChain,
        Kind::VlekCrl,
        Kind::Rim,
    ];

    /// The word for it in the database and in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::SgxTcb => "sgx-tcb",
            Kind::TdxTcb => "tdx-tcb",
            Kind::SgxQeIdentity => "sgx-qe-identity",
            Kind::TdxQeIdentity => "tdx-qe-identity",
            Kind::SgxEvaluationNumbers => "sgx-evaluation-numbers",
            Kind::TdxEvaluationNumbers => "tdx-evaluation-numbers",
            Kind::PckCrl => "pck-crl",
            Kind::PckCertificate => "pck-certificate",
            Kind::RootCrl => "root-crl",
            Kind::Vcek => "vcek",
            Kind::VcekChain => "vcek-chain",
            Kind::VcekCrl => "vcek-crl",
            Kind::VlekChain => "vlek-chain",
            Kind::VlekCrl => "vlek-crl",
            Kind::Rim => "rim",
        }
    }

    /// The kind that [`Self::name`] names.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The header field that carries the issuer's chain in percent-encoded PEM, where there is one.
    /// Intel PCS v4 names them.
    pub fn chain_header(self) -> Option<&'static str> {
        match self {
            Kind::SgxTcb | Kind::TdxTcb => Some("tcb-info-issuer-chain"),
            Kind::SgxQeIdentity | Kind::TdxQeIdentity => Some("sgx-enclave-identity-issuer-chain"),
            Kind::SgxEvaluationNumbers | Kind::TdxEvaluationNumbers => {
                Some("tcb-evaluation-data-numbers-issuer-chain")
            }
            Kind::PckCrl => Some("sgx-pck-crl-issuer-chain"),
            Kind::PckCertificate => Some("sgx-pck-certificate-issuer-chain"),
            _ => None,
        }
    }

    /// Whether it lists what is revoked.
    pub fn is_revocation_list(self) -> bool {
        matches!(self, Kind::PckCrl | Kind::RootCrl | Kind::VcekCrl | Kind::VlekCrl)
    }

    /// Whether the vendor issues it anew before it ends. Certificates of one chip stay.
    pub fn is_reissued(self) -> bool {
        !matches!(self, Kind::Vcek | Kind::PckCertificate | Kind::VcekChain | Kind::VlekChain)
    }
}

/// When a document holds and where it stands among its editions; all zero where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dates {
    /// CRL number, or TCB evaluation data number: never less in a later edition.
    pub number: u64,
    /// Unix seconds of the issue: never less in a later edition.
    pub issued: u64,
    /// Unix seconds at which the next edition is due; 0 where it says nothing.
    pub until: u64,
}

impl Dates {
    /// Whether this edition of a document comes before `other`: serving it after that would be a
    /// rollback.
    ///
    /// A revocation list may fall back in neither number nor date (RFC 5280 section 5.2.3; Intel's
    /// number stays at 1). A TCB recovery may have been signed on an earlier day than the last
    /// edition of the one before it: the number decides, and the date within it.
    pub fn is_before(&self, other: &Dates, kind: Kind) -> bool {
        if kind.is_revocation_list() {
            return self.number < other.number || self.issued < other.issued;
        }
        (self.number, self.issued) < (other.number, other.issued)
    }

    /// Whether the next edition is overdue at `now`.
    pub fn is_over(&self, now: u64) -> bool {
        self.until != 0 && now >= self.until
    }
}

/// One document with what its service says beside the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Which.
    pub kind: Kind,
    /// Which of this kind; [`Kind`] says how each is spelled.
    pub key: String,
    /// When it holds.
    pub dates: Dates,
    /// Header fields in lower case with their values as they are sent: the issuer's chain, and what
    /// else belongs to the document (`sgx-tcbm`, `sgx-fmspc`).
    pub headers: Vec<(String, String)>,
    /// The bytes: DER for lists and single certificates, PEM for chains, JSON for the rest.
    pub body: Vec<u8>,
    /// Unix seconds at which it was fetched, imported or made.
    pub fetched_at: u64,
}

impl Document {
    /// What answers `wanted`: the body as [`Kind`] says, and its issuers in PEM where there are
    /// any. Number and dates are read from the body.
    ///
    /// # Errors
    /// [`ParseError`] where the body is not what its kind says.
    pub fn new(
        wanted: &Wanted,
        chain: Option<&str>,
        body: Vec<u8>,
        fetched_at: u64,
    ) -> Result<Self, ParseError> {
        let kind = wanted.kind();
        let field = kind.chain_header().zip(chain);
        let headers = field.map(|(name, chain)| (name.into(), url_text::encode(chain)));
        let dates = edition::dates(kind, &body)?;
        let headers = headers.into_iter().collect();
        Ok(Self { kind, key: wanted.key(), dates, headers, body, fetched_at })
    }

    /// What PCS answers with a signed document: the very bytes of `json` beside their signature.
    pub fn signed_body(kind: Kind, json: &str, signature_hex: &str) -> Vec<u8> {
        let name = match kind {
            Kind::SgxTcb | Kind::TdxTcb => "tcbInfo",
            Kind::SgxEvaluationNumbers | Kind::TdxEvaluationNumbers => "tcbEvaluationDataNumbers",
            _ => "enclaveIdentity",
        };
        format!("{{\"{name}\":{json},\"signature\":\"{signature_hex}\"}}").into_bytes()
    }
}
