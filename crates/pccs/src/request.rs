//! What is asked for: paths and query strings of Intel PCS v4, AMD KDS and NVIDIA's RIM service.

use std::fmt;

use crate::{kind::Kind, url_text};

/// Intel's two kinds of platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tee {
    /// Routes under `/sgx`.
    Sgx,
    /// Routes under `/tdx`.
    Tdx,
}

/// Which TCB evaluation data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Set {
    /// The one that is enforced.
    Standard,
    /// The newest that is published.
    Early,
    /// The one of this number.
    Number(u32),
}

/// Who issued a PCK certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ca {
    /// Of processors with a PCK of their own.
    Processor,
    /// Of platforms with several processors.
    Platform,
}

/// How a revocation list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Base64 between markers; what PCS sends when nothing is asked.
    Pem,
    /// The bytes.
    Der,
    /// The bytes in hexadecimal, as a PCCS sends the root's list.
    Hex,
}

/// AMD's product lines, by the names of its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Product {
    /// EPYC 7003.
    Milan,
    /// EPYC 9004, 97x4, 8004.
    Genoa,
    /// EPYC 9005.
    Turin,
}

/// Which of AMD's keys signs a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndorsementKey {
    /// One chip's key.
    Vcek,
    /// A provider's key.
    Vlek,
}

/// One document, as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// TCB info of a platform family.
    Tcb {
        /// SGX or TDX.
        tee: Tee,
        /// The family.
        fmspc: [u8; 6],
        /// Which set.
        set: Set,
    },
    /// Identity of the quoting enclave.
    QeIdentity {
        /// SGX or TDX.
        tee: Tee,
        /// Which set.
        set: Set,
    },
    /// The list of evaluation data numbers.
    EvaluationNumbers {
        /// SGX or TDX.
        tee: Tee,
    },
    /// Revocations by a PCK CA.
    PckCrl {
        /// Which CA.
        ca: Ca,
        /// How it is written.
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
        /// How it is written.
        encoding: Encoding,
    },
    /// A chip's endorsement key.
    Vcek {
        /// Product line.
        product: Product,
        /// Hardware id in lower case hexadecimal.
        hwid: String,
        /// Versions of boot loader, TEE, SNP firmware, microcode, FMC (Turin only, else 0).
        tcb: [u8; 5],
    },
    /// The certificates above an endorsement key.
    AmdChain {
        /// Above which key.
        key: EndorsementKey,
        /// Product line.
        product: Product,
    },
    /// Revocations by AMD's root.
    AmdCrl {
        /// On which route.
        key: EndorsementKey,
        /// Product line.
        product: Product,
    },
    /// NVIDIA's reference manifest.
    Rim {
        /// Its id.
        id: String,
    },
}

/// Why a request cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such path.
    #[error("no such document")]
    NotFound,
    /// A parameter is missing, malformed or there twice.
    #[error("parameter {name}: wanted {wanted}")]
    Parameter {
        /// Which.
        name: &'static str,
        /// What would do.
        wanted: &'static str,
    },
}

/// Reads path and query.
///
/// # Errors
/// [`Refusal`]. Parameters nobody knows are passed over, as the vendors do.
pub fn parse(path: &str, query: Option<&str>) -> Result<Wanted, Refusal> {
    let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    match parts.as_slice() {
        ["sgx", "certification", "v4", rest @ ..] => intel(Tee::Sgx, rest, &Query::parse(query)?),
        ["tdx", "certification", "v4", rest @ ..] => intel(Tee::Tdx, rest, &Query::parse(query)?),
        // Where Intel's root certificate says that its list lies.
        ["IntelSGXRootCA.der"] => Ok(Wanted::RootCrl { encoding: Encoding::Der }),
        ["vcek", "v1", product, rest] => vcek(product, rest, &Query::parse(query)?),
        ["vlek", "v1", product, "cert_chain"] => {
            Ok(Wanted::AmdChain { key: EndorsementKey::Vlek, product: known(product)? })
        }
        ["vlek", "v1", product, "crl"] => {
            Ok(Wanted::AmdCrl { key: EndorsementKey::Vlek, product: known(product)? })
        }
        ["v1", "rim", id] => rim(id),
        _ => Err(Refusal::NotFound),
    }
}

