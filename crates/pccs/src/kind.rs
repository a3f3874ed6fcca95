//! The kinds of documents that are stored and served.

/// The kind of a document, with its issuer, its format and the form of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DocumentKind {
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

impl DocumentKind {
    /// Every kind.
    pub const ALL: [DocumentKind; 15] = [
        DocumentKind::SgxTcb,
        DocumentKind::TdxTcb,
        DocumentKind::SgxQeIdentity,
        DocumentKind::TdxQeIdentity,
        DocumentKind::SgxEvaluationNumbers,
        DocumentKind::TdxEvaluationNumbers,
        DocumentKind::PckCrl,
        DocumentKind::PckCertificate,
        DocumentKind::RootCrl,
        DocumentKind::Vcek,
        DocumentKind::VcekChain,
        DocumentKind::VcekCrl,
        DocumentKind::VlekChain,
        DocumentKind::VlekCrl,
        DocumentKind::Rim,
    ];

    /// The name in the database and in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            DocumentKind::SgxTcb => "sgx-tcb",
            DocumentKind::TdxTcb => "tdx-tcb",
            DocumentKind::SgxQeIdentity => "sgx-qe-identity",
            DocumentKind::TdxQeIdentity => "tdx-qe-identity",
            DocumentKind::SgxEvaluationNumbers => "sgx-evaluation-numbers",
            DocumentKind::TdxEvaluationNumbers => "tdx-evaluation-numbers",
            DocumentKind::PckCrl => "pck-crl",
            DocumentKind::PckCertificate => "pck-certificate",
            DocumentKind::RootCrl => "root-crl",
            DocumentKind::Vcek => "vcek",
            DocumentKind::VcekChain => "vcek-chain",
            DocumentKind::VcekCrl => "vcek-crl",
            DocumentKind::VlekChain => "vlek-chain",
            DocumentKind::VlekCrl => "vlek-crl",
            DocumentKind::Rim => "rim",
        }
    }

    /// The kind with this [`Self::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The header field of Intel PCS v4 for the issuer's chain in percent-encoded PEM; `None` if
    /// the kind has no such field.
    pub fn chain_header(self) -> Option<&'static str> {
        match self {
            DocumentKind::SgxTcb | DocumentKind::TdxTcb => Some("tcb-info-issuer-chain"),
            DocumentKind::SgxQeIdentity | DocumentKind::TdxQeIdentity => {
                Some("sgx-enclave-identity-issuer-chain")
            }
            DocumentKind::SgxEvaluationNumbers | DocumentKind::TdxEvaluationNumbers => {
                Some("tcb-evaluation-data-numbers-issuer-chain")
            }
            DocumentKind::PckCrl => Some("sgx-pck-crl-issuer-chain"),
            DocumentKind::PckCertificate => Some("sgx-pck-certificate-issuer-chain"),
            _ => None,
        }
    }

    /// Whether documents of this kind are revocation lists.
    pub fn is_revocation_list(self) -> bool {
        matches!(
            self,
            DocumentKind::PckCrl
                | DocumentKind::RootCrl
                | DocumentKind::VcekCrl
                | DocumentKind::VlekCrl
        )
    }

    /// Whether the vendor issues new editions. Certificates of chips stay the same.
    pub fn is_reissued(self) -> bool {
        !matches!(
            self,
            DocumentKind::Vcek
                | DocumentKind::PckCertificate
                | DocumentKind::VcekChain
                | DocumentKind::VlekChain
        )
    }
}
