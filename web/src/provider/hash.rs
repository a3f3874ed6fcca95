//! Hashes and MACs in rustls's terms.

use std::marker::PhantomData;

use hmac::{Hmac, KeyInit, Mac};
use rustls::crypto::{
    hash::{self, HashAlgorithm, Output},
    hmac::{self as tls_hmac, Tag},
};
use sha2::{Digest, Sha256, Sha384};

pub(super) static SHA256: HashFunction<Sha256> = HashFunction::new(HashAlgorithm::SHA256, 32);
pub(super) static SHA384: HashFunction<Sha384> = HashFunction::new(HashAlgorithm::SHA384, 48);
pub(super) static HMAC_SHA256: MacFunction<Hmac<Sha256>> = MacFunction::new(32);
pub(super) static HMAC_SHA384: MacFunction<Hmac<Sha384>> = MacFunction::new(48);

/// The hash `D`, of this many bytes.
pub(super) struct HashFunction<D> {
    algorithm: HashAlgorithm,
    bytes: usize,
    function: PhantomData<fn() -> D>,
}

impl<D> HashFunction<D> {
    const fn new(algorithm: HashAlgorithm, bytes: usize) -> Self {
        Self { algorithm, bytes, function: PhantomData }
    }
}

impl<D: Digest + Clone + Send + Sync + 'static> hash::Hash for HashFunction<D> {
    fn start(&self) -> Box<dyn hash::Context> {
        Box::new(HashContext(D::new()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        Output::new(&D::digest(data))
    }

    fn output_len(&self) -> usize {
        self.bytes
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }
}

struct HashContext<D>(D);

impl<D: Digest + Clone + Send + Sync + 'static> hash::Context for HashContext<D> {
    fn fork_finish(&self) -> Output {
        Output::new(&self.0.clone().finalize())
    }

    fn fork(&self) -> Box<dyn hash::Context> {
        Box::new(Self(self.0.clone()))
    }

    fn finish(self: Box<Self>) -> Output {
        Output::new(&self.0.finalize())
    }

    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }
}

/// The MAC `M`, of this many bytes.
pub(super) struct MacFunction<M> {
    bytes: usize,
    function: PhantomData<fn() -> M>,
}

impl<M> MacFunction<M> {
    const fn new(bytes: usize) -> Self {
        Self { bytes, function: PhantomData }
    }
}

impl<M: Mac + KeyInit + Clone + Send + Sync + 'static> tls_hmac::Hmac for MacFunction<M> {
    fn with_key(&self, key: &[u8]) -> Box<dyn tls_hmac::Key> {
        let mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
        Box::new(MacKey { mac, bytes: self.bytes })
    }

    fn hash_output_len(&self) -> usize {
        self.bytes
    }
}

struct MacKey<M> {
    mac: M,
    bytes: usize,
}

impl<M: Mac + Clone + Send + Sync> tls_hmac::Key for MacKey<M> {
    fn sign_concat(&self, first: &[u8], middle: &[&[u8]], last: &[u8]) -> Tag {
        let mut mac = self.mac.clone();
        mac.update(first);
        for part in middle {
            mac.update(part);
        }
        mac.update(last);
        Tag::new(&mac.finalize().into_bytes())
    }

    fn tag_len(&self) -> usize {
        self.bytes
    }
}
