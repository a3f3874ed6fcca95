//! Requests for documents: paths and query strings of Intel PCS v4, AMD KDS and NVIDIA's RIM
//! service.

use confide_collateral::{PckIssuer, Product, TcbEvaluation};
use confide_evidence::{ParseError, quote::Tee};
use confide_http::decode_percent;

use crate::kind::DocumentKind;

/// The encoding of a revocation list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrlEncoding {
    /// PEM, the default of PCS.
    Pem,
    /// DER.
    Der,
    /// DER in hexadecimal, as a PCCS sends the root's list.
    Hex,
}

/// A TEE for which Intel's service has documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntelTee {
    /// SGX enclaves.
    Sgx,
    /// TDX trust domains.
    Tdx,
}

impl From<IntelTee> for Tee {
    fn from(tee: IntelTee) -> Self {
        match tee {
            IntelTee::Sgx => Tee::Sgx,
            IntelTee::Tdx => Tee::Tdx,
        }
    }
}

impl TryFrom<Tee> for IntelTee {
    type Error = ParseError;

    fn try_from(tee: Tee) -> Result<Self, ParseError> {
        match tee {
            Tee::Sgx => Ok(IntelTee::Sgx),
            Tee::Tdx => Ok(IntelTee::Tdx),
            Tee::Snp => Err(ParseError::Unsupported {
                subject: "TEE of Intel's endorsements",
                wanted: "SGX or TDX",
                got: tee.to_string(),
            }),
        }
    }
}

/// The kind of an AMD endorsement key, which signs reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AmdKeyKind {
    /// The key of one chip.
    Vcek,
    /// The key of a cloud provider.
    Vlek,
}

/// The request of a client for one document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DocumentRequest {
    /// TCB info of a platform family.
    Tcb {
        /// SGX or TDX.
        tee: IntelTee,
        /// The platform family.
        fmspc: [u8; 6],
        /// The TCB recovery that is asked for.
        evaluation: TcbEvaluation,
    },
    /// Identity of the quoting enclave.
    QeIdentity {
        /// SGX or TDX.
        tee: IntelTee,
        /// The TCB recovery that is asked for.
        evaluation: TcbEvaluation,
    },
    /// The list of evaluation data numbers.
    EvaluationNumbers {
        /// SGX or TDX.
        tee: IntelTee,
    },
    /// Revocations by a PCK CA.
    PckCrl {
        /// The CA that issued the PCK certificates.
        ca: PckIssuer,
        /// The encoding of the list.
        encoding: CrlEncoding,
    },
    /// A PCK certificate.
    PckCertificate {
        /// `QEID/PCEID/CPUSVN/PCESVN` in upper case hexadecimal.
        key: String,
        /// The whole query, for an upstream that needs the encrypted PPID too.
        query: String,
    },
    /// Revocations by Intel's root.
    RootCrl {
        /// The encoding of the list.
        encoding: CrlEncoding,
    },
    /// A chip's endorsement key.
    Vcek {
        /// The product line.
        product: Product,
        /// Hardware id in lower case hexadecimal.
        hwid: String,
        /// Versions of boot loader, TEE, SNP firmware, microcode, FMC (Turin only, else 0).
        tcb: [u8; 5],
    },
    /// The certificates that issue an endorsement key.
    AmdChain {
        /// The kind of the endorsement key.
        key: AmdKeyKind,
        /// The product line.
        product: Product,
    },
    /// Revocations by AMD's root.
    AmdCrl {
        /// The kind of endorsement keys, which selects the route.
        key: AmdKeyKind,
        /// The product line.
        product: Product,
    },
    /// A reference integrity manifest (RIM) of NVIDIA.
    Rim {
        /// The identifier of the manifest.
        id: String,
    },
}

/// The reason for which a request cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentRequestError {
    /// No document has this path.
    #[error("no such document")]
    NotFound,
    /// A parameter is missing, malformed or repeated.
    #[error("parameter {name}: wanted {wanted}")]
    Parameter {
        /// The name of the parameter.
        name: &'static str,
        /// The values that are accepted.
        wanted: &'static str,
    },
}

