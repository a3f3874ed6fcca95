//! Intel's Provisioning Certification Service, version 4, and any PCCS with its routes.

use confide_evidence::{
    crl::CrlDates, escape_untrusted, pem::decode_chain, qe_identity::QeIdentity, quote::Tee,
    tcb_info::TcbInfo,
};
use confide_http::decode_percent;
use http::HeaderMap;
use serde::de::IgnoredAny;

use crate::{
    document::{Document, DocumentKey, DocumentValidity},
    http::OkResponse,
    identity::{PckIssuer, TcbEvaluation},
};

/// The headers that hold the issuers; Intel renamed the first one between versions.
const TCB_INFO_CHAIN: &[&str] = &["TCB-Info-Issuer-Chain", "SGX-TCB-Info-Issuer-Chain"];
const QE_IDENTITY_CHAIN: &[&str] = &["SGX-Enclave-Identity-Issuer-Chain"];
const PCK_CRL_CHAIN: &[&str] = &["SGX-PCK-CRL-Issuer-Chain"];
pub(crate) const PCK_CHAIN: &[&str] = &["SGX-PCK-Certificate-Issuer-Chain"];

/// Path and query of Intel's documents, below the base URL; `None` for other documents.
pub(crate) fn document_path(key: &DocumentKey) -> Option<String> {
    Some(match key {
        DocumentKey::TcbInfo { tee: Tee::Snp, .. }
        | DocumentKey::QeIdentity { tee: Tee::Snp, .. } => return None,
        DocumentKey::IntelRootCrl => "/sgx/certification/v4/rootcacrl".to_owned(),
        DocumentKey::IntelPckCrl(ca) => {
            format!("/sgx/certification/v4/pckcrl?ca={}&encoding=der", ca.as_str())
        }
        DocumentKey::TcbInfo { tee, fmspc, evaluation } => {
            let (tee, fmspc) = (tee.as_str(), hex::encode_upper(fmspc));
            format!("/{tee}/certification/v4/tcb?fmspc={fmspc}&{}", evaluation_query(*evaluation))
        }
        DocumentKey::QeIdentity { tee, evaluation } => {
            format!(
                "/{}/certification/v4/qe/identity?{}",
                tee.as_str(),
                evaluation_query(*evaluation)
            )
        }
        _ => return None,
    })
}

fn evaluation_query(evaluation: TcbEvaluation) -> String {
    match evaluation {
        TcbEvaluation::Number(number) => format!("tcbEvaluationDataNumber={number}"),
        other => format!("update={other}"),
    }
}

/// Parses one of Intel's documents.
pub(crate) fn read_document(
    key: &DocumentKey,
    answer: &OkResponse,
) -> Result<Document, AnswerFault> {
    match key {
        DocumentKey::IntelRootCrl => {
            let document = read_crl(key, answer, String::new())?;
            check_issuer(b"SGX Root CA", &document.content)?;
            Ok(document)
        }
        DocumentKey::IntelPckCrl(ca) => {
            let chain = issuer_chain(&answer.headers, PCK_CRL_CHAIN)?;
            let document = read_crl(key, answer, chain)?;
            let issuer: &[u8] = match ca {
                PckIssuer::Platform => b"PCK Platform CA",
                PckIssuer::Processor => b"PCK Processor CA",
            };
            check_issuer(issuer, &document.content)?;
            Ok(document)
        }
        DocumentKey::TcbInfo { tee, fmspc, evaluation } => {
            let signed = split_signed(&answer.body, "tcbInfo").map_err(AnswerFault::Unreadable)?;
            let info = TcbInfo::parse(signed.document).map_err(unreadable_answer)?;
            let (wanted, got) = ((*tee, *fmspc), (info.tee, info.fmspc));
            if wanted != got {
                return Err(AnswerFault::other_document(
                    format!("{} {}", wanted.0.as_str(), hex::encode(wanted.1)),
                    format!("{} {}", got.0.as_str(), hex::encode(got.1)),
                ));
            }
            let number = info.tcb_evaluation_data_number;
            check_evaluation_number(*evaluation, number)?;
            let chain = issuer_chain(&answer.headers, TCB_INFO_CHAIN)?;
            let (issued, until) = (info.issue_date, info.next_update);
            Ok(signed.into_document(
                key,
                chain,
                DocumentValidity { issued, until, number: number.into() },
            ))
        }
        DocumentKey::QeIdentity { tee, evaluation } => {
            let signed =
                split_signed(&answer.body, "enclaveIdentity").map_err(AnswerFault::Unreadable)?;
            let identity = QeIdentity::parse(signed.document).map_err(unreadable_answer)?;
            if identity.tee != *tee {
                return Err(AnswerFault::other_document(
                    tee.as_str().into(),
                    identity.tee.as_str().into(),
                ));
            }
            let number = identity.tcb_evaluation_data_number;
            check_evaluation_number(*evaluation, number)?;
            let chain = issuer_chain(&answer.headers, QE_IDENTITY_CHAIN)?;
            let (issued, until) = (identity.issue_date, identity.next_update);
            Ok(signed.into_document(
                key,
                chain,
                DocumentValidity { issued, until, number: number.into() },
            ))
        }
        _ => Err(AnswerFault::Unreadable("not a document of Intel".into())),
    }
}

