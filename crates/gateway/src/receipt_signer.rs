//! What signs the receipts of one version of the configuration.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use confide_channel::KeyIdentity;
use confide_evidence::weights_claim::WeightsClaim;
use confide_receipt::{Keyset, ReceiptError, ReceiptKey};

use crate::{
    body_keys::{BodyKeyPair, BodyKeyRing},
    limits::GatewayLimits,
    receipt_book::{FinishedReceipt, ReceiptBook},
};

/// The time from one look for keys whose keyset has ended to the next.
const ENDED_KEYS_INTERVAL: Duration = Duration::from_secs(10);

/// Gives the current TLS key and its expiry.
pub(crate) type IdentitySource = Arc<dyn Fn() -> KeyIdentity + Send + Sync>;

/// The facts of one version of the configuration that receipts and reports state.
pub(crate) struct ReceiptContext {
    pub(crate) config_digest: [u8; 32],
    /// The measured weights of this configuration's models, if there are any.
    pub(crate) weights: Option<WeightsClaim>,
    /// Whether all models run on the attested machine, so that there is no further hop to attest.
    pub(crate) is_direct: bool,
    /// Whether the gateway checks API keys, so that a key is a client.
    pub(crate) checks_keys: bool,
    /// Whether keysets have keys to which clients encrypt bodies.
    pub(crate) encrypts_bodies: bool,
    pub(crate) limits: GatewayLimits,
}

/// A key that signs receipts, for as long as one TLS key is used, and the keyset with both.
pub(crate) struct SigningIdentity {
    tls_key: KeyIdentity,
    pub(crate) key: ReceiptKey,
    pub(crate) keyset: Arc<Keyset>,
    /// The keys of the keyset to which clients encrypt bodies, if there are any.
    pub(crate) body_keys: Option<Arc<BodyKeyPair>>,
}

/// The book of a listener, and what its receipts state.
pub(crate) struct ReceiptSigner {
    book: Arc<ReceiptBook>,
    identity: IdentitySource,
    context: ReceiptContext,
    current: Mutex<Option<Arc<SigningIdentity>>>,
    /// The keys of all keysets with which bodies can still be decrypted.
    body_keys: BodyKeyRing,
}

impl ReceiptSigner {
    pub(crate) fn new(
        book: Arc<ReceiptBook>,
        identity: IdentitySource,
        context: ReceiptContext,
    ) -> Self {
        let body_keys = BodyKeyRing::default();
        Self { book, identity, context, current: Mutex::default(), body_keys }
    }

    pub(crate) fn book(&self) -> &ReceiptBook {
        &self.book
    }

    pub(crate) fn context(&self) -> &ReceiptContext {
        &self.context
    }

    /// The key that signs now. With each TLS key there is a new one, so that the end of a keyset ends
    /// its use, and when a key for bodies has opened nearly as many as it can remember.
    ///
    /// # Errors
    /// [`ReceiptError::Signing`] if the system has no randomness.
    pub(crate) fn current(&self) -> Result<Arc<SigningIdentity>, ReceiptError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let tls_key = (self.identity)();
        if let Some(signing) = current.as_ref()
            && signing.tls_key == tls_key
            && !signing.body_keys.as_ref().is_some_and(|keys| keys.needs_renewal())
        {
            return Ok(signing.clone());
        }
        let key = ReceiptKey::generate()?;
        let KeyIdentity { spki_sha256, not_after } = &tls_key;
        let mut keyset = Keyset::new(key.key_id(), key.public_key(), spki_sha256, *not_after);
        let body_keys = match self.context.encrypts_bodies {
            true => Some(Arc::new(self.generate_body_keys(*not_after)?)),
            false => None,
        };
        if let Some(keys) = &body_keys {
            let ReceiptContext { config_digest, weights, .. } = &self.context;
            keyset = keyset.with_body_keys(&keys.describe_keys(*config_digest, weights.as_ref()));
            self.body_keys.add(keys.clone());
        }
        let keyset = Arc::new(keyset);
        self.book.remember_keyset(keyset.clone());
        let signing = Arc::new(SigningIdentity { tls_key, key, keyset, body_keys });
        *current = Some(signing.clone());
        Ok(signing)
    }

    fn generate_body_keys(&self, not_after: u64) -> Result<BodyKeyPair, ReceiptError> {
        let per_key = self.context.limits.encrypted_bodies.per_key;
        BodyKeyPair::generate(not_after, per_key).map_err(|_| ReceiptError::Signing)
    }

    /// Drops private keys when their keyset ends, and not upon the next request, which may be long
    /// in coming.
    pub(crate) async fn drop_ended_keys_at_intervals(&self) -> Infallible {
        loop {
            tokio::time::sleep(ENDED_KEYS_INTERVAL).await;
            self.drop_ended_keys();
        }
    }

    fn drop_ended_keys(&self) {
        let now = self.book.now();
        self.body_keys.drop_ended(now);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.take_if(|signing| signing.tls_key.not_after < now);
    }

    /// The keys with which bodies can be decrypted now, the newest first.
    pub(crate) fn list_body_keys(&self) -> Vec<Arc<BodyKeyPair>> {
        self.body_keys.list_current(self.book.now())
    }

    pub(crate) fn keep(&self, receipt: FinishedReceipt) {
        self.book.keep(receipt, &self.context.limits.receipts);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn private_keys_are_dropped_when_their_keyset_ends_without_a_request() {
        static NOW: AtomicU64 = AtomicU64::new(100);
        let not_after = 3700;
        let context = ReceiptContext {
            config_digest: [1; 32],
            weights: None,
            is_direct: true,
            checks_keys: false,
            encrypts_bodies: true,
            limits: GatewayLimits::default(),
        };
        let book = Arc::new(ReceiptBook::new(|| NOW.load(Ordering::SeqCst)));
        let identity = Arc::new(move || KeyIdentity { spki_sha256: [2; 32], not_after });
        let signer = Arc::new(ReceiptSigner::new(book, identity, context));
        let signing = Arc::downgrade(&signer.current().unwrap());
        let keys = Arc::downgrade(&signer.list_body_keys()[0]);
        let maintained = signer.clone();
        let maintaining =
            tokio::spawn(async move { maintained.drop_ended_keys_at_intervals().await });
        for (now, is_held) in [(100, true), (not_after, true), (not_after + 1, false)] {
            NOW.store(now, Ordering::SeqCst);
            tokio::time::sleep(2 * ENDED_KEYS_INTERVAL).await;
            assert_eq!(keys.upgrade().is_some(), is_held, "{now}");
            assert_eq!(signing.upgrade().is_some(), is_held, "{now}");
        }
        maintaining.abort();
    }
}