impl Wanted {
    /// The kind of document that answers it.
    pub fn kind(&self) -> Kind {
        match self {
            Wanted::Tcb { tee: Tee::Sgx, .. } => Kind::SgxTcb,
            Wanted::Tcb { tee: Tee::Tdx, .. } => Kind::TdxTcb,
            Wanted::QeIdentity { tee: Tee::Sgx, .. } => Kind::SgxQeIdentity,
            Wanted::QeIdentity { tee: Tee::Tdx, .. } => Kind::TdxQeIdentity,
            Wanted::EvaluationNumbers { tee: Tee::Sgx } => Kind::SgxEvaluationNumbers,
            Wanted::EvaluationNumbers { tee: Tee::Tdx } => Kind::TdxEvaluationNumbers,
            Wanted::PckCrl { .. } => Kind::PckCrl,
            Wanted::PckCertificate { .. } => Kind::PckCertificate,
            Wanted::RootCrl { .. } => Kind::RootCrl,
            Wanted::Vcek { .. } => Kind::Vcek,
            Wanted::AmdChain { key: EndorsementKey::Vcek, .. } => Kind::VcekChain,
            Wanted::AmdChain { key: EndorsementKey::Vlek, .. } => Kind::VlekChain,
            Wanted::AmdCrl { key: EndorsementKey::Vcek, .. } => Kind::VcekCrl,
            Wanted::AmdCrl { key: EndorsementKey::Vlek, .. } => Kind::VlekCrl,
            Wanted::Rim { .. } => Kind::Rim,
        }
    }

    /// The key under which it is kept.
    pub fn key(&self) -> String {
        match self {
            Wanted::Tcb { fmspc, set, .. } => format!("{}/{set}", hex::encode_upper(fmspc)),
            Wanted::QeIdentity { set, .. } => set.to_string(),
            Wanted::EvaluationNumbers { .. } | Wanted::RootCrl { .. } => String::new(),
            Wanted::PckCrl { ca, .. } => ca.name().into(),
            Wanted::PckCertificate { key, .. } => key.clone(),
            Wanted::Vcek { product, hwid, tcb } => {
                let [bl, tee, snp, ucode, fmc] = tcb;
                format!("{}/{hwid}/{bl}-{tee}-{snp}-{ucode}-{fmc}", product.name())
            }
            Wanted::AmdChain { product, .. } | Wanted::AmdCrl { product, .. } => {
                product.name().into()
            }
            Wanted::Rim { id } => id.clone(),
        }
    }

    /// What was asked for when this document was kept; `None` for kinds that are not fetched anew
    /// unasked.
    pub fn from_kept(kind: Kind, key: &str) -> Option<Self> {
        match kind {
            Kind::SgxTcb | Kind::TdxTcb => {
                let (fmspc, set) = key.split_once('/')?;
                let mut bytes = [0; 6];
                hex::decode_to_slice(fmspc, &mut bytes).ok()?;
                let tee = if kind == Kind::SgxTcb { Tee::Sgx } else { Tee::Tdx };
                Some(Wanted::Tcb { tee, fmspc: bytes, set: Set::from_name(set)? })
            }
            Kind::SgxQeIdentity | Kind::TdxQeIdentity => {
                let tee = if kind == Kind::SgxQeIdentity { Tee::Sgx } else { Tee::Tdx };
                Some(Wanted::QeIdentity { tee, set: Set::from_name(key)? })
            }
            Kind::PckCrl => {
                let ca = [Ca::Processor, Ca::Platform].into_iter().find(|ca| ca.name() == key)?;
                Some(Wanted::PckCrl { ca, encoding: Encoding::Der })
            }
            Kind::RootCrl => Some(Wanted::RootCrl { encoding: Encoding::Hex }),
            Kind::VcekCrl | Kind::VlekCrl => {
                let vcek = kind == Kind::VcekCrl;
                let on = if vcek { EndorsementKey::Vcek } else { EndorsementKey::Vlek };
                Some(Wanted::AmdCrl { key: on, product: Product::from_name(key)? })
            }
            _ => None,
        }
    }

