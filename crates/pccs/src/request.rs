//! Requests for documents: paths and query strings of Intel PCS v4, AMD KDS and NVIDIA's RIM
//! service.

use confide_collateral::{Ca, Evaluation, Product};
use confide_evidence::{ParseError, quote::Tee};
use confide_http::decode_percent;

use crate::kind::Kind;

/// The encoding of a revocation list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Base64 between markers; PCS sends it by default.
    Pem,
    /// The bytes of the DER encoding.
    Der,
    /// The DER encoding in hexadecimal, as a PCCS sends the root's list.
    Hex,
}

/// A TEE for which Intel's service has documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntelTee {
    /// Enclaves.
    Sgx,
    /// Trust domains.
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

/// The kind of AMD's keys that signs a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndorsementKey {
    /// The key of one chip.
    Vcek,
    /// The key of a cloud provider.
    Vlek,
}

/// One document, as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DocumentRequest {
    /// TCB info of a platform family.
    Tcb {
        /// SGX or TDX.
        tee: IntelTee,
        /// The platform family.
        fmspc: [u8; 6],
        /// The TCB recovery that is asked for.
        set: Evaluation,
    },
    /// Identity of the quoting enclave.
    QeIdentity {
        /// SGX or TDX.
        tee: IntelTee,
        /// The TCB recovery that is asked for.
        set: Evaluation,
    },
    /// The list of evaluation data numbers.
    EvaluationNumbers {
        /// SGX or TDX.
        tee: IntelTee,
    },
    /// Revocations by a PCK CA.
    PckCrl {
        /// The CA that issued the PCK certificates.
        ca: Ca,
        /// The encoding of the list.
        encoding: Encoding,
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
        encoding: Encoding,
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
    /// The certificates above an endorsement key.
    AmdChain {
        /// The kind of the endorsement key.
        key: EndorsementKey,
        /// The product line.
        product: Product,
    },
    /// Revocations by AMD's root.
    AmdCrl {
        /// The kind of endorsement keys whose route is asked.
        key: EndorsementKey,
        /// The product line.
        product: Product,
    },
    /// NVIDIA's reference manifest.
    Rim {
        /// The identifier of the manifest.
        id: String,
    },
}

/// The reason for which a request cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The path is that of no document.
    #[error("no such document")]
    NotFound,
    /// A parameter is missing, malformed or there twice.
    #[error("parameter {name}: wanted {wanted}")]
    Parameter {
        /// The name of the parameter.
        name: &'static str,
        /// The values that are accepted.
        wanted: &'static str,
    },
}

/// Reads path and query of a request.
///
/// # Errors
/// A [`Refusal`] for an unknown path and for a parameter that is missing or malformed. Unknown
/// parameters are ignored, as the vendors do.
pub fn parse(path: &str, query: Option<&str>) -> Result<DocumentRequest, Refusal> {
    let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    match parts.as_slice() {
        ["sgx", "certification", "v4", rest @ ..] => {
            parse_intel(IntelTee::Sgx, rest, &Query::parse(query)?)
        }
        ["tdx", "certification", "v4", rest @ ..] => {
            parse_intel(IntelTee::Tdx, rest, &Query::parse(query)?)
        }
        // The path at which Intel's root certificate says that its list lies.
        ["IntelSGXRootCA.der"] => Ok(DocumentRequest::RootCrl { encoding: Encoding::Der }),
        ["vcek", "v1", product, rest] => parse_vcek(product, rest, &Query::parse(query)?),
        ["vlek", "v1", product, "cert_chain"] => Ok(DocumentRequest::AmdChain {
            key: EndorsementKey::Vlek,
            product: parse_product(product)?,
        }),
        ["vlek", "v1", product, "crl"] => Ok(DocumentRequest::AmdCrl {
            key: EndorsementKey::Vlek,
            product: parse_product(product)?,
        }),
        ["v1", "rim", id] => parse_rim(id),
        _ => Err(Refusal::NotFound),
    }
}

