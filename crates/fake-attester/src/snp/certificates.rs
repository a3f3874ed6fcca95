//! ARK, ASK and ASVK, the certificates of chip keys, and the ARK's revocation list.
//!
//! They are written byte by byte, for AMD's have what no encoder writes: PSS parameters with the
//! default trailer field spelled out (all but VLEK certificates), a key usage with a superfluous
//! bit, serial number zero, and a chip identifier without a type inside its extension.
//!
//! The names are AMD's, as verifiers compare them; each has one attribute more, a description
//! that says SIMULATED.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::snp::{
    key::ChipKey,
    product::{Product, SnpSigner, SnpTcb},
};
use crate::{
    asn1::{
        BOOLEAN_TRUE, IA5_STRING, OCTET_STRING, PRINTABLE_STRING, SET, UTC_TIME, UTF8_STRING,
        algorithm_identifier, bit_string, context_tagged, encode_element, integer,
        object_identifier, sequence,
    },
    edition::RevocationList,
    pem,
    rsa::RsaKey,
    time::{DAY, ROOT_NOT_AFTER, ROOT_NOT_BEFORE, utc_time},
};

/// The description that each name has besides AMD's attributes.
const DESCRIPTION: &str = "SIMULATED by confide, not Advanced Micro Devices";
/// The days for which AMD's certificates of chip keys hold: seven years.
const CHIP_KEY_DAYS: u64 = 7 * 365;

/// AMD for one product line: root, intermediates and their keys, made when they are asked for.
pub(crate) struct AmdPki {
    product: Product,
    seed: [u8; 32],
    ark: Authority,
    ask: OnceLock<Authority>,
    asvk: OnceLock<Authority>,
}

struct Authority {
    key: RsaKey,
    name: Vec<u8>,
    key_id: [u8; 20],
    certificate: Vec<u8>,
}

impl Drop for AmdPki {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.seed);
    }
}

impl AmdPki {
    pub(crate) fn new(seed: &[u8; 32], product: Product) -> Self {
        let ark = issue_root(seed, product);
        Self { product, seed: *seed, ark, ask: OnceLock::new(), asvk: OnceLock::new() }
    }

    pub(crate) fn root_der(&self) -> &[u8] {
        &self.ark.certificate
    }

    /// The ASK or ASVK, then the ARK, as the Key Distribution Service gives them.
    pub(crate) fn chain_pem(&self, signer: SnpSigner) -> String {
        let certificates = [&self.intermediate(signer).certificate, &self.ark.certificate];
        certificates.map(|der| pem::encode_certificate(der)).concat()
    }

    /// The serial number of ASK or ASVK, big-endian.
    pub(crate) fn intermediate_serial(&self, signer: SnpSigner) -> Vec<u8> {
        let (first, last) = match self.product {
            Product::Milan => (1, 1),
            Product::Genoa => (2, 2),
            Product::Turin => (3, 3),
        };
        match signer {
            SnpSigner::Vcek => vec![first, 0, last],
            SnpSigner::Vlek => vec![first, 1, last],
        }
    }

    /// Issues the certificate of a chip key.
    pub(crate) fn certify_chip_key(
        &self,
        signer: SnpSigner,
        key: &ChipKey,
        chip_id: &[u8; 64],
        tcb: SnpTcb,
        certified_at: u64,
    ) -> Vec<u8> {
        let issuer = self.intermediate(signer);
        let (common_name, trailer) = match signer {
            SnpSigner::Vcek => ("SEV-VCEK", true),
            SnpSigner::Vlek => ("SEV-VLEK", false),
        };
        let end = (certified_at + CHIP_KEY_DAYS * DAY).min(ROOT_NOT_AFTER);
        Certificate {
            serial: &[0],
            issuer: &issuer.name,
            life: (certified_at - DAY, end),
            subject: &encode_name(common_name),
            public_key_info: &key.public_key_info(),
            extensions: &chip_extensions(self.product, signer, chip_id, tcb),
        }
        .sign(&issuer.key, trailer)
    }

    /// Issues the root's revocation list.
    pub(crate) fn crl(&self, list: &RevocationList) -> Vec<u8> {
        let date = |unix| encode_element(UTC_TIME, &[utc_time(unix).as_bytes()]);
        let entries: Vec<u8> = list
            .revoked
            .iter()
            .flat_map(|serial| sequence(&[&integer(serial), &date(list.from)]))
            .collect();
        let entries = if entries.is_empty() { entries } else { sequence(&[&entries]) };
        let number = encode_extension("2.5.29.20", false, &integer(&list.number.to_be_bytes()));
        // AMD's lists may have no number; zero stands for that here.
        let number = if list.number == 0 { Vec::new() } else { number };
        let extensions = [authority_key_id(&self.ark.key_id), number].concat();
        let signed = sequence(&[
            &integer(&[1]),
            &pss_parameters(true),
            &self.ark.name,
            &date(list.from),
            &date(list.until),
            &entries,
            &context_tagged(0, &[&sequence(&[&extensions])]),
        ]);
        append_signature(&signed, &self.ark.key, true)
    }

