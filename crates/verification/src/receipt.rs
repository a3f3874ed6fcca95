//! Receipts of answers: judged with the report of the gateway that signed them.

mod crypto;
mod judgement;
mod refusal;
#[cfg(all(test, feature = "aws-lc"))]
mod vector_tests;

pub use crypto::ReceiptCrypto;
pub use judgement::{
    ReceiptInput, ReceiptRules, ReceiptVerdict, ShownBody, check_keyset, is_evidence_simulated,
    judge_receipt, judge_receipt_of_keyset, judge_report_evidence, split_excerpt,
};
pub use refusal::ReceiptRefusal;
