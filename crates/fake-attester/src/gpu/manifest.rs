//! The simulated reference manifests: SWID tags with an enveloped XML signature.
//!
//! They are written in canonical form at once (Canonical XML 1.1), so that what is hashed is what
//! is written.

use sha2::{Digest, Sha384};

use super::{
    certificates::{Chains, encode_base64},
    keys::GpuKey,
    measurement::simulated_digest,
    options::{GpuFault, GpuOptions},
    report::{MEASUREMENTS, measurement_value},
};

const SWID: &str = "http://standards.iso.org/iso/19770/-2/2015/schema.xsd";
const HASH: &str = "http://www.w3.org/2001/04/xmlenc#sha384";
const DSIG: &str = "http://www.w3.org/2000/09/xmldsig#";
const C14N: &str = "http://www.w3.org/2006/12/xml-c14n11";
const MORE: &str = "http://www.w3.org/2001/04/xmldsig-more#";

/// The driver's manifest and the VBIOS's.
pub(super) fn issue_manifests(options: &GpuOptions, chains: &Chains) -> Vec<Vec<u8>> {
    let [d, c, b, a, e, ..] = options.vbios;
    let vbios = format!("{a:02X}.{b:02X}.{c:02X}.{d:02X}.{e:02X}");
    let driver = match options.fault {
        Some(GpuFault::ManifestVersion) => "1.0",
        _ => &options.driver,
    };
    let overlap = options.fault == Some(GpuFault::ManifestOverlap);
    let driver = issue_manifest(options, chains, driver, |index| index % 2 == 0 || overlap);
    let vbios = issue_manifest(options, chains, &vbios, |index| index % 2 == 1);
    match options.fault {
        Some(GpuFault::OneManifest) => vec![driver],
        _ => vec![driver, vbios],
    }
}

/// `active` takes an index from 0, as manifests count.
fn issue_manifest(
    options: &GpuOptions,
    chains: &Chains,
    version: &str,
    active: impl Fn(u8) -> bool,
) -> Vec<u8> {
    let head = format!(
        "<SoftwareIdentity xmlns=\"{SWID}\" xmlns:ns0=\"{SWID}\" xmlns:ns2=\"{HASH}\" \
         name=\"SIMULATED\" tagId=\"SIMULATED {version}\" version=\"1.0\">\n    \
         <ns0:Meta colloquialVersion=\"{version}\" edition=\"GPU\" product=\"SIMULATED\">\
         </ns0:Meta>\n    \
         <ns0:Payload>\n"
    );
    let resources: String =
        (0..MEASUREMENTS).map(|index| write_resource(index, active(index))).collect();
    let body = format!("{head}{resources}    </ns0:Payload>\n");
    let document = format!("{body}</SoftwareIdentity>");
    let digest = encode_base64(&Sha384::digest(document.as_bytes()));
    let info = |namespaces: &str| {
        format!(
            "<ds:SignedInfo{namespaces}>\
             <ds:CanonicalizationMethod Algorithm=\"{C14N}\"></ds:CanonicalizationMethod>\
             <ds:SignatureMethod Algorithm=\"{MORE}ecdsa-sha384\"></ds:SignatureMethod>\
             <ds:Reference URI=\"\"><ds:Transforms>\
             <ds:Transform Algorithm=\"{DSIG}enveloped-signature\"></ds:Transform>\
             <ds:Transform Algorithm=\"{C14N}\"></ds:Transform></ds:Transforms>\
             <ds:DigestMethod Algorithm=\"{MORE}sha384\"></ds:DigestMethod>\
             <ds:DigestValue>{digest}</ds:DigestValue></ds:Reference></ds:SignedInfo>"
        )
    };
    let inherited =
        format!(" xmlns=\"{SWID}\" xmlns:ds=\"{DSIG}\" xmlns:ns0=\"{SWID}\" xmlns:ns2=\"{HASH}\"");
    let stranger = GpuKey::from_options(options, "stranger");
    let signer = match options.fault {
        Some(GpuFault::ManifestSignature) => &stranger,
        _ => &chains.manifest[0].key,
    };
    let signature = encode_base64(&signer.sign_raw(info(&inherited).as_bytes()));
    let certificates: String = chains
        .manifest
        .iter()
        .map(|issued| {
            format!("<ds:X509Certificate>{}</ds:X509Certificate>", encode_base64(&issued.der))
        })
        .collect();
    let body = match options.fault {
        Some(GpuFault::ManifestChanged) => body.replacen("active=\"True\"", "active=\"False\"", 1),
        _ => body,
    };
    let signature = format!(
        "<ds:Signature xmlns:ds=\"{DSIG}\">{}<ds:SignatureValue>{signature}</ds:SignatureValue>\
         <ds:KeyInfo><ds:X509Data>{certificates}</ds:X509Data></ds:KeyInfo></ds:Signature>",
        info("")
    );
    format!("{body}{signature}</SoftwareIdentity>").into_bytes()
}

fn write_resource(index: u8, active: bool) -> String {
    let active = if active { "True" } else { "False" };
    // A second value that no GPU has: one of the two is enough.
    let values = [simulated_digest("an older value"), measurement_value(index + 1)];
    let [first, second] = values.map(hex::encode);
    // Canonical order: attributes without a namespace by name, then those with one.
    format!(
        "        <ns0:Resource active=\"{active}\" alternatives=\"2\" index=\"{index}\" \
         name=\"SIMULATED_{index}\" size=\"48\" type=\"Measurement\" ns2:Hash0=\"{first}\" \
         ns2:Hash1=\"{second}\"></ns0:Resource>\n"
    )
}