/// The reason for which an answer is refused.
#[derive(Debug)]
pub(crate) enum AnswerFault {
    /// The answer cannot be read.
    Unreadable(String),
    /// The answer is another document than the one that was requested.
    OtherDocument { wanted: String, got: String },
}

impl AnswerFault {
    pub(crate) fn other_document(wanted: String, got: String) -> Self {
        Self::OtherDocument { wanted, got }
    }
}

/// A JSON document and its signature, byte for byte as the answer has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedJson<'a> {
    /// The document: exactly the bytes that were signed.
    pub document: &'a str,
    /// Its signature: 128 hexadecimal digits.
    pub signature: &'a str,
}

impl SignedJson<'_> {
    fn into_document(self, key: &DocumentKey, chain: String, dates: DocumentValidity) -> Document {
        let content = self.document.as_bytes().to_vec();
        Document { chain, signature: self.signature.into(), ..Document::new(key, content, dates) }
    }
}

/// Splits `{"NAME":{…},"signature":"…"}` without re-encoding the document, whose exact bytes are
/// signed.
///
/// # Errors
/// The reason for which `body` is refused, as text.
pub fn split_signed<'a>(body: &'a [u8], name: &str) -> Result<SignedJson<'a>, String> {
    let text = std::str::from_utf8(body).map_err(|_| "text that is not UTF-8".to_owned())?;
    let mut rest = text.trim_ascii().strip_prefix('{').ok_or("not a JSON object")?;
    let (mut document, mut signature) = (None, None);
    loop {
        let (key, after) = split_value(rest)?;
        let after = after.trim_ascii_start().strip_prefix(':').ok_or("a key without a value")?;
        let (value, after) = split_value(after)?;
        let slot = match key.strip_prefix('"').and_then(|key| key.strip_suffix('"')) {
            Some("signature") => &mut signature,
            Some(key) if key == name => &mut document,
            _ => return Err(format!("a key other than {name} and signature")),
        };
        if slot.replace(value).is_some() {
            return Err("the same key twice".into());
        }
        match after.trim_ascii_start().as_bytes() {
            [b'}'] => break,
            [b',', ..] => rest = &after.trim_ascii_start()[1..],
            _ => return Err("neither a comma nor a brace after a value".into()),
        }
    }
    let document = document.filter(|text| text.starts_with('{')).ok_or("no document")?;
    let signature = signature.and_then(|text| text.strip_prefix('"')?.strip_suffix('"'));
    let signature = signature.ok_or("no signature")?;
    if signature.len() != 128 || !signature.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("a signature that is not 128 hexadecimal digits".into());
    }
    Ok(SignedJson { document, signature })
}

/// Splits the next JSON value from the text that follows it.
fn split_value(text: &str) -> Result<(&str, &str), String> {
    let text = text.trim_ascii_start();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => Ok(text.split_at(values.byte_offset())),
        Some(Err(error)) => Err(escape_untrusted(&error.to_string())),
        None => Err("the object is truncated".into()),
    }
}

