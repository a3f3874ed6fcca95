//! Parses the JSON of an appraisal request and checks its limits.

use base64::{
    Engine,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use confide_evidence::ReportData;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::RequestError;

/// The length of a nonce in characters (RFC 9711 section 4.1: 8 to 88 in JSON).
const NONCE_LENGTH: std::ops::RangeInclusive<usize> = 8..=88;
/// The largest CPU or GPU evidence in bytes; DCAP quotes and SNP reports are below 32 KiB.
const EVIDENCE_BYTES_MAX: usize = 64 * 1024;
/// The longest name of a policy, in bytes.
pub(crate) const POLICY_ID_BYTES_MAX: usize = 64;

/// The evidence of one request, and the policy for its appraisal.
pub(crate) struct AppraisalRequest {
    pub(crate) evidence: Vec<u8>,
    pub(crate) claims: Option<Vec<u8>>,
    pub(crate) report_data: Option<ReportData>,
    pub(crate) gpu: Option<GpuEvidence>,
    /// The JSON object as text; its signed parts are strings in it, so their bytes are unchanged.
    pub(crate) endorsements: Option<Vec<u8>>,
    pub(crate) policy_id: String,
    pub(crate) nonce: String,
}

/// A GPU's evidence and the nonce that it has to contain.
pub(crate) struct GpuEvidence {
    pub(crate) evidence: Vec<u8>,
    pub(crate) nonce: [u8; 32],
}

impl AppraisalRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, RequestError> {
        let wire: RequestJson =
            serde_json::from_slice(body).map_err(|error| RequestError::Json(error.to_string()))?;
        let is_printable = wire.nonce.bytes().all(|byte| byte.is_ascii_graphic());
        if !NONCE_LENGTH.contains(&wire.nonce.len()) || !is_printable {
            let wanted = "8 to 88 printable ASCII characters";
            return Err(RequestError::Field { field: "nonce", wanted });
        }
        if wire.policy_id.is_empty() || wire.policy_id.len() > POLICY_ID_BYTES_MAX {
            let wanted = "1 to 64 bytes";
            return Err(RequestError::Field { field: "policy_id", wanted });
        }
        let claims = wire.claims.map(|text| decode_base64url("claims", &text)).transpose()?;
        let report_data = wire.report_data.map(|text| decode_report_data(&text)).transpose()?;
        if claims.is_some() && report_data.is_some() {
            // The evidence would not cover claims if the caller chose the report data.
            let wanted = "claims or report_data, not both";
            return Err(RequestError::Field { field: "report_data", wanted });
        }
        Ok(Self {
            evidence: decode_base64url("evidence", &wire.evidence)?,
            claims,
            report_data,
            gpu: wire.gpu.map(GpuEvidence::parse).transpose()?,
            endorsements: wire.endorsements.map(|object| Value::Object(object).to_string().into()),
            policy_id: wire.policy_id,
            nonce: wire.nonce,
        })
    }
}

/// Whether bytes are a valid appraisal request; for fuzzing.
pub fn is_appraisal_request(body: &[u8]) -> bool {
    AppraisalRequest::parse(body).is_ok()
}

impl GpuEvidence {
    fn parse(wire: GpuJson) -> Result<Self, RequestError> {
        let mut nonce = [0; 32];
        let wanted = "64 hexadecimal digits";
        hex::decode_to_slice(wire.nonce, &mut nonce)
            .map_err(|_| RequestError::Field { field: "gpu.nonce", wanted })?;
        Ok(Self { evidence: decode_base64url("gpu.evidence", &wire.evidence)?, nonce })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestJson {
    evidence: String,
    claims: Option<String>,
    report_data: Option<String>,
    gpu: Option<GpuJson>,
    endorsements: Option<Map<String, Value>>,
    policy_id: String,
    nonce: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuJson {
    evidence: String,
    nonce: String,
}

/// base64url with or without padding (RFC 4648 section 5).
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn decode_base64url(field: &'static str, text: &str) -> Result<Vec<u8>, RequestError> {
    let wanted = "base64url of 1 to 65536 bytes";
    let bytes = BASE64URL.decode(text).map_err(|_| RequestError::Field { field, wanted })?;
    if bytes.is_empty() || bytes.len() > EVIDENCE_BYTES_MAX {
        return Err(RequestError::Field { field, wanted });
    }
    Ok(bytes)
}

fn decode_report_data(text: &str) -> Result<ReportData, RequestError> {
    let mut bytes = [0; 64];
    let wanted = "128 hexadecimal digits";
    hex::decode_to_slice(text, &mut bytes)
        .map_err(|_| RequestError::Field { field: "report_data", wanted })?;
    Ok(ReportData(bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_read_and_every_field_has_its_bounds() {
        let good = json!({ "evidence": "AQID", "policy_id": "p", "nonce": "12345678" });
        let case = AppraisalRequest::parse(good.to_string().as_bytes()).unwrap();
        assert_eq!((case.evidence, case.nonce.as_str()), (vec![1, 2, 3], "12345678"));
        for (field, value) in [
            ("evidence", json!("")),
            ("evidence", json!("A+==")),
            ("evidence", json!("A".repeat(2 * EVIDENCE_BYTES_MAX))),
            ("policy_id", json!("")),
            ("policy_id", json!("p".repeat(65))),
            ("nonce", json!("1234567")),
            ("nonce", json!("1".repeat(89))),
            ("nonce", json!("1234567\n")),
            ("report_data", json!("00")),
            ("policy", json!("of my own")),
            ("endorsements", json!("text")),
            ("gpu", json!({ "evidence": "AQID", "nonce": "00" })),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            assert!(AppraisalRequest::parse(bad.to_string().as_bytes()).is_err(), "{bad}");
        }
        let mut both = good.clone();
        both["claims"] = json!("AQID");
        both["report_data"] = json!("00".repeat(64));
        assert!(matches!(
            AppraisalRequest::parse(both.to_string().as_bytes()),
            Err(RequestError::Field { field: "report_data", .. })
        ));
    }
}