/// Parses the path and the query of a request.
///
/// # Errors
/// A [`DocumentRequestError`] if the path is unknown, or a parameter missing or malformed. Unknown
/// parameters are ignored, as by the vendors.
pub fn parse_request(
    path: &str,
    query: Option<&str>,
) -> Result<DocumentRequest, DocumentRequestError> {
    let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    match parts.as_slice() {
        ["sgx", "certification", "v4", rest @ ..] => {
            parse_intel(IntelTee::Sgx, rest, &Query::parse(query)?)
        }
        ["tdx", "certification", "v4", rest @ ..] => {
            parse_intel(IntelTee::Tdx, rest, &Query::parse(query)?)
        }
        // The path of the list in the distribution point of Intel's root certificate.
        ["IntelSGXRootCA.der"] => Ok(DocumentRequest::RootCrl { encoding: CrlEncoding::Der }),
        ["vcek", "v1", product, rest] => parse_vcek(product, rest, &Query::parse(query)?),
        ["vlek", "v1", product, "cert_chain"] => Ok(DocumentRequest::AmdChain {
            key: AmdKeyKind::Vlek,
            product: parse_product(product)?,
        }),
        ["vlek", "v1", product, "crl"] => {
            Ok(DocumentRequest::AmdCrl { key: AmdKeyKind::Vlek, product: parse_product(product)? })
        }
        ["v1", "rim", id] => parse_rim(id),
        _ => Err(DocumentRequestError::NotFound),
    }
}

impl DocumentRequest {
    /// The kind of the document.
    pub fn kind(&self) -> DocumentKind {
        match self {
            DocumentRequest::Tcb { tee: IntelTee::Sgx, .. } => DocumentKind::SgxTcb,
            DocumentRequest::Tcb { tee: IntelTee::Tdx, .. } => DocumentKind::TdxTcb,
            DocumentRequest::QeIdentity { tee: IntelTee::Sgx, .. } => DocumentKind::SgxQeIdentity,
            DocumentRequest::QeIdentity { tee: IntelTee::Tdx, .. } => DocumentKind::TdxQeIdentity,
            DocumentRequest::EvaluationNumbers { tee: IntelTee::Sgx } => {
                DocumentKind::SgxEvaluationNumbers
            }
            DocumentRequest::EvaluationNumbers { tee: IntelTee::Tdx } => {
                DocumentKind::TdxEvaluationNumbers
            }
            DocumentRequest::PckCrl { .. } => DocumentKind::PckCrl,
            DocumentRequest::PckCertificate { .. } => DocumentKind::PckCertificate,
            DocumentRequest::RootCrl { .. } => DocumentKind::RootCrl,
            DocumentRequest::Vcek { .. } => DocumentKind::Vcek,
            DocumentRequest::AmdChain { key: AmdKeyKind::Vcek, .. } => DocumentKind::VcekChain,
            DocumentRequest::AmdChain { key: AmdKeyKind::Vlek, .. } => DocumentKind::VlekChain,
            DocumentRequest::AmdCrl { key: AmdKeyKind::Vcek, .. } => DocumentKind::VcekCrl,
            DocumentRequest::AmdCrl { key: AmdKeyKind::Vlek, .. } => DocumentKind::VlekCrl,
            DocumentRequest::Rim { .. } => DocumentKind::Rim,
        }
    }

    /// The key under which the document is stored.
    pub fn key(&self) -> String {
        match self {
            DocumentRequest::Tcb { fmspc, evaluation, .. } => {
                format!("{}/{evaluation}", hex::encode_upper(fmspc))
            }
            DocumentRequest::QeIdentity { evaluation, .. } => evaluation.to_string(),
            DocumentRequest::EvaluationNumbers { .. } | DocumentRequest::RootCrl { .. } => {
                String::new()
            }
            DocumentRequest::PckCrl { ca, .. } => ca.as_str().into(),
            DocumentRequest::PckCertificate { key, .. } => key.clone(),
            DocumentRequest::Vcek { product, hwid, tcb } => {
                let [bl, tee, snp, ucode, fmc] = tcb;
                format!("{}/{hwid}/{bl}-{tee}-{snp}-{ucode}-{fmc}", product.as_str())
            }
            DocumentRequest::AmdChain { product, .. } | DocumentRequest::AmdCrl { product, .. } => {
                product.as_str().into()
            }
            DocumentRequest::Rim { id } => id.clone(),
        }
    }

