//! The parameters of requests for reports, in all forms.

use confide_http::decode_percent;
use confide_receipt::{Nonce, parse_nonce};

use crate::receipt_fault::ReceiptFault;

/// The parameters of a request for a report of aci/1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReportQuery {
    pub(crate) nonce: Option<Nonce>,
    /// The digest of a keyset, which may be an earlier one whose receipts are still kept.
    pub(crate) keyset: Option<String>,
}

impl ReportQuery {
    /// Reads the query of a request; unknown parameters are left out.
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, ReceiptFault> {
        let nonce = parse_nonce_parameter(query)?;
        let keyset = find_parameter(query, "keyset").map_err(|()| ReceiptFault::KeysetNotFound)?;
        Ok(Self { nonce, keyset })
    }
}

/// The parameters of a request for a report in dstack's form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DstackQuery {
    pub(crate) nonce: Nonce,
    /// The address that the report has to have; without one, that of the current key.
    pub(crate) signing_address: Option<[u8; 32]>,
    /// Whether the report names the TLS key.
    pub(crate) has_tls_key: bool,
}

impl DstackQuery {
    /// Reads the query of a request. `model` is left out with the unknown parameters: one gateway
    /// answers for all models, and its report names none.
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, ReceiptFault> {
        check_dstack_algorithm(query)?;
        let nonce = parse_wanted_nonce(query)?;
        let find = |name| find_parameter(query, name).map_err(|()| ReceiptFault::Parameter);
        let has_tls_key = match find("include_tls_fingerprint")?.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(ReceiptFault::Parameter),
        };
        let signing_address = match find("signing_address")? {
            None => None,
            Some(text) => {
                let mut address = [0; 32];
                hex::decode_to_slice(&text, &mut address).map_err(|_| ReceiptFault::Parameter)?;
                Some(address)
            }
        };
        Ok(Self { nonce, signing_address, has_tls_key })
    }
}

/// Checks that a request asks for Ed25519. Without the parameter, dstack's form means ECDSA, for
/// which this gateway has no key.
pub(crate) fn check_dstack_algorithm(query: Option<&str>) -> Result<(), ReceiptFault> {
    match find_parameter(query, "signing_algo") {
        Ok(Some(name)) if name == "ed25519" => Ok(()),
        _ => Err(ReceiptFault::Algorithm),
    }
}

/// Reads the nonce of a request for a report that is made for a nonce only.
pub(crate) fn parse_wanted_nonce(query: Option<&str>) -> Result<Nonce, ReceiptFault> {
    parse_nonce_parameter(query)?.ok_or(ReceiptFault::NonceMissing)
}

fn parse_nonce_parameter(query: Option<&str>) -> Result<Option<Nonce>, ReceiptFault> {
    let nonce = find_parameter(query, "nonce").map_err(|()| ReceiptFault::Nonce)?;
    nonce.map(|nonce| parse_nonce(&nonce).ok_or(ReceiptFault::Nonce)).transpose()
}

/// The decoded value of a parameter, if the query has it. Two of one name are an error, as is a
/// value that cannot be decoded.
fn find_parameter(query: Option<&str>, name: &str) -> Result<Option<String>, ()> {
    let parameters = query.unwrap_or_default().split('&');
    let mut values =
        parameters.filter_map(|parameter| parameter.strip_prefix(name)?.strip_prefix('='));
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => decode_percent(value).map(Some).ok_or(()),
        (Some(_), Some(_)) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_one_parameter_of_64_digits() {
        let nonce = "0a".repeat(32);
        for query in [None, Some(""), Some("x=1")] {
            assert_eq!(ReportQuery::parse(query), Ok(ReportQuery { nonce: None, keyset: None }));
            assert_eq!(parse_wanted_nonce(query), Err(ReceiptFault::NonceMissing));
        }
        for digest in ["sha256:00", "sha256%3A00"] {
            let query = format!("x=1&nonce={nonce}&keyset={digest}");
            let wanted = ReportQuery { nonce: Some([10; 32]), keyset: Some("sha256:00".into()) };
            assert_eq!(ReportQuery::parse(Some(&query)), Ok(wanted));
        }
        let twice = ReportQuery::parse(Some("keyset=a&keyset=a"));
        assert_eq!(twice, Err(ReceiptFault::KeysetNotFound));
        for query in [
            "nonce=".to_owned(),
            format!("nonce={}", nonce.to_uppercase()),
            format!("nonce={nonce}00"),
            format!("nonce={nonce}&nonce={nonce}"),
        ] {
            assert_eq!(ReportQuery::parse(Some(&query)), Err(ReceiptFault::Nonce), "{query}");
            assert_eq!(parse_wanted_nonce(Some(&query)), Err(ReceiptFault::Nonce), "{query}");
        }
    }

    #[test]
    fn dstacks_form_needs_a_nonce_and_the_algorithm_that_there_is() {
        let nonce = "0a".repeat(32);
        let bare = DstackQuery { nonce: [10; 32], signing_address: None, has_tls_key: false };
        let parse = |query: &str| DstackQuery::parse(Some(query));
        let base = format!("model=m&nonce={nonce}&signing_algo=ed25519");
        assert_eq!(parse(&base), Ok(bare));
        let full = format!("{base}&include_tls_fingerprint=true&signing_address={nonce}");
        let wanted =
            DstackQuery { nonce: [10; 32], signing_address: Some([10; 32]), has_tls_key: true };
        assert_eq!(parse(&full), Ok(wanted));
        for (query, fault) in [
            (format!("nonce={nonce}"), ReceiptFault::Algorithm),
            (format!("nonce={nonce}&signing_algo=ecdsa"), ReceiptFault::Algorithm),
            (format!("{base}&signing_algo=ecdsa"), ReceiptFault::Algorithm),
            ("signing_algo=ed25519".to_owned(), ReceiptFault::NonceMissing),
            (format!("signing_algo=ed25519&nonce={nonce}0"), ReceiptFault::Nonce),
            (format!("{base}&include_tls_fingerprint=1"), ReceiptFault::Parameter),
            (format!("{full}&include_tls_fingerprint=false"), ReceiptFault::Parameter),
            (format!("{base}&signing_address=0x{nonce}"), ReceiptFault::Parameter),
        ] {
            assert_eq!(parse(&query), Err(fault), "{query}");
        }
        assert_eq!(DstackQuery::parse(None), Err(ReceiptFault::Algorithm));
    }
}
