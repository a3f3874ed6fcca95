//! The checks of an SEV-SNP report.

use crate::{binding::BindingSteps, checks::steps};

steps! {
    /// The checks of an SEV-SNP report.
    SnpStep:
    ReportFormat = "report_format",
    Root = "root",
    Chain = "chain",
    Revocation = "revocation",
    Product = "product",
    SigningKey = "signing_key",
    ChipId = "chip_id",
    TcbVersion = "tcb_version",
    ReportSignature = "report_signature",
    TcbMinimum = "tcb_minimum",
    Debug = "debug",
    GuestPolicy = "guest_policy",
    Vmpl = "vmpl",
    Binding = "binding",
    ReportData = "report_data",
    Measurements = "measurements",
    Claims = "claims",
    ConfigDigest = "config_digest",
    Weights = "weights",
    KeyValidity = "key_validity",
    EvidenceAge = "evidence_age",
    Gpu = "gpu",
}

impl BindingSteps for SnpStep {
    const REPORT_DATA: Self = SnpStep::ReportData;
    const CLAIMS: Self = SnpStep::Claims;
    const CONFIG_DIGEST: Self = SnpStep::ConfigDigest;
    const WEIGHTS: Self = SnpStep::Weights;
    const KEY_VALIDITY: Self = SnpStep::KeyValidity;
    const EVIDENCE_AGE: Self = SnpStep::EvidenceAge;
}