    /// The request whose document is stored under this key; `None` for kinds that are fetched only
    /// when a client asks for them.
    pub fn from_stored_key(kind: DocumentKind, key: &str) -> Option<Self> {
        match kind {
            DocumentKind::SgxTcb | DocumentKind::TdxTcb => {
                let (fmspc, evaluation) = key.split_once('/')?;
                let mut bytes = [0; 6];
                hex::decode_to_slice(fmspc, &mut bytes).ok()?;
                let tee = if kind == DocumentKind::SgxTcb { IntelTee::Sgx } else { IntelTee::Tdx };
                Some(DocumentRequest::Tcb {
                    tee,
                    fmspc: bytes,
                    evaluation: evaluation.parse().ok()?,
                })
            }
            DocumentKind::SgxQeIdentity | DocumentKind::TdxQeIdentity => {
                let tee =
                    if kind == DocumentKind::SgxQeIdentity { IntelTee::Sgx } else { IntelTee::Tdx };
                Some(DocumentRequest::QeIdentity { tee, evaluation: key.parse().ok()? })
            }
            DocumentKind::PckCrl => {
                Some(DocumentRequest::PckCrl { ca: key.parse().ok()?, encoding: CrlEncoding::Der })
            }
            DocumentKind::RootCrl => Some(DocumentRequest::RootCrl { encoding: CrlEncoding::Hex }),
            DocumentKind::VcekCrl | DocumentKind::VlekCrl => {
                let vcek = kind == DocumentKind::VcekCrl;
                let on = if vcek { AmdKeyKind::Vcek } else { AmdKeyKind::Vlek };
                Some(DocumentRequest::AmdCrl { key: on, product: Product::from_name(key)? })
            }
            _ => None,
        }
    }

    /// The requested encoding, if the document is a list of Intel's; otherwise `None`.
    pub fn encoding(&self) -> Option<CrlEncoding> {
        match self {
            DocumentRequest::PckCrl { encoding, .. } | DocumentRequest::RootCrl { encoding } => {
                Some(*encoding)
            }
            _ => None,
        }
    }

    /// The requested TCB recovery, if the document belongs to one.
    pub fn evaluation(&self) -> Option<TcbEvaluation> {
        match self {
            DocumentRequest::Tcb { evaluation, .. }
            | DocumentRequest::QeIdentity { evaluation, .. } => Some(*evaluation),
            _ => None,
        }
    }

    /// The requests whose documents may answer instead: a set requested by number may be the
    /// standard or the early one, and if there is no early set, the standard one is the newest.
    pub(crate) fn alternatives(&self) -> Vec<Self> {
        let others: &[TcbEvaluation] = match self.evaluation() {
            Some(TcbEvaluation::Number(_)) => &[TcbEvaluation::Standard, TcbEvaluation::Early],
            Some(TcbEvaluation::Early) => &[TcbEvaluation::Standard],
            _ => &[],
        };
        others.iter().map(|other| self.with_evaluation(*other)).collect()
    }

    fn with_evaluation(&self, other: TcbEvaluation) -> Self {
        let mut wanted = self.clone();
        if let DocumentRequest::Tcb { evaluation, .. }
        | DocumentRequest::QeIdentity { evaluation, .. } = &mut wanted
        {
            *evaluation = other;
        }
        wanted
    }
}

fn parse_intel(
    tee: IntelTee,
    rest: &[&str],
    query: &Query,
) -> Result<DocumentRequest, DocumentRequestError> {
    match (tee, rest) {
        (_, ["tcb"]) => {
            let fmspc = query.hex("fmspc", "12 hexadecimal digits")?;
            Ok(DocumentRequest::Tcb { tee, fmspc, evaluation: query.parse_evaluation()? })
        }
        (_, ["qe", "identity"]) => {
            Ok(DocumentRequest::QeIdentity { tee, evaluation: query.parse_evaluation()? })
        }
        (_, ["tcbevaluationdatanumbers"]) => Ok(DocumentRequest::EvaluationNumbers { tee }),
        (IntelTee::Sgx, ["pckcrl"]) => parse_pck_crl(query),
        (IntelTee::Sgx, ["pckcert"]) => parse_pck_certificate(query),
        (IntelTee::Sgx, ["rootcacrl"]) => {
            Ok(DocumentRequest::RootCrl { encoding: CrlEncoding::Hex })
        }
        _ => Err(DocumentRequestError::NotFound),
    }
}

fn parse_pck_crl(query: &Query) -> Result<DocumentRequest, DocumentRequestError> {
    let ca = match query.value("ca").map(str::to_ascii_lowercase).as_deref() {
        Some("processor") => PckIssuer::Processor,
        Some("platform") => PckIssuer::Platform,
        _ => {
            return Err(DocumentRequestError::Parameter {
                name: "ca",
                wanted: "processor or platform",
            });
        }
    };
    let encoding = match query.value("encoding").map(str::to_ascii_lowercase).as_deref() {
        None | Some("pem") => CrlEncoding::Pem,
        Some("der") => CrlEncoding::Der,
        Some(_) => {
            return Err(DocumentRequestError::Parameter { name: "encoding", wanted: "der or pem" });
        }
    };
    Ok(DocumentRequest::PckCrl { ca, encoding })
}