impl DocumentRequest {
    /// The kind of document that answers it.
    pub fn kind(&self) -> Kind {
        match self {
            DocumentRequest::Tcb { tee: IntelTee::Sgx, .. } => Kind::SgxTcb,
            DocumentRequest::Tcb { tee: IntelTee::Tdx, .. } => Kind::TdxTcb,
            DocumentRequest::QeIdentity { tee: IntelTee::Sgx, .. } => Kind::SgxQeIdentity,
            DocumentRequest::QeIdentity { tee: IntelTee::Tdx, .. } => Kind::TdxQeIdentity,
            DocumentRequest::EvaluationNumbers { tee: IntelTee::Sgx } => Kind::SgxEvaluationNumbers,
            DocumentRequest::EvaluationNumbers { tee: IntelTee::Tdx } => Kind::TdxEvaluationNumbers,
            DocumentRequest::PckCrl { .. } => Kind::PckCrl,
            DocumentRequest::PckCertificate { .. } => Kind::PckCertificate,
            DocumentRequest::RootCrl { .. } => Kind::RootCrl,
            DocumentRequest::Vcek { .. } => Kind::Vcek,
            DocumentRequest::AmdChain { key: EndorsementKey::Vcek, .. } => Kind::VcekChain,
            DocumentRequest::AmdChain { key: EndorsementKey::Vlek, .. } => Kind::VlekChain,
            DocumentRequest::AmdCrl { key: EndorsementKey::Vcek, .. } => Kind::VcekCrl,
            DocumentRequest::AmdCrl { key: EndorsementKey::Vlek, .. } => Kind::VlekCrl,
            DocumentRequest::Rim { .. } => Kind::Rim,
        }
    }