    fn intermediate(&self, signer: SnpSigner) -> &Authority {
        let slot = match signer {
            SnpSigner::Vcek => &self.ask,
            SnpSigner::Vlek => &self.asvk,
        };
        slot.get_or_init(|| {
            let (label, common_name) = match signer {
                SnpSigner::Vcek => ("ask", format!("SEV-{}", self.product.name())),
                SnpSigner::Vlek => ("asvk", format!("SEV-VLEK-{}", self.product.name())),
            };
            let key = RsaKey::derive(&self.seed, &format!("{label} {}", self.product.name()));
            let key_id = key_id(&key);
            let extensions = [
                subject_key_id(&key_id),
                authority_key_id(&self.ark.key_id),
                encode_extension("2.5.29.19", true, &sequence(&[&BOOLEAN_TRUE, &integer(&[0])])),
                // The key usage keyCertSign, and a zero bit that DER would leave out: AMD's bytes.
                encode_extension("2.5.29.15", true, &[0x03, 0x02, 0x01, 0x04]),
                distribution_point(self.product, signer),
            ];
            let name = encode_name(&common_name);
            let certificate = Certificate {
                serial: &self.intermediate_serial(signer),
                issuer: &self.ark.name,
                life: (ROOT_NOT_BEFORE, ROOT_NOT_AFTER),
                subject: &name,
                public_key_info: &public_key_info(&key),
                extensions: &extensions.concat(),
            }
            .sign(&self.ark.key, true);
            Authority { key, name, key_id, certificate }
        })
    }
}

fn issue_root(seed: &[u8; 32], product: Product) -> Authority {
    let key = RsaKey::derive(seed, &format!("ark {}", product.name()));
    let key_id = key_id(&key);
    let extensions = [
        encode_extension("2.5.29.15", true, &[0x03, 0x02, 0x01, 0x06]),
        subject_key_id(&key_id),
        encode_extension("2.5.29.19", true, &sequence(&[&BOOLEAN_TRUE])),
        distribution_point(product, SnpSigner::Vcek),
    ];
    let name = encode_name(&format!("ARK-{}", product.name()));
    let number = match product {
        Product::Milan => 1,
        Product::Genoa => 2,
        Product::Turin => 3,
    };
    let certificate = Certificate {
        serial: &[number, 0, 0],
        issuer: &name,
        life: (ROOT_NOT_BEFORE, ROOT_NOT_AFTER),
        subject: &name,
        public_key_info: &public_key_info(&key),
        extensions: &extensions.concat(),
    }
    .sign(&key, true);
    Authority { key, name, key_id, certificate }
}

struct Certificate<'a> {
    serial: &'a [u8],
    issuer: &'a [u8],
    life: (u64, u64),
    subject: &'a [u8],
    public_key_info: &'a [u8],
    extensions: &'a [u8],
}

impl Certificate<'_> {
    fn sign(&self, key: &RsaKey, trailer: bool) -> Vec<u8> {
        let date = |unix| encode_element(UTC_TIME, &[utc_time(unix).as_bytes()]);
        let (from, until) = self.life;
        let signed = sequence(&[
            &context_tagged(0, &[&integer(&[2])]),
            &integer(self.serial),
            &pss_parameters(trailer),
            self.issuer,
            &sequence(&[&date(from), &date(until)]),
            self.subject,
            self.public_key_info,
            &context_tagged(3, &[&sequence(&[self.extensions])]),
        ]);
        append_signature(&signed, key, trailer)
    }
}

fn append_signature(signed: &[u8], key: &RsaKey, trailer: bool) -> Vec<u8> {
    sequence(&[signed, &pss_parameters(trailer), &bit_string(&key.sign_pss(signed))])
}

/// The identifier of RSASSA-PSS with SHA-384, MGF1 with SHA-384 and 48 bytes of salt (RFC 4055
/// section 3.1). DER leaves out trailer field 1, which is the default; AMD writes it.
fn pss_parameters(trailer: bool) -> Vec<u8> {
    let sha384 = algorithm_identifier("2.16.840.1.101.3.4.2.2");
    let mgf1 = sequence(&[&object_identifier("1.2.840.113549.1.1.8"), &sha384]);
    let trailer = if trailer { context_tagged(3, &[&integer(&[1])]) } else { Vec::new() };
    let parameters = sequence(&[
        &context_tagged(0, &[&sha384]),
        &context_tagged(1, &[&mgf1]),
        &context_tagged(2, &[&integer(&[48])]),
        &trailer,
    ]);
    sequence(&[&object_identifier("1.2.840.113549.1.1.10"), &parameters])
}

