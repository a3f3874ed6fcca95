//! What signs the receipts of one version of the configuration.

use std::sync::{Arc, Mutex, PoisonError};

use confide_channel::KeyIdentity;
use confide_receipt::{Keyset, ReceiptError, ReceiptKey};

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

/// A key that signs receipts, for as long as one TLS key is used, and the keyset with both.
pub(crate) struct SigningIdentity {
    tls_key: KeyIdentity,
    pub(crate) key: ReceiptKey,
    pub(crate) keyset: Arc<Keyset>,
}

/// The book of a listener, and what its receipts state.
pub(crate) struct ReceiptSigner {
    book: Arc<ReceiptBook>,
    identity: IdentitySource,
    context: ReceiptContext,
    current: Mutex<Option<Arc<SigningIdentity>>>,
}

impl ReceiptSigner {
    pub(crate) fn new(
        book: Arc<ReceiptBook>,
        identity: IdentitySource,
        context: ReceiptContext,
    ) -> Self {
        Self { book, identity, context, current: Mutex::default() }
    }

    pub(crate) fn book(&self) -> &ReceiptBook {
        &self.book
    }

    pub(crate) fn context(&self) -> &ReceiptContext {
        &self.context
    }

    /// The key that signs now. With each TLS key there is a new one, so that the end of a keyset ends
    /// its use.
    ///
    /// # Errors
    /// [`ReceiptError::Signing`] if the system has no randomness.
    pub(crate) fn current(&self) -> Result<Arc<SigningIdentity>, ReceiptError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let tls_key = (self.identity)();
        if let Some(signing) = current.as_ref().filter(|signing| signing.tls_key == tls_key) {
            return Ok(signing.clone());
        }
        let key = ReceiptKey::generate()?;
        let KeyIdentity { spki_sha256, not_after } = &tls_key;
        let keyset = Keyset::new(key.key_id(), key.public_key(), spki_sha256, *not_after);
        let keyset = Arc::new(keyset);
        self.book.remember_keyset(keyset.clone());
        let signing = Arc::new(SigningIdentity { tls_key, key, keyset });
        *current = Some(signing.clone());
        Ok(signing)
    }

    pub(crate) fn keep(&self, receipt: FinishedReceipt) {
        self.book.keep(receipt, &self.context.limits.receipts);
    }
}