    /// The key under which it is kept.
    pub fn key(&self) -> String {
        match self {
            DocumentRequest::Tcb { fmspc, set, .. } => {
                format!("{}/{set}", hex::encode_upper(fmspc))
            }
            DocumentRequest::QeIdentity { set, .. } => set.to_string(),
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

    /// The request whose document is kept under this key; `None` for kinds that are not fetched
    /// again without a request.
    pub fn from_stored_key(kind: Kind, key: &str) -> Option<Self> {
        match kind {
            Kind::SgxTcb | Kind::TdxTcb => {
                let (fmspc, set) = key.split_once('/')?;
                let mut bytes = [0; 6];
                hex::decode_to_slice(fmspc, &mut bytes).ok()?;
                let tee = if kind == Kind::SgxTcb { IntelTee::Sgx } else { IntelTee::Tdx };
                Some(DocumentRequest::Tcb { tee, fmspc: bytes, set: set.parse().ok()? })
            }
            Kind::SgxQeIdentity | Kind::TdxQeIdentity => {
                let tee = if kind == Kind::SgxQeIdentity { IntelTee::Sgx } else { IntelTee::Tdx };
                Some(DocumentRequest::QeIdentity { tee, set: key.parse().ok()? })
            }
            Kind::PckCrl => {
                Some(DocumentRequest::PckCrl { ca: key.parse().ok()?, encoding: Encoding::Der })
            }
            Kind::RootCrl => Some(DocumentRequest::RootCrl { encoding: Encoding::Hex }),
            Kind::VcekCrl | Kind::VlekCrl => {
                let vcek = kind == Kind::VcekCrl;
                let on = if vcek { EndorsementKey::Vcek } else { EndorsementKey::Vlek };
                Some(DocumentRequest::AmdCrl { key: on, product: Product::from_name(key)? })
            }
            _ => None,
        }
    }

    /// The encoding of the answer, where the request can choose.
    pub fn encoding(&self) -> Option<Encoding> {
        match self {
            DocumentRequest::PckCrl { encoding, .. } | DocumentRequest::RootCrl { encoding } => {
                Some(*encoding)
            }
            _ => None,
        }
    }

    /// The set that is asked for, where documents come in sets.
    pub fn set(&self) -> Option<Evaluation> {
        match self {
            DocumentRequest::Tcb { set, .. } | DocumentRequest::QeIdentity { set, .. } => {
                Some(*set)
            }
            _ => None,
        }
    }

    /// The requests whose documents may answer instead: a set asked for by number may be the
    /// standard or the early one, and where there is no early set the standard one is the newest.
    pub(crate) fn alternatives(&self) -> Vec<Self> {
        let others: &[Evaluation] = match self.set() {
            Some(Evaluation::Number(_)) => &[Evaluation::Standard, Evaluation::Early],
            Some(Evaluation::Early) => &[Evaluation::Standard],
            _ => &[],
        };
        others.iter().map(|other| self.with_set(*other)).collect()
    }

    fn with_set(&self, other: Evaluation) -> Self {
        let mut wanted = self.clone();
        if let DocumentRequest::Tcb { set, .. } | DocumentRequest::QeIdentity { set, .. } =
            &mut wanted
        {
            *set = other;
        }
        wanted
    }
}

fn parse_intel(tee: IntelTee, rest: &[&str], query: &Query) -> Result<DocumentRequest, Refusal> {
    match (tee, rest) {
        (_, ["tcb"]) => {
            let fmspc = query.hex("fmspc", "12 hexadecimal digits")?;
            Ok(DocumentRequest::Tcb { tee, fmspc, set: query.set()? })
        }
        (_, ["qe", "identity"]) => Ok(DocumentRequest::QeIdentity { tee, set: query.set()? }),
        (_, ["tcbevaluationdatanumbers"]) => Ok(DocumentRequest::EvaluationNumbers { tee }),
        (IntelTee::Sgx, ["pckcrl"]) => parse_pck_crl(query),
        (IntelTee::Sgx, ["pckcert"]) => parse_pck_certificate(query),
        (IntelTee::Sgx, ["rootcacrl"]) => Ok(DocumentRequest::RootCrl { encoding: Encoding::Hex }),
        _ => Err(Refusal::NotFound),
    }
}

fn parse_pck_crl(query: &Query) -> Result<DocumentRequest, Refusal> {
    let ca = match query.value("ca").map(str::to_ascii_lowercase).as_deref() {
        Some("processor") => Ca::Processor,
        Some("platform") => Ca::Platform,
        _ => return Err(Refusal::Parameter { name: "ca", wanted: "processor or platform" }),
    };
    let encoding = match query.value("encoding").map(str::to_ascii_lowercase).as_deref() {
        None | Some("pem") => Encoding::Pem,
        Some("der") => Encoding::Der,
        Some(_) => return Err(Refusal::Parameter { name: "encoding", wanted: "der or pem" }),
    };
    Ok(DocumentRequest::PckCrl { ca, encoding })
}

/// Intel names the platform by the quoting enclave's id or by the encrypted PPID, with both SVNs.
fn parse_pck_certificate(query: &Query) -> Result<DocumentRequest, Refusal> {
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

fn parse_vcek(product: &str, rest: &str, query: &Query) -> Result<DocumentRequest, Refusal> {
    let product = parse_product(product)?;
    match rest {
        "cert_chain" => {
            return Ok(DocumentRequest::AmdChain { key: EndorsementKey::Vcek, product });
        }
        "crl" => return Ok(DocumentRequest::AmdCrl { key: EndorsementKey::Vcek, product }),
        _ => {}
    }
    // Turin's chips have ids of 8 bytes, those before it of 64 (AMD document 57230).
    let digits = if product == Product::Turin { 16 } else { 128 };
    let hexadecimal = rest.bytes().all(|digit| digit.is_ascii_hexdigit());
    if rest.len() != digits || !hexadecimal {
        let wanted = "hexadecimal: 16 digits for Turin, 128 for the others";
        return Err(Refusal::Parameter { name: "hwid", wanted });
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

fn parse_rim(id: &str) -> Result<DocumentRequest, Refusal> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
    if id.is_empty() || id.len() > RIM_ID_LENGTH_MAX || !id.bytes().all(plain) {
        return Err(Refusal::Parameter { name: "id", wanted: "letters, digits, _ . -" });
    }
    Ok(DocumentRequest::Rim { id: id.into() })
}

fn parse_product(product: &str) -> Result<Product, Refusal> {
    Product::from_name(product).ok_or(Refusal::NotFound)
}

/// The decoded parameters of a query; each name stands once.
struct Query(Vec<(String, String)>);

/// The most parameters of a query; no route has more than six.
const PARAMETERS_MAX: usize = 32;

impl Query {
    fn parse(query: Option<&str>) -> Result<Self, Refusal> {
        let mut found: Vec<(String, String)> = Vec::new();
        for part in query.unwrap_or("").split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (Some(name), Some(value)) = (decode_percent(name), decode_percent(value)) else {
                return Err(Refusal::Parameter { name: "query", wanted: "percent encoding" });
            };
            if found.len() == PARAMETERS_MAX || found.iter().any(|(there, _)| *there == name) {
                return Err(Refusal::Parameter { name: "query", wanted: "each parameter once" });
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
    ) -> Result<[u8; N], Refusal> {
        let mut bytes = [0; N];
        let text = self.value(name).ok_or(Refusal::Parameter { name, wanted })?;
        hex::decode_to_slice(text, &mut bytes).map_err(|_| Refusal::Parameter { name, wanted })?;
        Ok(bytes)
    }

    /// `update` and `tcbEvaluationDataNumber` exclude each other in PCS v4.
    fn set(&self) -> Result<Evaluation, Refusal> {
        let by_name = match self.value("update") {
            None => None,
            Some("standard") => Some(Evaluation::Standard),
            Some("early") => Some(Evaluation::Early),
            Some(_) => {
                return Err(Refusal::Parameter { name: "update", wanted: "early or standard" });
            }
        };
        let name = "tcbEvaluationDataNumber";
        match (by_name, self.value(name)) {
            (Some(_), Some(_)) => Err(Refusal::Parameter { name, wanted: "no update with it" }),
            (None, Some(text)) => {
                let plain = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
                let number = text.parse().ok().filter(|_| plain);
                number
                    .map(Evaluation::Number)
                    .ok_or(Refusal::Parameter { name, wanted: "a number" })
            }
            (by_name, None) => Ok(by_name.unwrap_or(Evaluation::Standard)),
        }
    }

    /// The version of one component of AMD's TCB; zero where it is not given.
    fn version(&self, name: &'static str) -> Result<u8, Refusal> {
        let Some(text) = self.value(name) else { return Ok(0) };
        let plain = (1..=3).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
        let number = text.parse().ok().filter(|_| plain);
        number.ok_or(Refusal::Parameter { name, wanted: "a number up to 255" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<(Kind, String), Refusal> {
        let (path, query) = match url.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (url, None),
        };
        parse(path, query).map(|wanted| (wanted.kind(), wanted.key()))
    }

    fn refused_parameter(url: &str) -> &'static str {
        match read(url) {
            Err(Refusal::Parameter { name, .. }) => name,
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn intels_routes_are_read() {
        for (url, kind, key) in [
            ("/sgx/certification/v4/tcb?fmspc=00806f050000", Kind::SgxTcb, "00806F050000/standard"),
            (
                "/tdx/certification/v4/tcb?fmspc=00806F050000&update=early",
                Kind::TdxTcb,
                "00806F050000/early",
            ),
            (
                "/tdx/certification/v4/qe/identity?tcbEvaluationDataNumber=18",
                Kind::TdxQeIdentity,
                "18",
            ),
            ("/sgx/certification/v4/qe/identity?foo=bar", Kind::SgxQeIdentity, "standard"),
            ("/sgx/certification/v4/pckcrl?ca=PLATFORM&encoding=der", Kind::PckCrl, "platform"),
            ("/sgx/certification/v4/rootcacrl", Kind::RootCrl, ""),
            ("/sgx/certification/v4/tcbevaluationdatanumbers", Kind::SgxEvaluationNumbers, ""),
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
        let encoding =
            |query| parse("/sgx/certification/v4/pckcrl", Some(query)).unwrap().encoding().unwrap();
        assert_eq!(encoding("ca=processor"), Encoding::Pem);
        assert_eq!(encoding("ca=processor&encoding=pem"), Encoding::Pem);
        assert_eq!(encoding("ca=processor&encoding=der"), Encoding::Der);
    }

    #[test]
    fn amds_and_nvidias_routes_are_read() {
        let hwid = "A".repeat(128);
        let url = format!("/vcek/v1/Milan/{hwid}?blSPL=03&teeSPL=00&snpSPL=08&ucodeSPL=115");
        let key = format!("Milan/{}/3-0-8-115-0", hwid.to_ascii_lowercase());
        assert_eq!(read(&url), Ok((Kind::Vcek, key)));
        let turin = "/vcek/v1/Turin/00112233aabbccdd?fmcSPL=1&blSPL=2&teeSPL=3&snpSPL=4&ucodeSPL=5";
        assert_eq!(read(turin), Ok((Kind::Vcek, "Turin/00112233aabbccdd/2-3-4-5-1".into())));
        assert_eq!(read("/vcek/v1/Genoa/cert_chain"), Ok((Kind::VcekChain, "Genoa".into())));
        assert_eq!(read("/vlek/v1/Milan/cert_chain"), Ok((Kind::VlekChain, "Milan".into())));
        assert_eq!(read("/vcek/v1/Milan/crl"), Ok((Kind::VcekCrl, "Milan".into())));
        assert_eq!(read("/vlek/v1/Turin/crl"), Ok((Kind::VlekCrl, "Turin".into())));
        let rim = "NV_GPU_DRIVER_GH100_535.104.05";
        assert_eq!(read(&format!("/v1/rim/{rim}")), Ok((Kind::Rim, rim.into())));
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
            let wanted = parse(path, Some(query)).unwrap();
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
            assert_eq!(read(path), Err(Refusal::NotFound), "{path}");
        }
    }
}
