//! The checks that are ours alone: what dcap-qvl 0.7.1 lets pass, and why it should not.

use confide_evidence::{
    ParseError, certificate::Certificate, pck::PckExtension, pem::decode_chain, quote::Quote,
};
use confide_verifier::Reason;
use serde_json::Value;

use crate::{judge::Refused, seeds::Subject};

/// The name of the strict check that refused, where it is one.
pub(crate) fn name(refused: &Refused) -> Option<&'static str> {
    STRICT.iter().find(|strict| (strict.is)(&refused.reason)).map(|strict| strict.name)
}

struct Strict {
    name: &'static str,
    is: fn(&Reason) -> bool,
}

/// The strict checks, each with its reason, in the order in which they are tried.
const STRICT: &[Strict] = &[
    // Bytes that nothing covers are a channel; zeros are the padding that quoting services add.
    Strict {
        name: "bytes after the quote that are not all zero",
        is: |reason| {
            matches!(reason, Reason::Malformed(ParseError::TrailingBytes { subject: "quote", .. }))
        },
    },
    // webpki does not look at thisUpdate (RFC 5280 section 6.3.3 does): a list from the future may
    // lack what was revoked until now.
    Strict {
        name: "a revocation list from the future",
        is: |reason| match reason {
            Reason::OutsideWindow { subject: "root CRL" | "PCK CRL", from, now, .. } => now < from,
            _ => false,
        },
    },
    // It lets the collateral's chain override the quote's, which nobody then reads.
    Strict {
        name: "a PCK chain in the collateral that differs from the one in the quote",
        is: |reason| matches!(reason, Reason::Differs { .. }),
    },
    // It builds its own path to the pinned root and ignores the root that was sent.
    Strict {
        name: "a chain that brings another root than the pinned one",
        is: |reason| matches!(reason, Reason::UntrustedRoot { .. }),
    },
    // It never reads this chain; it says who issued the list.
    Strict {
        name: "an issuer chain of the PCK CRL that is not one",
        is: |reason| match reason {
            Reason::Malformed(
                ParseError::Text { subject, .. } | ParseError::Der { subject, .. },
            ) => *subject == "pck_crl_issuer_chain",
            Reason::ChainShape { chain, .. } | Reason::Chain { chain, .. } => {
                *chain == "PCK CRL issuer chain" || *chain == "pck_crl_issuer_chain"
            }
            _ => false,
        },
    },
    // RFC 7468 has no room for stray characters, and a chain has no room for other text.
    Strict {
        name: "PEM with something else in it",
        is: |reason| {
            let wanted = "PEM certificates";
            matches!(reason, Reason::Malformed(ParseError::Text { wanted: got, .. }) if *got == wanted)
        },
    },
    // Fields that nobody knows, other forms of a date, two identities for one module, another
    // tcbType: the meaning of such a document is not specified.
    Strict {
        name: "a signed document that PCS API v4 would not write",
        is: |reason| match reason {
            Reason::Malformed(ParseError::Json { subject, .. }) => {
                ["TCB info", "QE identity"].contains(subject)
            }
            Reason::Malformed(ParseError::Unsupported { subject, .. }) => {
                ["QE identity version", "TCB info version"].contains(subject)
            }
            _ => false,
        },
    },
    // The verdicts of TCB info are those of one provisioning enclave; it compares the FMSPC only.
    Strict {
        name: "TCB info for another PCE-ID",
        is: |reason| matches!(reason, Reason::Value { field: "PCE-ID", .. }),
    },
    // Version 4 frames the QE report as certification data of type 6; it does not look at the type.
    Strict {
        name: "certification data of another type than the version has",
        is: |reason| {
            let wanted = "certification data type";
            matches!(reason, Reason::Malformed(ParseError::Unsupported { subject, .. }) if *subject == wanted)
        },
    },
    // Intel's library compares all 64 bytes: the hash and zeros.
    Strict {
        name: "report data of the QE with something after the hash",
        is: |reason| matches!(reason, Reason::AttestationKey),
    },
    // Intel's PCK profile lists the entries of the extension; it looks for those that it needs.
    Strict {
        name: "an SGX extension with an entry that the PCK profile does not have",
        is: |reason| {
            let extension = "SGX extension of the PCK certificate";
            matches!(reason, Reason::Malformed(ParseError::Der { subject, .. }) if *subject == extension)
        },
    },
    // X.690 section 8.19: an identifier whose last byte promises another one has no meaning.
    Strict {
        name: "a malformed identifier of an extension or in a name",
        is: |reason| {
            let fields = ["extension identifier", "common name"];
            matches!(reason, Reason::Malformed(ParseError::Der { field, .. }) if fields.contains(field))
        },
    },
    // What a length announces and its parts do not fill would be read by nobody.
    Strict {
        name: "signature data of another length than it announces",
        is: |reason| {
            let wanted = "signature data";
            matches!(reason, Reason::Malformed(ParseError::Length { subject, .. }) if *subject == wanted)
        },
    },
    // Intel's quotes carry leaf, CA and root; it finds its way with fewer.
    Strict {
        name: "a PCK chain of another shape than leaf, CA and root",
        is: |reason| matches!(reason, Reason::ChainShape { chain: "PCK chain of the quote", .. }),
    },
    // X.690 section 11.2.1: DER has one spelling for a set of bits.
    Strict {
        name: "a key usage whose unused bits are set",
        is: |reason| {
            let field = "key usage";
            matches!(reason, Reason::Malformed(ParseError::Der { field: got, .. }) if *got == field)
        },
    },
    // RFC 5280 section 4.1.2.2 wants a positive number, X.690 section 8.3.2 its shortest spelling.
    Strict {
        name: "a certificate whose serial number is negative or not in its shortest spelling",
        is: |reason| {
            let field = "serial number";
            matches!(reason, Reason::Malformed(ParseError::Der { field: got, .. }) if *got == field)
        },
    },
    // Intel's library compares the wanted bits as they are: one that the mask clears is met by
    // nothing. It masks both sides.
    Strict {
        name: "a QE identity that wants bits outside its own mask",
        is: |reason| {
            matches!(reason, Reason::Value { field: "QE ATTRIBUTES" | "QE MISCSELECT", .. })
        },
    },
    // RFC 5280 section 5.2.3: conforming issuers number their lists; without a number no rollback
    // could be seen.
    Strict {
        name: "a revocation list without a readable number",
        is: |reason| {
            let field = "CRL number";
            matches!(reason, Reason::Malformed(ParseError::Der { field: got, .. }) if *got == field)
        },
    },
    // The names and key usages of Intel's profile, which its library checks and webpki leaves to
    // its caller: a PCK must not sign TCB info.
    Strict {
        name: "a certificate with another name or key usage than its role has",
        is: |reason| match reason {
            Reason::CertificateName { .. } | Reason::CertificateUse { .. } => true,
            Reason::Malformed(ParseError::Der { field, .. }) => *field == "common name",
            _ => false,
        },
    },
];