/// Reads the issuers from a header: PEM, percent-encoded.
pub(crate) fn issuer_chain(headers: &HeaderMap, names: &[&str]) -> Result<String, AnswerFault> {
    let missing = || AnswerFault::Unreadable(format!("no header {}", names[0]));
    let value = names.iter().find_map(|name| headers.get(*name)).ok_or_else(missing)?;
    let decoded = value.to_str().ok().and_then(decode_percent).ok_or_else(|| {
        AnswerFault::Unreadable(format!("header {}: not percent-encoded", names[0]))
    })?;
    let chain = decode_chain("issuer chain", decoded.as_bytes()).map_err(unreadable_answer)?;
    if chain.len() < 2 {
        return Err(AnswerFault::Unreadable(format!(
            "header {}: wanted signer and root",
            names[0]
        )));
    }
    Ok(decoded)
}

/// Parses a revocation list: Intel sends DER, a PCCS may send DER in hexadecimal.
fn read_crl(
    key: &DocumentKey,
    answer: &OkResponse,
    chain: String,
) -> Result<Document, AnswerFault> {
    let content = match answer.body.first() {
        Some(0x30) if !answer.body.iter().all(u8::is_ascii_hexdigit) => answer.body.to_vec(),
        _ => hex::decode(answer.body.trim_ascii())
            .map_err(|_| AnswerFault::Unreadable("neither DER nor hexadecimal".into()))?,
    };
    let dates = CrlDates::parse("revocation list", &content).map_err(unreadable_answer)?;
    let dates = DocumentValidity {
        issued: dates.this_update,
        // A list is no longer valid at its nextUpdate.
        until: dates.next_update.saturating_sub(1),
        number: dates.number,
    };
    Ok(Document { chain, ..Document::new(key, content, dates) })
}

/// Refuses a genuine list of another CA: if it were recorded, later lists of the right CA could be
/// refused as rollbacks.
fn check_issuer(wanted: &[u8], list: &[u8]) -> Result<(), AnswerFault> {
    let dates = CrlDates::parse("revocation list", list).map_err(unreadable_answer)?;
    match dates.issuer.windows(wanted.len()).any(|part| part == wanted) {
        true => Ok(()),
        false => Err(AnswerFault::other_document(
            String::from_utf8_lossy(wanted).into(),
            "another CA".into(),
        )),
    }
}

fn check_evaluation_number(evaluation: TcbEvaluation, got: u32) -> Result<(), AnswerFault> {
    match evaluation {
        TcbEvaluation::Number(wanted) if wanted != got => {
            Err(AnswerFault::other_document(format!("TCB recovery {wanted}"), got.to_string()))
        }
        _ => Ok(()),
    }
}

pub(crate) fn unreadable_answer(error: impl ToString) -> AnswerFault {
    AnswerFault::Unreadable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(document: &str, signature: &str) -> String {
        format!("{{\"tcbInfo\":{document},\"signature\":\"{signature}\"}}")
    }

    #[test]
    fn a_document_keeps_its_very_bytes() {
        let document = "{ \"a\" : [1 ,2.50, \"}\\\"\"],\n\"b\":{} }";
        let signature = "0a".repeat(64);
        let body = answer(document, &signature);
        let signed = split_signed(body.as_bytes(), "tcbInfo").unwrap();
        assert_eq!((signed.document, signed.signature), (document, &*signature));
        let spaced =
            format!("\n {{ \"signature\" : \"{signature}\" , \"tcbInfo\" : {document} }} ");
        assert_eq!(split_signed(spaced.as_bytes(), "tcbInfo").unwrap(), signed);
    }

    #[test]
    fn answers_of_another_shape_are_refused() {
        let good = "0a".repeat(64);
        let object = answer("{}", &good);
        for bad in [
            "",
            "{}",
            "[]",
            "{\"tcbInfo\":{}}",
            &answer("[]", &good),
            &answer("{}", "0a"),
            &answer("{}", &"zz".repeat(64)),
            &answer("{", &good),
            &format!("{object}x"),
            &object.replace('}', ",\"tcbInfo\":{}}"),
            &object.replace("tcbInfo", "enclaveIdentity"),
            &object.replace("\"signature\"", "\"signatur\\u0065\""),
            &object[..object.len() - 1],
        ] {
            assert!(split_signed(bad.as_bytes(), "tcbInfo").is_err(), "{bad}");
        }
    }
}
