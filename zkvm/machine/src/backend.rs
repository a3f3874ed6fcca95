//! The back end: its name, its field and its hash.

pub(crate) use openvm_stark_sdk::config::baby_bear_poseidon2::{
    BabyBearPoseidon2Config as SC, BabyBearPoseidon2CpuEngine as Engine, Digest, F,
};

/// Name of the back end.
pub const BACKEND: &str = "openvm";
/// Version of the back end, as the manifest pins it.
pub const VERSION: &str = "2.0.2";
/// Public values of every program: a SHA-256 digest.
pub const PUBLIC_VALUES_BYTES: usize = 32;