/// Parses a request for a PCK certificate. Its key has the quoting enclave's id and both SVNs.
fn parse_pck_certificate(query: &Query) -> Result<DocumentRequest, DocumentRequestError> {
    let qeid: [u8; 16] = query.hex("qeid", "32 hexadecimal digits")?;
    let cpusvn: [u8; 16] = query.hex("cpusvn", "32 hexadecimal digits")?;
    let pcesvn: [u8; 2] = query.hex("pcesvn", "4 hexadecimal digits")?;
    let pceid: [u8; 2] = query.hex("pceid", "4 hexadecimal digits")?;
    let mut upper = String::new();
    if query.value("encrypted_ppid").is_some() {
        let ppid: [u8; 384] = query.hex("encrypted_ppid", "768 hexadecimal digits")?;
        upper = format!("&encrypted_ppid={}", hex::encode_upper(ppid));
    }
    let [qeid, cpusvn] = [qeid, cpusvn].map(hex::encode_upper);
    let [pcesvn, pceid] = [pcesvn, pceid].map(hex::encode_upper);
    Ok(DocumentRequest::PckCertificate {
        key: format!("{qeid}/{pceid}/{cpusvn}/{pcesvn}"),
        query: format!("qeid={qeid}{upper}&cpusvn={cpusvn}&pcesvn={pcesvn}&pceid={pceid}"),
    })
}

fn parse_vcek(
    product: &str,
    rest: &str,
    query: &Query,
) -> Result<DocumentRequest, DocumentRequestError> {
    let product = parse_product(product)?;
    match rest {
        "cert_chain" => {
            return Ok(DocumentRequest::AmdChain { key: AmdKeyKind::Vcek, product });
        }
        "crl" => return Ok(DocumentRequest::AmdCrl { key: AmdKeyKind::Vcek, product }),
        _ => {}
    }
    // Turin's chips have ids of 8 bytes, earlier ones of 64 (AMD document 57230).
    let digits = if product == Product::Turin { 16 } else { 128 };
    let hexadecimal = rest.bytes().all(|digit| digit.is_ascii_hexdigit());
    if rest.len() != digits || !hexadecimal {
        let wanted = "hexadecimal: 16 digits for Turin, 128 for the others";
        return Err(DocumentRequestError::Parameter { name: "hwid", wanted });
    }
    let fmc = if product == Product::Turin { query.version("fmcSPL")? } else { 0 };
    let tcb = [
        query.version("blSPL")?,
        query.version("teeSPL")?,
        query.version("snpSPL")?,
        query.version("ucodeSPL")?,
        fmc,
    ];
    Ok(DocumentRequest::Vcek { product, hwid: rest.to_ascii_lowercase(), tcb })
}

/// The longest identifier of a manifest; NVIDIA's have about 40 characters.
const RIM_ID_LENGTH_MAX: usize = 128;

fn parse_rim(id: &str) -> Result<DocumentRequest, DocumentRequestError> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
    if id.is_empty() || id.len() > RIM_ID_LENGTH_MAX || !id.bytes().all(plain) {
        return Err(DocumentRequestError::Parameter {
            name: "id",
            wanted: "letters, digits, _ . -",
        });
    }
    Ok(DocumentRequest::Rim { id: id.into() })
}

fn parse_product(product: &str) -> Result<Product, DocumentRequestError> {
    Product::from_name(product).ok_or(DocumentRequestError::NotFound)
}

/// The decoded parameters of a query; each name occurs once.
struct Query(Vec<(String, String)>);

/// The largest number of parameters in a query; no route has more than six.
const PARAMETERS_MAX: usize = 32;

