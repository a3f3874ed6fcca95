//! The work of a stage, and its refusal.

use std::path::PathBuf;

use clap::Args;
use confide_prover::line::{ProofMode, Refusal, RefusalReason};

/// Arguments of a stage; a stage ignores those that it does not need.
#[derive(Args)]
pub(crate) struct Work {
    #[arg(long)]
    pub(crate) guest: String,
    #[arg(long, default_value = "none")]
    pub(crate) input: PathBuf,
    #[arg(long, default_value = "none")]
    pub(crate) out: PathBuf,
    #[arg(long, default_value = "none")]
    pub(crate) proof: PathBuf,
    #[arg(long, default_value = "app")]
    pub(crate) mode: ProofMode,
    /// Accepted and ignored: SP1 knows no limit.
    #[arg(long)]
    pub(crate) memory: Option<u64>,
}

/// A stage that ends in a refusal.
pub(crate) struct StageRefusal(pub(crate) Refusal);

impl StageRefusal {
    pub(crate) fn new(why: RefusalReason, detail: impl ToString) -> Self {
        Self(Refusal { why, detail: detail.to_string().chars().take(300).collect() })
    }
}
