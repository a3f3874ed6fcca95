//! What signs the receipts of one version of the configuration.

use std::sync::{Arc, Mutex, PoisonError};

use confide_channel::KeyIdentity;
use confide_receipt::Keyset;

use crate::{
    limits::GatewayLimits,
    receipt_book::{FinishedReceipt, ReceiptBook},
};

/// Gives the current TLS key and its expiry.
pub(crate) type IdentitySource = Arc<dyn Fn() -> KeyIdentity + Send + Sync>;

/// The facts of one version of the configuration that receipts and reports state.
pub(crate) struct ReceiptContext {
    pub(crate) config_digest: [u8; 32],
    /// Whether all models run on the attested machine, so that there is no further hop to attest.
    pub(crate) is_direct: bool,
    /// Whether the gateway checks API keys, so that a key is a client.
    pub(crate) checks_keys: bool,
    pub(crate) limits: GatewayLimits,
}

/// The book of a listener, and what its receipts state.
pub(crate) struct ReceiptSigner {
    book: Arc<ReceiptBook>,
    identity: IdentitySource,
    context: ReceiptContext,
    /// The keyset of the current key.
    keyset: Mutex<Option<(KeyIdentity, Arc<Keyset>)>>,
}

impl ReceiptSigner {
    pub(crate) fn new(
        book: Arc<ReceiptBook>,
        identity: IdentitySource,
        context: ReceiptContext,
    ) -> Self {
        Self { book, identity, context, keyset: Mutex::default() }
    }

    pub(crate) fn book(&self) -> &ReceiptBook {
        &self.book
    }

    pub(crate) fn context(&self) -> &ReceiptContext {
        &self.context
    }

    /// The keyset of the current key.
    pub(crate) fn keyset(&self) -> Arc<Keyset> {
        let identity = (self.identity)();
        let mut cached = self.keyset.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some((known, keyset)) if *known == identity => keyset.clone(),
            _ => {
                let KeyIdentity { spki_sha256, not_after } = &identity;
                let key = self.book.key();
                let keyset = Keyset::new(key.key_id(), key.public_key(), spki_sha256, *not_after);
                let keyset = Arc::new(keyset);
                self.book.remember_keyset(keyset.clone());
                *cached = Some((identity, keyset.clone()));
                keyset
            }
        }
    }

    pub(crate) fn keep(&self, receipt: FinishedReceipt) {
        self.book.keep(receipt, &self.context.limits.receipts);
    }
}