/// The reason for which the two verifiers look at different things, so that neither verdict can be
/// a fault of ours; `None` if they do not.
pub(crate) fn incomparable(subject: &Subject) -> Option<&'static str> {
    if components_differ_from_cpu_svn(&subject.quote).unwrap_or(false) {
        // Intel's library and ours take the 16 component SVNs of the PCK, dcap-qvl its CPUSVN.
        return Some("a PCK whose component SVNs differ from its CPUSVN");
    }
    if has_odd_enclave_status(&subject.collateral.qe_identity).unwrap_or(false) {
        // Ours counts it as out of date, dcap-qvl as up to date.
        return Some("an enclave whose status needs configuration");
    }
    None
}

fn components_differ_from_cpu_svn(quote: &[u8]) -> Option<bool> {
    let quote = Quote::parse(quote).ok()?;
    let chain = decode_chain("PCK chain", quote.pck_chain).ok()?;
    let leaf = chain.first()?;
    let certificate = Certificate::parse("PCK certificate", leaf).ok()?;
    let pck = PckExtension::parse(certificate.sgx_extension?).ok()?;
    Some(pck.components != pck.cpu_svn)
}

fn has_odd_enclave_status(qe_identity: &str) -> Option<bool> {
    let identity: Value = serde_json::from_str(qe_identity).ok()?;
    let usual = |status: &Value| {
        ["UpToDate", "OutOfDate", "Revoked"].iter().any(|known| status.as_str() == Some(known))
    };
    Some(!identity["tcbLevels"].as_array()?.iter().all(|level| usual(&level["tcbStatus"])))
}
