//! Verdicts on evidence and receipts that Python has read.

use confide_receipt::{AttestationReport, RECEIPT_BYTES_MAX};
use confide_verification::{
    EvidenceInput, EvidenceRules, OptionStyle, ReceiptInput, ReceiptRules, ReceiptVerdict,
    is_evidence_simulated, judge_evidence, judge_receipt, split_excerpt,
};
use confide_verifier::{AwsLc, ReportData};
use pyo3::prelude::*;
use serde_json::Value;

use crate::{
    failure::Failure,
    inputs::{parse_array, parse_evidence_policy},
    runtime::unix_now,
};

/// What `confide.verify` was given, read from an object of `confide.verification`.
#[derive(FromPyObject)]
pub(crate) struct EvidenceRequest {
    at: Option<u64>,
    chain: Option<Vec<u8>>,
    claims: Option<Vec<u8>>,
    collateral: Option<Vec<u8>>,
    crl: Option<Vec<u8>>,
    dangerous_accept_any_tcb_status: bool,
    dangerous_accept_debug: bool,
    dangerous_skip_revocation: bool,
    endorsement_key: Option<Vec<u8>>,
    evidence: Vec<u8>,
    nonce: Option<Vec<u8>>,
    ocsp: Vec<Vec<u8>>,
    policy: Option<String>,
    report_data: Option<Vec<u8>>,
    rims: Vec<Vec<u8>>,
    root: Option<Vec<u8>>,
}

/// What `confide.verify_receipt` was given, read from an object of `confide.verification`.
#[derive(FromPyObject)]
pub(crate) struct ReceiptRequest {
    at: Option<u64>,
    collateral: Option<Vec<u8>>,
    dangerous_skip_config_digest: bool,
    nonce: Option<Vec<u8>>,
    policy: String,
    receipt: Vec<u8>,
    report: Vec<u8>,
    request: Option<Vec<u8>>,
    response: Option<Vec<u8>>,
    root: Option<Vec<u8>>,
}

/// Judges evidence of any kind; gives the verdict, JSON.
#[pyfunction]
pub(crate) fn verify_evidence(py: Python<'_>, request: EvidenceRequest) -> PyResult<String> {
    let judged = py.detach(|| judge_request(request));
    let document = judged.map_err(|failure| failure.into_exception(py))?;
    Ok(document.to_string())
}

fn judge_request(request: EvidenceRequest) -> Result<Value, Failure> {
    let policy = parse_evidence_policy(request.policy.as_deref(), request.root.as_deref())?;
    let rules = EvidenceRules {
        policy,
        at: request.at.unwrap_or_else(unix_now),
        dangerous_accept_any_tcb_status: request.dangerous_accept_any_tcb_status,
        dangerous_accept_debug: request.dangerous_accept_debug,
        dangerous_skip_revocation: request.dangerous_skip_revocation,
    };
    let report_data = request.report_data.map(|bytes| parse_array("report_data", &bytes));
    let nonce = request.nonce.map(|bytes| parse_array("nonce", &bytes)).transpose()?;
    let input = EvidenceInput {
        evidence: request.evidence,
        collateral: request.collateral,
        endorsement_key: request.endorsement_key,
        chain: request.chain,
        crl: request.crl,
        claims: request.claims,
        report_data: report_data.transpose()?.map(ReportData),
        nonce,
        rims: request.rims,
        ocsp: request.ocsp,
    };
    let verdict =
        judge_evidence(input, &rules, &AwsLc).map_err(|error| Failure::of_evidence(&error))?;
    let mut document = verdict.to_json();
    document["simulated"] = verdict.is_simulated().into();
    let Err(rejection) = &verdict.result else { return Ok(document) };
    let checks = rejection.checks();
    let failed = checks.iter().find(|check| check.outcome == confide_verifier::Outcome::Failed);
    Err(Failure::Attestation {
        message: rejection.reason().to_string(),
        check: failed.map_or("evidence", |check| check.name).to_owned(),
        hint: None,
        document: Box::new(document),
    })
}

/// Judges a receipt or an excerpt of one; gives the verdict, JSON.
#[pyfunction]
pub(crate) fn verify_receipt(py: Python<'_>, request: ReceiptRequest) -> PyResult<String> {
    let judged = py.detach(|| judge_receipt_request(request));
    let document = judged.map_err(|failure| failure.into_exception(py))?;
    Ok(document.to_string())
}

fn judge_receipt_request(request: ReceiptRequest) -> Result<Value, Failure> {
    let rules = ReceiptRules {
        policy: parse_evidence_policy(Some(&request.policy), request.root.as_deref())?,
        nonce: request.nonce.map(|bytes| parse_array("nonce", &bytes)).transpose()?,
        at: request.at.unwrap_or_else(unix_now),
        skips_configuration: request.dangerous_skip_config_digest,
    };
    let (receipt, excerpt) = split_excerpt(request.receipt).map_err(Failure::input)?;
    if receipt.len() > RECEIPT_BYTES_MAX {
        let text = format!("receipt is too long: wanted at most {RECEIPT_BYTES_MAX} bytes");
        return Err(Failure::input(text));
    }
    if excerpt.is_some() && (request.request.is_some() || request.response.is_some()) {
        return Err(Failure::input("an excerpt needs no request and no response"));
    }
    let input = ReceiptInput {
        report: request.report,
        receipt,
        excerpt,
        collateral: request.collateral,
        request: request.request,
        response: request.response,
    };
    accept_receipt(&judge_receipt(&input, &rules, &AwsLc), &input, &rules)
}

/// The verdict on a receipt as one object.
///
/// # Errors
/// [`Failure::Receipt`] if it is refused or cannot be judged.
pub(crate) fn accept_receipt(
    verdict: &ReceiptVerdict,
    input: &ReceiptInput,
    rules: &ReceiptRules,
) -> Result<Value, Failure> {
    let mut document = verdict.to_json();
    if let Some(evidence) = &verdict.evidence {
        let report = AttestationReport::parse(&input.report, rules.nonce.as_ref());
        let simulated = report.map(|report| is_evidence_simulated(evidence, &report, input));
        document["simulated"] = simulated.ok().into();
    }
    match &verdict.outcome {
        Ok(_) => Ok(document),
        Err(refusal) => Err(Failure::Receipt {
            message: format!("the receipt is refused: {refusal}"),
            check: refusal.code().to_owned(),
            hint: refusal.hint(OptionStyle::Keyword),
            document: Box::new(document),
        }),
    }
}
