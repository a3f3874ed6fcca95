//! The client of a request, as its receipts need it.

use crate::{openable_receipt::OpenableRequest, receipt_book::ReceiptOwner};

/// The client to whom the receipts of a request belong, and which it wants.
#[derive(Clone)]
pub(crate) struct ReceiptClient {
    pub(crate) owner: ReceiptOwner,
    /// What it wants an openable receipt with, if it wants one.
    pub(crate) openable: Option<OpenableRequest>,
}