impl Query {
    fn parse(query: Option<&str>) -> Result<Self, DocumentRequestError> {
        let mut found: Vec<(String, String)> = Vec::new();
        for part in query.unwrap_or("").split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (Some(name), Some(value)) = (decode_percent(name), decode_percent(value)) else {
                return Err(DocumentRequestError::Parameter {
                    name: "query",
                    wanted: "percent encoding",
                });
            };
            if found.len() == PARAMETERS_MAX || found.iter().any(|(there, _)| *there == name) {
                return Err(DocumentRequestError::Parameter {
                    name: "query",
                    wanted: "each parameter once",
                });
            }
            found.push((name, value));
        }
        Ok(Self(found))
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(there, _)| there == name).map(|(_, value)| value.as_str())
    }

    fn hex<const N: usize>(
        &self,
        name: &'static str,
        wanted: &'static str,
    ) -> Result<[u8; N], DocumentRequestError> {
        let mut bytes = [0; N];
        let text = self.value(name).ok_or(DocumentRequestError::Parameter { name, wanted })?;
        hex::decode_to_slice(text, &mut bytes)
            .map_err(|_| DocumentRequestError::Parameter { name, wanted })?;
        Ok(bytes)
    }

    /// Parses `update` or `tcbEvaluationDataNumber`, which exclude each other in PCS v4.
    fn parse_evaluation(&self) -> Result<TcbEvaluation, DocumentRequestError> {
        let by_name = match self.value("update") {
            None => None,
            Some("standard") => Some(TcbEvaluation::Standard),
            Some("early") => Some(TcbEvaluation::Early),
            Some(_) => {
                return Err(DocumentRequestError::Parameter {
                    name: "update",
                    wanted: "early or standard",
                });
            }
        };
        let name = "tcbEvaluationDataNumber";
        match (by_name, self.value(name)) {
            (Some(_), Some(_)) => {
                Err(DocumentRequestError::Parameter { name, wanted: "this or update, not both" })
            }
            (None, Some(text)) => {
                let plain = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
                let number = text.parse().ok().filter(|_| plain);
                number
                    .map(TcbEvaluation::Number)
                    .ok_or(DocumentRequestError::Parameter { name, wanted: "a number" })
            }
            (by_name, None) => Ok(by_name.unwrap_or(TcbEvaluation::Standard)),
        }
    }

    /// Parses the version of one component of AMD's TCB; zero if the parameter is missing.
    fn version(&self, name: &'static str) -> Result<u8, DocumentRequestError> {
        let Some(text) = self.value(name) else { return Ok(0) };
        let plain = (1..=3).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
        let number = text.parse().ok().filter(|_| plain);
        number.ok_or(DocumentRequestError::Parameter { name, wanted: "a number up to 255" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<(DocumentKind, String), DocumentRequestError> {
        let (path, query) = match url.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (url, None),
        };
        parse_request(path, query).map(|wanted| (wanted.kind(), wanted.key()))
    }

    fn refused_parameter(url: &str) -> &'static str {
        match read(url) {
            Err(DocumentRequestError::Parameter { name, .. }) => name,
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn intels_routes_are_read() {
        for (url, kind, key) in [
            (
                "/sgx/certification/v4/tcb?fmspc=00806f050000",
                DocumentKind::SgxTcb,
                "00806F050000/standard",
            ),
            (
                "/tdx/certification/v4/tcb?fmspc=00806F050000&update=early",
                DocumentKind::TdxTcb,
                "00806F050000/early",
            ),
            (
                "/tdx/certification/v4/qe/identity?tcbEvaluationDataNumber=18",
                DocumentKind::TdxQeIdentity,
                "18",
            ),
            ("/sgx/certification/v4/qe/identity?foo=bar", DocumentKind::SgxQeIdentity, "standard"),
            (
                "/sgx/certification/v4/pckcrl?ca=PLATFORM&encoding=der",
                DocumentKind::PckCrl,
                "platform",
            ),
            ("/sgx/certification/v4/rootcacrl", DocumentKind::RootCrl, ""),
            (
                "/sgx/certification/v4/tcbevaluationdatanumbers",
                DocumentKind::SgxEvaluationNumbers,
                "",
            ),
        ] {
            assert_eq!(read(url), Ok((kind, key.into())), "{url}");
        }
    }

    #[test]
    fn intel_has_no_documents_for_sev_snp() {
        for tee in [Tee::Sgx, Tee::Tdx] {
            assert_eq!(IntelTee::try_from(tee).map(Tee::from), Ok(tee));
        }
        let refused = IntelTee::try_from(Tee::Snp);
        assert!(matches!(refused, Err(ParseError::Unsupported { .. })));
    }

    #[test]
    fn a_list_is_pem_unless_der_is_asked_for() {
        let encoding = |query| {
            parse_request("/sgx/certification/v4/pckcrl", Some(query)).unwrap().encoding().unwrap()
        };
        assert_eq!(encoding("ca=processor"), CrlEncoding::Pem);
        assert_eq!(encoding("ca=processor&encoding=pem"), CrlEncoding::Pem);
        assert_eq!(encoding("ca=processor&encoding=der"), CrlEncoding::Der);
    }

    #[test]
    fn amds_and_nvidias_routes_are_read() {
        let hwid = "A".repeat(128);
        let url = format!("/vcek/v1/Milan/{hwid}?blSPL=03&teeSPL=00&snpSPL=08&ucodeSPL=115");
        let key = format!("Milan/{}/3-0-8-115-0", hwid.to_ascii_lowercase());
        assert_eq!(read(&url), Ok((DocumentKind::Vcek, key)));
        let turin = "/vcek/v1/Turin/00112233aabbccdd?fmcSPL=1&blSPL=2&teeSPL=3&snpSPL=4&ucodeSPL=5";
        assert_eq!(
            read(turin),
            Ok((DocumentKind::Vcek, "Turin/00112233aabbccdd/2-3-4-5-1".into()))
        );
        assert_eq!(
            read("/vcek/v1/Genoa/cert_chain"),
            Ok((DocumentKind::VcekChain, "Genoa".into()))
        );
        assert_eq!(
            read("/vlek/v1/Milan/cert_chain"),
            Ok((DocumentKind::VlekChain, "Milan".into()))
        );
        assert_eq!(read("/vcek/v1/Milan/crl"), Ok((DocumentKind::VcekCrl, "Milan".into())));
        assert_eq!(read("/vlek/v1/Turin/crl"), Ok((DocumentKind::VlekCrl, "Turin".into())));
        let rim = "NV_GPU_DRIVER_GH100_535.104.05";
        assert_eq!(read(&format!("/v1/rim/{rim}")), Ok((DocumentKind::Rim, rim.into())));
    }

    #[test]
    fn what_is_kept_says_what_was_asked_for() {
        for url in [
            "/sgx/certification/v4/tcb?fmspc=00806f050000",
            "/tdx/certification/v4/tcb?fmspc=00806f050000&tcbEvaluationDataNumber=18",
            "/tdx/certification/v4/qe/identity?update=early",
            "/sgx/certification/v4/pckcrl?ca=processor&encoding=der",
            "/sgx/certification/v4/rootcacrl",
            "/vlek/v1/Turin/crl",
        ] {
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let wanted = parse_request(path, Some(query)).unwrap();
            assert_eq!(
                DocumentRequest::from_stored_key(wanted.kind(), &wanted.key()),
                Some(wanted),
                "{url}"
            );
        }
    }

    #[test]
    fn malformed_parameters_are_named() {
        let intel = "/sgx/certification/v4";
        assert_eq!(refused_parameter(&format!("{intel}/tcb")), "fmspc");
        assert_eq!(refused_parameter(&format!("{intel}/tcb?fmspc=00806f0500")), "fmspc");
        assert_eq!(refused_parameter(&format!("{intel}/tcb?fmspc=zz806f050000")), "fmspc");
        let tcb = format!("{intel}/tcb?fmspc=00806f050000");
        assert_eq!(refused_parameter(&format!("{tcb}&update=late")), "update");
        let number = "tcbEvaluationDataNumber";
        assert_eq!(refused_parameter(&format!("{tcb}&{number}=+1")), number);
        assert_eq!(refused_parameter(&format!("{tcb}&update=early&{number}=18")), number);
        assert_eq!(refused_parameter(&format!("{tcb}&fmspc=00806f050000")), "query");
        assert_eq!(refused_parameter(&format!("{intel}/pckcrl")), "ca");
        assert_eq!(
            refused_parameter(&format!("{intel}/pckcrl?ca=platform&encoding=xml")),
            "encoding"
        );
        assert_eq!(refused_parameter(&format!("{intel}/pckcert?qeid=00")), "qeid");
        assert_eq!(refused_parameter("/vcek/v1/Milan/00"), "hwid");
        assert_eq!(
            refused_parameter(&format!("/vcek/v1/Milan/{}?blSPL=256", "0".repeat(128))),
            "blSPL"
        );
        assert_eq!(refused_parameter("/v1/rim/a%2Fb"), "id");
    }

    #[test]
    fn other_paths_are_not_found() {
        for path in [
            "",
            "/",
            "/tdx/certification/v4/pckcrl?ca=platform",
            "/sgx/certification/v3/tcb?fmspc=00806f050000",
            "/sgx/certification/v4/tcb/",
            "/vcek/v1/Naples/cert_chain",
            "/v1/rim/a/b",
        ] {
            assert_eq!(read(path), Err(DocumentRequestError::NotFound), "{path}");
        }
    }
}
