//! One vector as ciphertexts.

use std::sync::Arc;

use super::{AdapterHost, sessions::Session};
use crate::protocol::{Direct, Refusal};

pub(crate) async fn answer(
    _host: &AdapterHost,
    _session: &Arc<Session>,
    _group: usize,
    _direct: &Direct<'_>,
) -> Result<(Vec<u8>, Option<u64>), Refusal> {
    Err(Refusal::NotOffered)
}