    /// How the answer is written, where the request can choose.
    pub fn encoding(&self) -> Option<Encoding> {
        match self {
            Wanted::PckCrl { encoding, .. } | Wanted::RootCrl { encoding } => Some(*encoding),
            _ => None,
        }
    }

    /// The set that is asked for, where documents come in sets.
    pub fn set(&self) -> Option<Set> {
        match self {
            Wanted::Tcb { set, .. } | Wanted::QeIdentity { set, .. } => Some(*set),
            _ => None,
        }
    }

    /// What may answer instead: a set asked for by number may be the standard or the early one, and
    /// where there is no early set the standard one is the newest.
    pub(crate) fn stand_ins(&self) -> Vec<Self> {
        let others: &[Set] = match self.set() {
            Some(Set::Number(_)) => &[Set::Standard, Set::Early],
            Some(Set::Early) => &[Set::Standard],
            _ => &[],
        };
        others.iter().map(|other| self.with_set(*other)).collect()
    }

    fn with_set(&self, other: Set) -> Self {
        let mut wanted = self.clone();
        if let Wanted::Tcb { set, .. } | Wanted::QeIdentity { set, .. } = &mut wanted {
            *set = other;
        }
        wanted
    }
}

impl Set {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "standard" => Some(Set::Standard),
            "early" => Some(Set::Early),
            _ => name.parse().ok().map(Set::Number),
        }
    }
}

impl Tee {
    /// The first part of its paths.
    pub fn name(self) -> &'static str {
        match self {
            Tee::Sgx => "sgx",
            Tee::Tdx => "tdx",
        }
    }
}

impl Ca {
    /// The word in `ca=`.
    pub fn name(self) -> &'static str {
        match self {
            Ca::Processor => "processor",
            Ca::Platform => "platform",
        }
    }
}

impl Product {
    /// The word in AMD's paths.
    pub fn name(self) -> &'static str {
        match self {
            Product::Milan => "Milan",
            Product::Genoa => "Genoa",
            Product::Turin => "Turin",
        }
    }

    /// The product line of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Product::Milan, Product::Genoa, Product::Turin].into_iter().find(|it| it.name() == name)
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Set::Standard => f.write_str("standard"),
            Set::Early => f.write_str("early"),
            Set::Number(number) => number.fmt(f),
        }
    }
}

fn intel(tee: Tee, rest: &[&str], query: &Query) -> Result<Wanted, Refusal> {
    match (tee, rest) {
        (_, ["tcb"]) => {
            let fmspc = query.hex("fmspc", "12 hexadecimal digits")?;
            Ok(Wanted::Tcb { tee, fmspc, set: query.set()? })
        }
        (_, ["qe", "identity"]) => Ok(Wanted::QeIdentity { tee, set: query.set()? }),
        (_, ["tcbevaluationdatanumbers"]) => Ok(Wanted::EvaluationNumbers { tee }),
        (Tee::Sgx, ["pckcrl"]) => pck_crl(query),
        (Tee::Sgx, ["pckcert"]) => pck_certificate(query),
        (Tee::Sgx, ["rootcacrl"]) => Ok(Wanted::RootCrl { encoding: Encoding::Hex }),
        _ => Err(Refusal::NotFound),
    }
}

fn pck_crl(query: &Query) -> Result<Wanted, Refusal> {
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
    Ok(Wanted::PckCrl { ca, encoding })
}

/// Intel names the platform by the quoting enclave's id or by the encrypted PPID, with both SVNs.
fn pck_certificate(query: &Query) -> Result<Wanted, Refusal> {
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
    Ok(Wanted::PckCertificate {
        key: format!("{qeid}/{pceid}/{cpusvn}/{pcesvn}"),
        query: format!("qeid={qeid}{upper}&cpusvn={cpusvn}&pcesvn={pcesvn}&pceid={pceid}"),
    })
}

