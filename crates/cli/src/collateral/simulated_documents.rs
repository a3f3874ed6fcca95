//! The documents of a simulated PCCS: the endorsements of a fake root, in editions.

use confide_collateral::{PckIssuer, Product, TcbEvaluation};
use confide_fake_attester::{FakeAttester, FakeEndorsements, PckCa, SimulatedPlatform, SnpTcb};
use confide_pccs::{
    AmdKeyKind, Document, DocumentKind, DocumentRequest, IntelTee, ServedEdition, SimulatedIssuer,
};

/// The endorsements behind one simulated attester. *Simulated*: they endorse nothing.
pub(crate) struct SimulatedDocuments {
    vendors: FakeEndorsements,
    variant: SimulatedPlatform,
    issued_at: u64,
}

impl SimulatedDocuments {
    /// The endorsements of the attester's vendors.
    pub(crate) fn new(attester: &FakeAttester) -> Self {
        let (variant, issued_at) = (attester.variant(), attester.issued_at());
        Self { vendors: attester.endorsements(), variant, issued_at }
    }

    fn build_edition(
        &self,
        edition: ServedEdition,
        set: TcbEvaluation,
        now: u64,
    ) -> confide_fake_attester::EndorsementEdition {
        // The attester's own issue, for as long as that is what a vendor would still give.
        let issued = if (self.issued_at..self.issued_at + DAY).contains(&now) {
            self.issued_at
        } else {
            now
        };
        let mut made = confide_fake_attester::EndorsementEdition::issued_at(issued);
        match edition {
            ServedEdition::LateCrls => made.crl_issued_at = issued - (made.days + 1) * DAY,
            ServedEdition::RolledBackCrls => made.crl_issued_at = issued - ROLLBACK_DAYS * DAY,
            ServedEdition::Expired => {
                made.issued_at = issued - (made.days + 1) * DAY;
                made.crl_issued_at = made.issued_at;
            }
            ServedEdition::NextEvaluation => made.evaluation_number += 1,
            _ => {}
        }
        made.crl_number = made.crl_issued_at;
        if set == TcbEvaluation::Early {
            made.evaluation_number += 1;
        }
        made
    }

    fn intel_body(
        &self,
        wanted: &DocumentRequest,
        edition: &confide_fake_attester::EndorsementEdition,
    ) -> Result<Option<Body>, String> {
        let given = self.vendors.issue_intel(edition).map_err(|error| error.to_string())?;
        let kind = wanted.kind();
        let signing_chain = Some(given.tcb_signing_chain);
        let signed = |document: confide_fake_attester::SignedDocument| {
            (Document::signed_body(kind, &document.json, &document.signature), signing_chain)
        };
        let of = |tee| if tee == IntelTee::Sgx { given.sgx } else { given.tdx };
        Ok(match wanted {
            DocumentRequest::Tcb { tee, .. } => Some(signed(of(*tee).tcb_info)),
            DocumentRequest::QeIdentity { tee, .. } => Some(signed(of(*tee).qe_identity)),
            DocumentRequest::PckCrl { ca, .. } => {
                let part =
                    if *ca == PckIssuer::Platform { given.platform } else { given.processor };
                Some((part.crl, Some(part.issuer_chain)))
            }
            DocumentRequest::RootCrl { .. } => Some((given.root_crl, None)),
            _ => None,
        })
    }

    fn amd_body(
        &self,
        wanted: &DocumentRequest,
        edition: &confide_fake_attester::EndorsementEdition,
    ) -> Option<Vec<u8>> {
        Some(match wanted {
            DocumentRequest::AmdChain { key: AmdKeyKind::Vcek, product } => {
                self.vendors.issue_amd(fake_product(*product), edition).vcek_chain.into_bytes()
            }
            DocumentRequest::AmdChain { key: AmdKeyKind::Vlek, product } => {
                self.vendors.issue_amd(fake_product(*product), edition).vlek_chain.into_bytes()
            }
            DocumentRequest::AmdCrl { product, .. } => {
                self.vendors.issue_amd(fake_product(*product), edition).crl
            }
            DocumentRequest::Vcek { product, hwid, tcb } => {
                let mut chip_id = [0; 64];
                hex::decode_to_slice(hwid, chip_id.get_mut(..hwid.len() / 2)?).ok()?;
                let [bootloader, tee, snp, microcode, fmc] = *tcb;
                let tcb = SnpTcb { fmc, bootloader, tee, snp, microcode };
                self.vendors.vcek(fake_product(*product), &chip_id, tcb)
            }
            _ => return None,
        })
    }

    /// Every request gets the certificate of the simulated machine.
    fn pck_certificate(&self, wanted: &DocumentRequest, now: u64) -> Result<Document, String> {
        let pck = self.vendors.pck_certificate(&self.variant).map_err(|error| error.to_string())?;
        let body = pck.pem.into_bytes();
        let mut document = Document::new(wanted, Some(&pck.issuer_chain), body, now)
            .map_err(|error| error.to_string())?;
        let ca = match self.variant.pck_ca {
            PckCa::Platform => "platform",
            PckCa::Processor => "processor",
        };
        document.headers.extend([
            ("sgx-tcbm".into(), pck.tcbm),
            ("sgx-fmspc".into(), pck.fmspc),
            ("sgx-pck-certificate-ca-type".into(), ca.into()),
        ]);
        Ok(document)
    }
}

/// A body, and its issuers in PEM where the format has a place for them.
type Body = (Vec<u8>, Option<String>);

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Days by which revocation lists are rolled back: well within the 30 days for which they are
/// valid.
const ROLLBACK_DAYS: u64 = 10;

impl SimulatedIssuer for SimulatedDocuments {
    fn issue_document(
        &self,
        wanted: &DocumentRequest,
        edition: ServedEdition,
        now: u64,
    ) -> Result<Option<Document>, String> {
        let set = wanted.evaluation().unwrap_or(TcbEvaluation::Standard);
        if matches!(set, TcbEvaluation::Number(_)) {
            return Ok(None);
        }
        if matches!(wanted, DocumentRequest::PckCertificate { .. }) {
            return self.pck_certificate(wanted, now).map(Some);
        }
        let made = self.build_edition(edition, set, now);
        let given = match wanted.kind() {
            DocumentKind::Vcek
            | DocumentKind::VcekChain
            | DocumentKind::VcekCrl
            | DocumentKind::VlekChain
            | DocumentKind::VlekCrl => self.amd_body(wanted, &made).map(|body| (body, None)),
            _ => self.intel_body(wanted, &made)?,
        };
        let Some((body, chain)) = given else { return Ok(None) };
        let document = Document::new(wanted, chain.as_deref(), body, now)
            .map_err(|error| error.to_string())?;
        Ok(self.is_platform_of(wanted)?.then_some(document))
    }
}

impl SimulatedDocuments {
    /// Whether the document exists: TCB info exists for the attester's platform family only.
    fn is_platform_of(&self, wanted: &DocumentRequest) -> Result<bool, String> {
        let DocumentRequest::Tcb { fmspc, .. } = wanted else { return Ok(true) };
        let made =
            self.vendors.pck_certificate(&self.variant).map_err(|error| error.to_string())?.fmspc;
        Ok(made.eq_ignore_ascii_case(&hex::encode(fmspc)))
    }
}

fn fake_product(product: Product) -> confide_fake_attester::Product {
    match product {
        Product::Milan => confide_fake_attester::Product::Milan,
        Product::Genoa => confide_fake_attester::Product::Genoa,
        Product::Turin => confide_fake_attester::Product::Turin,
    }
}
