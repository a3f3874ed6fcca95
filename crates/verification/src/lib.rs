//! Verdicts on what a user has in hand: evidence of any kind, receipts, connections. Everything here works on bytes and
//! reads no file and no clock; the program `confide` and the Python package read those, and word the options.

mod commitment;
mod connection;
mod endorsements;
mod evidence;
mod option_style;
mod peer_refusal;
mod policy;
mod receipt;

pub use commitment::{event_of, read_commitment};
pub use connection::{ConnectionFacts, describe_appraisal, describe_connection};
pub use endorsements::{CpuEndorsements, is_labelled_simulated};
pub use evidence::{
    AcceptedEvidence, CERTIFICATE_TEXT_MAX, CertificateFacts, EVIDENCE_BYTES_MAX, EvidenceError,
    EvidenceInput, EvidenceRules, EvidenceVerdict, judge_evidence,
};
pub use option_style::OptionStyle;
pub use peer_refusal::{ConnectionPromise, GuaranteeChanged, PeerRefusal, hint_for_check};
pub use policy::{
    POLICY_HINT, add_root, clip_lines, describe_policy_error, nearest_known_key, parse_root,
};
pub use receipt::{
    ReceiptCrypto, ReceiptInput, ReceiptRefusal, ReceiptRules, ReceiptVerdict, ShownBody,
    check_keyset, is_evidence_simulated, judge_receipt, judge_receipt_of_keyset,
    judge_report_evidence, split_excerpt,
};
