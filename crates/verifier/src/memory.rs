//! What may be kept of an appraisal for the next: values without time, lock or place of their own.
//!
//! A PCK certificate's verdict and a quoting enclave's are the same in every quote of a platform.
//! A memory implements [`RecallPlatform`]; [`crate::PreparedEndorsements::appraise`] asks it, and
//! returns what it found again as [`NewVerdicts`]. Nothing is kept of the quote itself: a verdict
//! on quote bytes would be a replay.

use alloc::{boxed::Box, sync::Arc};
use core::hash::Hasher;

use confide_evidence::{pck::PckExtension, quote::Quote};
use rustls_pki_types::UnixTime;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::{
    crypto::{Crypto, P256Key},
    generation::EndorsementsId,
    validity::Validity,
};

/// The name of some certification bytes under one generation of endorsements.
///
/// It is SipHash-2-4 with 128 bits of output, keyed with a [`TagKey`]. To have a false leaf taken
/// for a known one, an attacker would have to find bytes whose tag is that of an entry. SipHash is
/// a pseudo-random function: without its key, which never leaves the process, and without its
/// outputs, which are never shown either, every try succeeds with a chance of 2^-128 for each entry
/// that is held, and each try costs a connection. There is nothing to search offline. A hash with
/// public outputs would have to withstand that, and would take several times as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VerdictTag(u128);

impl VerdictTag {
    /// The tag of a verdict that no memory keeps.
    pub(crate) const UNNAMED: Self = Self(0);

    /// Makes a tag from a number; it names no evidence and is for tests of a memory.
    pub fn from_number(number: u128) -> Self {
        Self(number)
    }

    /// The tag as a number, evenly distributed: a table may take its low bits for a hash.
    pub fn number(self) -> u128 {
        self.0
    }
}

/// The key of the tags of one process: drawn at random when it starts, never shown.
#[derive(Clone)]
pub struct TagKey(SipHasher24);

impl TagKey {
    /// Takes 16 bytes from the system's random number generator.
    pub fn new(random: [u8; 16]) -> Self {
        Self(SipHasher24::new_with_key(&random))
    }
}

impl core::fmt::Debug for TagKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A memory of platforms, asked by tag.
///
/// It need not be exact: a value that was learnt from other bytes, under another generation or
/// too long ago is refused and learnt again.
pub trait RecallPlatform {
    /// The key of its tags; `None` if it holds nothing and keeps nothing.
    fn tag_key(&self) -> Option<&TagKey>;

    /// Returns what is known of a quoting enclave.
    fn enclave(&self, tag: VerdictTag) -> Option<Arc<KnownEnclave>>;

    /// Returns what is known of a PCK certificate.
    fn pck(&self, tag: VerdictTag) -> Option<Arc<KnownPck>>;
}

/// A memory that holds nothing and keeps nothing: three signatures each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMemory;

impl RecallPlatform for NoMemory {
    fn tag_key(&self) -> Option<&TagKey> {
        None
    }

    fn enclave(&self, _tag: VerdictTag) -> Option<Arc<KnownEnclave>> {
        None
    }

    fn pck(&self, _tag: VerdictTag) -> Option<Arc<KnownPck>> {
        None
    }
}

/// A memory of at most one platform: the one that the last appraisal learnt.
#[derive(Clone, Debug)]
pub struct LastPlatform {
    /// The secret that keys the tags.
    pub secret: TagKey,
    /// The verdict on its PCK certificate.
    pub pck: Option<Arc<KnownPck>>,
    /// The verdict on its quoting enclave.
    pub enclave: Option<Arc<KnownEnclave>>,
}

impl RecallPlatform for LastPlatform {
    fn tag_key(&self) -> Option<&TagKey> {
        Some(&self.secret)
    }

    fn enclave(&self, _tag: VerdictTag) -> Option<Arc<KnownEnclave>> {
        self.enclave.clone()
    }

    fn pck(&self, _tag: VerdictTag) -> Option<Arc<KnownPck>> {
        self.pck.clone()
    }
}

/// The verdicts of an accepted appraisal that the memory did not have. A rejected one yields none.
#[derive(Clone, Debug, Default)]
pub struct NewVerdicts {
    /// The verdict on the PCK certificate.
    pub pck: Option<Arc<KnownPck>>,
    /// The verdict on the quoting enclave.
    pub enclave: Option<Arc<KnownEnclave>>,
}

