//! AMD's Key Distribution Service.

use confide_evidence::{
    crl::CrlDates,
    pem::decode_chain,
    snp::{AmdCertificate, Tcb},
};

use crate::{
    document::{Document, DocumentKey, DocumentValidity, key_kind_name},
    identity::{AmdKey, AmdSigner},
    pcs::{AnswerFault, unreadable_answer},
};

/// Path and query of AMD's documents, below the base URL; `None` for other documents.
pub(crate) fn document_path(key: &DocumentKey) -> Option<String> {
    Some(match key {
        DocumentKey::AmdKey(key) => {
            let (product, spl) = (key.product.as_str(), tcb_query(key));
            match &key.signer {
                AmdSigner::Vcek(chip) => format!("/vcek/v1/{product}/{}?{spl}", hex::encode(chip)),
                AmdSigner::Vlek(provider) => format!("/vlek/v1/{product}/{provider}?{spl}"),
            }
        }
        DocumentKey::AmdChain { product, vlek } => {
            format!("/{}/v1/{}/cert_chain", key_kind_name(*vlek), product.as_str())
        }
        DocumentKey::AmdCrl { product, vlek } => {
            format!("/{}/v1/{}/crl", key_kind_name(*vlek), product.as_str())
        }
        _ => return None,
    })
}

/// The query with the versions of a TCB (AMD 57230, section 4.1).
fn tcb_query(key: &AmdKey) -> String {
    let Tcb { fmc, bootloader, tee, snp, microcode } = key.product.tcb(&key.tcb);
    let fmc = fmc.map(|fmc| format!("fmcSPL={fmc}&")).unwrap_or_default();
    format!("{fmc}blSPL={bootloader}&teeSPL={tee}&snpSPL={snp}&ucodeSPL={microcode}")
}

/// Parses one of AMD's documents; for fuzzing.
///
/// # Errors
/// The reason for which the body is refused, as text.
pub fn parse(key: &DocumentKey, body: &[u8]) -> Result<Document, String> {
    read_document(key, body).map_err(|fault| format!("{fault:?}"))
}

pub(crate) fn read_document(key: &DocumentKey, body: &[u8]) -> Result<Document, AnswerFault> {
    let dates = match key {
        DocumentKey::AmdKey(key) => check_endorsement_key(key, body)?,
        DocumentKey::AmdChain { product, vlek } => {
            let chain = decode_chain("AMD chain", body).map_err(unreadable_answer)?;
            let [intermediate, root] = chain.as_slice() else {
                return Err(unreadable_answer("wanted two certificates, ASK or ASVK and ARK"));
            };
            let intermediate =
                AmdCertificate::parse("ASK", intermediate).map_err(unreadable_answer)?;
            let root = AmdCertificate::parse("ARK", root).map_err(unreadable_answer)?;
            // Another product's chain or list would be kept for years, so it is refused already
            // here.
            let line = product.as_str();
            let kind = if *vlek { "SEV-VLEK-" } else { "SEV-" };
            check_name(intermediate.common_name, &format!("{kind}{line}"))?;
            check_name(root.common_name, &format!("ARK-{line}"))?;
            let from = intermediate.not_before.max(root.not_before);
            let until = intermediate.not_after.min(root.not_after);
            DocumentValidity { issued: from, until, number: 0 }
        }
        DocumentKey::AmdCrl { product, .. } => {
            let dates = CrlDates::parse_amd("revocation list", body).map_err(unreadable_answer)?;
            let wanted = format!("ARK-{}", product.as_str());
            if !dates.issuer.windows(wanted.len()).any(|part| part == wanted.as_bytes()) {
                return Err(AnswerFault::other_document(
                    format!("a list of {wanted}"),
                    "another CA".into(),
                ));
            }
            let until = dates.next_update.saturating_sub(1);
            DocumentValidity { issued: dates.this_update, until, number: dates.number }
        }
        _ => return Err(unreadable_answer("not a document of AMD")),
    };
    Ok(Document::new(key, body.to_vec(), dates))
}

/// Checks that a common name ends with `wanted`: test roots write other words before it.
fn check_name(got: &str, wanted: &str) -> Result<(), AnswerFault> {
    match got.ends_with(wanted) {
        true => Ok(()),
        false => {
            Err(AnswerFault::other_document(wanted.into(), confide_evidence::escape_untrusted(got)))
        }
    }
}

/// Checks the certificate of an endorsement key. A certificate of another chip or TCB would not fit
/// the report: it is refused already here, so that it is not kept.
fn check_endorsement_key(key: &AmdKey, body: &[u8]) -> Result<DocumentValidity, AnswerFault> {
    if der_length(body) != Some(body.len()) {
        return Err(unreadable_answer("wanted one DER certificate"));
    }
    let certificate = AmdCertificate::parse("endorsement key", body).map_err(unreadable_answer)?;
    let extensions = &certificate.extensions;
    if let AmdSigner::Vcek(chip) = &key.signer
        && extensions.hwid != Some(chip.as_slice())
    {
        let got = extensions.hwid.map_or("none".to_owned(), hex::encode);
        return Err(AnswerFault::other_document(format!("chip {}", hex::encode(chip)), got));
    }
    if extensions.tcb(key.product) != Some(key.tcb) {
        let got = extensions.tcb(key.product).map_or("none".to_owned(), hex::encode);
        return Err(AnswerFault::other_document(format!("TCB {}", hex::encode(key.tcb)), got));
    }
    let (issued, until) = (certificate.not_before, certificate.not_after);
    Ok(DocumentValidity { issued, until, number: 0 })
}

/// The length of the whole DER SEQUENCE with which `bytes` begins.
pub(crate) fn der_length(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [0x30, short @ 0..=0x7f, ..] => Some(2 + usize::from(*short)),
        [0x30, 0x81, length @ 0x80..=0xff, ..] => Some(3 + usize::from(*length)),
        [0x30, 0x82, high @ 1..=0xff, low, ..] => {
            Some(4 + usize::from(u16::from_be_bytes([*high, *low])))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use confide_evidence::snp::Product;

    use super::*;

    #[test]
    fn the_address_of_a_vcek_names_chip_and_versions_as_its_product_orders_them() {
        let key = |product| {
            DocumentKey::AmdKey(AmdKey {
                product,
                signer: AmdSigner::Vcek(vec![0xab; 8]),
                tcb: [1, 2, 3, 4, 5, 6, 7, 8],
            })
        };
        let (milan, turin) =
            (document_path(&key(Product::Milan)), document_path(&key(Product::Turin)));
        assert_eq!(
            milan.unwrap(),
            "/vcek/v1/Milan/abababababababab?blSPL=1&teeSPL=2&snpSPL=7&ucodeSPL=8"
        );
        assert_eq!(
            turin.unwrap(),
            "/vcek/v1/Turin/abababababababab?fmcSPL=1&blSPL=2&teeSPL=3&snpSPL=4&ucodeSPL=8"
        );
    }

    #[test]
    fn a_page_in_place_of_a_certificate_is_refused() {
        let key = DocumentKey::AmdChain { product: Product::Milan, vlek: false };
        assert!(read_document(&key, b"<html>sign in to the network</html>").is_err());
        let key = DocumentKey::AmdKey(AmdKey {
            product: Product::Milan,
            signer: AmdSigner::Vcek(vec![0; 64]),
            tcb: [0; 8],
        });
        assert!(read_document(&key, b"<html>").is_err());
        assert!(read_document(&key, &[0x30, 2, 5, 0]).is_err());
    }
}