fn vcek(product: &str, rest: &str, query: &Query) -> Result<Wanted, Refusal> {
    let product = known(product)?;
    match rest {
        "cert_chain" => return Ok(Wanted::AmdChain { key: EndorsementKey::Vcek, product }),
        "crl" => return Ok(Wanted::AmdCrl { key: EndorsementKey::Vcek, product }),
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
    Ok(Wanted::Vcek { product, hwid: rest.to_ascii_lowercase(), tcb })
}

/// Longest id of a manifest; NVIDIA's have about 40 characters.
const RIM_ID_LENGTH_MAX: usize = 128;

fn rim(id: &str) -> Result<Wanted, Refusal> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
    if id.is_empty() || id.len() > RIM_ID_LENGTH_MAX || !id.bytes().all(plain) {
        return Err(Refusal::Parameter { name: "id", wanted: "letters, digits, _ . -" });
    }
    Ok(Wanted::Rim { id: id.into() })
}

fn known(product: &str) -> Result<Product, Refusal> {
    Product::from_name(product).ok_or(Refusal::NotFound)
}

/// The parameters, decoded; each name once.
struct Query(Vec<(String, String)>);

/// No route has more than six.
const PARAMETERS_MAX: usize = 32;

impl Query {
    fn parse(query: Option<&str>) -> Result<Self, Refusal> {
        let mut found: Vec<(String, String)> = Vec::new();
        for part in query.unwrap_or("").split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (Some(name), Some(value)) = (url_text::decode(name), url_text::decode(value))
            else {
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
    fn set(&self) -> Result<Set, Refusal> {
        let by_name = match self.value("update") {
            None => None,
            Some("standard") => Some(Set::Standard),
            Some("early") => Some(Set::Early),
            Some(_) => {
                return Err(Refusal::Parameter { name: "update", wanted: "early or standard" });
            }
        };
        let name = "tcbEvaluationDataNumber";
        match (by_name, self.value(name)) {
            (Some(_), Some(_)) => Err(Refusal::Parameter { name, wanted: "no update beside it" }),
            (None, Some(text)) => {
                let plain = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
                let number = text.parse().ok().filter(|_| plain);
                number.map(Set::Number).ok_or(Refusal::Parameter { name, wanted: "a number" })
            }
            (by_name, None) => Ok(by_name.unwrap_or(Set::Standard)),
        }
    }

    /// One component of AMD's TCB; zero where it is not given.
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

    fn refused(url: &str) -> &'static str {
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
            assert_eq!(Wanted::from_kept(wanted.kind(), &wanted.key()), Some(wanted), "{url}");
        }
    }

    #[test]
    fn malformed_parameters_are_named() {
        let intel = "/sgx/certification/v4";
        assert_eq!(refused(&format!("{intel}/tcb")), "fmspc");
        assert_eq!(refused(&format!("{intel}/tcb?fmspc=00806f0500")), "fmspc");
        assert_eq!(refused(&format!("{intel}/tcb?fmspc=zz806f050000")), "fmspc");
        let tcb = format!("{intel}/tcb?fmspc=00806f050000");
        assert_eq!(refused(&format!("{tcb}&update=late")), "update");
        let number = "tcbEvaluationDataNumber";
        assert_eq!(refused(&format!("{tcb}&{number}=+1")), number);
        assert_eq!(refused(&format!("{tcb}&update=early&{number}=18")), number);
        assert_eq!(refused(&format!("{tcb}&fmspc=00806f050000")), "query");
        assert_eq!(refused(&format!("{intel}/pckcrl")), "ca");
        assert_eq!(refused(&format!("{intel}/pckcrl?ca=platform&encoding=xml")), "encoding");
        assert_eq!(refused(&format!("{intel}/pckcert?qeid=00")), "qeid");
        assert_eq!(refused("/vcek/v1/Milan/00"), "hwid");
        assert_eq!(refused(&format!("/vcek/v1/Milan/{}?blSPL=256", "0".repeat(128))), "blSPL");
        assert_eq!(refused("/v1/rim/a%2Fb"), "id");
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
