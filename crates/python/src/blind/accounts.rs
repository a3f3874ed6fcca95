//! The accounts for which answers are counted, and the counts.

use std::path::PathBuf;

use confide_lora::{AnswerAllowance, CounterSlot, host};
use pyo3::{prelude::*, types::PyBytes};

use super::{
    errors::{adapter_error, refusal_error, value_error},
    messages::parse_input,
};

/// The clients that a host knows by a credential. Each line of the text has a name and the SHA-256 of the credential in
/// hexadecimal, and `#` begins a comment. An empty list serves everyone on one account. Raises `AdapterRefused`.
#[pyclass(frozen, module = "confide._native")]
pub(crate) struct ClientList {
    clients: host::ClientList,
}

/// The answers that accounts have had; with a path, also in that file, which no other host may use meanwhile. Raises
/// `AdapterRefused` for a file that cannot be used.
#[pyclass(frozen, module = "confide._native")]
pub(crate) struct AnswerLedger {
    ledger: host::AnswerLedger,
}

#[pymethods]
impl ClientList {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        let clients = host::ClientList::parse(text).map_err(|error| adapter_error(py, &error))?;
        Ok(Self { clients })
    }

    /// Reads a list of at least one client from a file that only its owner may write. Raises `AdapterRefused`.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let clients = py
            .detach(|| host::ClientList::read(&path))
            .map_err(|error| adapter_error(py, &format_args!("{}: {error}", path.display())))?;
        Ok(Self { clients })
    }

    /// Gives the id (32 bytes) and the name of a client's account. Raises `Refusal` for strangers to a list.
    fn find_account<'py>(
        &self,
        py: Python<'py>,
        credential: &[u8],
    ) -> PyResult<(Bound<'py, PyBytes>, String)> {
        let account = self
            .clients
            .account(credential, false)
            .map_err(|refusal| refusal_error(py, refusal))?;
        Ok((PyBytes::new(py, &account.id), account.name))
    }
}

#[pymethods]
impl AnswerLedger {
    #[new]
    fn new(py: Python<'_>, path: Option<PathBuf>) -> PyResult<Self> {
        let opened = py.detach(|| host::AnswerLedger::open(path.as_deref()));
        Ok(Self { ledger: opened.map_err(|error| adapter_error(py, &error))? })
    }

    /// Counts `vectors` answers of one account, digest of weights, layer and input before they are given: all of them
    /// or, where `limit` does not allow them, none. Gives those left, `None` without a limit. Raises `Refusal`, and
    /// `OSError` where the file cannot be written: the answers must not be given then.
    #[expect(clippy::too_many_arguments, reason = "they name one count")]
    fn count_answers(
        &self,
        py: Python<'_>,
        account: [u8; 32],
        weights: [u8; 32],
        layer: u32,
        source: u8,
        limit: Option<u64>,
        vectors: u64,
    ) -> PyResult<Option<u64>> {
        let slot = make_slot(account, weights, layer, source)?;
        let counted = py.detach(|| self.ledger.count_answers(slot, 0, allowance(limit), vectors));
        let state = counted.map_err(|error| match error {
            host::LedgerError::Refused(refusal) => refusal_error(py, refusal),
            host::LedgerError::File(error) => error.into(),
            other => value_error(other.to_string()),
        })?;
        Ok(state.left)
    }

    /// Gives the answers left of a limit.
    fn count_left(
        &self,
        py: Python<'_>,
        account: [u8; 32],
        weights: [u8; 32],
        layer: u32,
        source: u8,
        limit: Option<u64>,
    ) -> PyResult<Option<u64>> {
        let slot = make_slot(account, weights, layer, source)?;
        Ok(py.detach(|| self.ledger.budget_state(&slot, 0, allowance(limit))).left)
    }

    /// Writes to the file exactly what was answered, at a clean end. Raises `OSError`.
    fn write_exact_counts(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.ledger.write_exact_counts())?)
    }
}

fn allowance(limit: Option<u64>) -> AnswerAllowance {
    limit.map_or(AnswerAllowance::Attested, AnswerAllowance::Vectors)
}

fn make_slot(client: [u8; 32], adapter: [u8; 32], layer: u32, source: u8) -> PyResult<CounterSlot> {
    Ok(CounterSlot { client, adapter, layer, input: parse_input(source)? })
}
