//! The attestation report: a keyset, and the evidence over it.

use confide_evidence::ReportData;

use crate::{
    document::{API_VERSION, check_version},
    error::ReceiptError,
    json::Json,
    keyset::{Keyset, Nonce, parse_nonce},
};

/// The largest number of bytes of a report that is read: a quote, collateral and an event log.
pub const REPORT_BYTES_MAX: usize = 1024 * 1024;

const DIGEST: &str = "workload_keyset_digest";

/// A report whose keyset, digest and report data belong together. Its quote is not judged yet.
#[derive(Clone, Debug)]
pub struct AttestationReport {
    keyset: Keyset,
    report_data: ReportData,
    quote: Vec<u8>,
    collateral: Option<Vec<u8>>,
}

impl AttestationReport {
    /// Reads a report and checks that its digests follow from its content. `nonce` is the
    /// verifier's challenge; without one the report has to be the unchallenged form, which proves
    /// no freshness. The quote still has to be judged, with [`AttestationReport::report_data`].
    ///
    /// # Errors
    /// [`ReceiptError`] with the first check that failed.
    pub fn parse(bytes: &[u8], nonce: Option<&Nonce>) -> Result<Self, ReceiptError> {
        let document = Json::parse(bytes, REPORT_BYTES_MAX)?;
        check_version(&document)?;
        let member = |name, wanted| ReceiptError::Member { name, wanted };
        let attestation = document
            .get("attestation")
            .ok_or(member("attestation", "an object with keyset and evidence"))?;
        let keyset = attestation
            .get("workload_keyset")
            .filter(|keyset| keyset.as_object().is_some())
            .ok_or(member("workload_keyset", "an object"))?;
        let keyset = Keyset::from_document(keyset.clone());
        if document.get_text(DIGEST) != Some(keyset.digest()) {
            return Err(ReceiptError::Digest { name: DIGEST });
        }
        let report_data = keyset.report_data(nonce);
        let stated = attestation.get_text("report_data").unwrap_or_default();
        // The 32 bytes of the digest; the other 32 are zero.
        if parse_nonce(stated).is_none_or(|stated| stated != report_data.0[..32]) {
            return Err(ReceiptError::ReportData);
        }
        let evidence = attestation.get("evidence").ok_or(member("evidence", "an object"))?;
        let quote = evidence.get_text("quote").and_then(|quote| hex::decode(quote).ok());
        let quote = quote.ok_or(member("quote", "the quote in hexadecimal"))?;
        let collateral = match evidence.get("collateral") {
            None | Some(Json::Null) => None,
            Some(Json::Text(text)) => Some(text.clone().into_bytes()),
            Some(_) => return Err(member("collateral", "the text of the collateral")),
        };
        Ok(Self { keyset, report_data, quote, collateral })
    }

    /// The keyset, to be believed once the quote is accepted.
    pub fn keyset(&self) -> &Keyset {
        &self.keyset
    }

    /// The report data that the quote has to have.
    pub fn report_data(&self) -> ReportData {
        self.report_data
    }

    /// The bytes of the quote or of the SEV-SNP report.
    pub fn quote(&self) -> &[u8] {
        &self.quote
    }

    /// The collateral that came with the quote, if any did.
    pub fn collateral(&self) -> Option<&[u8]> {
        self.collateral.as_deref()
    }
}

/// The content of a report that a gateway gives.
#[derive(Clone, Copy, Debug)]
pub struct ReportContent<'a> {
    /// The keyset that the quote covers.
    pub keyset: &'a Keyset,
    /// The verifier's challenge, which the quote covers too.
    pub nonce: Option<&'a Nonce>,
    /// The kind of the TEE: `tdx` or `sev_snp`.
    pub tee_type: &'a str,
    /// The quote or SEV-SNP report over [`Keyset::report_data`].
    pub quote: &'a [u8],
    /// The collateral that the gateway has for it, JSON.
    pub collateral: Option<&'a str>,
    /// Whether software made the quote that only imitates a TEE.
    pub is_simulated: bool,
    /// Whether the models run inside the attested machine.
    pub is_direct: bool,
}

impl ReportContent<'_> {
    /// The document.
    pub fn to_json(&self) -> String {
        let report_data = self.keyset.report_data(self.nonce);
        let mut evidence = vec![
            ("quote", Json::from(hex::encode(self.quote))),
            ("quote_report_data", hex::encode(report_data.0).into()),
            ("collateral", self.collateral.map_or(Json::Null, Json::from)),
        ];
        if self.is_simulated {
            evidence.push(("simulated", true.into()));
        }
        let unknown = ["repo_url", "repo_commit", "image_digest", "image_provenance"];
        let attestation = Json::object([
            ("tee_type", Json::from(self.tee_type)),
            ("workload_keyset", self.keyset.document().clone()),
            ("report_data", hex::encode(&report_data.0[..32]).into()),
            ("source_provenance", Json::object(unknown.map(|name| (name, Json::Null)))),
            ("evidence", Json::object(evidence)),
        ]);
        let serving = if self.is_direct { "direct" } else { "aggregator" };
        let capabilities = Json::object([
            ("supported_e2ee_versions", Json::Array(Vec::new())),
            ("serving", serving.into()),
        ]);
        Json::object([
            ("api_version", Json::from(API_VERSION)),
            (DIGEST, self.keyset.digest().into()),
            ("attestation", attestation),
            ("service_capabilities", capabilities),
        ])
        .to_canonical()
    }
}
