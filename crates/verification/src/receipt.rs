//! Receipts of answers: judged with the report of the gateway that signed them.

mod judgement;
mod refusal;
#[cfg(test)]
mod vector_tests;

pub use judgement::{
    ReceiptInput, ReceiptRules, ReceiptVerdict, ShownBody, check_keyset, is_evidence_simulated,
    judge_receipt, judge_report_evidence, split_excerpt,
};
pub use refusal::ReceiptRefusal;
