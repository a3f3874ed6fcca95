//! The native part of the Python package `confide` (docs/python.md): attested connections and requests over them, and
//! verdicts on evidence and receipts. Python reads files and speaks httpx; everything that decides is here. For the
//! blind protocol ([`blind`]) the ring arithmetic is Python's, in kernels; bytes, adapters' files and counts are here.

mod answer;
mod attested_end;
mod blind;
mod client;
mod exchange;
mod failure;
mod inputs;
mod kept_report;
mod operation;
mod receipts;
mod request_body;
mod runtime;
mod verify;

use pyo3::pymodule;

/// Requests over attested connections, and verdicts on evidence and receipts.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::answer::Answer;
    #[pymodule_export]
    use crate::blind::{
        accounts::{AnswerLedger, ClientList},
        audit::{AuditLog, AuditTally, input_name},
        errors::{describe_refusal, describe_used_budget, refusal_names},
        frames::FrameReader,
        messages::{
            Attach, AttachAnswer, BlockCredit, CiphertextAnswer, CiphertextBlock,
            CiphertextRequest, Farewell, Goodbye, GroupTerms, Hello, MaskedAnswer, MaskedRequest,
            PrepareRequest, PreparedRows, Welcome, encode_refusal, is_valid_name,
        },
        pack::{is_packed, pack, packed_bytes, unpack},
        peft::{LoraPair, PeftAdapter, read_peft_adapter},
        terms::{
            InputTerms, ProjectionTerms, QuantisedWeights, decode_terms, describe_guarantee,
            noise_headroom, protect_names, quantise_weights,
        },
    };
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::operation::Operation;
    #[pymodule_export]
    use crate::verify::{verify_evidence, verify_receipt};

    /// The version of the workspace.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "it is a name of Python's")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
