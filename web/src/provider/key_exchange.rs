//! Key exchange: X25519, P-256, and X25519 with ML-KEM-768 (draft-ietf-tls-ecdhe-mlkem).

use ml_kem::{
    B32, MlKem768, Seed,
    kem::{Decapsulate, KeyExport, TryKeyInit},
};
use p256::elliptic_curve::{Generate, sec1::ToSec1Point};
use rustls::{
    Error, NamedGroup, PeerMisbehaved, ProtocolVersion,
    crypto::{
        ActiveKeyExchange, CompletedKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup,
    },
    ffdhe_groups::FfdheGroup,
};
use subtle::ConstantTimeEq;
use x25519_dalek::X25519_BASEPOINT_BYTES;
use zeroize::Zeroizing;

/// X25519 (RFC 7748).
pub static X25519: &dyn SupportedKxGroup = &X25519Group;
/// ECDH on P-256.
pub static SECP256R1: &dyn SupportedKxGroup = &P256Group;
/// ML-KEM-768 (FIPS 203), then X25519: secret as long as either holds.
pub static X25519_MLKEM768: &dyn SupportedKxGroup = &HybridGroup;

const INVALID_SHARE: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// The bytes of an encapsulation key and of a ciphertext of ML-KEM-768.
const ENCAPSULATION_KEY_BYTES: usize = 1184;
const CIPHERTEXT_BYTES: usize = 1088;
/// The bytes of an uncompressed point of P-256.
const POINT_BYTES: usize = 65;

fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, Error> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(bytes.as_mut()).map_err(|_| Error::from(GetRandomFailed))?;
    Ok(bytes)
}

#[derive(Debug)]
struct X25519Group;

impl SupportedKxGroup for X25519Group {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(X25519Exchange::generate()?))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

struct X25519Exchange {
    secret: Zeroizing<[u8; 32]>,
    share: [u8; 32],
}

impl X25519Exchange {
    fn generate() -> Result<Self, Error> {
        let secret = random()?;
        let share = x25519_dalek::x25519(*secret, X25519_BASEPOINT_BYTES);
        Ok(Self { secret, share })
    }

    /// The shared secret with the peer's share. A share of small order, which gives zero whatever the
    /// secret, is refused (RFC 8446 section 7.4.2).
    fn agree(&self, share: &[u8]) -> Result<Zeroizing<[u8; 32]>, Error> {
        let share: [u8; 32] = share.try_into().map_err(|_| INVALID_SHARE)?;
        let shared = Zeroizing::new(x25519_dalek::x25519(*self.secret, share));
        match bool::from(shared.ct_eq(&[0; 32])) {
            true => Err(INVALID_SHARE),
            false => Ok(shared),
        }
    }
}

impl ActiveKeyExchange for X25519Exchange {
    fn complete(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
        Ok(SharedSecret::from(&self.agree(share)?[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

#[derive(Debug)]
struct P256Group;

impl SupportedKxGroup for P256Group {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let secret = p256::ecdh::EphemeralSecret::try_generate_from_rng(&mut getrandom::SysRng)
            .map_err(|_| Error::from(GetRandomFailed))?;
        let share = secret.public_key().to_sec1_point(false).as_bytes().to_vec();
        Ok(Box::new(P256Exchange { secret, share }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp256r1
    }
}

struct P256Exchange {
    secret: p256::ecdh::EphemeralSecret,
    share: Vec<u8>,
}

impl ActiveKeyExchange for P256Exchange {
    /// Refuses anything but an uncompressed point on the curve (RFC 8446 section 4.2.8.2).
    fn complete(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
        if share.len() != POINT_BYTES || share.first() != Some(&4) {
            return Err(INVALID_SHARE);
        }
        let share = p256::PublicKey::from_sec1_bytes(share).map_err(|_| INVALID_SHARE)?;
        Ok(SharedSecret::from(&self.secret.diffie_hellman(&share).raw_secret_bytes()[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp256r1
    }
}

#[derive(Debug)]
struct HybridGroup;

impl SupportedKxGroup for HybridGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let classical = X25519Exchange::generate()?;
        let seed: Zeroizing<[u8; 64]> = random()?;
        let key = ml_kem::DecapsulationKey::<MlKem768>::from_seed(Seed::from(*seed));
        let share = [&key.encapsulation_key().to_bytes()[..], &classical.share].concat();
        Ok(Box::new(HybridExchange { classical, key, share }))
    }

    /// The server's half, which encapsulates.
    fn start_and_complete(&self, share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        if share.len() != ENCAPSULATION_KEY_BYTES + 32 {
            return Err(INVALID_SHARE);
        }
        let (key, classical_share) = share.split_at(ENCAPSULATION_KEY_BYTES);
        let key =
            ml_kem::EncapsulationKey::<MlKem768>::new_from_slice(key).map_err(|_| INVALID_SHARE)?;
        let classical = X25519Exchange::generate()?;
        let agreed = classical.agree(classical_share)?;
        let message: Zeroizing<[u8; 32]> = random()?;
        let (ciphertext, encapsulated) = key.encapsulate_deterministic(&B32::from(*message));
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [&ciphertext[..], &classical.share].concat(),
            secret: join_secrets(&encapsulated, &agreed),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

struct HybridExchange {
    classical: X25519Exchange,
    key: ml_kem::DecapsulationKey<MlKem768>,
    share: Vec<u8>,
}

impl ActiveKeyExchange for HybridExchange {
    fn complete(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
        if share.len() != CIPHERTEXT_BYTES + 32 {
            return Err(INVALID_SHARE);
        }
        let (ciphertext, classical_share) = share.split_at(CIPHERTEXT_BYTES);
        let agreed = self.classical.agree(classical_share)?;
        let secret = self.key.decapsulate_slice(ciphertext).map_err(|_| INVALID_SHARE)?;
        Ok(join_secrets(&secret, &agreed))
    }

    /// The classical share alone, for a server that knows no hybrid.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((NamedGroup::X25519, &self.classical.share))
    }

    fn complete_hybrid_component(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
        Ok(SharedSecret::from(&self.classical.agree(share)?[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

/// ML-KEM's secret, then X25519's.
fn join_secrets(encapsulated: &[u8], agreed: &[u8; 32]) -> SharedSecret {
    SharedSecret::from([encapsulated, agreed].concat())
}
