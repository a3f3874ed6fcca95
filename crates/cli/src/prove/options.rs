//! The arguments of proofs by the zkVM.

use std::path::PathBuf;

use confide_prover::line::ProofMode;

use super::size;

/// The arguments of every proof by the zkVM.
#[derive(clap::Args)]
pub(super) struct ProveOptions {
    /// Where to write the proof.
    #[arg(long, value_name = "PROOF")]
    pub(super) out: PathBuf,
    /// `app`: one proof for each segment, fast. `aggregated`: one proof of constant size, slower.
    #[arg(long, default_value = "app")]
    pub(super) mode: ProofMode,
    /// Largest memory for proving: 6GiB, 512MiB, or bytes.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_size)]
    pub(super) memory: Option<u64>,
    /// The back end; by default the confide-prover next to this program.
    #[arg(long, value_name = "PATH")]
    pub(super) prover: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}
