//! The kinds of documents that are kept and served.

/// The kind of a document, and with it the service that issues it.
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

    /// The name in the database and in the metrics.
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

    /// Whether documents of this kind list what is revoked.
    pub fn is_revocation_list(self) -> bool {
        matches!(self, Kind::PckCrl | Kind::RootCrl | Kind::VcekCrl | Kind::VlekCrl)
    }

    /// Whether the vendor issues it again before it ends. The certificate of a chip stays the same.
    pub fn is_reissued(self) -> bool {
        !matches!(self, Kind::Vcek | Kind::PckCertificate | Kind::VcekChain | Kind::VlekChain)
    }
}