/// A PCK certificate that was verified down from the root under one generation.
#[derive(Debug)]
pub struct KnownPck {
    pub(crate) tag: VerdictTag,
    pub(crate) learnt_at: u64,
    pub(crate) pck: PckExtension,
    pub(crate) public_key: [u8; 65],
    pub(crate) serial: Box<[u8]>,
    pub(crate) life: Validity,
}

impl KnownPck {
    /// Length of its serial number, which is the only part whose size the certificate chooses.
    pub fn serial_length(&self) -> usize {
        self.serial.len()
    }

    /// The tag of the bytes that it was learnt from.
    pub fn tag(&self) -> VerdictTag {
        self.tag
    }
}

/// A quoting enclave whose report its PCK has signed, and the attestation key that it binds.
#[derive(Debug)]
pub struct KnownEnclave {
    pub(crate) tag: VerdictTag,
    pub(crate) learnt_at: u64,
    pub(crate) pck: Arc<KnownPck>,
    pub(crate) attestation_key: AttestationKey,
}

impl KnownEnclave {
    /// The tag of the bytes that it was learnt from.
    pub fn tag(&self) -> VerdictTag {
        self.tag
    }

    /// The PCK certificate that it was learnt with.
    pub fn pck(&self) -> &Arc<KnownPck> {
        &self.pck
    }
}

/// A key that signs quotes; kept read where the cryptography can.
#[derive(Debug)]
pub(crate) enum AttestationKey {
    Read(Box<dyn P256Key>),
    Raw(Box<[u8; 65]>),
}

impl AttestationKey {
    pub(crate) fn new(quote: &Quote<'_>, crypto: &dyn Crypto) -> Self {
        let mut key = [4; 65];
        key[1..].copy_from_slice(quote.attestation_key);
        match crypto.prepare_p256(&key) {
            Some(read) => Self::Read(read),
            None => Self::Raw(Box::new(key)),
        }
    }

    pub(crate) fn has_signed(&self, quote: &Quote<'_>, crypto: &dyn Crypto) -> bool {
        match self {
            Self::Read(key) => key.verify(quote.signed, quote.signature),
            Self::Raw(key) => crypto.verify_p256(key, quote.signed, quote.signature),
        }
    }
}

/// The tags of one quote.
#[derive(Clone, Copy)]
pub(crate) struct Tags {
    pub(crate) pck: VerdictTag,
    pub(crate) enclave: VerdictTag,
}

/// The bytes that stand for the PCK chain in a tag.
#[derive(Clone, Copy)]
pub(crate) enum Certification<'a> {
    /// The text of the leaf: what follows is byte for byte the text that is held.
    Leaf(&'a [u8]),
    /// The whole text: its CA and root are laid out in another way.
    Chain(&'a [u8]),
}

impl Tags {
    pub(crate) fn derive(
        secret: &TagKey,
        generation: &EndorsementsId,
        certification: Certification<'_>,
        quote: &Quote<'_>,
    ) -> Self {
        // Each part is of a fixed length, or its length precedes it: no two inputs run together.
        let (kind, text) = match certification {
            Certification::Leaf(text) => (1, text),
            Certification::Chain(text) => (2, text),
        };
        let mut hasher = secret.0;
        hasher.write(&generation.0);
        hasher.write(&encode_words([kind, text.len() as u64]));
        hasher.write(text);
        let pck = VerdictTag(hasher.finish128().into());
        let mut hasher = secret.0;
        hasher.write(&generation.0);
        hasher.write(&encode_words([3, quote.qe_auth_data.len() as u64]));
        hasher.write(&pck.0.to_le_bytes());
        hasher.write(quote.attestation_key);
        hasher.write(quote.qe_report_signature);
        hasher.write(quote.qe_report.bytes());
        hasher.write(quote.qe_auth_data);
        Self { pck, enclave: VerdictTag(hasher.finish128().into()) }
    }
}

/// Whether something learnt then may still be used now. A clock that went back learns again.
pub(crate) fn is_fresh(learnt_at: u64, lifetime_s: u64, now: UnixTime) -> bool {
    now.as_secs().checked_sub(learnt_at).is_some_and(|age| age <= lifetime_s)
}

fn encode_words(words: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    bytes
}