/// A name: AMD's attributes in AMD's order, and the description.
fn encode_name(common_name: &str) -> Vec<u8> {
    let attribute = |oid, tag, value: &str| {
        let value = encode_element(tag, &[value.as_bytes()]);
        encode_element(SET, &[&sequence(&[&object_identifier(oid), &value])])
    };
    sequence(&[
        &attribute("2.5.4.11", UTF8_STRING, "Engineering"),
        &attribute("2.5.4.6", PRINTABLE_STRING, "US"),
        &attribute("2.5.4.7", UTF8_STRING, "Santa Clara"),
        &attribute("2.5.4.8", UTF8_STRING, "CA"),
        &attribute("2.5.4.10", UTF8_STRING, "Advanced Micro Devices"),
        &attribute("2.5.4.3", UTF8_STRING, common_name),
        &attribute("2.5.4.13", UTF8_STRING, DESCRIPTION),
    ])
}

fn public_key_info(key: &RsaKey) -> Vec<u8> {
    sequence(&[&algorithm_identifier("1.2.840.113549.1.1.1"), &bit_string(&key.public_key())])
}

/// The key identifier by RFC 7093 section 2, method 1.
fn key_id(key: &RsaKey) -> [u8; 20] {
    let hash = Sha256::digest(key.public_key());
    std::array::from_fn(|i| hash[i])
}

fn subject_key_id(key_id: &[u8; 20]) -> Vec<u8> {
    encode_extension("2.5.29.14", false, &encode_element(OCTET_STRING, &[key_id]))
}

fn authority_key_id(key_id: &[u8; 20]) -> Vec<u8> {
    encode_extension("2.5.29.35", false, &sequence(&[&encode_element(0x80, &[key_id])]))
}

/// The distribution point: the path is that of the Key Distribution Service; the host cannot exist
/// (RFC 2606).
fn distribution_point(product: Product, signer: SnpSigner) -> Vec<u8> {
    let kind = match signer {
        SnpSigner::Vcek => "vcek",
        SnpSigner::Vlek => "vlek",
    };
    let uri = format!("https://simulated.invalid/{kind}/v1/{}/crl", product.name());
    let full_name =
        context_tagged(0, &[&context_tagged(0, &[&encode_element(0x86, &[uri.as_bytes()])])]);
    encode_extension("2.5.29.31", false, &sequence(&[&sequence(&[&full_name])]))
}

/// The extensions below 1.3.6.1.4.1.3704.1, in the order of AMD's certificates.
fn chip_extensions(
    product: Product,
    signer: SnpSigner,
    chip_id: &[u8; 64],
    tcb: SnpTcb,
) -> Vec<u8> {
    let amd = |arcs: &str, value: &[u8]| {
        encode_extension(&format!("1.3.6.1.4.1.3704.1.{arcs}"), false, value)
    };
    let stepping = match (product, signer) {
        (_, SnpSigner::Vlek) => "",
        (Product::Milan, SnpSigner::Vcek) => "-B0",
        (Product::Genoa | Product::Turin, SnpSigner::Vcek) => "-B1",
    };
    let product_name = [product.name(), stepping].concat();
    let (struct_version, fmc) = match product {
        Product::Milan | Product::Genoa => (0, Vec::new()),
        Product::Turin => (1, amd("3.9", &integer(&[tcb.fmc]))),
    };
    let owner = match signer {
        SnpSigner::Vcek => amd("4", &chip_id[..product.chip_id_length()]),
        SnpSigner::Vlek => amd("5", &encode_element(IA5_STRING, &[b"CN=simulated.invalid"])),
    };
    [
        amd("1", &integer(&[struct_version])),
        amd("2", &encode_element(IA5_STRING, &[product_name.as_bytes()])),
        amd("3.1", &integer(&[tcb.bootloader])),
        amd("3.2", &integer(&[tcb.tee])),
        amd("3.4", &integer(&[0])),
        amd("3.5", &integer(&[0])),
        amd("3.6", &integer(&[0])),
        amd("3.7", &integer(&[0])),
        amd("3.3", &integer(&[tcb.snp])),
        amd("3.8", &integer(&[tcb.microcode])),
        fmc,
        owner,
    ]
    .concat()
}

fn encode_extension(oid: &str, critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { &BOOLEAN_TRUE } else { &[] };
    sequence(&[&object_identifier(oid), critical, &encode_element(OCTET_STRING, &[value])])
}
